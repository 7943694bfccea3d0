"""Rewrites to one form for every construct, required for correctness.

`calls_and_for` and `inline_calls` handle calls, `effectful_conditions` rotates loops, `stacks_to_lists` and
`tensor_array_stack` bring containers to TensorLists, `select_implementation` picks the version for CPU.
"""
