"""Source as `flax.nnx` modules: one class for each function that reads params.

Read in this order:
  layers: equations that become layers of Flax, or modules of their own.
  members: attributes of a class.
  classes: the writer; the structure is that of `codegen.structure`.
  moving_statistics, variables: the variables that are `nnx.BatchStat`; the function that makes variables of arrays.

Must not import `flax`: generated source does.
"""
