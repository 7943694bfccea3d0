"""SparseTensor (COO) and CSRSparseMatrix ops.

`coo` first: conversions, products, reshapes; `coo_elementwise` has unions, row selection and reductions. `csr` is the
matrix value and its conversions, `csr_matmul`, `csr_elementwise` and `csr_cholesky` its arithmetic. Never imports
`ops.ragged`, which builds on it.
"""

from . import (  # noqa: F401
    coo,
    coo_dense,
    coo_elementwise,
    coo_reduce,
    coo_rows,
    count,
    csr,
    csr_cholesky,
    csr_elementwise,
    csr_matmul,
    edit_distance,
    feature_cross,
    serialize,
    sets,
)
