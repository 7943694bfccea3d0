"""Converted loops inside ``jax.shard_map``, with varying axes tracked.

One device will do: the account is the same.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.sharding import Mesh, PartitionSpec

import tf2jax_lite
from tf2jax_lite.errors import OpError

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def _to_zero(x):
    """Carry a value that varies, is equalized, and varies again."""
    body = lambda i, a, b: (i + 1, b + x, tf.zeros_like(x[:1, :1]))  # noqa: E731
    return tf.while_loop(lambda i, *_: i < 5, body, (0, tf.zeros_like(x), x[:1, :1]))[1]


def _in_turn(x):
    """Pass a sum to the last of many variables in as many iterations."""
    body = lambda i, *v: (i + 1, v[0] + tf.reduce_sum(x), *v[:-1])  # noqa: E731
    return [*tf.while_loop(lambda i, *_: i < 15, body, (0, *([tf.constant(0.0)] * 12)))[1:], x]


def _list(x):
    written = tf.TensorArray(tf.float32, 6, element_shape=x.shape)
    body = lambda i, s, a: (i + 1, tf.sin(s) + x, a.write(i, s))  # noqa: E731
    return tf.while_loop(lambda i, *_: i < 6, body, (0, tf.ones_like(x), written))[2].stack()


def _until(x):
    """Loop with dynamic trip count from a state equal on all devices."""
    going = lambda i, s: tf.reduce_sum(tf.abs(s)) < 20.0  # noqa: E731
    return tf.while_loop(going, lambda i, s: (i + 1, s + tf.abs(x)), (0, tf.zeros([4, 3])), maximum_iterations=9)


def _layer(name):
    tf.keras.utils.set_random_seed(0)
    layer = getattr(tf.keras.layers, name)(5)
    layer.build((None, 6, 3))
    return lambda x: layer(tf.stack([x * i for i in range(6)], 1))


GRAPHS = {
    "to zero": lambda: _to_zero,
    "in turn": lambda: _in_turn,
    "list": lambda: _list,
    "until": lambda: _until,
    "LSTM": lambda: _layer("LSTM"),
    "GRU": lambda: _layer("GRU"),
}


@pytest.mark.default_cases("until-scan")
@pytest.mark.parametrize("bound", ["while", "scan"])
@pytest.mark.parametrize("name", GRAPHS)
def test_loops(name, bound):
    graph = tf.function(GRAPHS[name]())
    with tf2jax_lite.override_config("loop_bound", bound):
        fn, params = tf2jax_lite.convert(graph, tf.TensorSpec(X.shape, X.dtype))

    def results(params, x):
        return [v[None] for v in jax.tree.leaves(fn(params, x)[0])]

    def sharded(function):
        spec = PartitionSpec()
        mesh = Mesh(np.array(jax.devices()[:1]), ("clients",))
        specs = {"in_specs": (spec, PartitionSpec("clients")), "out_specs": PartitionSpec("clients")}
        return jax.jit(jax.shard_map(function, mesh=mesh, **specs))

    expected = [t.numpy() for t in tf.nest.flatten(graph(X))]
    for value, wanted in zip(sharded(results)(params, X), expected, strict=True):
        np.testing.assert_allclose(value[0], wanted, rtol=1e-5, atol=1e-5)

    def gradient(params, x):
        def loss(x):
            return sum(jnp.sum(jnp.sin(v)) for v in jax.tree.leaves(fn(params, x)[0]) if v.dtype == jnp.float32)

        return jax.grad(loss)(x)

    np.testing.assert_allclose(sharded(gradient)(params, X), jax.jit(gradient)(params, X), rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_gradients_of_replicated_values_through_a_dynamic_loop():
    """Each device runs its own number of iterations."""
    weight = tf.Variable([0.8, 0.5], name="weight")

    @tf.function
    def graph(x):
        while tf.reduce_max(x) > 0.3:
            x = x * weight
        return x

    fn, params = tf2jax_lite.convert(graph, tf.TensorSpec([None, 2]))
    x = np.float32([[3.0, 1.0], [0.5, 0.7]])
    mesh = Mesh(np.array(jax.devices()[:1]), ("clients",))

    def gradient(params, x):
        return jax.grad(lambda params: jnp.sum(fn(params, x)[0]))(params)

    def apart(params, x):
        params = jax.tree.map(lambda v: jax.lax.pcast(v, "clients", to="varying"), params)
        return jax.tree.map(lambda g: jax.lax.psum(g, "clients"), gradient(params, x))

    def sharded(function):
        spec = PartitionSpec()
        specs = {"in_specs": (spec, PartitionSpec("clients")), "out_specs": spec}
        return jax.jit(jax.shard_map(function, mesh=mesh, **specs))

    expected = jax.grad(lambda params: jnp.sum(fn(params, x)[0]))(params)["weight"]
    np.testing.assert_allclose(sharded(apart)(params, x)["weight"], expected, rtol=1e-5)
    with pytest.raises(OpError, match=r"same on all devices along 'clients'.*pcast"):
        sharded(gradient)(params, x)
