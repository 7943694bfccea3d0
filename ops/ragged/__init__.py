"""RaggedTensor ops: values with row splits.

Read in this order: `conversion` (ranges, repetition, gathering of rows, dense and sparse tensors), `variant` (ragged
tensors as variants).

Imports `ops.sparse` and what is below it. No other family imports this one.
"""

from . import conversion, variant  # noqa: F401
