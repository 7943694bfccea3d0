"""Functions to plans: slots, keywords, liveness, and rewrites of plans.

`program.Program` is the entry: the checked graph with its plans. Read `plan` first, which makes one, then `rewrites`:
the ordered list of plan rewrites, each ``run(plan) -> Plan``: `transpose_sinking`, `dilated_conv`, and `materialize`, a
hint to XLA's CPU backend. `compiled_ops` makes implementations of ops that TensorFlow evaluates or compiles.

Imports neither `interpreter` nor `loops`.
"""
