"""Source as `flax.nnx` modules: one class for each function that reads params.

Read in this order:
  moving_statistics: the variables that are `nnx.BatchStat`.

Must not import `flax`: generated source does.
"""
