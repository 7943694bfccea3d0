"""Rewrites of scan bodies, jaxpr to jaxpr.

`hoist_matmuls.scan` is the entry. `carry_to_xs` makes carried buffers inputs and outputs of the scan,
`sink_accumulators` and `weight_gradients` move products out of it; `loop_invariants`, `index_analysis` and
`batch_steps` are the analyses. Knows nothing of TensorFlow.
"""
