"""Run a plan under JAX tracing.

`trace.Trace` is the entry. `constant_size` checks results before constants are folded, `int64_narrowing` warns of
lost high bits, `assigned_variables` takes gradients at variables that are assigned.
"""
