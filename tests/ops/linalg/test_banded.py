"""Banded and tridiagonal solvers against TensorFlow."""

import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


def few_bands(count, size, lower, dtype=np.float64):
    """Return bands of a batch of two matrices, NaN outside of the matrix."""
    bands = RNG.normal(size=(2, count, size)) / count
    bands[:, 0 if lower else -1] += 3
    for k in range(1, count):
        bands[(slice(None), k, slice(0, k)) if lower else (slice(None), -1 - k, slice(size - k, None))] = np.nan
    return bands.astype(dtype) * (1 + 1j if np.dtype(dtype).kind == "c" else 1)


DIAGONALS = RNG.normal(size=(2, 3, 4)) + np.array([[0.0], [4.0], [0.0]])
BANDS = RNG.normal(size=(2, 2, 4)) + 3

CASES = [
    *(
        case("BandedTriangularSolve", BANDS.astype(d), RNG.normal(size=(2, 4, 2)).astype(d), lower=lo, adjoint=ad)
        for lo, ad, d in zip(
            (True, True, False, False),
            (False, True, False, True),
            (np.float64, np.float32, np.float64, np.float64),
            strict=True,
        )
    ),
    case("BandedTriangularSolve", BANDS * (1 + 1j), RNG.normal(size=(2, 4, 2)) + 0j, adjoint=True).using(
        name="complex"
    ),
    case("BandedTriangularSolve", BANDS * 1j, RNG.normal(size=(2, 4, 2)) + 0j, lower=False).using(name="complex-upper"),
    case("BandedTriangularSolve", BANDS[:1], RNG.normal(size=(2, 4, 2))).using(name="broadcast"),
    case("BandedTriangularSolve", BANDS[0, :1], RNG.normal(size=(2, 4, 2))).using(name="diagonal"),
    case("BandedTriangularSolve", RNG.normal(size=(4, 4)) + 4, RNG.normal(size=(4, 1)), lower=False).using(name="full"),
    case("BandedTriangularSolve", RNG.normal(size=(5, 4)), np.ones((4, 1))).using(error="between 1 and 4 bands"),
    # Few bands of many rows; elements outside of the matrix are not read.
    *(
        case("BandedTriangularSolve", few_bands(3, 24, lo, d), normal(2, 24, 2).astype(d), lower=lo, adjoint=ad).using(
            name=f"few-{lo}-{ad}-{np.dtype(d).name}"
        )
        for lo in (True, False)
        for ad in (True, False)
        for d in (np.float64, np.float32, np.complex128)
    ),
    *(
        case("BandedTriangularSolve", few_bands(count, size, lo), normal(2, size, columns), lower=lo).using(
            name=f"{count}-of-{size}-{lo}-{columns}"
        )
        for count, size, columns in ((1, 8, 1), (2, 16, 3), (2, 15, 3), (16, 128, 2), (17, 136, 2))
        for lo in (True, False)
    ),
    case("BandedTriangularSolve", few_bands(2, 16, True)[:1], normal(3, 16, 2)).using(name="few-broadcast"),
    case("BandedTriangularSolve", few_bands(2, 16, True), normal(16, 2)).using(name="few-broadcast-rhs"),
    case("BandedTriangularSolve", few_bands(2, 16, True), normal(2, 16, 2)).using(
        symbolic=("b, 2, 16", "b, 16, c"), name="few-symbolic"
    ),
    *(
        case("TridiagonalSolve", DIAGONALS.astype(d), RNG.normal(size=(2, 4, 3)).astype(d), partial_pivoting=p).using(
            name=f"{np.dtype(d).name}-{p}"
        )
        for d, p in ((np.float64, True), (np.float64, False), (np.float32, True))
    ),
    case("TridiagonalSolve", DIAGONALS * (1 + 1j), RNG.normal(size=(2, 4, 1)) + 0j).using(name="complex", grad=False),
    case("TridiagonalSolve", DIAGONALS[0] - [[0.0], [4.0], [0.0]], RNG.normal(size=(4, 2))).using(name="exchanged"),
    case("TridiagonalSolve", np.float64([[0, 1, 9], [0, 0, 2], [9, 3, 4]]), np.ones((3, 1))).using(
        name="zero-pivot", grad=False
    ),
    case("TridiagonalSolve", np.float64([[7], [2], [8]]), np.ones((1, 2))).using(name="one"),
    case("TridiagonalSolve", np.ones((2, 4)), np.ones((4, 1))).using(error="three diagonals"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
