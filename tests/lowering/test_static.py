"""Values of constants and shapes fold while tracing, without equations."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import StaticInputError

X = np.linspace(-1, 1, 6).astype(np.float32).reshape(2, 3)
C = tf.constant


def arithmetic(x):
    scale = tf.exp(C([0.5, 1.0, 2.0])) / tf.norm(C([3.0, 4.0]))
    return x * scale


def from_shapes(x):
    positions = tf.cast(tf.range(tf.shape(x)[-1]), tf.float32)
    angles = positions / tf.pow(100.0, positions / 3.0)
    return x * tf.concat([tf.sin(angles[:1]), tf.cos(angles[1:])], 0)


def linear_algebra(x):
    return x * tf.reduce_sum(tf.linalg.inv(C([[2.0, 1.0], [1.0, 3.0]])))


def branch(x):
    n = tf.constant(3)
    factor = tf.cond(n > 2, lambda: tf.sqrt(2.0), lambda: tf.constant(5.0))
    return x * factor


def loop(x):
    i, total = tf.constant(0), tf.constant(0)
    while i < 5:
        total += i * i
        i += 1
    return x * tf.cast(total, tf.float32)


def loop_with_floats(x):
    t = tf.constant(1.0)
    for _ in tf.range(4):
        t = t * 1.5
    return x * t


def called_function(x):
    @tf.function
    def inner(n):
        return tf.cast(tf.math.cumsum(tf.range(n)), tf.float32)

    return x * inner(tf.shape(x)[1])


def list_of_constants(x):
    array = tf.TensorArray(tf.float32, 3).unstack(C([1.0, 2.0, 3.0]))
    array = array.write(1, 7.0)
    return x * array.stack()


def list_filled_in_a_loop(x):
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    for i in tf.range(3):
        array = array.write(i, tf.cast(i * i, tf.float32))
    return x * array.stack()


def conditions(x):
    flag = tf.logical_and(tf.shape(x)[0] > 100, tf.reduce_sum(x) > 0.0)  # False, whatever x holds
    return tf.cond(flag, lambda: tf.sin(x), lambda: x * 2.0)


CASES = [
    arithmetic,
    from_shapes,
    linear_algebra,
    branch,
    loop,
    loop_with_floats,
    called_function,
    list_of_constants,
    list_filled_in_a_loop,
    conditions,
]
# Multiplying by a vector takes a broadcast; the condition on data is computed, though unused.
ALLOWED = {"mul", "broadcast_in_dim"}


@pytest.mark.default_cases("list_filled_in_a_loop")
@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_no_equations(fn):
    fn = tf.function(fn)
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([2, 3]))
    jaxpr = jax.make_jaxpr(jax_fn)(X)
    used = [eqn.primitive.name for eqn in jaxpr.eqns]
    assert used.count("mul") == 1
    if fn.__name__ != "conditions":
        assert set(used) <= ALLOWED, used
    else:
        assert "cond" not in used and "sin" not in used
    np.testing.assert_allclose(jax_fn(X), fn(X), rtol=1e-5)


@pytest.mark.full
def test_constants_that_would_grow_are_left_to_xla():
    fn = tf.function(lambda x: x + tf.reduce_sum(tf.tile(tf.exp(C([1.0])), [100_000])))
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([2, 3]))
    assert all(np.size(c) <= 1024 for c in jax.make_jaxpr(jax_fn)(X).consts)
    np.testing.assert_allclose(jax_fn(X), fn(X), rtol=1e-5)


@pytest.mark.full
def test_traced_static_input_raises_concretization_error():
    fn = tf2jax.convert_functional(tf.range, *(tf.TensorSpec([], tf.int32) for _ in range(3)))
    np.testing.assert_array_equal(fn(1, 5, 2), [1, 3])
    with pytest.raises(jax.errors.ConcretizationTypeError, match=r"'start'.*must be known while tracing") as caught:
        jax.jit(fn)(1, 5, 2)
    assert isinstance(caught.value, StaticInputError)
