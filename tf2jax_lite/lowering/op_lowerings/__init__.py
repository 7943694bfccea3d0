"""Ops that need the interpreter: calls, branches, variables, custom gradients.

Each module registers its ops: `call_ops`, `cond_ops`, `variable_ops`, `gradient_ops`, `xla_call_module`,
`undefined_op`. Loops are in `tf2jax_lite.lowering.loops`.
"""
