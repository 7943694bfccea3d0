"""Transposition, reversal, rolling and repetition against TensorFlow."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = ml_dtypes.bfloat16
X = np.arange(6.0).reshape(2, 3)
M = np.arange(12.0, dtype=np.float32).reshape(4, 3)
C = np.arange(24.0).reshape(2, 3, 4)
I32, I64 = np.int32, np.int64
DTYPES = [
    "float32",
    "float64",
    "float16",
    BF16,
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


def _m(dtype):
    return (M % 3 - 1 if np.dtype(dtype).kind != "u" else M).astype(dtype)


CASES = [
    *(case("Transpose", C, np.array(p, t)) for t in (I32, I64) for p in ([0, 1, 2], [2, 0, 1], [1, 0, 2])),
    *(case("Transpose", C, np.array(p, I32)).using(name=str(p)) for p in ([2, 1, 0], [-1, 0, 1], [0, 2, 1])),
    *(case("Transpose", _m(t), np.array([1, 0])) for t in DTYPES),
    case("Transpose", np.float32(1), np.array([], I32)).using(name="scalar"),
    case("Transpose", np.zeros((0, 2)), np.array([1, 0])).using(name="empty"),
    case("Transpose", M, np.array([1, 0])).using(symbolic=("b, 3",), name="sym"),
    case("Transpose", M, np.array([1, 0])).using(baked=("x",), name="host"),
    case("Transpose", X, np.array([0, 0])).using(error="not a permutation", name="twice"),
    case("Transpose", X, np.array([0, 2])).using(error="out of range", name="range"),
    *(case("ConjugateTranspose", (C + 1j * C).astype(t), np.array([2, 0, 1])) for t in ("complex64", "complex128")),
    case("ConjugateTranspose", C, np.array([2, 0, 1])),
    case("ConjugateTranspose", (C + 1j * C), np.array([2, 0, 1])).using(baked=("x",), name="host"),
    *(
        case("Tile", X, np.array(m, t)).using(name=f"{m}-{np.dtype(t)}")
        for t in (I32, I64)
        for m in ([1, 1], [2, 1], [2, 3], [0, 2])
    ),
    *(case("Tile", _m(t), np.array([2, 2])) for t in DTYPES if t not in ("uint16",)),  # no kernel
    case("Tile", np.ones((1, 3, 1)), np.array([4, 1, 2])).using(name="ones"),
    case("Tile", np.float32(1), np.array([], I32)).using(name="scalar"),
    case("Tile", M, np.array([2, 3])).using(symbolic=("b, 3",), name="sym"),
    case("Tile", M, np.array([2, 3])).using(baked=("input",), name="host"),
    case("Tile", M, np.array([20, 30])).using(baked=("input",), name="host-large"),
    case("Tile", X, np.array([2])).using(error="length 2", name="rank"),
    case("Tile", X, np.array([2, -1])).using(error="non-negative", name="negative"),
    *(case("ReverseV2", C, np.array(a, t)) for t in (I32, I64) for a in ([0], [1, -1])),
    *(case("ReverseV2", C, np.array(a, I32)).using(name=str(a)) for a in ([], [0, 1, 2], [-3])),
    *(case("ReverseV2", _m(t), np.array([1])) for t in DTYPES),
    case("ReverseV2", M, np.array([0])).using(symbolic=("b, 3",), name="sym"),
    case("ReverseV2", M, np.array([0])).using(baked=("tensor",), name="host"),
    case("ReverseV2", X, np.array([0, -2])).using(error="more than once", name="twice"),
    *(case("Reverse", C, np.array(d)).using(name=str(d)) for d in ([True, False, True], [False] * 3)),
    *(case("Reverse", _m(t), np.array([True, False])) for t in DTYPES[:4]),
    case("Reverse", C, np.array([True, False, True])).using(baked=("tensor",), name="host"),
    *(
        case("ReverseSequence", C, np.array(n, t), seq_dim=s, batch_dim=b).using(name=f"{n}-{s}-{b}-{np.dtype(t)}")
        for t in (I32, I64)
        for n, s, b in (([3, 1], 1, 0), ([0, 4], 2, 0), ([2, 1, 0], 0, 1), ([1, 2, 0, 1], 0, 2), ([4, 2, 3], 2, 1))
    ),
    *(case("ReverseSequence", _m(t), np.array([3, 0, 2, 1]), seq_dim=1) for t in DTYPES),
    case("ReverseSequence", M, np.array([3, 0, 2, 1]), seq_dim=1).using(symbolic=("b, 3", "b"), name="sym"),
    case("ReverseSequence", M, np.array([3, 0, 4]), seq_dim=0, batch_dim=1).using(symbolic=("n, 3", "3"), name="sym-n"),
    case("ReverseSequence", np.zeros((2, 0)), np.array([0, 0]), seq_dim=1).using(name="empty"),
    case("ReverseSequence", X, np.array([4, 0]), seq_dim=1).using(baked=("seq_lengths",), error="[0, 3]", name="long"),
    *(
        case("Roll", C, np.array(s, t), np.array(a, u)).using(
            baked=baked, name=f"{s}-{a}-{np.dtype(t)}{np.dtype(u)}{baked}"
        )
        for s, a, t, u in (
            (1, 0, I32, I32),
            (-5, 1, I64, I32),
            ([1, 2], [0, -1], I32, I64),
            ([1, 1], [1, 1], I64, I64),
            (4, 2, I32, I32),
        )
        for baked in ((), ("shift",))
    ),
    *(case("Roll", _m(t), np.array(1), np.array(0)) for t in DTYPES),
    case("Roll", M, np.array(-1), np.array(0)).using(symbolic=("b, 3", ""), name="sym"),
    case("Roll", M, np.array(6), np.array(0)).using(baked=("shift",), symbolic=("b, 3",), name="sym-known"),
    case("Roll", np.zeros((0, 2)), np.array(1), np.array(0)).using(name="empty"),
    case("Roll", X, np.array([1, 2]), np.array(0)).using(error="same shape", name="shapes"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
