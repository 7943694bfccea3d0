"""Functions to plans: slots, keywords, liveness, and rewrites of plans.

`program.Program` is the entry: the checked graph with its plans. Read `plan` first, which makes one, then `rewrites`:
the ordered list of plan rewrites, each ``run(plan) -> Plan``, of which `transpose_sinking` and `dilated_conv` are here
and `tf2jax_lite.lowering.scheduling.materialize` is a hint to the compiler. `evaluated_ops` and `compiled_ops` make
implementations of ops that TensorFlow evaluates or compiles; `keywords` makes their signatures.

Imports neither `interpreter` nor `loops`.
"""
