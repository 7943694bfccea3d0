"""Canonicalization: rewrites to one form of every construct, for correctness.

Entries: ``run(graph, config)`` of each pass, in the order of `tf2jax_lite.passes.manager`. Read:

- `calls`: BatchFunction and For to calls and While; the CPU variant of functions with several implementations.
- `legacy_tensor_arrays`: TensorArrays and stacks of V1 and V2 to V3.
- `effectful_conditions`: conditions with side effects to calls in loop bodies.
- `stacks_to_lists`: stack resources to TensorLists.
- `inline_calls`: function inlining, for host splitting; not in the pass list.

Must not import TensorFlow, JAX or `lowering`.
"""
