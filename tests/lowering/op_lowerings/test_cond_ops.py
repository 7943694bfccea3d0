"""Values through branches: shapes, variables, lists; errors name branches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import LoweringError

X = np.linspace(-1, 1, 6).astype(np.float32).reshape(2, 3)
SPEC = tf.TensorSpec([2, 3])
FLAG = tf.TensorSpec([], tf.bool)


def different_shapes(x, flag):
    return tf.cond(flag, lambda: x[:1], lambda: tf.concat([x, x], 0))


@pytest.mark.full
def test_different_shapes_need_a_known_predicate():
    fn = tf.function(different_shapes)
    jax_fn = tf2jax.convert_functional(fn, SPEC, FLAG)
    for flag in (True, False):
        np.testing.assert_array_equal(jax_fn(X, flag), fn(X, tf.constant(flag)))  # outside jit it is known
        compiled = jax.jit(jax_fn, static_argnums=1)
        np.testing.assert_array_equal(compiled(X, flag), fn(X, tf.constant(flag)))
    with pytest.raises(LoweringError, match=r"'cond'.*float32\[4, 3\].*float32\[1, 3\].*known while tracing"):
        jax.jit(jax_fn)(X, np.bool_(True))


@pytest.mark.full
def test_variables_written_in_one_branch_only():
    v, w = tf.Variable(1.0, name="v"), tf.Variable(2.0, name="w")

    @tf.function
    def fn(x, index):
        def first():
            v.assign(v * 3.0)
            return x

        def second():
            w.assign_add(tf.reduce_sum(x) + v)
            return tf.cond(tf.reduce_sum(x) > 1e6, lambda: x, lambda: x * w)

        return tf.switch_case(index, [first, second, lambda: -x])

    jax_fn, params = tf2jax.convert(fn, SPEC, tf.TensorSpec([], tf.int32))
    run = jax.jit(jax_fn)
    for index in (0, 1, 2, 9, -4):  # out of range: the last branch
        actual, params = run(params, X, np.int32(index))
        np.testing.assert_allclose(actual, fn(X, tf.constant(index)), rtol=1e-6)
        np.testing.assert_allclose([params["v"], params["w"]], [v.numpy(), w.numpy()], rtol=1e-6)


@pytest.mark.full
def test_lists_of_different_lengths():
    """One branch pushes: the length is data-dependent in later pushes."""

    @tf.function
    def fn(x):
        a = tf.TensorArray(tf.float32, 1, dynamic_size=True, element_shape=[3], clear_after_read=False)
        a = a.write(0, x[0])
        a = tf.cond(tf.reduce_sum(x) > 0.0, lambda: a.write(a.size(), x[1]).write(2, x[0] * 5.0), lambda: a)
        a = a.write(a.size(), x[1] * 2.0)
        for _ in tf.range(2):
            a = a.write(a.size(), a.read(a.size() - 1) + 1.0)
        return a.size(), a.read(0), a.read(a.size() - 1), a.read(a.size() - 3)

    jax_fn = tf2jax.convert_functional(fn, SPEC)
    for x in (X + 1.0, X - 1.0):
        for e, a in zip(fn(x), jax.jit(jax_fn)(x), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6)


def test_padded_results_of_lists_whose_length_depends_on_data():
    @tf.function
    def fn(x):
        a = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[])
        for i in tf.range(3):
            if x[0, i] > -0.5:
                a = a.write(a.size(), x[0, i])
        return a.stack()

    with tf2jax.override_config("dynamic_shape_bound", 5):
        jax_fn = tf2jax.convert_functional(fn, SPEC)
    expected = fn(X).numpy()
    np.testing.assert_array_equal(jax.jit(jax_fn)(X), np.pad(expected, (0, 5 - expected.size)))
    np.testing.assert_array_equal(tf2jax.convert_functional(fn, SPEC)(X), expected)  # outside jit nothing is padded


@pytest.mark.full
def test_gradients_of_nested_branches_take_one_side():
    """A root of negatives in the other branch must not reach gradients."""

    @tf.function
    def fn(x):
        s = tf.reduce_sum(x)
        return tf.cond(
            s > 0.0,
            lambda: tf.sqrt(s) * x,
            lambda: tf.cond(s < -5.0, lambda: x / (s + 6.0), lambda: tf.sqrt(1.0 - s) * x),
        )

    jax_fn = tf2jax.convert_functional(fn, SPEC)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(jax_fn(x) ** 2)))
    for x in (X + 1.0, X - 0.5, X - 0.9, X - 1.5):
        t = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(t)
            loss = tf.reduce_sum(fn(t) ** 2)
        np.testing.assert_allclose(gradient(x), tape.gradient(loss, t), rtol=1e-4, atol=1e-5)
