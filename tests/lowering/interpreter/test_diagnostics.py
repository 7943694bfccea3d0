"""Errors name the node, and what the caller can do."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.sharding import NamedSharding, PartitionSpec

import tf2jax_lite
from tf2jax_lite.errors import LoweringError


@pytest.fixture
def gathered():
    """Return a converted gather, and arguments over a mesh with Explicit axes."""
    table = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3))
    indices = np.array([3, 1, 2, 0], np.int32)
    jax_fn, params = tf2jax_lite.convert(tf.function(lambda i: tf.gather(table, i)), indices)
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    split = jax.device_put(indices, NamedSharding(mesh, PartitionSpec("data")))
    return lambda params, i: jax_fn(params, i)[0], params, split, mesh, table.numpy()[indices]


def test_ambiguous_sharding_over_explicit_axes(gathered):
    fn, params, split, _, _ = gathered
    with pytest.raises(LoweringError, match=r"Gather.*Explicit.*AxisType\.Auto.*auto_axes"):
        jax.jit(fn)(params, split)


def test_explicit_axes_are_auto_for_the_model(gathered):
    fn, params, split, mesh, expected = gathered
    fn = jax.sharding.auto_axes(fn, out_sharding=PartitionSpec("data"))
    with jax.set_mesh(mesh):
        result = jax.jit(fn)(params, split)
    np.testing.assert_array_equal(result, expected)
    assert result.sharding.spec == PartitionSpec("data", None)
