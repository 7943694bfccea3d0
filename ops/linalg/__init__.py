"""Matrix products, factorizations, solvers, diagonals.

Read `matmul` first, then `decompositions`, `banded` (banded and tridiagonal matrices) and `diagonal`.

Of `ops` it imports `ops.common` and `ops.registry`, never another family.
"""

from . import banded, decompositions, diagonal, matmul  # noqa: F401
