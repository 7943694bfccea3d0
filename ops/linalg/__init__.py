"""Matrix products, factorizations, solvers, diagonals.

The op functions are the entry: `registry.lookup` finds them by op name. Read the modules in this order:

- `matmul`: products and Einsum.
- `decompositions`: Cholesky, QR, LU, SVD, eigendecomposition of Hermitian matrices, inverses, solvers. The derivatives
  of the spectral ones are in `_decomposition_jvps`.
- `matrix_functions`: eigendecomposition of general matrices, square root, logarithm.
- `banded`: banded and tridiagonal matrices. `diagonal`: reading and writing diagonals and bands.
- `legacy`: ops of old graphs.

Of `ops` it imports `ops.common` and `ops.registry`, never another family.
"""

from . import banded, decompositions, diagonal, legacy, matmul, matrix_functions  # noqa: F401
