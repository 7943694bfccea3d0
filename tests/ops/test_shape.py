"""Shape ops against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from .harness import case, check

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def i32(*values):
    return np.array(values, np.int32)


CASES = [
    *(case("Shape", v, out_type=t) for v in (A, np.float32(1), np.zeros((0, 2))) for t in (tf.int32, tf.int64)),
    case("ShapeN", [A, A[0]]).using(name="two"),
    *(case(name, v) for name in ("Size", "Rank") for v in (A, np.float32(1), np.zeros((0, 2), np.int8))),
    *(case("Reshape", A, np.array(s)) for s in ([24], [4, -1], [-1, 2, 2], [2, 3, 4, 1])),
    case("Reshape", np.float32(3), i32(1, 1)),
    case("Reshape", np.float32([3]), np.zeros(0, np.int32)).using(name="to scalar"),
    case("Reshape", np.zeros((0, 3)), i32(3, 0)).using(name="empty"),
    case("Reshape", A, i32(-1, 12)).using(symbolic=("b, 3, 4",), name="symbolic"),
    case("Reshape", A, i32(5, 5)).using(error="reshape"),
    *(case("ExpandDims", A, np.int32(d)) for d in (0, 1, -1, 3)),
    case("ExpandDims", A, np.int32(5)).using(error="out of range"),
    *(case("Squeeze", A.reshape(1, 2, 1, 12), squeeze_dims=d) for d in ([], [0], [-2], [0, 2])),
    *(case("BroadcastTo", v, i32(*s)) for v, s in ((A[:1], (5, 3, 4)), (np.float32(2), (2, 2)), (A[0], (2, 3, 4)))),
    *(case("Fill", i32(*s), v) for s in ((2, 3), (), (0, 2)) for v in (np.float32(2.5), np.int64(7), np.True_)),
    *(
        case("Range", np.array(a), np.array(b), np.array(c))
        for a, b, c in ((0, 5, 1), (3, -4, -2), (5, 5, 1), (0.0, 1.0, 0.1), (2.0, -1.0, -0.5))
    ),
    *(case("BroadcastArgs", i32(*a), i32(*b)) for a, b in (((2, 1), (3,)), ((), (4,)), ((1, 1), (1,)))),
    *(
        case("BroadcastGradientArgs", i32(*a), i32(*b))
        for a, b in (
            ((2, 1), (3,)),
            ((), (4,)),
            ((2, 3), (2, 3)),
            ((1, 3), (2, 3)),
            ((1, 1), (1,)),
            ((4, 1, 3), (1, 5, 3)),
        )
    ),
    case("ConcatOffset", np.int32(1), [i32(2, 3), i32(2, 5), i32(2, 1)]),
    *(case("InvertPermutation", v) for v in (i32(2, 0, 1), np.array([1, 0]))),
    case("EnsureShape", A, shape=[2, None, 4]),
    case("EnsureShape", A, shape=[2, 4]).using(error="ensured"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)
