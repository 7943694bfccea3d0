"""Each line of docs/reference/random-ops.md is checked against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tf2jax_lite.ops import registry

from . import claims
from . import test_generator as test_random_generator


def test_every_random_op_has_a_claim():
    """Random ops have a key, a 64-bit state, or a name that begins with Stateless."""
    ops = registry.known_ops().values()
    drawing = {o.name for o in ops if o.key or o.int64_state or o.name.startswith("Stateless")}
    control_flow = {"StatelessIf", "StatelessCase", "StatelessWhile"}
    assert drawing - control_flow <= set(claims.CLAIMS)
    assert set(claims.CLAIMS) <= {o.name for o in registry.known_ops().values()}


def _run(fn, x64):
    with jax.enable_x64(x64):
        jax_fn = tf2jax.convert_functional(tf.function(fn))
        compiled = jax.jit(lambda key: jax_fn(rng=key)).lower(jax.random.key(0)).compile(fast_options())
        return [np.asarray(v) for v in jax.tree.leaves(compiled(jax.random.key(0)))]


def _ulps(actual, expected):
    eps = float(ml_dtypes.finfo(expected.dtype).eps)
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    return np.max(np.abs(actual - expected) / (eps * np.maximum(1, np.abs(expected))))


def _holds(claim, actual, expected):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if claim.kind == claims.EXACT:
        assert actual.tobytes() == expected.tobytes()
    else:
        assert _ulps(actual, expected) <= claim.ulps


# Rejection samplers have long compile times.
LONG = ("StatelessRandomGammaV2", "StatelessRandomPoisson", "StatelessRandomBinomial", "StatelessTruncatedNormal")


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.full) if n in LONG else n for n in claims.STATELESS]
)
def test_stateless(name):
    claim = claims.STATELESS[name]

    def fn():
        return tf.nest.flatten([case() for case in claim.cases])

    for actual, expected in zip(_run(fn, True), tf.function(fn)(), strict=True):
        _holds(claim, actual, expected.numpy())


@pytest.mark.full
@pytest.mark.parametrize("name", claims.GENERATOR)
def test_generator(name):
    """All cases draw from one state: numbers and final state agree."""
    claim = claims.GENERATOR[name]
    made = [test_random_generator.make(*case) for case in test_random_generator.OPS if case[0] == name]
    with jax.enable_x64(True):
        for variable, fn in made:
            jax_fn, params = tf2jax.convert(fn)
            actual, params = jax_fn(params)
            expected = fn()
            np.testing.assert_array_equal(params["state"], variable.numpy())
            if expected is not None:
                _holds(claim, np.asarray(actual), expected.numpy())


@pytest.mark.default_cases("ParameterizedTruncatedNormal", "NonDeterministicInts")
@pytest.mark.parametrize("name", [n for n, c in claims.KEYED.items() if c.cases])
def test_distribution(name):
    ((draw, cdf),) = claims.KEYED[name].cases
    (drawn,) = _run(draw, False)
    expected = draw().numpy()
    assert drawn.dtype == expected.dtype and drawn.shape == expected.shape
    drawn = drawn.reshape(-1).astype(np.float64)
    if np.issubdtype(expected.dtype, np.integer):  # made continuous, so that the test is exact
        spread = np.random.default_rng(0).uniform(size=drawn.size)
        quantiles = cdf(drawn - 1) + spread * (cdf(drawn) - cdf(drawn - 1))
    else:
        quantiles = cdf(drawn)
    assert scipy.stats.kstest(quantiles, "uniform").pvalue > 1e-3
