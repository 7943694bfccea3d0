"""Scan optimizations change the loop, not values; each has a switch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite as tf2jax
from tf2jax_lite.lowering import scan_opt
from tf2jax_lite.support.errors import ConfigError

RNG = np.random.default_rng(0)
TRIPS, INPUTS, WIDTH = 4, 3, 5
X = RNG.normal(size=(TRIPS, 1, INPUTS)).astype(np.float32)
KERNEL = RNG.normal(size=(INPUTS, 2 * WIDTH)).astype(np.float32)
RECURRENT = RNG.normal(size=(WIDTH, 3 * WIDTH)).astype(np.float32)


def _loop(names, x, kernel, recurrent):
    """Run a recurrent layer of a batch of one, for all optimizations."""

    def step(carry, index):
        state, total, _ = carry
        value = lax.dynamic_index_in_dim(x, index, 0, keepdims=False)
        a, b = lax.split(value @ kernel + state @ recurrent[:, : 2 * WIDTH], (WIDTH, WIDTH), 1)
        state = jnp.tanh(a) * jax.nn.sigmoid(b)
        return (state, total + value.T @ state, 2 * state), None

    zero = jnp.zeros((1, WIDTH), np.float32)
    start, xs = (zero, jnp.zeros((INPUTS, WIDTH), np.float32), zero), np.arange(TRIPS, dtype=np.int32)
    if names is None:
        return lax.scan(step, start, xs)[0]
    return scan_opt.scan(step, start, xs, TRIPS, names)


def _values_and_gradients(names):
    def loss(*args):
        return sum(jnp.sum(jnp.sin(v)) for v in _loop(names, *args))

    args = X, KERNEL, RECURRENT
    return jax.tree.leaves((jax.jit(lambda *a: _loop(names, *a))(*args), jax.jit(jax.grad(loss, (0, 1, 2)))(*args)))


def _without(name):
    return [n for n in scan_opt.NAMES if n != name]


@pytest.mark.parametrize("name", scan_opt.NAMES)
def test_each_optimization_changes_the_loop(name):
    texts = [
        str(jax.make_jaxpr(lambda *a, n=n: _loop(n, *a))(X, KERNEL, RECURRENT))
        for n in (scan_opt.NAMES, _without(name))
    ]
    assert texts[0] != texts[1]


@pytest.mark.full
@pytest.mark.parametrize(
    "names",
    [scan_opt.NAMES, (), *([name] for name in scan_opt.NAMES), *map(_without, scan_opt.NAMES)],
    ids=["all", "none", *scan_opt.NAMES, *(f"without_{name}" for name in scan_opt.NAMES)],
)
def test_values_and_gradients_do_not_change(names):
    for found, expected in zip(_values_and_gradients(names), _values_and_gradients(None), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_each_optimization_has_a_reason_for_its_position():
    assert len(set(scan_opt.NAMES)) == len(scan_opt.OPTIMIZATIONS)
    assert all(o.reason.endswith(".") for o in scan_opt.OPTIMIZATIONS)


def _converted(value):
    graph = tf.function(lambda x: tf.scan(lambda h, e: tf.tanh(h + e @ KERNEL[:, :INPUTS]), x), autograph=False)
    with tf2jax.override_config("passes", value):
        return tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, tf.float32))


@pytest.mark.full
def test_option_chooses_optimizations():
    texts = [str(jax.make_jaxpr(_converted(v))(X)) for v in ("all", "-hoist_matmuls", "carry_to_xs", "none")]
    assert len(set(texts)) == 4
    assert texts[1] == str(jax.make_jaxpr(_converted(set(_without("hoist_matmuls"))))(X))


@pytest.mark.parametrize("value", ["", "no_such", "-no_such", "carry_to_xs,-hoist_matmuls", "all,carry_to_xs"])
def test_option_with_an_unknown_name_is_an_error(value):
    with pytest.raises(ConfigError, match="passes"):
        _converted(value)
