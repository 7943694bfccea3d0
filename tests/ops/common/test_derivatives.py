"""Gradients where a derivative is infinite or jumps, against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

from tests._support import converted

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 4.0, -4.0], np.float32)
FUNCTIONS = {
    "Abs": tf.abs,
    "BesselI0": tf.math.bessel_i0,
    "Inv": lambda x: tf.raw_ops.Inv(x=x),
    "Reciprocal": tf.math.reciprocal,
    "Rsqrt": tf.math.rsqrt,
    "Sqrt": tf.sqrt,
}


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("incoming", [0.0, 1.0])
def test_gradients_at_singularities(name, incoming):
    x, seed = tf.constant(EDGES), np.full(EDGES.shape, incoming, np.float32)
    seed[-1] = 1 - incoming
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = FUNCTIONS[name](x) * seed
    expected = tape.gradient(y, x).numpy()
    function = converted(FUNCTIONS[name], EDGES)
    for transform in (lambda f: f, jax.jit):
        pull = transform(lambda x, ct: jax.vjp(function, x)[1](ct)[0])
        if name == "Rsqrt":  # at -0 it is infinite on either side
            np.testing.assert_allclose(np.abs(pull(EDGES, seed)), np.abs(expected), rtol=1e-5)
        else:
            np.testing.assert_allclose(pull(EDGES, seed), expected, rtol=1e-5)


@pytest.mark.full
def test_unselected_branch_has_no_gradient():
    """A `tf.where` guard without a second one inside, NaN by JAX's rule."""

    def guarded(x):
        return tf.where(x > 0, tf.sqrt(x) + tf.math.rsqrt(x), tf.zeros_like(x))

    x = tf.constant(EDGES)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(guarded(x))
    function = converted(guarded, EDGES)
    gradient = jax.grad(lambda x: function(x).sum())
    np.testing.assert_allclose(gradient(EDGES), tape.gradient(y, x).numpy(), rtol=1e-6)
    assert np.isfinite(jax.jit(jax.vmap(gradient))(np.stack([EDGES, -EDGES]))).all()


@pytest.mark.full
@pytest.mark.parametrize(("name", "second"), [("Sqrt", lambda x: -0.25 * x**-1.5), ("Rsqrt", lambda x: 0.75 * x**-2.5)])
def test_second_derivatives_and_forward_mode(name, second):
    x = np.array([0.5, 2.0, 9.0], np.float32)
    function = converted(FUNCTIONS[name], x)
    expected = np.diag(second(x))
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(outer(inner(lambda x: function(x).sum()))(x), expected, rtol=1e-5)
    gradient = jax.grad(lambda x: function(x).sum())
    np.testing.assert_allclose(jax.vmap(gradient)(np.stack([x, 2 * x])), [gradient(x), gradient(2 * x)], rtol=1e-6)
    with_both = jax.vmap(lambda x, t: jax.jvp(function, (x,), (t,))[1], in_axes=(None, 0))
    np.testing.assert_allclose(with_both(x, np.eye(3, dtype=np.float32)), np.diag(gradient(x)), rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", ["SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"])
def test_gradient_ops(name):
    y = np.array([0.0, np.inf, np.nan, 2.0, 0.0, 3.0], np.float32)
    dy = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 2.0], np.float32)
    op = getattr(tf.raw_ops, name)
    np.testing.assert_allclose(converted(lambda y, dy: op(y=y, dy=dy), y, dy)(y, dy), op(y=y, dy=dy), rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_constants_under_vmap(name):
    """JAX traces custom derivative rules under vmap even if no argument is mapped."""
    x = np.array([0.5, 2.0, 4.0], np.float32)
    scaled = converted(lambda y: y * FUNCTIONS[name](tf.constant(x)), x)
    expected = np.stack([x, x]) * FUNCTIONS[name](x).numpy()
    np.testing.assert_allclose(jax.jit(jax.vmap(scaled))(np.stack([x, x])), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda y: scaled(y).sum()))(np.stack([x, x])), expected / x, rtol=1e-6)
