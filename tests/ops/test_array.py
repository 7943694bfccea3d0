"""Joining, splitting, padding and rearranging against TensorFlow."""

import numpy as np
import pytest

from .harness import case, check

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IDS = np.arange(6, dtype=np.int32).reshape(2, 3)
B = np.array([[True, False], [False, True]])


def i32(*values):
    return np.array(values, np.int32)


CASES = [
    *(
        case(name, v)
        for name in ("Identity", "Snapshot", "StopGradient", "DeepCopy", "GuaranteeConst")
        for v in (A, IDS, B)
    ),
    case("IdentityN", [A, IDS]).using(name="two"),
    case("PreventGradient", A, message="no").using(grad=False),
    case("CheckNumerics", A, message="no"),
    case("CheckNumericsV2", A, message="no"),
    case("NoOp"),
    case("ControlTrigger"),
    case("PlaceholderWithDefault", A, shape=[2, 3, 4]),
    *(case("ConcatV2", [A, A * 2], np.int32(axis)) for axis in (0, 1, 2, -1)),
    case("ConcatV2", [IDS, IDS[:1], IDS[:0]], np.int64(0)).using(name="sizes"),
    case("ConcatV2", [A, A], np.int32(1)).using(symbolic=("b, 3, 4", "b, 3, 4"), name="symbolic"),
    case("ConcatV2", [A, A], np.int32(7)).using(error="out of range"),
    case("Concat", np.int32(1), [A, A * 2]),
    *(case("Pack", [A, A * 2], axis=axis) for axis in (0, 1, -1)),
    case("Pack", [np.int32(1), np.int32(2)]).using(name="scalars"),
    *(case("Unpack", A, num=n, axis=axis) for n, axis in ((2, 0), (3, 1), (4, -1))),
    *(case("Split", np.int32(axis), A, num_split=n) for axis, n in ((0, 2), (1, 3), (-1, 2))),
    *(case("SplitV", A, np.array(sizes), np.int32(2), num_split=len(sizes)) for sizes in ([1, 3], [2, -1], [0, 4])),
    *(
        case("Slice", A, i32(*b), i32(*s)).using(baked=("begin",))
        for b, s in (((0, 1, 2), (2, 1, -1)), ((1, 0, 0), (-1, 2, 3)), ((0, 0, 4), (1, 1, 0)))
    ),
    case("Slice", A, i32(0, 0, 0), i32(-1, 2, 2)).using(symbolic=("b, 3, 4",), name="symbolic", baked=("begin",)),
    case("Slice", A, i32(1, 0, 2), i32(1, 2, 2)).using(name="traced"),
    case("Slice", A, i32(0, 2, 0), i32(1, 2, 1)).using(error="reaches out"),
    *(case("Transpose", A, i32(*p)) for p in ((2, 0, 1), (0, 1, 2), (1, 0, 2))),
    case("Transpose", A, i32(0, 2, 1)).using(symbolic=("b, 3, 4",), name="symbolic"),
    *(case("Tile", A, i32(*m)) for m in ((1, 2, 1), (2, 1, 3), (0, 1, 1))),
    *(case("Pad", v, i32((1, 0), (0, 2))) for v in (A[0], IDS, B)),
    case("PadV2", A[0], i32((1, 1), (0, 0)), np.float32(7)),
    *(case("MirrorPad", A[0], i32((1, 2), (2, 1)), mode=m) for m in ("REFLECT", "SYMMETRIC")),
    *(case("ReverseV2", A, np.array(axes, np.int32)) for axes in ([0], [1, -1], [])),
    *(
        case("OneHot", v, np.int32(4), np.float32(5), np.float32(-1), axis=axis)
        for v in (np.array([0, 3, -1, 7]), IDS.astype(np.int64), np.uint8([1, 2]))
        for axis in (-1, 0)
    ),
    case("OneHot", i32(1, 2), np.int32(3), np.True_, np.False_).using(name="bool"),
    case("OneHot", i32(1, 2), np.int32(3), np.float32(1), np.float32(0)).using(symbolic=("b", "", ""), name="symbolic"),
    *(case("MatrixBandPart", A, np.int64(lo), np.int64(hi)) for lo, hi in ((0, 0), (-1, 0), (0, -1), (1, 2))),
    *(
        case("SpaceToBatchND", np.arange(2 * 4 * 6 * 3.0).reshape(2, 4, 6, 3), i32(2, 3), i32(*p))
        for p in (((0, 0), (0, 0)), ((1, 1), (2, 1)))
    ),
    *(
        case("BatchToSpaceND", np.arange(12 * 2 * 3 * 2.0).reshape(12, 2, 3, 2), i32(2, 3), i32(*c))
        for c in (((0, 0), (0, 0)), ((1, 0), (1, 2)))
    ),
    case("SpaceToBatchND", np.ones((2, 4, 3), np.float32), i32(2), i32((0, 0))).using(symbolic=("b, 4, 3",)),
]
TESTED_OTHERWISE = {"Const", "Placeholder"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)
