"""Functions to plans: slots, keywords, liveness, and rewrites of plans.

`program.Program` is the entry: the checked graph with its plans. `plan` makes one, `transpose_sinking` and
`dilated_conv` rewrite it; `evaluated_ops` and `compiled_ops` stand for ops that TensorFlow evaluates or compiles.
"""
