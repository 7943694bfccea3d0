"""Bounded dynamic shapes under jit: symbols with upper bounds as sizes.

Entry: `driver.trace_and_evaluate` traces a program with symbolic dimensions and evaluates the jaxpr on padded arrays.
Ops get the tracker as their parameter ``bound`` or ``tracker``, and call `row_capacity` and `truncate_rows`.

Read in this order:
  dim_expr: evaluate and bound symbolic dimensions; their canonical form.
  bounds: upper and lower bounds of dimensions.
  primitives: truncate, extend and reshape with data-dependent sizes.
  provenance, intervals, row_bounds: bounds of traced values, from the equations that compute them.
  partitions: masks whose counts add up to the array's size.
  unification: equality assumptions between dimensions, collected across retraces; sizes that a node accepts;
    results that an assumption may invalidate.
  tracker: `DynamicShapes`, the dimensions of one trace.
  driver: retracing; then evaluation.
  evaluator: capacities and run-time sizes; evaluates a jaxpr on padded arrays.
  rules: one evaluation rule per primitive.
  size_comparisons: comparisons of symbolic dimensions.

It has no TensorFlow semantics: must not import `ops`, `lowering` or anything above them.
"""
