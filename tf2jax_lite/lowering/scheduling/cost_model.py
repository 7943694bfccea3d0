"""Thresholds between memory traffic, kernel count and matmul efficiency.

Measured with JAX 0.10 on two cores with AVX-512 unless stated otherwise. None of them changes values. Modules read
them when they decide (``cost_model.NAME``), so that tests and experiments can set them.
"""

__all__ = [
    "MAX_BATCHED_MATMUL_ROWS",
    "MAX_BATCHED_MATMUL_ROWS_CPU",
    "MAX_FUSED_OPS",
    "MAX_POST_DOMINATOR_STEPS",
    "MAX_STACKED_ELEMENTS",
    "TRANSCENDENTAL_OPS",
]

MAX_BATCHED_MATMUL_ROWS = 128
"""Rows of an iteration's matmul up to which one matmul of all iterations is faster: with few rows, a matmul takes the
time of reading the weights. With more rows, an iteration uses the weights as well as all iterations together do."""

MAX_BATCHED_MATMUL_ROWS_CPU = 16
"""The same for a matmul before the loop on CPU, where its results for all iterations leave the caches; see the table in
`scan_opt.hoist_matmuls`."""

MAX_STACKED_ELEMENTS = 1 << 26
"""Elements of a value stacked over all iterations that an optimization may keep: 256 MiB of float32."""

MAX_FUSED_OPS = 10
"""Elementwise ops since the last value in memory, above which a value that would be computed twice is materialized."""

TRANSCENDENTAL_OPS = 8
"""Elementwise ops that a transcendental function counts as: the time of an exponential over that of a sum."""

MAX_POST_DOMINATOR_STEPS = 256
"""Steps up the post-dominator tree after which two uses count as diverging; bounds the time of the analysis."""
