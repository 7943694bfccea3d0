"""Source as `flax.nnx` modules: functions with layers or params are classes.

Read in this order:
  layers: statements that become layers of Flax; params that no layer reads become variables.
  members: attributes of a class, how they are made, and how they are loaded.
  classes: the writer; the structure is that of `codegen.structure`.
  moving_statistics, variables: the variables that are `nnx.BatchStat`; the function that makes variables of arrays.

Must not import `flax`: generated source does.
"""
