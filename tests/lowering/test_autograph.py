"""Control flow as users write it: values under jit, gradients, vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

from . import autograph_cases as cases

X = np.linspace(-1, 1, 6).astype(np.float32).reshape(2, 3)
XS = np.stack([X, X * 0.7 - 0.2])
SPEC = tf.TensorSpec([2, 3])
EAGER = {
    # Outside jit, conditions and lengths are known: what these do there is another path.
    "while_on_data",
    "break_on_data",
    "array_filled_up_to_argument",
    "while_loop_that_shrinks",
    "array_of_unequal_elements",
}


def _name(fn):
    return fn.__name__


def _loss(results):
    return sum(jnp.sum(r.astype(jnp.float32) ** 2) for r in jax.tree.leaves(results))


def _close(expected, actual):
    flat = tf.nest.flatten(expected)
    for e, a in zip(flat, jax.tree.leaves(actual), strict=True):
        np.testing.assert_allclose(a, e, rtol=2e-4, atol=1e-5)
        assert np.asarray(a).dtype == e.numpy().dtype


@pytest.mark.full
@pytest.mark.parametrize("fn", cases.DIFFERENTIABLE, ids=_name)
def test_values_gradients_and_vmap(fn):
    fn = tf.function(fn)
    jax_fn = tf2jax.convert_functional(fn, SPEC)

    @jax.jit
    def everything(x, xs):
        gradient = jax.grad(lambda x: _loss(jax_fn(x)))
        return jax_fn(x), gradient(x), jax.vmap(gradient)(xs)

    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = fn(x)
        loss = sum(tf.reduce_sum(tf.cast(e, tf.float32) ** 2) for e in tf.nest.flatten(expected))
    value, gradient, gradients = everything(X, XS)
    _close(expected, value)
    _close(tape.gradient(loss, x), gradient)
    np.testing.assert_allclose(gradients[0], gradient, rtol=1e-4, atol=1e-5)
    if fn.__name__ in EAGER:
        _close(expected, jax_fn(X))


@pytest.mark.full
@pytest.mark.parametrize("fn", cases.ENDED_BY_DATA, ids=_name)
def test_ended_by_data(fn):
    fn = tf.function(fn)
    jax_fn = tf2jax.convert_functional(fn, SPEC)
    mapped = jax.jit(jax.vmap(jax_fn))(XS)
    for i, x in enumerate(XS):
        _close(fn(x), jax.tree.map(lambda r: r[i], mapped))  # noqa: B023
    if fn.__name__ in EAGER:
        _close(fn(X), jax_fn(X))


@pytest.mark.full
@pytest.mark.parametrize("fn", cases.ENDED_BY_ARGUMENT, ids=_name)
def test_ended_by_an_argument(fn):
    fn = tf.function(fn)
    jax_fn = tf2jax.convert_functional(fn, SPEC, tf.TensorSpec([], tf.int32))
    compiled = jax.jit(jax_fn)
    for n in (0, 4):
        _close(fn(X, tf.constant(n)), compiled(X, np.int32(n)))
    if fn.__name__ in EAGER:
        _close(fn(X, tf.constant(4)), jax_fn(X, np.int32(4)))
