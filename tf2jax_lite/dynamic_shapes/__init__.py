"""Bounded dynamic shapes under jit: data-dependent dimensions as symbols with upper bounds.

`driver.traced` is the entry: it traces a program with symbolic dimensions and evaluates the jaxpr with padded arrays.
Read `tracker`, `bounds`, `dim_expr`, then `driver`, `evaluator` and the `rules_*` modules, one per kind of primitive.
`intervals`, `row_bounds` and `provenance` find upper bounds, `assumptions` the results that hinge on equal sizes,
`size_comparisons` decides comparisons that symbols leave open. Knows no TensorFlow op: imports neither `ops` nor
`lowering`.
"""
