"""Random keys: one for each node; recomputed nodes draw the same."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import converted
from tf2jax_lite.errors import MissingKeyError

X = np.ones([400], np.float32)
KEY = jax.random.key(3)


def drop(x):
    return tf.nn.dropout(x, 0.5)


@pytest.mark.full
def test_nodes_draw_different_numbers():
    """Straight code, branches, calls, iterations: all draws differ."""

    @tf.function
    def called():
        return tf.random.uniform([4])

    def fn(x, n):
        counted = tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            counted = counted.write(i, tf.random.uniform([4]))
        total, sums = tf.constant(0), tf.zeros([4])
        while total < n:
            sums = sums * 10.0 + tf.random.uniform([4])
            total += 1
        branch = tf.cond(n > 0, lambda: tf.random.uniform([4]), lambda: tf.random.uniform([4]) + 1.0)
        other = tf.cond(n < 0, lambda: tf.random.uniform([4]), lambda: tf.random.uniform([4]))
        mapped = tf.map_fn(lambda v: v + tf.random.uniform([4]), tf.zeros([3, 4]))
        parts = [tf.random.uniform([4]), called(), called(), branch, other, sums / 10.0, *tf.unstack(mapped)]
        return tf.concat([tf.stack(parts), counted.stack()], 0)

    jax_fn = converted(tf.function(fn), X, np.int32(2))
    rows = np.asarray(jax.jit(jax_fn)(X, np.int32(2), rng=KEY))
    assert len({row.tobytes() for row in rows}) == len(rows) == 12
    np.testing.assert_array_equal(rows, jax.jit(jax_fn)(X, np.int32(2), rng=KEY))
    assert not np.any(rows == np.asarray(jax_fn(X, np.int32(2), rng=jax.random.key(4))))


@pytest.mark.full
def test_vmapped_calls_have_the_keys_they_are_given():
    jax_fn = converted(drop, X)
    keys = jax.random.split(KEY, 3)
    rows = jax.vmap(lambda k: jax_fn(X, rng=k))(keys)
    for row, key in zip(rows, keys, strict=True):
        np.testing.assert_array_equal(row, jax_fn(X, rng=key))
    assert len({np.asarray(row).tobytes() for row in rows}) == 3


@pytest.mark.full
def test_typed_and_raw_keys_agree():
    jax_fn = converted(drop, X)
    raw = jax.random.key_data(KEY)
    np.testing.assert_array_equal(jax_fn(X, rng=raw), jax_fn(X, rng=KEY))
    np.testing.assert_array_equal(jax_fn(X, rng=np.asarray(raw)), jax_fn(X, rng=KEY))


def test_a_missing_key_names_the_nodes():
    @tf.function
    def inner(x):
        return x + tf.random.normal([400], name="deep")

    jax_fn = converted(lambda x: inner(drop(x)) + tf.random.uniform([400], name="flat"), X)
    with pytest.raises(MissingKeyError, match=r"3 node\(s\).*dropout.*") as info:
        jax_fn(X)
    assert "deep" in str(info.value) and "flat" in str(info.value)


@pytest.mark.full
@pytest.mark.parametrize("name", ["FractionalAvgPool", "FractionalMaxPool"])
def test_no_key_where_nothing_is_drawn(name):
    x = np.arange(64, dtype=np.float32).reshape(1, 8, 8, 1)
    fn = lambda x: getattr(tf.raw_ops, name)(  # noqa: E731
        value=x, pooling_ratio=[1.0, 1.5, 1.5, 1.0], deterministic=True, seed=3, seed2=4
    )[0]
    np.testing.assert_array_equal(converted(fn, x)(x), fn(x))


@pytest.mark.full
@pytest.mark.parametrize("loop", [False, True])
def test_recomputed_nodes_draw_the_same(loop):
    """y = x * mask, so the gradient is the mask, and y is the mask at x = 1."""

    def fn(x):
        block = tf.recompute_grad(drop)
        if not loop:
            return block(x)
        for _ in tf.range(2):
            x = block(x)
        return x

    jax_fn = converted(tf.function(fn), X)
    y, pull = jax.vjp(lambda x: jax_fn(x, rng=KEY), X)
    np.testing.assert_array_equal(pull(jnp.ones_like(y))[0], y)
    assert "remat" in str(jax.make_jaxpr(lambda x: jax_fn(x, rng=KEY))(X)) and 0 < np.mean(y == 0) < 1
    # Both iterations of the loop must have dropped some: half, then half of the rest.
    np.testing.assert_allclose(np.mean(np.asarray(y) == 0), 0.75 if loop else 0.5, atol=0.1)


@pytest.mark.full
def test_keras_remat_draws_the_same():
    with keras.RematScope(mode="full"):
        layer = keras.layers.Dense(8, activation="silu")
    dense = keras.Sequential([keras.layers.Input([4]), layer])
    x = np.linspace(-1, 1, 12).astype(np.float32).reshape(3, 4)
    jax_fn, params = tf2jax.convert(tf.function(lambda x: tf.reduce_sum(dense(x) ** 2)), tf.TensorSpec([3, 4]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(dense(x) ** 2)
    grads = jax.grad(lambda p: jax_fn(p, x)[0])(params)
    for variable, expected in zip(
        dense.trainable_variables, tape.gradient(loss, dense.trainable_variables), strict=True
    ):
        np.testing.assert_allclose(grads[variable.path], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("loop", [False, True])
def test_a_gradient_function_draws(loop):
    """The key remains when the gradient is taken; iterations differ."""

    @tf.custom_gradient
    def noisy(x):
        return x * 1.0, lambda dy: dy * tf.random.uniform([400])

    def fn(x):
        if not loop:
            return noisy(x)
        for _ in tf.range(2):
            x = noisy(x)
        return x

    jax_fn = converted(tf.function(fn), X)
    grad = jax.jit(jax.grad(lambda x, key: jnp.sum(jax_fn(x, rng=key))))
    drawn = np.asarray(grad(X, KEY))
    np.testing.assert_array_equal(drawn, grad(X, KEY))
    assert not np.array_equal(drawn, grad(X, jax.random.key(4)))
    # The mean of a product of two independent uniforms is 1/4; of one with itself it would be 1/3.
    np.testing.assert_allclose(drawn.mean(), 0.25 if loop else 0.5, atol=0.04)
