"""Elementwise arithmetic of two tensors against TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = tf.bfloat16.as_numpy_dtype
SAFE = np.array([-2.5, -1.5, -0.5, 0.25, 0.5, 1.0, 3.0])
FLOATS = [np.float64, np.float32, np.float16, BF16]
INTS = [np.int32, np.int64, np.int8, np.int16, np.uint8]
COMPLEX = np.array([1 + 2j, -0.5 + 0.3j, 0.2 - 1j, 2.0 + 0j])
RNG = np.random.default_rng(0)
ARITHMETIC = ["Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"]
PAIRS = list(itertools.product([-7, -3, 2, 5], [-4, -2, 3, 5]))
LEFT, RIGHT = (np.array(v) for v in zip(*PAIRS, strict=True))

CASES = [
    *(
        case(name, x.astype(d), y.astype(d)).using(name=f"{np.dtype(d).name}-broadcast")
        for name in ARITHMETIC
        for d in [*FLOATS, np.int32, np.int64]
        for x, y in [(RNG.normal(size=(2, 1, 3)) * 5, RNG.normal(size=(4, 1)) * 5)]
    ),
    *(
        case(name, np.array([1.0, 2.0]), np.array([1.0, 2.0])).using(name="ties")
        for name in ("Maximum", "Minimum", "SquaredDifference")
    ),
    *(
        case(name, np.ones((3, 4), np.float32), np.float32(2)).using(name="symbolic", symbolic=("b, 4", ""))
        for name in ("AddV2", "Mul")
    ),
    *(case("RealDiv", LEFT.astype(d), RIGHT.astype(d)) for d in [*FLOATS, np.complex128]),
    case("RealDiv", np.array([1.0, -1.0, 0.0]), np.zeros(3)).using(name="by zero", grad=False),
    *(
        case(name, LEFT.astype(d), RIGHT.astype(d))
        for name in ("FloorDiv", "FloorMod")
        for d in [*INTS[:4], np.float32, np.float64]
    ),
    *(
        case(name, LEFT.astype(d), RIGHT.astype(d))
        for name in ("TruncateDiv", "TruncateMod", "Div")
        for d in [np.int32, np.int64]
    ),
    *(case(name, np.array([7, 9], np.uint8), np.array([2, 4], np.uint8)) for name in ("FloorDiv", "TruncateDiv")),
    # Quotients of floats are rounded towards zero, too, and have no gradient.
    *(case("TruncateDiv", (LEFT * 1.7).astype(d), RIGHT.astype(d)).using(name="floats", grad=False) for d in FLOATS),
    case("TruncateDiv", np.array([-np.inf, -0.08, 5.0, -1.0, 0.0]), np.array([2.5, np.inf, 0.0, 3.0, 0.0])).using(
        name="hard", grad=False
    ),
    # The floor of the rounded quotient.
    case("FloorDiv", np.array([-np.inf, 0.08, 5.0, -1.0, 0.0]), np.array([2.5, -np.inf, 0.0, 0.0, 0.0])).using(
        name="hard"
    ),
    case("FloorDiv", np.float32([-np.inf, 0.08]), np.float32([2.5, -np.inf])).using(baked=("x", "y"), name="baked"),
    case("SquaredDifference", COMPLEX, COMPLEX[::-1] * 2).using(name="complex"),
    *(case("Mod", LEFT.astype(d), RIGHT.astype(d)) for d in [np.int32, np.float32]),
    *(
        case("Pow", np.array([2.0, 0.5, 3.0, 0.0, 0.0]).astype(d), np.array([3.0, -1.5, 0.0, 2.0, 0.0]).astype(d))
        for d in FLOATS
    ),
    case("Pow", np.array([-2.0, -3.0]), np.array([3.0, 2.0])).using(name="negative base"),
    *(case("Pow", np.array([2, -3, 5]).astype(d), np.array([3, 2, 0]).astype(d)) for d in [np.int32, np.int64]),
    # Large exponents wrap as in modular arithmetic.
    *(
        case(
            "Pow",
            np.array([0, 1, -1, 2, 256, 3, -3, 3]).astype(d),
            np.array([64, 64, 65, 64, 127, 100, 65, 0]).astype(d),
        )
        for d in [np.int32, np.int64]
    ),
    *(case("Atan2", RNG.normal(size=4).astype(d), RNG.normal(size=4).astype(d)) for d in FLOATS[:2]),
    *(
        case(name, np.array([0.0, 1.0, 2.0, 0.0]).astype(d), np.array([0.0, 2.0, 0.0, 3.0]).astype(d))
        for name in ("DivNoNan", "MulNoNan", "Xdivy")
        for d in [np.float32, np.float64]
    ),
    *(
        case(name, np.array([0.0, 1.0, 2.0, 0.0]).astype(d), np.array([0.0, 2.0, 0.5, 3.0]).astype(d))
        for name in ("Xlogy", "Xlog1py")
        for d in [np.float32, np.float64]
    ),
    case("MulNoNan", np.array([np.nan, np.inf]), np.zeros(2)).using(name="nan times zero", grad=False),
    case("NextAfter", np.array([1.0, -1.0, 0.0]), np.array([2.0, -2.0, 1.0])),
    *(case("AddN", [np.full((2, 2), i, d) for i in range(n)]) for d in [np.float32, np.int32] for n in (1, 3)),
    case("AccumulateNV2", [SAFE, SAFE * 2], shape=[7]).using(grad=False),
    # The derivative with respect to y is nonzero where y is 0.
    case("MulNoNan", np.array([0.5, 2.0, 3.0]), np.array([0.0, 0.0, 1.0])).using(name="zero"),
    case("MulNoNan", np.array([0.5, 2.0, 3.0]), np.array([[0.0], [1.0]])).using(name="broadcast"),
    case("Complex", np.array([1.0, 2.0]), np.array([3.0, -1.0]), Tout=tf.complex128),
    *(case("Cross", RNG.normal(size=(2, 3)).astype(d), RNG.normal(size=(2, 3)).astype(d)) for d in FLOATS[:2]),
    *(
        case(name, np.array([1.0, 2.0, np.nan, np.nan]), np.array([1.0, np.nan, 2.0, np.nan])).using(
            name="nan", grad=False
        )
        for name in ARITHMETIC
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
