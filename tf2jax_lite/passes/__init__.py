"""Passes (IR to IR): analyses and rewrites of a graph that need no tracing.

Entry: `manager.run_passes(graph, config)` runs the ordered list `manager.PASSES`. Read `manager` first, then:

- `canonicalize`: rewrites to one form of every construct, required.
- `control_flow_v1`: Switch, Merge, Enter and Exit to If and While, required.
- `optimize`: optional rewrites; ``config.passes`` switches them off by name.
- `analysis`: effects, static values, integer ranges.
- `partition_host`: partition into a host prefix and a numeric core. Not in the list: only host splitting uses it.
- `float64`: a graph in double precision. Not in the list: only verification uses it.

Must not import TensorFlow, JAX, `lowering` or `frontend`.
"""
