"""Optional rewrites: static bounds, idioms, common subexpressions, dead values.

Entries: ``run(graph, config)`` of each pass, in the order of `tf2jax_lite.passes.manager`. Read:

- Static sizes and bounds: `clamps`, `repeat_idiom`, `cse`, and `tensor_array_stack` in `idioms`.
- Cost: `dead_values`, and `list_element_grads`, `gather_idiom` in `idioms`.
- Precision and gradients, by options: `narrow_constants`, and `relu_idiom` in `idioms`.

Must not import TensorFlow, JAX or `lowering`.
"""
