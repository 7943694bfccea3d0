"""Gradients that TensorFlow overrides, as nodes of the IR.

Entry: `rewrite.rewrite_custom_gradients`, which replaces a recorded gradient with a `_CustomGradient` node. Read:

- `tf_registry`: registered gradient functions, traced into graphs.
- `rewrite`: the nodes that gradients of any order can reach, so that no others are traced, and their replacements;
  outlining of `tf.recompute_grad` regions; GradientDefs of library functions.
- `capture_threading`: captured tensors as arguments of nested functions.

Must not import `passes` or `lowering`.
"""
