"""RaggedTensor ops: values with row splits.

Read in this order:

- `range_gather`: ranges, repetition, gathering of rows;
- `conversion`: conversion to dense and sparse tensors;
- `variant`, `variant_ops`: ragged tensors as variants, and their conversion.

Imports `ops.sparse` and what is below it. No other family imports this one.
"""

from . import conversion, range_gather, variant_ops  # noqa: F401
