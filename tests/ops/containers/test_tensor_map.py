"""Tensor maps against TensorFlow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import map_ops as ops

import tf2jax_lite as tf2jax
from tf2jax_lite.ops.containers import tensor_map

CASES = []
TESTED_OTHERWISE = {
    "EmptyTensorMap",
    "TensorMapErase",
    "TensorMapHasKey",
    "TensorMapInsert",
    "TensorMapLookup",
    "TensorMapSize",
    "TensorMapStackKeys",
}
X = np.float32([1, 2, 3])


def filled(x, keys=(1.0, 2.0)):
    handle = ops.empty_tensor_map()
    for i, key in enumerate(keys):
        handle = ops.tensor_map_insert(handle, key, x * (i + 1.0))
    return handle


def lookup(x):
    handle = filled(x)
    return ops.tensor_map_lookup(handle, 2.0, tf.float32) + ops.tensor_map_lookup(handle, 1.0, tf.float32) ** 2


def replace(x):
    handle = ops.tensor_map_insert(filled(x), 1.0, x - 1.0)
    return ops.tensor_map_lookup(handle, 1.0, tf.float32), ops.tensor_map_size(handle)


def erase(x):
    handle = ops.tensor_map_erase(filled(x), 1.0, tf.float32)
    has = [ops.tensor_map_has_key(handle, k) for k in (1.0, 2.0)]
    return (*has, ops.tensor_map_size(handle), ops.tensor_map_lookup(handle, 2.0, tf.float32))


def stack_keys(x):
    return tf.sort(ops.tensor_map_stack_keys(filled(x, (3.0, 1.0, 2.0)), tf.float32)), x


def kinds_of_keys(x):
    handle = ops.tensor_map_insert(filled(x), tf.constant([1, 2]), x)
    handle = ops.tensor_map_insert(handle, tf.constant("name"), x * 5.0)
    handle = ops.tensor_map_insert(handle, tf.constant([[1, 2]], tf.int64), x[:1])
    named = ops.tensor_map_lookup(handle, tf.constant("name"), tf.float32)
    return (
        named,
        ops.tensor_map_lookup(handle, tf.constant([[1, 2]], tf.int64), tf.float32),
        ops.tensor_map_has_key(handle, tf.constant([2, 1])),
        ops.tensor_map_size(handle),
    )


def empty(x):
    return ops.tensor_map_size(ops.empty_tensor_map()), x


def gradients_taken_in_the_graph(x):
    # Each lookup's gradient is a map of one value; their sum has the keys of all.
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = lookup(x) * ops.tensor_map_lookup(filled(x), 1.0, tf.float32)
    return tape.gradient(y, x)


def zeros(x):
    return ops.tensor_map_size(tf.zeros_like(filled(x))), x


@pytest.mark.default_cases("replace", "erase", "gradients_taken_in_the_graph")
@pytest.mark.parametrize(
    "fn",
    [lookup, replace, erase, stack_keys, kinds_of_keys, empty, gradients_taken_in_the_graph, zeros],
    ids=lambda f: f.__name__,
)
def test_against_tensorflow(fn):
    fn = tf.function(fn)
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([3]))
    expected = tf.nest.flatten(fn(X))
    for run in (jax_fn, jax.jit(jax_fn)):
        for e, a in zip(expected, jax.tree.leaves(run(X)), strict=True):
            np.testing.assert_allclose(a, e)
            assert np.asarray(a).dtype == e.numpy().dtype


@pytest.mark.full
def test_gradient_and_vmap():
    jax_fn = tf2jax.convert_functional(tf.function(lookup), tf.TensorSpec([3]))
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(jax_fn(x)))(X), 2 + 2 * X)
    np.testing.assert_allclose(jax.vmap(jax_fn)(np.stack([X, X + 1]))[1], jax_fn(X + 1))


@pytest.mark.parametrize(
    "op",
    [
        lambda m: ops.tensor_map_lookup(m, 9.0, tf.float32),
        lambda m: ops.tensor_map_size(ops.tensor_map_erase(m, 9.0, tf.float32)),
    ],
    ids=["lookup", "erase"],
)
def test_missing_key(op):
    with pytest.raises(ValueError, match=r"no key 9\.0"):
        tf2jax.convert_functional(tf.function(lambda x: op(filled(x))), tf.TensorSpec([3]))(X)


def test_traced_key():
    def fn(x):
        return ops.tensor_map_lookup(filled(x), x[0], tf.float32)

    jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([3]))
    np.testing.assert_array_equal(jax_fn(X), X)  # outside jit all keys are concrete
    with pytest.raises(ValueError, match="known while tracing"):
        jax.jit(jax_fn)(X)


def test_stack_keys_of_different_shapes_raises():
    empty = tensor_map.empty_tensor_map()
    with pytest.raises(ValueError, match="no keys"):
        tensor_map.tensor_map_stack_keys(empty, key_dtype=np.dtype("float32"))
    mixed = tensor_map.tensor_map_insert(empty, np.float32(1), X)
    mixed = tensor_map.tensor_map_insert(mixed, np.float32([1]), X)
    with pytest.raises(ValueError, match="different shapes"):
        tensor_map.tensor_map_stack_keys(mixed, key_dtype=np.dtype("float32"))
    with pytest.raises(ValueError, match="expected a tensor map"):
        tensor_map.tensor_map_size(None)
