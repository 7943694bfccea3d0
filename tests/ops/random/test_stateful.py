"""Random ops drawn from JAX keys: shapes, dtypes, distributions."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

CASES = []
TESTED_OTHERWISE = {
    "RandomUniform",
    "RandomUniformInt",
    "RandomStandardNormal",
    "TruncatedNormal",
    "RandomShuffle",
    "RandomGamma",
    "RandomPoissonV2",
    "ParameterizedTruncatedNormal",
    "NonDeterministicInts",
}
N = 20_000


def draw(fn, *specs, args=(), seed=0):
    return np.asarray(jax.jit(tf2jax.convert_functional(fn, *specs))(*args, rng=jax.random.key(seed)))


@pytest.mark.full
@pytest.mark.parametrize(
    ("fn", "mean", "std", "low", "high"),
    [
        (lambda: tf.random.uniform([N]), 0.5, 12**-0.5, 0, 1),
        (lambda: tf.random.uniform([N], -1.0, 3.0), 1.0, 4 * 12**-0.5, -1, 3),
        (lambda: tf.random.normal([N], 2.0, 0.5), 2.0, 0.5, -np.inf, np.inf),
        (lambda: tf.random.truncated_normal([N]), 0.0, 0.8796, -2, 2),
        (lambda: tf.cast(tf.random.uniform([N], 3, 9, tf.int32), tf.float32), 5.5, (35 / 12) ** 0.5, 3, 8),
    ],
)
def test_distribution(fn, mean, std, low, high):
    values = draw(fn)
    assert values.shape == (N,)
    assert abs(values.mean() - mean) < 5 * std / N**0.5
    assert abs(values.std() - std) < 0.03
    assert values.min() >= low and values.max() <= high
    assert not np.array_equal(values, draw(fn, seed=1))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_dtypes(dtype):
    assert draw(lambda: tf.random.normal([3], dtype=dtype)).dtype == dtype.as_numpy_dtype


@pytest.mark.full
def test_shuffle():
    x = np.arange(50).reshape(25, 2).astype(np.float32)
    out = draw(tf.random.shuffle, tf.TensorSpec([25, 2]), args=(x,))
    assert not np.array_equal(out, x)
    np.testing.assert_array_equal(out[np.argsort(out[:, 0])], x)


@pytest.mark.full
def test_shuffle_is_uniform_under_vmap():
    """Of 24 permutations each occurs some 400 times in 9,600: sigma is 20."""
    fn = tf.function(lambda: tf.random.shuffle(tf.range(4)))
    converted = tf2jax.convert_functional(fn)
    keys = jax.random.split(jax.random.key(0), 9600)
    found = np.asarray(jax.jit(jax.vmap(lambda key: converted(rng=key)))(keys))
    permutations, counts = np.unique(found, axis=0, return_counts=True)
    assert len(permutations) == 24
    assert np.all(np.sort(permutations, axis=1) == np.arange(4))
    assert np.all(np.abs(counts - 400) < 100)


@pytest.mark.full
def test_shuffle_of_a_scalar():
    assert draw(tf.random.shuffle, tf.TensorSpec([]), args=(np.float32(3),)) == 3
    assert draw(tf.random.shuffle, tf.TensorSpec([0, 2]), args=(np.zeros((0, 2), np.float32),)).shape == (0, 2)


def gammas(alpha):
    return tf.random.gamma([N], alpha)


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
def test_gamma(x64):
    alpha = np.float32([0.5, 1.0, 7.0])
    with jax.enable_x64(x64):
        drawn = draw(gammas, tf.TensorSpec([3]), args=(alpha,))
        assert drawn.shape == (N, 3) and drawn.dtype == np.float32 and np.all(drawn >= 0)
        np.testing.assert_allclose(drawn.mean(0), alpha, rtol=0.05)
        np.testing.assert_allclose(drawn.var(0), alpha, rtol=0.1)
        assert x64 or not np.array_equal(drawn, draw(gammas, tf.TensorSpec([3]), args=(alpha,), seed=1))


@pytest.mark.full
def test_gamma_gradient():
    """The mean's derivative is 1 for alpha; each sample's is TensorFlow's."""
    jax_fn = tf2jax.convert_functional(gammas, tf.TensorSpec([3]))
    alpha, key = np.float32([0.5, 1.0, 7.0]), jax.random.key(0)
    samples, pull = jax.vjp(lambda a: jax_fn(a, rng=key), alpha)
    (gradient,) = jax.jit(pull)(np.ones_like(samples))
    each = tf.raw_ops.RandomGammaGrad(alpha=np.broadcast_to(alpha, samples.shape), sample=np.asarray(samples))
    np.testing.assert_allclose(gradient, tf.reduce_sum(each, 0), rtol=1e-3)
    np.testing.assert_allclose(gradient / N, 1, atol=0.1)


@pytest.mark.full
@pytest.mark.parametrize(
    "fn",
    [
        lambda r: tf.random.poisson([N], r),
        lambda r: tf.random.poisson([N], tf.cast(r, tf.float64), dtype=tf.int32),
    ],
)
def test_poisson(fn):
    rate = np.float32([[0.5, 4.0], [20.0, 300.0]])
    drawn = draw(fn, tf.TensorSpec([2, 2]), args=(rate,))
    assert drawn.shape == (N, 2, 2) and drawn.dtype == fn(rate).numpy().dtype
    drawn = drawn.astype(np.float64)
    np.testing.assert_allclose(drawn.mean(0), rate, rtol=0.05)
    np.testing.assert_allclose(drawn.var(0), rate, rtol=0.1)


@pytest.mark.full
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), ([-1.0, 2.0], [3.0]), (1.0, np.inf)])
def test_parameterized_truncated_normal(bounds):
    low, high = (np.float32(b) for b in bounds)

    def fn(mean):
        return tf.raw_ops.ParameterizedTruncatedNormal(
            shape=[2, N], means=mean, stdevs=[0.7], minvals=low, maxvals=high
        )

    mean = np.float32([-0.2, 0.5])
    drawn, expected = draw(fn, tf.TensorSpec([2]), args=(mean,)), fn(mean).numpy()
    assert drawn.shape == expected.shape and drawn.dtype == expected.dtype
    assert np.all(drawn >= low.reshape(-1, 1)) and np.all(drawn <= high.reshape(-1, 1))
    np.testing.assert_allclose(drawn.mean(1), expected.mean(1), atol=0.03)
    np.testing.assert_allclose(drawn.std(1), expected.std(1), atol=0.03)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [tf.int32, tf.uint32, tf.int64, tf.uint64])
def test_non_deterministic_ints(dtype):
    with jax.enable_x64(True):
        found = draw(lambda: tf.raw_ops.NonDeterministicInts(shape=[2, 500], dtype=dtype))
    assert found.shape == (2, 500) and found.dtype == dtype.as_numpy_dtype
    assert len(np.unique(found)) == 1000
    assert np.ptp(found / 2.0 ** (8 * found.itemsize)) > 0.98
