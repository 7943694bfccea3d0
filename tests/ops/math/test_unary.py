"""Elementwise functions of one tensor against TensorFlow."""

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
COMPLEX = np.array([1 + 2j, -0.5 + 0.3j, 0.2 - 1j, 2.0 + 0j])
# op: values at which the gradient is compared
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
# Not Round: TensorFlow 2.21 returns zeros for integers, contrary to its documentation.
INT_UNARY = {
    "Abs": [np.int32, np.int64, np.int8],
    "Neg": [np.int32, np.int16],
    "Sign": [np.int32, np.int64],
    "Square": [np.int32, np.int64],
}

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
        case(name, v)
        for name in ("ZerosLike", "OnesLike")
        for v in (SAFE, np.array([1, 2], np.int8), COMPLEX, np.array(True))
    ),
    # Below -11 exp(-x) overflows float16.
    case("Sigmoid", np.float16([-9.5, -10.5, -12, -14, -15, -16, 12])).using(name="half", rtol=2e-3, atol=1e-7),
    *(
        case(name, np.array([0.1, 0.5, 0.9]).astype(d), np.array([1.0, -2.0, 3.0]).astype(d))
        for name in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")
        for d in [np.float32, np.float64]
    ),
    *(
        case(name, COMPLEX, COMPLEX[::-1] * 0.7).using(rtol=1e-5)
        for name in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")
    ),
    # The derivative with respect to dy is nonzero where dy is 0.
    *(
        case(name, np.array([0.5, 2.0, 3.0]), np.array([0.0, 0.0, 1.0])).using(name="zero-dy")
        for name in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")
    ),
    *(case(name, COMPLEX) for name in ("Conj",)),
    *(case(name, COMPLEX, Tout=tf.float64) for name in ("Real", "Imag", "Angle", "ComplexAbs")),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


OUTSIDE = np.array([-np.inf, -20, -12, -10, -5.5, -2, -1, 0, 1, 2, 15, 60, np.inf, np.nan])


@pytest.mark.default_cases("float16-Acosh", "float16-BesselI1e", "float32-Digamma")
@pytest.mark.parametrize("name", ["Acosh", "BesselI1e", "Digamma", "Expm1", "Ndtri", "Softsign"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_derivatives_at_the_edges_of_the_domain(name, dtype):
    """Outside the domain, at infinity and NaN, against float64's derivative."""
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
def test_round_returns_integers_unchanged(dtype, jit):
    # TensorFlow 2.21 returns zeros.
    x = np.array([-3, 0, 2], dtype)
    with jax.enable_x64(True):
        f = tf2jax.convert_functional(
            tf.function(lambda x: tf.raw_ops.Round(x=x), autograph=False), tf.TensorSpec(x.shape, dtype)
        )
        got = (jax.jit(f) if jit else f)(x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, x)
