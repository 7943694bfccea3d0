"""SparseTensor (COO) and CSRSparseMatrix ops.

Read `coo` first: index helpers, reorder, reshape, concat. Then

- `coo_dense`: products, sums and conversions with dense tensors;
- `coo_elementwise`, `coo_rows`, `coo_reduce`: sums and softmax; row filling, slices and splits; reductions;
- `csr`: the matrix value and its conversions; `csr_matmul`, `csr_elementwise`, `csr_cholesky`: its arithmetic;
- `count`, `edit_distance`, `feature_cross`, `sets`: bincount, Levenshtein distance, tf.sparse.cross, tf.sets;
- `variant`, `serialize`: sparse tensors as variants, and their conversion.

Imports `ops.strings`, `ops.math` and what is below them; never `ops.ragged`, which builds on it.
"""

from . import (  # noqa: F401
    coo,
    coo_dense,
    coo_elementwise,
    coo_reduce,
    coo_rows,
    count,
    edit_distance,
    serialize,
    sets,
)
