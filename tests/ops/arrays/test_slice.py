"""Slice against TensorFlow."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = ml_dtypes.bfloat16
X = np.arange(60.0).reshape(3, 4, 5)
M = np.arange(12.0, dtype=np.float32).reshape(4, 3)
DTYPES = ["float32", "float16", BF16, "int8", "uint16", "int32", "uint64", "bool", "complex64", "complex128"]

CASES = [
    *(
        case("Slice", X, np.array(b, t), np.array(s, t)).using(
            baked=(*baked, "size"), name=f"{b}-{s}-{np.dtype(t)}{baked}"
        )
        for t in (np.int32, np.int64)
        for baked in (("begin",), ("begin", "input"))
        for b, s in (
            ([0, 1, 2], [3, 2, 1]),
            ([1, 0, 3], [-1, -1, 2]),
            ([3, 0, 0], [-1, 2, 2]),
            ([1, 1, 1], [0, 1, 1]),
            ([0, 0, 0], [3, 4, 5]),
        )
    ),
    *(
        case("Slice", X, np.array(b, t), np.array([2, 2, 1], t)).using(baked=("size",))
        for t in ("int32", "int64")
        for b in ([1, 2, 4], [0, 0, 0])
    ),
    *(
        case("Slice", np.arange(6).reshape(2, 3).astype(t), np.array([0, 1]), np.array([-1, 2])).using(
            baked=("begin", "size")
        )
        for t in DTYPES
    ),
    case("Slice", np.float32(3), np.array([], np.int32), np.array([], np.int32)).using(
        baked=("begin", "size"), name="rank0"
    ),
    case("Slice", M, np.array([1, 1]), np.array([-1, 2])).using(
        symbolic=("b, 3",), baked=("begin", "size"), name="sym"
    ),
    case("Slice", M, np.array([0, 1]), np.array([-1, 2])).using(
        symbolic=("b, 3",), baked=("begin", "size"), name="sym-batch"
    ),
    case("Slice", M, np.array([0, 2]), np.array([1, 2])).using(
        baked=("begin", "size"), error="reaches out", name="out"
    ),
    case("Slice", M, np.array([0]), np.array([1])).using(baked=("begin", "size"), error="entries", name="rank"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
