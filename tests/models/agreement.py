"""How a converted model is compared with TensorFlow's: forward, gradients, vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax


def relative_error(expected, actual):
    expected, actual = np.asarray(expected, np.float64), np.asarray(actual, np.float64)
    assert expected.shape == actual.shape
    return np.max(np.abs(expected - actual), initial=0) / max(np.max(np.abs(expected), initial=0), 1e-30)


def spec_of(x):
    return tf.nest.map_structure(lambda v: tf.TensorSpec([None, *v.shape[1:]], v.dtype), x)


def check_forward(model, x, rtol=1e-4):
    jax_fn, params = tf2jax.convert(model, spec_of(x), training=False)
    expected = model(tf.nest.map_structure(tf.constant, x), training=False)
    actual, updated = jax.jit(jax_fn)(params, x)
    tf.nest.assert_same_structure(expected, actual)
    for e, a in zip(tf.nest.flatten(expected), jax.tree.leaves(actual), strict=True):
        assert a.dtype == e.numpy().dtype
        assert relative_error(e, a) <= rtol
    assert updated.keys() == params.keys()
    return jax_fn, params


def check_gradients(model, jax_fn, params, x, rtol=1e-3):
    """Gradients of a loss with respect to every trainable param."""
    with tf.GradientTape() as tape:
        outputs = model(tf.nest.map_structure(tf.constant, x), training=False)
        loss = sum(tf.reduce_sum(tf.sin(o)) for o in tf.nest.flatten(outputs))
    variables = [v if isinstance(v, tf.Variable) else v.value for v in model.trainable_variables]
    expected = tape.gradient(loss, variables)
    trainable, other = tf2jax.split_params(params)
    assert {v.name.split(":")[0] for v, g in zip(variables, expected, strict=True) if g is not None} <= set(trainable)

    def loss_fn(trainable):
        results, _ = jax_fn(tf2jax.merge_params(trainable, other), x)
        return sum(jnp.sum(jnp.sin(r)) for r in jax.tree.leaves(results))

    actual = jax.jit(jax.grad(loss_fn))(trainable)
    scale = max(float(np.max(np.abs(tf.convert_to_tensor(g)))) for g in expected if g is not None)
    for variable, gradient in zip(variables, expected, strict=True):
        if gradient is None:
            continue
        a = np.asarray(actual[variable.name.split(":")[0]])
        difference = np.max(np.abs(np.asarray(tf.convert_to_tensor(gradient)) - a), initial=0)
        assert difference <= rtol * scale, variable.name


def check_vmap(jax_fn, params, x, rtol=1e-4):
    def batch(v):
        return np.stack([v, v[::-1]])

    call = jax.jit(lambda params, x: jax_fn(params, x)[0])
    actual = jax.jit(jax.vmap(lambda x: jax_fn(params, x)[0]))(jax.tree.map(batch, x))
    for row, index in enumerate((slice(None), slice(None, None, -1))):
        expected = call(params, jax.tree.map(lambda v, index=index: v[index], x))
        for e, a in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
            assert relative_error(e, a[row]) <= rtol
