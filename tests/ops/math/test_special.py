"""Special functions against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import registry

X = np.array([-3.0, -0.5, 0.3, 1.0, 4.5])
P = np.array([0.2, 0.7, 1.5, 3.0, 8.0])
UNARY = {"BesselI0": X, "BesselI0e": X, "BesselI1": X, "BesselI1e": X, "Ndtri": P / 10, "Spence": P, "Expint": P}
ENDS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 7.0, 30.0])
PAIRS = [v.reshape(-1) for v in np.meshgrid(ENDS, ENDS)]
FLAT = [np.array([0, 0.5, 1, 10, np.inf, np.inf, 2, 3]), np.array([0, np.inf, np.inf, np.inf, 0.5, 10, 1, 2.5])]
TRIPLES = [v.reshape(-1) for v in np.meshgrid(ENDS, ENDS, np.array([0, 1, -1, 0.3, 0.999, np.inf, np.nan]))]

CASES = [
    *(
        case(name, values.astype(d)).using(rtol=1e-4 if d == "float32" else 1e-7, name=d)
        for name, values in UNARY.items()
        for d in ("float32", "float64")
    ),
    *(
        case(name, P.astype(d), P[::-1].astype(d)).using(rtol=1e-4 if d == "float32" else 1e-7, grad_rtol=1e-3, name=d)
        for name in ("Igamma", "Igammac", "IgammaGradA", "RandomGammaGrad")
        for d in ("float32", "float64")
    ),
    *(
        case("Zeta", (P + 1.5).astype(d), P.astype(d)).using(rtol=1e-5, grad=False, name=d)
        for d in ("float32", "float64")
    ),
    *(
        case("Polygamma", np.array([0, 1, 2, 3, 1]).astype(d), P.astype(d)).using(
            rtol=1e-4, grad_rtol=1e-3, name=d, grad=False
        )
        for d in ("float32", "float64")
    ),
    *(
        case("Betainc", P.astype(d), P[::-1].astype(d), (P / 10).astype(d)).using(
            rtol=1e-4 if d == "float32" else 1e-8, grad=False, name=d
        )
        for d in ("float32", "float64")
    ),
    # An argument is 0, negative, infinite or NaN.
    *(
        case(name, *PAIRS).using(rtol=1e-6, grad=False, name="ends")
        for name in ("Igamma", "Igammac", "IgammaGradA", "Zeta", "Polygamma")
    ),
    case("Betainc", *TRIPLES).using(rtol=1e-6, grad=False, name="ends"),
    # exp(|x|) overflows float16 from 11.1 on.
    *(case(f"BesselI{n}", np.float16([-13, -11.5, -2, 0.5, 12])).using(name="half") for n in (0, 1)),
    case("Expint", ENDS).using(rtol=1e-7, name="ends"),
    case("Expint", np.float32([-0.25, -1e-30, -0.49, 0.25])).using(name="small-negative"),  # JAX's loop does not end
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("name", ["Zeta", "Polygamma", "Betainc"])
def test_only_the_last_argument_has_a_gradient(name):
    """TensorFlow has no gradient with respect to the others, where JAX raises."""
    arrays = {
        "Zeta": [P + 1.5, P],
        "Polygamma": [np.array([0.0, 1.0, 2.0, 3.0, 1.0]), P],
        "Betainc": [P, P[::-1].copy(), P / 10],
    }[name]
    names = {"Zeta": ("x", "q"), "Polygamma": ("a", "x"), "Betainc": ("a", "b", "x")}[name]
    tensors = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = tf.reduce_sum(getattr(tf.raw_ops, name)(**dict(zip(names, tensors, strict=True))))
    expected = tape.gradient(value, tensors, unconnected_gradients="zero")
    with jax.enable_x64(True):
        fn = registry.lookup(name).fn
        gradients = jax.grad(lambda args: fn(*args).sum())(arrays)
        for actual, gradient in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(actual, gradient, rtol=1e-8)


@pytest.mark.default_cases("0.0-1.0")
@pytest.mark.parametrize("a", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_derivatives_of_betainc_at_its_ends(a, x):
    arrays = [np.float64(v) for v in (a, 2.0, x)]
    with tf.GradientTape() as tape:
        tensors = [tf.constant(v) for v in arrays]
        tape.watch(tensors)
        value = tf.math.betainc(*tensors)
    expected = tape.gradient(value, tensors[2])
    with jax.enable_x64(True):
        actual = jax.grad(registry.lookup("Betainc").fn, 2)(*arrays)
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("name", ["Igamma", "Igammac"])
def test_incomplete_gammas_are_constant_at_infinity(name):
    a, x = map(tf.constant, FLAT)
    with tf.GradientTape() as tape:
        tape.watch((a, x))
        y = getattr(tf.raw_ops, name)(a=a, x=x)
    d_a, d_x = tape.gradient(y, (a, x))
    with jax.enable_x64(True):
        got = jax.jit(lambda *v: jax.vjp(registry.lookup(name).fn, *v)[1](np.ones(len(FLAT[0]))))(*FLAT)
    np.testing.assert_allclose(got[0], d_a, rtol=1e-6)
    # TensorFlow's is NaN at some ends: exp(inf - inf).
    np.testing.assert_allclose(got[1], np.nan_to_num(d_x), rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", ["BesselI0e", "BesselI1e"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_gradients_of_scaled_bessel_in_half_precision(name, dtype):
    """The derivative is a difference of numbers of about the same size."""
    x = np.linspace(0.5, 12, 24).astype(dtype)
    with jax.enable_x64(True):
        grads = [
            np.float64(jax.jit(lambda x: jax.vjp(registry.lookup(name).fn, x)[1](np.ones(x.shape, x.dtype))[0])(v))
            for v in (x, x.astype(np.float64))
        ]
    np.testing.assert_allclose(*grads, rtol=float(ml_dtypes.finfo(dtype).eps), atol=1e-6)
