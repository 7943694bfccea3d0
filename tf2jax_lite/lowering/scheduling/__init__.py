"""Hints to XLA's CPU backend, without effect on values.

`materialize` decides which values are computed once, by the post-dominators of `post_dominators`. `cost_model` has the
thresholds of these and of `tf2jax_lite.lowering.scan_opt`.
"""
