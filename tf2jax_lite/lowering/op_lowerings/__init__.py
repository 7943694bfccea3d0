"""Ops that need the interpreter: calls, branches, variables, custom gradients.

Each module registers its ops with `tf2jax_lite.ops.registry.op`; they take a `Context` first. Read `cond_ops`
(calls, If, Case), `variable_ops` (handles, stacks), `gradient_ops` (custom gradients, recomputation) and
`xla_call_module` (serialized StableHLO). Loops are in `tf2jax_lite.lowering.loops`.

Imported by `tf2jax_lite.lowering` alone, for the registrations.
"""
