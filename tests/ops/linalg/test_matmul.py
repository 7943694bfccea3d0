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
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
