"""Eigendecomposition, square root and logarithm of matrices against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
WELL = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
ODD = WELL + 1j * RNG.normal(size=(2, 3, 3))
LOOSE = {"rtol": 1e-3, "atol": 1e-4}


def eigen(expected, actual):
    """Compare eigenvalues, and eigenvectors up to a complex factor, in any order."""
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
    """Compare eigenvalues in any order; only with ``compute_v`` vectors."""
    np.testing.assert_allclose(np.sort_complex(actual[0]), np.sort_complex(expected[0]), rtol=1e-4)


CASES = [
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
    case("Eig", WELL[:, :2], Tout=tf.complex128).using(error="square"),
    # TensorFlow's complex gradients of MatrixSquareRoot and TridiagonalSolve lack a conjugation.
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
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
