"""IR to IR: analyses and rewrites that need no tracing.

`canonicalize` and `control_flow_v1` bring every construct to one form and are required, `optimize` is optional,
`analysis` has facts about a graph. Their order is in `tf2jax_lite.pipeline.convert`. `partition_host` splits a graph
at what only TensorFlow can run, `float64` is the graph in double precision. Imports neither TensorFlow nor
`lowering`.
"""
