"""Stateless gamma, Poisson, binomial, bounded normal: equal numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tests.ops.batches import check, tiered
from tests.ops.harness import case

SEED = np.array([3, -5], np.int64)
KEY, COUNTER = np.array([2**63 + 12345], np.uint64), np.array([2**64 - 2, 77], np.uint64)
PHILOX = np.int32(1)
ALPHA = np.array([0.3, 1.0, 2.5, 100.0])
HARD_ALPHA = np.array([0, -0.1, -0.5, -0.7, np.inf, np.nan])
RATE = np.array([-1.0, 0.0, 2.0, 9.5, 10.0, 30.0, 1000.0, 65440.0])
COUNTS, PROBS = np.array([10.0, 100, 20, 60, 2.5, -1]), np.array([[0.3], [0.2], [0.8], [-1], [2]])
LOW, HIGH = np.array([-0.5, -3.0, 2.0, -np.inf]), np.array([0.5, 3.0, 9.0, -2.5])


def shape(*dimensions):
    return np.array(dimensions, np.int32)


# Compile time dominates: few cases, each with many parameters.
CASES = [
    case("StatelessRandomGammaV2", shape(3, 2, 4), np.array([1, 2], np.int32), ALPHA.astype(np.float32)).using(
        vmap=False
    ),
    case("StatelessRandomGammaV2", shape(3, 6), SEED, HARD_ALPHA).using(name="hard", grad=False, vmap=False),
    case("StatelessRandomGammaV2", shape(9), SEED, np.float16(0.7)).using(vmap=False, grad=False),
    case("StatelessRandomGammaV2", shape(2, 0), SEED, np.zeros([0], np.float32)).using(name="empty"),
    case("StatelessRandomGammaV2", shape(4, 2), SEED, ALPHA).using(error="does not end with"),
    case("StatelessRandomGammaV3", shape(30, 4), KEY, COUNTER, np.int32(3), ALPHA).using(grad=False),
    case("StatelessRandomGammaV3", shape(5), KEY, COUNTER, np.int32(2), np.float32(2)).using(error="algorithm 2"),
    *(
        case("StatelessRandomPoisson", shape(40, 8), SEED, RATE.astype(rate), dtype=tf.as_dtype(out)).using(
            name=f"{rate}-{out}", vmap=False
        )
        for rate, out in (("float32", "int64"), ("float64", "float64"), ("float16", "float16"), ("int32", "int32"))
    ),
    case("StatelessRandomPoisson", shape(4, 2), SEED, np.array([3, np.inf], np.float32), dtype=tf.float32).using(
        name="infinite"
    ),
    case("StatelessRandomPoisson", shape(0, 2), SEED, np.ones(2), dtype=tf.int64).using(name="empty", vmap=False),
    *(
        case("StatelessRandomBinomial", shape(9, 5, 6), SEED, COUNTS.astype(t), probs.astype(t), dtype=out).using(
            name=f"{t}-{out.name}", vmap=False
        )
        for t, out, probs in (
            ("float32", tf.int64, PROBS),
            ("float64", tf.float64, np.where(PROBS < 0, np.nan, PROBS)),
            ("float16", tf.float16, PROBS),
        )
    ),
    case("StatelessRandomBinomial", shape(2, 2), SEED, np.ones(2), np.ones(3)).using(error="do not broadcast"),
    case(
        "StatelessParameterizedTruncatedNormal",
        shape(),
        SEED,
        np.float64(1),
        np.float64(2),
        np.float64(3),
        np.float64(8),
    ).using(vmap=False),
    case("StatelessParameterizedTruncatedNormal", shape(2, 0), SEED, np.zeros([0]), *np.ones(3)).using(
        name="empty", vmap=False
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_first_bounded_normal(dtype):
    """The first number and its gradients are TensorFlow's, for all kinds of bounds."""

    def fn(*parameters):
        return tf.raw_ops.StatelessParameterizedTruncatedNormal(
            shape=[1],
            seed=SEED,
            means=parameters[0],
            stddevs=parameters[1],
            minvals=parameters[2],
            maxvals=parameters[3],
        )

    rtol = {"float32": 1e-5, "float64": 1e-12}[dtype]
    with jax.enable_x64(True):
        jax_fn = tf2jax.convert_functional(tf.function(fn), *[tf.TensorSpec([], dtype)] * 4)
        both = jax.jit(jax.value_and_grad(lambda p: jax_fn(*p)[0]))
        for low, high in zip(LOW, HIGH, strict=True):
            parameters = [tf.constant(v, dtype) for v in (0.1, 1.5, low, high)]
            with tf.GradientTape() as tape:
                tape.watch(parameters)
                expected = fn(*parameters)
            actual, gradients = both([p.numpy() for p in parameters])
            np.testing.assert_allclose(actual, expected[0], rtol=rtol)
            for a, e in zip(gradients, tape.gradient(expected, parameters), strict=True):
                np.testing.assert_allclose(a, e, rtol=100 * rtol, atol=rtol)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_bounded_normal_distribution(dtype):
    """Each number has its own stream; TensorFlow's numbers depend on its threads."""
    parameters = [dtype(p) for p in ([0, 1, 0, -1], [1, 2, 1, 0.5], LOW, HIGH)]
    fn = tf.function(
        lambda: tf.raw_ops.StatelessParameterizedTruncatedNormal(
            shape=[20_000, 4],
            seed=SEED,
            means=parameters[0],
            stddevs=parameters[1],
            minvals=parameters[2],
            maxvals=parameters[3],
        )
    )
    actual, expected = np.asarray(tf2jax.convert_functional(fn)()), fn().numpy()
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    assert np.all(actual >= LOW) and np.all(actual <= HIGH)
    actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual.mean(0), expected.mean(0), atol=0.05)
    np.testing.assert_allclose(actual.std(0), expected.std(0), atol=0.05)


@pytest.mark.full
@pytest.mark.parametrize("bad", [(-1.0, 0.0, 1.0), (1.0, 2.0, 1.0), (1.0, -np.inf, np.inf)])
def test_bad_bounds_are_nan(bad):
    fn = tf.function(
        lambda: tf.raw_ops.StatelessParameterizedTruncatedNormal(
            shape=[2], seed=SEED, means=0.0, stddevs=bad[0], minvals=bad[1], maxvals=bad[2]
        )
    )
    assert np.isnan(tf2jax.convert_functional(fn)()).all()


@pytest.mark.full
def test_without_64_bits():
    """Single precision has the same distributions, nearly the same numbers."""
    fn = tf.function(
        lambda seed: (
            tf.random.stateless_gamma([50, 2], seed, [0.5, 3.0]),
            tf.random.stateless_poisson([50, 2], seed, [3.0, 40.0]),
            tf.random.stateless_binomial([50, 2], seed, [20.0, 200.0], [0.2, 0.6], tf.int32),
        )
    )
    seed = np.array([4, 5], np.int32)
    actual = jax.jit(tf2jax.convert_functional(fn, tf.TensorSpec([2], tf.int32)))(seed)
    for a, e in zip(actual, fn(seed), strict=True):
        assert np.mean(np.isclose(a, e, rtol=1e-4)) > 0.95


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 17, 3001])
def test_samples_do_not_depend_on_their_number(count):
    """Each sample has its own stream, also those that many rounds reject."""
    alpha = tf.constant(np.resize([0.3, 2.5, 1.0, 40.0, 0.7], count))
    rate, probs = (tf.constant(np.resize(v, count)) for v in ([4.0, 30.0, 0.5], [0.1, 0.7, 0.5]))
    trials = tf.constant(np.resize([30.0, 50.0], count))
    graph = tf.function(
        lambda seed: (
            tf.random.stateless_gamma([count], seed, alpha, dtype=tf.float64),
            tf.random.stateless_poisson([count], seed, rate, dtype=tf.float64),
            tf.random.stateless_binomial([count], seed, trials, probs, tf.float64),
        ),
        autograph=False,
    )
    seed = np.array([5, 6], np.int32)
    with jax.enable_x64(True):
        found = jax.jit(tf2jax.convert_functional(graph, seed))(seed)
    for actual, expected in zip(found, graph(seed), strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-12)


@pytest.mark.full
def test_second_derivative_of_gamma_samples():
    """It is compared with finite differences of the quantile function."""
    alpha = np.array([0.4, 0.9, 1.7, 6.0, 40.0])
    fn = tf.function(lambda a: tf.raw_ops.StatelessRandomGammaV2(shape=[5], seed=[3, 4], alpha=a), autograph=False)
    with jax.enable_x64(True):
        converted = tf2jax.convert_functional(fn, tf.TensorSpec([5], tf.float64))
        share = scipy.special.gammainc(alpha, np.asarray(converted(alpha)))
        step = 1e-3 * alpha
        ends = [scipy.special.gammaincinv(alpha + k * step, share) for k in (-1, 0, 1)]
        first = jax.grad(lambda a: converted(a).sum())

        def second(a):
            return jax.grad(lambda a: first(a).sum())(a), jax.jvp(first, (a,), (jnp.ones(5),))[1]

        for found in jax.jit(second, compiler_options=fast_options())(alpha):
            np.testing.assert_allclose(found, (ends[0] - 2 * ends[1] + ends[2]) / step**2, rtol=1e-3, atol=1e-6)
