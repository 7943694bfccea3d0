"""Matrix products, solvers and decompositions.

`matmul` has products and einsum, `decompositions` the factorizations and solvers, whose derivatives at repeated or
zero eigenvalues are in `_decomposition_jvps`; `banded` solves tridiagonal systems, `diagonal` reads and writes
diagonals. Imports `ops.math`, `ops.arrays` and `ops.common` at most.
"""

from . import decompositions, diagonal, legacy, matmul  # noqa: F401
