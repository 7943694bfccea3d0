"""Shifts, bitwise logic and bit counts against TensorFlow."""

import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]

CASES = [
    *(
        case(name, np.array([5, 3, 12]).astype(d), np.array([3, 6, 10]).astype(d))
        for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
        for d in INTS
    ),
    *(case("Invert", np.array([0, 1, 100]).astype(d)) for d in INTS),
    *(
        case(name, np.array([1, 5, 100, -7 if d[0] == "i" else 7]).astype(d), np.array([0, 1, 3, 2]).astype(d))
        for name in ("LeftShift", "RightShift")
        for d in INTS
    ),
    case("LeftShift", np.array([1, 1], np.int32), np.array([-1, 40], np.int32)).using(name="out of range"),
    *(case("PopulationCount", np.array([0, 1, 7, 100]).astype(d)) for d in INTS),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
