"""Gradients that TensorFlow overrides, as nodes of the IR.

`rewrite` is the entry: it turns a recorded gradient into `_CustomGradient`. `tf_registry` finds and traces the
gradient function, `reachability` says how deep gradients can be asked for, `recompute_grad` outlines recomputed
regions.
"""
