"""Decompositions and solvers; factors of any sign by their product."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
A = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
SPD = A @ A.swapaxes(-1, -2)
B = RNG.normal(size=(2, 3, 2))
TALL = RNG.normal(size=(2, 4, 3))
FLOATS = [np.float32, np.float64]
LOOSE = {np.float32: {"rtol": 1e-3, "atol": 1e-4}, np.float64: {"rtol": 1e-8, "atol": 1e-9}}


def product(multiply, tolerance=1e-4):
    """Compare the products of the factors."""

    def compare(expected, actual):
        for factors in (expected, actual):
            assert all(np.isfinite(f).all() for f in factors)
        np.testing.assert_allclose(multiply(actual), multiply(expected), rtol=tolerance, atol=tolerance)

    return compare


def svd_product(f):
    return (f[1][..., : f[0].shape[-1]] * f[0][..., None, :]) @ f[2][..., : f[0].shape[-1]].conj().swapaxes(-1, -2)


def eigh_product(f):
    return (f[1] * f[0][..., None, :]) @ f[1].conj().swapaxes(-1, -2)


CASES = [
    *(case("Cholesky", SPD.astype(d)).using(**LOOSE[d]) for d in FLOATS),
    *(
        case("CholeskyGrad", np.linalg.cholesky(SPD).astype(d), A.astype(d)).using(**LOOSE[d], grad=False)
        for d in FLOATS
    ),
    *(case("MatrixInverse", A.astype(d), adjoint=a).using(**LOOSE[d]) for d in FLOATS for a in (False, True)),
    *(case("MatrixDeterminant", A.astype(d)).using(**LOOSE[d]) for d in FLOATS),
    *(case("LogMatrixDeterminant", A.astype(d)).using(**LOOSE[d]) for d in FLOATS),
    *(
        case("MatrixSolve", A.astype(d), B.astype(d), adjoint=a).using(**LOOSE[d])
        for d in FLOATS
        for a in (False, True)
    ),
    case("MatrixSolve", A + 1j * np.eye(3), B * 1j, adjoint=True).using(rtol=1e-8),
    *(
        case("MatrixTriangularSolve", A.astype(d), B.astype(d), lower=lo, adjoint=ad).using(**LOOSE[d])
        for d in FLOATS
        for lo, ad in itertools.product((False, True), repeat=2)
    ),
    case("MatrixTriangularSolve", A[:1], B).using(name="broadcast"),
    # float16, which TensorFlow's kernels take and LAPACK does not.
    case("MatrixInverse", A.astype(np.float16)).using(
        rtol=1e-2, atol=1e-2, grad_rtol=3e-2, grad_atol=3e-2, name="half"
    ),
    case("Qr", TALL.astype(np.float16)).using(
        compare=product(lambda f: np.float32(f[0]) @ np.float32(f[1]), 1e-2), grad=False, name="half"
    ),
    *(
        case("MatrixSolveLs", m, RNG.normal(size=(2, m.shape[1], 2)), np.float64(0.1)).using(rtol=1e-8, grad=False)
        for m in (TALL, TALL.swapaxes(1, 2))
    ),
    # Not fast: the regularizer is unused, and the solution has least norm.
    *(
        case(
            "MatrixSolveLs", m, RNG.normal(size=(*m.shape[:-1], 2)).astype(m.dtype), np.float64(0.1), fast=False
        ).using(rtol=r, atol=r, grad=False, name=f"{n}-not-fast")
        for n, m, r in (
            ("tall", TALL, 1e-8),
            ("wide", TALL.swapaxes(1, 2), 1e-8),
            ("deficient", TALL @ np.ones((TALL.shape[2], TALL.shape[2])), 1e-8),
            ("zero", 0 * TALL, 1e-8),
            ("float32", np.float32(TALL), 1e-4),
            ("complex", TALL + 0.2j * TALL[:, ::-1], 1e-8),
            ("no-columns", TALL[:, :, :0], 1e-8),  # without rows TensorFlow returns memory that it has not written
        )
    ),
    *(
        case("Qr", TALL, full_matrices=f).using(compare=product(lambda f: f[0] @ f[1]), grad=False)
        for f in (False, True)
    ),
    *(
        case("Svd", m, full_matrices=f).using(compare=product(svd_product), grad=False)
        for m in (TALL, TALL + 0.2j * TALL[:, ::-1])
        for f in (False, True)
    ),
    *(
        case("SelfAdjointEigV2", m).using(compare=product(eigh_product), grad=False)
        for m in (SPD, SPD + 0.2j * (A - A.swapaxes(1, 2)))
    ),
    *(
        case("Lu", A.astype(d), output_idx_type=t).using(**LOOSE[d], grad=False)
        for d in FLOATS
        for t in (tf.int32, tf.int64)
    ),
    case("TridiagonalMatMul", *(RNG.normal(size=(2, 1, 4)) for _ in range(3)), RNG.normal(size=(2, 4, 3))),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
