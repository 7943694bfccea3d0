"""Hints to XLA's CPU backend, without effect on values.

`materialize.run` is the entry, a plan rewrite: it chooses the values that are computed once because XLA would compute
them again for distant uses. `post_dominators` analyzes the uses of values for it. `cost_model` has the measured
thresholds of these and of `tf2jax_lite.lowering.scan_opt`, with units.

Imports no other package of the lowering at run time.
"""
