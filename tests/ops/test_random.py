"""Random ops that draw from JAX keys: shapes, dtypes, distributions."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

CASES = []
TESTED_OTHERWISE = {"RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle"}
N = 20_000


def draw(fn, *specs, args=(), seed=0):
    return np.asarray(jax.jit(tf2jax.convert_functional(fn, *specs))(*args, rng=jax.random.key(seed)))


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


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_dtypes(dtype):
    assert draw(lambda: tf.random.normal([3], dtype=dtype)).dtype == dtype.as_numpy_dtype


def test_shuffle():
    x = np.arange(50).reshape(25, 2).astype(np.float32)
    out = draw(tf.random.shuffle, tf.TensorSpec([25, 2]), args=(x,))
    assert not np.array_equal(out, x)
    np.testing.assert_array_equal(out[np.argsort(out[:, 0])], x)
