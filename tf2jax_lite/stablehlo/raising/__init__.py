"""Raise ops that JAX expanded to the original call.

Only calls are raised whose derivative is another than that of their ops: gamma variates, tangents of max pooling on
GPU and TPU, special functions that series or polynomials approximate. Other expansions are evaluated as they are.

Entry: `recognizer.parse`, which reads a module and raises it.

Read in this order:
  recognizer: the catalog of calls, and the cheap search for those that a region may hold; lowers each candidate with
    the installed JAX, and compares op by op.
  compound_ops: powers, select chains, tiles and stacks, which need no comparison.

Must not import `api` or anything above `stablehlo`.
"""
