"""Conversion while JAX or TensorFlow is tracing something else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def model():
    weights = tf.Variable(np.arange(9, dtype=np.float32).reshape(3, 3) / 9, name="weights")
    scale = tf.Variable([1.0, 2.0, 3.0], name="scale")

    @tf.function(autograph=False)
    def fn(x):
        _, y = tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, tf.tanh(y @ weights)), (tf.constant(0), x))
        return y * scale + tf.reshape(tf.constant([1.0, 2.0, 3.0]), [3])

    return fn


def converted(model, x):
    """Convert and run a function inside the caller's trace."""
    jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
    return jax_fn(params, x)[0], params


def leaked(value):
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


@pytest.mark.full
@pytest.mark.parametrize("transform", [jax.jit, jax.checkpoint, lambda f: f])
def test_inside_of_jit(model, transform):
    kept = []

    def fn(x):
        jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
        kept.append((jax_fn, params))
        return jax_fn(params, x)[0]

    np.testing.assert_allclose(transform(fn)(X), model(X), rtol=1e-5)
    # What was converted there is of use afterwards: it holds arrays, and nothing of the trace.
    jax_fn, params = kept[0]
    assert not leaked(params)
    np.testing.assert_allclose(jax_fn(params, X)[0], model(X), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax_fn)(params, X)[0], model(X), rtol=1e-5)


@pytest.mark.full
def test_inside_of_grad(model):
    actual = jax.grad(lambda x: converted(model, x)[0].sum())(X)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(model(x))
    np.testing.assert_allclose(actual, tape.gradient(y, x), rtol=1e-4)


@pytest.mark.full
def test_inside_of_vmap(model):
    batch = np.stack([X, 2 * X])
    actual = jax.vmap(lambda x: converted(model, x)[0])(batch)
    np.testing.assert_allclose(actual, [model(X), model(2 * X)], rtol=1e-5)


@pytest.mark.full
def test_inside_of_loops_and_branches(model):
    def body(carry, x):
        return carry + converted(model, x)[0].sum(), None

    total, _ = jax.jit(lambda xs: jax.lax.scan(body, jnp.float32(0), xs))(np.stack([X, -X]))
    expected = tf.reduce_sum(model(X)) + tf.reduce_sum(model(-X))
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    picked = jax.jit(lambda x: jax.lax.cond(x.sum() > 5, lambda: x, lambda: converted(model, x)[0]))(X)
    np.testing.assert_allclose(picked, model(X), rtol=1e-5)


@pytest.mark.full
def test_traced_arguments_say_shapes_only(model):
    def fn(x):
        jax_fn, params = tf2jax.convert(model, x)
        return jax_fn(params, x)[0]

    np.testing.assert_allclose(jax.jit(fn)(X), model(X), rtol=1e-5)


@pytest.mark.full
def test_inside_of_a_tf_function(model):
    kept = []

    @tf.function(autograph=False)
    def outer(x):
        with tf2jax.override_config("skip_variables_evaluation_inside_tf_tracing", True):
            kept.append(tf2jax.convert(model, tf.TensorSpec([None, 3])))
        return model(x) * 2

    expected = outer(X) / 2
    jax_fn, abstract = kept[0]
    assert all(isinstance(v, jax.ShapeDtypeStruct) for v in abstract.values())
    _, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
    assert {n: (v.shape, v.dtype) for n, v in abstract.items()} == {n: (v.shape, v.dtype) for n, v in params.items()}
    np.testing.assert_allclose(jax_fn(params, X)[0], expected, rtol=1e-5)


def test_inside_of_a_graph(model):
    with tf.Graph().as_default(), pytest.raises(tf2jax.Tf2JaxError, match=r"Graph\(\)\.as_default"):
        tf2jax.convert(model, tf.TensorSpec([None, 3]))


@pytest.mark.full
def test_inside_of_a_gradient_tape(model):
    """Conversion reads variables: the tape around it sees nothing of that."""
    with tf.GradientTape() as tape:
        jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
        assert not tape.watched_variables()
        loss = tf.reduce_sum(model(X))
    weights = {v.name.split(":")[0]: v for v in tape.watched_variables()}
    expected = tape.gradient(loss, weights)
    actual = jax.grad(lambda p: jax_fn(p, X)[0].sum())(params)
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, rtol=1e-4)


@pytest.mark.full
def test_inside_of_a_tf_function_with_values(model):
    kept = []

    @tf.function(autograph=False)
    def outer(x):
        kept.append(tf2jax.convert(model, tf.TensorSpec([None, 3])))
        return x

    outer(X)
    jax_fn, params = kept[0]
    np.testing.assert_allclose(jax_fn(params, X)[0], model(X), rtol=1e-5)
