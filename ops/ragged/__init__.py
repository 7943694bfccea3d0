"""RaggedTensor ops: values with row splits.

`conversion` has ranges, gathers and conversions to tensors and sparse tensors; `variant` and `variant_ops` hold
ragged tensors in variants. Imports `ops.sparse` and what is below it.
"""

from . import conversion, range_gather, variant_ops  # noqa: F401
