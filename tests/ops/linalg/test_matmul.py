"""Matrix products against TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = tf.bfloat16.as_numpy_dtype
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5))
BATCH = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 4, 5))
COMPLEX = BATCH[0] + 1j * BATCH[0][::-1], BATCH[1] - 1j * BATCH[1]
EQUATIONS = {
    "ij,jk->ik": (A, B),
    "bij,bjk->bik": BATCH,
    "...ij,jk->...ik": (BATCH[0], B),
    "ij->ji": (A,),
    "ii->i": (RNG.normal(size=(3, 3)),),
    "ij,ij->": (A, A),
    "i,j->ij": (A[0], B[0]),
    "abc,acd->adb": (RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 4, 3))),
}


def swap(x, yes):
    return np.swapaxes(x, -1, -2) if yes else x


def normal(*shape):
    return RNG.normal(size=shape)


def few_bands(count, size, lower, dtype=np.float64):
    """Bands of a batch of two, NaN in the places that are outside of the matrix."""
    bands = RNG.normal(size=(2, count, size)) / count
    bands[:, 0 if lower else -1] += 3
    for k in range(1, count):
        bands[(slice(None), k, slice(0, k)) if lower else (slice(None), -1 - k, slice(size - k, None))] = np.nan
    return bands.astype(dtype) * (1 + 1j if np.dtype(dtype).kind == "c" else 1)


CASES = [
    *(
        case("MatMul", swap(A, ta).astype(d), swap(B, tb).astype(d), transpose_a=ta, transpose_b=tb).using(
            name=f"{np.dtype(d).name}-{ta}-{tb}"
        )
        for d in (np.float32, np.float64, np.complex128)
        for ta, tb in itertools.product((False, True), repeat=2)
    ),
    *(
        case("MatMul", (A * 3).astype(d), (B * 3).astype(d)).using(
            name=np.dtype(d).name, **({"rtol": 5e-2, "atol": 5e-2} if d in (BF16, np.float16) else {})
        )
        for d in (np.int32, np.int64, BF16, np.float16)
    ),
    case("MatMul", A[:0], B).using(name="empty"),
    case("MatMul", A.astype(np.float32), B.astype(np.float32)).using(symbolic=("b, 4", "4, 5"), name="symbolic"),
    *(
        case(op, swap(x, ax), swap(y, ay), adj_x=ax, adj_y=ay).using(name=f"{k}-{ax}-{ay}")
        for op in ("BatchMatMul", "BatchMatMulV2")
        for k, (x, y) in (("real", BATCH), ("complex", COMPLEX))
        for ax, ay in itertools.product((False, True), repeat=2)
    ),
    case("BatchMatMulV2", BATCH[0][None], BATCH[1][:, None]).using(name="broadcast"),
    case("BatchMatMulV2", *BATCH).using(symbolic=("b, 3, 4", "b, 4, 5"), name="symbolic"),
    case("BatchMatMulV3", *BATCH, Tout=tf.float64),
    *(case("Einsum", [np.asarray(v) for v in values], equation=e) for e, values in EQUATIONS.items()),
    case("Einsum", list(BATCH), equation="bij,bjk->bik").using(symbolic=("b, 3, 4", "b, 4, 5"), name="symbolic"),
]

WELL = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
ODD = WELL + 1j * RNG.normal(size=(2, 3, 3))
DIAGONALS = RNG.normal(size=(2, 3, 4)) + np.array([[0.0], [4.0], [0.0]])
BANDS = RNG.normal(size=(2, 2, 4)) + 3
LOOSE = {"rtol": 1e-3, "atol": 1e-4}


def eigen(expected, actual):
    """Compares eigenvalues, and eigenvectors up to a complex factor, in whatever order."""
    (ve, xe), (va, xa) = expected, actual
    order = [np.abs(e[:, None] - a[None, :]).argmin(1) for e, a in zip(ve, va, strict=True)]
    va = np.stack([a[o] for a, o in zip(va, order, strict=True)])
    np.testing.assert_allclose(va, ve, rtol=1e-4, atol=1e-5)
    xa = np.stack([a[:, o] for a, o in zip(xa, order, strict=True)])
    overlap = np.abs(np.sum(xe.conj() * xa, axis=-2))
    norms = np.linalg.norm(xe, axis=-2) * np.linalg.norm(xa, axis=-2)
    np.testing.assert_allclose(overlap, norms, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(xa, axis=-2), np.linalg.norm(xe, axis=-2), rtol=1e-4)


def eigenvalues(expected, actual):
    """Compares eigenvalues in whatever order; without ``compute_v`` the second result is anything."""
    np.testing.assert_allclose(np.sort_complex(actual[0]), np.sort_complex(expected[0]), rtol=1e-4)


CASES += [
    *(
        case("SparseMatMul", swap(np.round(A), ta).astype(x), swap(B, tb).astype(y), transpose_a=ta, transpose_b=tb)
        for (x, y), ta, tb in zip(
            [(np.float32, np.float32), (BF16, np.float32), (np.float32, BF16), (BF16, BF16)],
            (False, True, False, True),
            (False, False, True, True),
            strict=True,
        )
    ),
    case("SparseMatMul", A.astype(np.float32), B.astype(np.float32), a_is_sparse=True, b_is_sparse=True),
    case("SparseMatMul", A[:0].astype(np.float32), B.astype(np.float32)).using(name="empty"),
    *(
        case("Eig", m.astype(d), Tout=t).using(compare=eigen, grad=False, name=np.dtype(d).name)
        for m, d, t in (
            (WELL, np.float32, tf.complex64),
            (WELL, np.float64, tf.complex128),
            (ODD, np.complex64, tf.complex64),
            (ODD, np.complex128, tf.complex128),
        )
    ),
    case("Eig", WELL, Tout=tf.complex128, compute_v=False).using(compare=eigenvalues, grad=False),
    case("Eig", WELL[:0], Tout=tf.complex128).using(grad=False, name="none"),
    case("Eig", A, Tout=tf.complex128).using(error="square"),
    # TensorFlow forgets to conjugate in the complex gradients of MatrixSquareRoot and TridiagonalSolve; ours are right.
    *(
        case("MatrixSquareRoot", (m @ m).astype(d)).using(
            **LOOSE if s else {"rtol": 1e-8}, grad_rtol=1e-3, grad=np.dtype(d).kind == "f"
        )
        for m, d, s in ((WELL, np.float64, 0), (WELL, np.float32, 1), (ODD, np.complex128, 0), (ODD, np.complex64, 1))
    ),
    case("MatrixSquareRoot", np.eye(1) * 4).using(name="one"),
    case("MatrixSquareRoot", np.zeros((0, 0))).using(name="empty", grad=False),
    # The first has a negative eigenvalue: no real root.
    case("MatrixSquareRoot", np.array([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]])).using(
        name="no real root", grad=False
    ),
    case("MatrixSquareRoot", np.array([[-4.0]])).using(name="negative", grad=False),
    case("MatrixLogarithm", ODD).using(rtol=1e-8),
    case("MatrixLogarithm", ODD.astype(np.complex64)).using(**LOOSE),
    case("MatrixLogarithm", np.diag([1 + 0j, 1e-8, -2, 1e6])).using(rtol=1e-8, name="diagonal"),
    case("MatrixLogarithm", np.zeros((0, 0), complex)).using(name="empty"),
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
    # Few bands of many rows; what lies outside of the matrix is not read.
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
