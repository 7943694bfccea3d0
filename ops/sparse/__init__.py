"""SparseTensor (COO) and CSRSparseMatrix ops.

Read `coo` first: index helpers, reorder, reshape, concat, rows; then `coo_arithmetic`. `csr` has the matrix value and
its arithmetic, `variant` sparse tensors as variants, `sets` tf.sets, `feature_cross` tf.sparse.cross.

Imports `ops.strings`, `ops.math` and what is below them; never `ops.ragged`, which builds on it.
"""

from . import coo, coo_arithmetic, count, edit_distance, sets, variant  # noqa: F401
