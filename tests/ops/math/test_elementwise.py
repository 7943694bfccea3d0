"""Elementwise ops against TensorFlow: dtypes, broadcasting, hard values, corner gradients."""

import itertools

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import registry

BF16 = tf.bfloat16.as_numpy_dtype
HARD = np.array([-np.inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 3.0, np.inf, np.nan])
SAFE = np.array([-2.5, -1.5, -0.5, 0.25, 0.5, 1.0, 3.0])
UNIT = np.array([-0.9, -0.5, 0.0, 0.3, 0.99])
POSITIVE = np.array([0.01, 0.5, 1.0, 2.0, 7.5])
FLOATS = [np.float64, np.float32, np.float16, BF16]
INTS = [np.int32, np.int64, np.int8, np.int16, np.uint8]
COMPLEX = np.array([1 + 2j, -0.5 + 0.3j, 0.2 - 1j, 2.0 + 0j])
RNG = np.random.default_rng(0)

# op: (values whose gradient is compared, whether hard values agree too)
UNARY = {
    "Abs": SAFE,
    "Neg": SAFE,
    "Square": SAFE,
    "Sqrt": POSITIVE,
    "Rsqrt": POSITIVE,
    "Exp": SAFE,
    "Expm1": SAFE,
    "Log": POSITIVE,
    "Log1p": POSITIVE,
    "Sin": SAFE,
    "Cos": SAFE,
    "Tan": UNIT,
    "Tanh": SAFE,
    "Sigmoid": SAFE,
    "Reciprocal": SAFE,
    "Inv": SAFE,
    "Erf": SAFE,
    "Erfc": SAFE,
    "Sign": SAFE,
    "Floor": SAFE,
    "Ceil": SAFE,
    "Rint": SAFE,
    "Round": SAFE,
    "Acos": UNIT,
    "Asin": UNIT,
    "Atan": SAFE,
    "Acosh": POSITIVE + 1.1,
    "Asinh": SAFE,
    "Atanh": UNIT,
    "Sinh": SAFE,
    "Cosh": SAFE,
    "Lgamma": POSITIVE,
    "Digamma": POSITIVE,
    "Erfinv": UNIT,
    "IsNan": SAFE,
    "IsInf": SAFE,
    "IsFinite": SAFE,
}
# TensorFlow has no kernels for these.
ABSENT = {
    *((name, BF16) for name in ("Lgamma", "Digamma", "Erfinv", "Rint")),
    ("Rint", np.float16),
    ("Erfinv", np.float16),
}
COMPLEX_UNARY = ["Neg", "Square", "Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Reciprocal", "Sqrt", "Rsqrt", "Sign"]
COMPLEX_INVERSE = ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Sinh", "Cosh", "Tan", "Log1p", "Expm1", "Inv"]
QUADRANTS = np.array([x + 1j * y for x in (0.3, -0.3, 2.0, -2.0) for y in (0.4, -0.4, 1.5, -1.5)])
# Not Round: TensorFlow 2.21 returns zeros for integers, against its documentation; here they are returned.
INT_UNARY = {
    "Abs": [np.int32, np.int64, np.int8],
    "Neg": [np.int32, np.int16],
    "Sign": [np.int32, np.int64],
    "Square": [np.int32, np.int64],
}

ARITHMETIC = ["Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"]
COMPARISONS = ["Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"]
PAIRS = list(itertools.product([-7, -3, 2, 5], [-4, -2, 3, 5]))
LEFT, RIGHT = (np.array(v) for v in zip(*PAIRS, strict=True))

CASES = [
    *(
        case(name, values.astype(d)).using(name=f"{np.dtype(d).name}")
        for name, values in UNARY.items()
        for d in FLOATS
        if (name, d) not in ABSENT
    ),
    *(case(name, HARD.astype(np.float32)).using(name="hard", grad=False) for name in UNARY),
    *(case(name, np.float32(0.5)).using(name="scalar") for name in UNARY if name != "Acosh"),
    *(case(name, np.zeros((0, 3), np.float32)).using(name="empty") for name in UNARY),
    *(case(name, COMPLEX).using(name="complex") for name in COMPLEX_UNARY),
    *(case(name, QUADRANTS).using(name="quadrants", rtol=1e-8) for name in COMPLEX_UNARY + COMPLEX_INVERSE),
    *(case(name, np.array([-3, 0, 2]).astype(d)) for name, dtypes in INT_UNARY.items() for d in dtypes),
    *(
        case(name, x.astype(d), y.astype(d)).using(name=f"{np.dtype(d).name}-broadcast")
        for name in ARITHMETIC
        for d in [*FLOATS, np.int32, np.int64]
        for x, y in [(RNG.normal(size=(2, 1, 3)) * 5, RNG.normal(size=(4, 1)) * 5)]
    ),
    *(
        case(name, np.array([1.0, 2.0, np.nan, np.nan]), np.array([1.0, np.nan, 2.0, np.nan])).using(
            name="nan", grad=False
        )
        for name in ARITHMETIC + COMPARISONS
    ),
    *(
        case(name, np.array([1.0, 2.0]), np.array([1.0, 2.0])).using(name="ties")
        for name in ("Maximum", "Minimum", "SquaredDifference")
    ),
    *(
        case(name, np.array([[1, 2]]).astype(d), np.array([[2], [1]]).astype(d))
        for name in COMPARISONS
        for d in [np.float32, np.int32, np.uint8]
    ),
    *(
        case(name, np.ones((3, 4), np.float32), np.float32(2)).using(name="symbolic", symbolic=("b, 4", ""))
        for name in ("AddV2", "Mul", "Less")
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
    # The quotient of floats is rounded towards zero, too, and has no gradient.
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
    # Large exponents: what wraps around is that of modular arithmetic.
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
    *(case("LogicalNot", v) for v in (np.array([True, False]), np.bool_(True))),
    *(
        case(name, np.array([True, True, False, False]), np.array([True, False, True, False]))
        for name in ("LogicalAnd", "LogicalOr")
    ),
    *(
        case(name, np.array([5, 3, 12]).astype(d), np.array([3, 6, 10]).astype(d))
        for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
        for d in [*INTS, np.uint32]
    ),
    *(case("Invert", np.array([0, 1, 100]).astype(d)) for d in INTS),
    *(
        case(name, v)
        for name in ("ZerosLike", "OnesLike")
        for v in (SAFE, np.array([1, 2], np.int8), COMPLEX, np.array(True))
    ),
    *(case("AddN", [np.full((2, 2), i, d) for i in range(n)]) for d in [np.float32, np.int32] for n in (1, 3)),
    case("AccumulateNV2", [SAFE, SAFE * 2], shape=[7]).using(grad=False),
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
    # Below -11 exp(-x) is no float16.
    case("Sigmoid", np.float16([-9.5, -10.5, -12, -14, -15, -16, 12])).using(name="half", rtol=2e-3, atol=1e-7),
    # The kernel takes the parts of complex numbers one by one; TensorFlow has no gradient there.
    *(
        case("ClipByValue", np.array([1 + 2j, -1 - 1j, 0.5j, -3 + 1j], d), d(low), d(high)).using(grad=False)
        for d in (np.complex64, np.complex128)
        for low, high in ((-0.5 - 2j, 0.3 + 0.7j), (1 - 1j, 0.3 + 2j))
    ),
    *(
        case(name, np.array([0.1, 0.5, 0.9]).astype(d), np.array([1.0, -2.0, 3.0]).astype(d))
        for name in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")
        for d in [np.float32, np.float64]
    ),
    *(
        case(name, COMPLEX, COMPLEX[::-1] * 0.7).using(rtol=1e-5)
        for name in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")
    ),
    # The derivative by dy is there where dy is 0.
    *(
        case(name, np.array([0.5, 2.0, 3.0]), np.array([0.0, 0.0, 1.0])).using(name="of nothing")
        for name in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad", "MulNoNan")
    ),
    case("MulNoNan", np.array([0.5, 2.0, 3.0]), np.array([[0.0], [1.0]])).using(name="broadcast"),
    *(case(name, COMPLEX) for name in ("Conj",)),
    *(case(name, COMPLEX, Tout=tf.float64) for name in ("Real", "Imag", "Angle", "ComplexAbs")),
    case("Complex", np.array([1.0, 2.0]), np.array([3.0, -1.0]), Tout=tf.complex128),
    case("ApproximateEqual", np.array([1.0, 2.0]), np.array([1.05, 3.0]), tolerance=0.1),
    *(case("Cross", RNG.normal(size=(2, 3)).astype(d), RNG.normal(size=(2, 3)).astype(d)) for d in FLOATS[:2]),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


OUTSIDE = np.array([-np.inf, -20, -12, -10, -5.5, -2, -1, 0, 1, 2, 15, 60, np.inf, np.nan])


@pytest.mark.default_cases("float16-Acosh", "float16-BesselI1e")
@pytest.mark.parametrize("name", ["Acosh", "BesselI1e", "Digamma", "Expm1", "Ndtri", "Softsign"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_slopes_far_out(name, dtype):
    """Where the function ends, is flat or is no number: in half precision against the slope of the same in double."""
    if name in ("BesselI1e", "Ndtri") and dtype == np.float16:
        pytest.skip("few digits on both sides, or no kernel")
    x = OUTSIDE.astype(dtype)
    argument = registry.lookup(name).inputs[0]
    wide = tf.constant(x.astype(np.float64))
    with tf.GradientTape() as tape:
        tape.watch(wide)
        y = getattr(tf.raw_ops, name)(**{argument: wide})
    want = tape.gradient(y, wide).numpy()
    with np.errstate(over="ignore"):
        want = want.astype(dtype).astype(np.float64)
    got = np.float64(jax.jit(lambda x: jax.vjp(registry.lookup(name).fn, x)[1](np.ones(x.shape, dtype))[0])(x))
    rtol, atol = (4e-3, 1e-6) if dtype == np.float16 else (1e-5, 1e-9)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


@pytest.mark.default_cases("False-int32")
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("jit", [False, True])
def test_rounded_integers_are_themselves(dtype, jit):
    # TensorFlow's kernel gives 0 for all of them (2.21).
    x = np.array([-3, 0, 2], dtype)
    with jax.enable_x64(True):
        f = tf2jax.convert_functional(
            tf.function(lambda x: tf.raw_ops.Round(x=x), autograph=False), tf.TensorSpec(x.shape, dtype)
        )
        got = (jax.jit(f) if jit else f)(x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, x)
