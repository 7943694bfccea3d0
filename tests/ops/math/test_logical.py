"""Comparison, logic, selection and clipping against TensorFlow."""

import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

SAFE = np.array([-2.5, -1.5, -0.5, 0.25, 0.5, 1.0, 3.0])
COMPLEX = np.array([1 + 2j, -0.5 + 0.3j, 0.2 - 1j, 2.0 + 0j])
COMPARISONS = ["Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"]

CASES = [
    *(
        case(name, np.array([[1, 2]]).astype(d), np.array([[2], [1]]).astype(d))
        for name in COMPARISONS
        for d in [np.float32, np.int32, np.uint8]
    ),
    *(
        case(name, np.ones((3, 4), np.float32), np.float32(2)).using(name="symbolic", symbolic=("b, 4", ""))
        for name in ("Less",)
    ),
    *(case("LogicalNot", v) for v in (np.array([True, False]), np.bool_(True))),
    *(
        case(name, np.array([True, True, False, False]), np.array([True, False, True, False]))
        for name in ("LogicalAnd", "LogicalOr")
    ),
    case("Equal", np.ones(2), np.ones(3), incompatible_shape_error=False).using(vmap=False),
    case("NotEqual", np.ones(2), np.ones(3), incompatible_shape_error=False).using(vmap=False),
    *(
        case(name, np.ones(2), np.ones(3), incompatible_shape_error=False).using(baked=("x", "y"), name="unlike-baked")
        for name in ("Equal", "NotEqual")
    ),
    case("Equal", COMPLEX, COMPLEX.conj()),
    case("SelectV2", np.array([[True], [False]]), np.array([1.0, 2.0]), np.array([[3.0], [4.0]])),
    case("SelectV2", np.array(True), np.float32(1), np.array([2, 3], np.float32)),
    case("Select", np.array([True, False]), np.ones((2, 3)), np.zeros((2, 3))).using(name="rows"),
    case("Select", np.array([[True, False]]), np.array([[1, 2]]), np.array([[3, 4]])),
    case("Select", np.array(False), np.array([1.0]), np.array([3.0])),
    case("ClipByValue", SAFE, np.float64(-1), np.float64(1)),
    case("ClipByValue", np.array([-1.0, 0.0, 1.0]), np.float64(-1), np.float64(1)).using(name="edges"),
    case("ClipByValue", np.array([-1, 5], np.int32), np.int32(0), np.int32(3)),
    case("ClipByValue", np.array([-1, 5], np.int32), np.int32(4), np.int32(3)).using(name="empty range"),
    case("ClipByValue", SAFE, np.float64(1), np.float64(-1)).using(name="empty range", grad=False),
    # The kernel clips real and imaginary parts separately; TensorFlow has no gradient of it.
    *(
        case("ClipByValue", np.array([1 + 2j, -1 - 1j, 0.5j, -3 + 1j], d), d(low), d(high)).using(grad=False)
        for d in (np.complex64, np.complex128)
        for low, high in ((-0.5 - 2j, 0.3 + 0.7j), (1 - 1j, 0.3 + 2j))
    ),
    case("ApproximateEqual", np.array([1.0, 2.0]), np.array([1.05, 3.0]), tolerance=0.1),
    *(
        case(name, np.array([1.0, 2.0, np.nan, np.nan]), np.array([1.0, np.nan, 2.0, np.nan])).using(
            name="nan", grad=False
        )
        for name in COMPARISONS
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
