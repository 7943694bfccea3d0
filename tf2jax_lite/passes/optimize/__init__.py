"""Optional rewrites: static bounds, common subexpressions, dead values, idioms.

One rewrite per module, named for it: `cse`, `dead_values`, `fold_clamps`, `split_loop_bounds`, `repeat_idiom` and so
on. Their order is in `tf2jax_lite.pipeline.convert`.
"""
