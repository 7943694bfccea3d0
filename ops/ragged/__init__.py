"""RaggedTensor ops: values with row splits.

Read in this order: `range_gather` (ranges, repetition, gathering of rows), `conversion` to dense and sparse tensors,
`variant` (ragged tensors as variants).

Imports `ops.sparse` and what is below it. No other family imports this one.
"""

from . import conversion, range_gather, variant  # noqa: F401
