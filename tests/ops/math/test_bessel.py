"""Bessel functions, Dawson's and Fresnel's integrals against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite.ops  # noqa: F401
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import registry

# Both sides of each boundary between approximations, and arguments that cross one when halved (under vmap).
ANY = np.array([-30.0, -6.5, -5.0, -1.0, 0.0, 1e-7, 0.3, 1.5, 2.0, 2.1, 3.3, 5.1, 6.3, 9.0, 50.0])
POSITIVE = np.array([1e-3, 0.3, 1.5, 2.0, 2.1, 3.3, 5.0, 5.1, 9.0, 50.0])
HARD = np.array([np.nan, np.inf, -np.inf, -1.0, 0.0])
ODD = ("BesselJ0", "BesselJ1", "Dawsn", "FresnelCos", "FresnelSin")
LOG = ("BesselY0", "BesselY1", "BesselK0", "BesselK1", "BesselK0e", "BesselK1e")
HALF = ("BesselJ0", "BesselJ1", *LOG)

CASES = [
    *(
        case(name, (ANY if name in ODD else POSITIVE).astype(d)).using(name=d, rtol=rtol)
        for name in (*ODD, *LOG)
        # The tolerance allows for cancellation at the functions' zeros.
        for d, rtol in (("float32", 1e-5), ("float64", 1e-12))
    ),
    # TensorFlow's gradients are NaN or infinite here.
    *(case(name, HARD).using(name="hard values", jit=False) for name in (*ODD, *LOG)),
    *(case(name, np.float16([0.25, 1.5, 4.0, 7.0])).using(name="float16", jit=name == "BesselJ1") for name in HALF),
    case("FresnelCos", np.array([4e4, -4e4, 1.6, 1.601])).using(name="limits"),
    case("FresnelSin", np.array([4e4, -4e4, 1.6, 1.601])).using(name="limits"),
    # TensorFlow loses the sign below -1e9.
    case("Dawsn", np.array([2e9, -2e8, 3.25, 6.25])).using(name="limits"),
    case("BesselJ1", np.zeros((0, 3), np.float32)),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("name", ["BesselJ1", "BesselY1", "BesselK1e", "Dawsn", "FresnelSin"])
def test_second_derivatives_against_differences(name):
    fn = registry.lookup(name).fn
    with jax.enable_x64(True):
        x, h = np.array([0.0, 0.7, 3.1, 6.4] if name in ODD else [0.7, 3.1, 6.4]), 1e-5
        first = jax.vmap(jax.grad(fn))
        second = jax.jit(jax.vmap(jax.grad(jax.grad(fn))))(x)
        np.testing.assert_allclose(second, (first(x + h) - first(x - h)) / (2 * h), rtol=1e-6, atol=1e-7)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_bessel_y1_at_zero_and_below_matches_tensorflow(dtype):
    x = np.array([0, -0.0, -1, -np.inf, 0.5], dtype)
    with jax.enable_x64(True):
        actual = jax.jit(registry.lookup("BesselY1").fn)(x)
    np.testing.assert_allclose(actual, tf.raw_ops.BesselY1(x=x), rtol=1e-3)
