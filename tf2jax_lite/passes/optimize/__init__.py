"""Optional rewrites: static bounds, idioms, common subexpressions, dead values.

Entries: ``run(graph, config)`` of each pass, in the order of `tf2jax_lite.passes.manager`. Read:

- Static sizes and bounds: `split_loop_bounds`, `fold_clamps`, `tensor_array_stack`, `repeat_idiom`, `cse`.
- Cost: `list_element_grads`, `gather_idiom`, `dead_values`.
- Precision and gradients, by options: `narrow_constants`, `relu_idiom`.

Must not import TensorFlow, JAX or `lowering`.
"""
