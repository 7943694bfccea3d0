"""Custom gradients in traces, threads, vmap, forward mode; missing ones."""

import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function as tf_function

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import ForwardModeError, LoweringError, ReverseModeError

X = np.array([0.3, -0.2, 1.7], np.float32)


@tf.custom_gradient
def tripled(x):
    """Return a square with another gradient."""
    y = x * x
    return y, lambda dy: dy * 3.0 * y


def expected(x, dy=1.0):
    return dy * 3.0 * np.asarray(x) ** 2


@pytest.mark.full
def test_converted_inside_a_trace():
    def loss(x):
        fn, params = tf2jax.convert(tf.function(lambda x: tripled(x) * 2.0), tf.TensorSpec([3]))
        return jnp.sum(fn(params, x)[0])

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(X), expected(X, 2.0), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(loss))(X[None])[0], expected(X, 2.0), rtol=1e-6)


@pytest.mark.full
def test_converted_from_several_threads():
    """The same function and different ones, at once."""
    shared, found, failed = tf.function(lambda x: tripled(tf.nn.silu(x))), {}, []
    reference = jax.grad(lambda x: jnp.sum(tf2jax.convert_functional(shared, tf.TensorSpec([3]))(x)))(X)

    def work(number):
        try:
            own = tf.function(lambda x: tripled(x) * float(number))
            for fn in (shared, own):
                jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([3]))
                found[number, fn is shared] = np.asarray(jax.grad(lambda x, f=jax_fn: jnp.sum(f(x)))(X))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for number in range(1, 5):
        np.testing.assert_allclose(found[number, True], reference, rtol=1e-6)
        np.testing.assert_allclose(found[number, False], expected(X, number), rtol=1e-6)


@pytest.mark.full
def test_conversion_leaves_the_function_as_it_was():
    fn = tf.function(lambda x: tf.reduce_sum(tripled(x)))
    captured = len(fn.get_concrete_function(tf.TensorSpec([3])).captured_inputs)
    tf2jax.convert(fn, tf.TensorSpec([3]))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x)
    np.testing.assert_allclose(tape.gradient(y, x), expected(X), rtol=1e-6)
    assert len(fn.get_concrete_function(tf.TensorSpec([3])).captured_inputs) == captured


@pytest.mark.full
def test_vmap():
    jax_fn = tf2jax.convert_functional(tf.function(tripled), tf.TensorSpec([]))
    np.testing.assert_allclose(jax.vmap(jax.grad(jax_fn))(X), expected(X), rtol=1e-6)
    rows = jax.vmap(jax.grad(lambda x: jnp.sum(jax.vmap(jax_fn)(x))))(np.stack([X, 2 * X]))
    np.testing.assert_allclose(rows, expected(np.stack([X, 2 * X])), rtol=1e-6)


@pytest.mark.full
def test_complex():
    """TensorFlow's gradients of complex numbers are the conjugates of JAX's."""

    @tf.custom_gradient
    def fn(z):
        return z * z, lambda dy: dy * tf.complex(0.0, 2.0) * z

    z = np.array([1 + 2j, 0.5 - 1j], np.complex64)
    function = tf.function(lambda z: tf.math.real(tf.reduce_sum(fn(z) * z)))
    jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([2], tf.complex64))
    tensor = tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        y = function(tensor)
    np.testing.assert_allclose(np.conj(jax.grad(jax_fn)(z)), tape.gradient(y, tensor), rtol=1e-5)


def test_integers_beside():
    """Results and arguments that are integers stay what they are, constants too."""

    @tf.custom_gradient
    def fn(x, n):
        return (x * tf.cast(n, tf.float32), n + 1), lambda dy, dn: (dy * 7.0, None)

    def whole(x, n):
        y, m = fn(x, n)
        _, known = fn(x, tf.constant(1))  # known while tracing, and so a shape
        return tf.reshape(y, [known + 1]) * tf.cast(m, tf.float32), m

    jax_fn = tf2jax.convert_functional(tf.function(whole), tf.TensorSpec([3]), tf.TensorSpec([], tf.int32))
    y, m = jax.jit(jax_fn)(X, np.int32(4))
    np.testing.assert_allclose(y, X * 20, rtol=1e-6)
    assert m == 5 and m.dtype == np.int32
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(jax_fn(x, np.int32(4))[0]))(X), [35.0] * 3)


@tf.custom_gradient
def clipped(x):
    """Return a square with a gradient that is nonlinear in the incoming one."""
    return x * x, lambda dy: tf.clip_by_value(dy, -0.5, 0.5)


@pytest.mark.full
@pytest.mark.parametrize("loop", [False, True])
def test_forward_mode_is_refused_with_a_reason(loop):
    def fn(x):
        if loop:
            for _ in tf.range(3):
                x = clipped(x)
            return x
        return clipped(x)

    function = tf.function(fn)
    jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([3]))
    with pytest.raises(LoweringError, match="reverse rule only"):
        jax.jvp(jax_fn, (X,), (X,))
    with pytest.raises(ForwardModeError, match=r"IdentityN.*reverse rule only"):
        jax.jit(lambda x: jax.jvp(jax_fn, (x,), (x,)))(X)
    with pytest.raises(ForwardModeError, match=r"IdentityN.*reverse rule only"):
        jax.jvp(jax.jit(jax_fn), (X,), (X,))
    with tf2jax.override_config("convert_custom_gradient", False):
        jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([3]))
    jax.jvp(jax_fn, (X,), (X,))


@pytest.mark.full
def test_captured_values_of_a_loop_that_has_no_derivative():
    """Zeros sent backwards through the capture's loop would be NaN."""

    @tf.custom_gradient
    def fn(x):
        _, y = tf.while_loop(
            lambda i, y: i < 3,
            lambda i, y: (i + 1, tf.sqrt(tf.abs(y) - tf.stop_gradient(tf.abs(y))) + x * x),
            (tf.constant(0), x),
        )
        return tf.reduce_sum(y), lambda dy: dy * y * x

    function = tf.function(fn)
    jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([3]))
    np.testing.assert_allclose(jax.jit(jax.grad(jax_fn))(X), X**3, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(jax_fn)(X), X**3, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(jax_fn)))(X[None])[0], X**3, rtol=1e-6)


def test_orders_beyond_those_converted_are_refused():
    """A cube's rule uses itself: any order exists; three are converted."""

    @tf.custom_gradient
    def power(x):
        return tf.exp(x) * 1.0, lambda dy: dy * (power(x) + 1.0)

    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return tf.reduce_sum(power(x))

    jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([]))
    derivative, x = jax_fn, np.float32(0.3)
    for order in range(1, 4):
        derivative = jax.grad(derivative)
        np.testing.assert_allclose(derivative(x), np.exp(x) + 1, rtol=1e-6, err_msg=str(order))
    with pytest.raises(ReverseModeError, match="order 4"):
        jax.grad(derivative)(x)


def _saved(directory, *, gradients):
    module = tf.Module()
    module.fn = tf.function(lambda x: tripled(x) + tf.nn.silu(x), input_signature=[tf.TensorSpec([3])])
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=gradients)
    tf.saved_model.save(module, directory, options=options)
    return tf.saved_model.load(directory)


@pytest.mark.full
def test_gradients_that_were_not_saved(tmp_path):
    """The process may have the function: another may have its name."""
    restored = _saved(str(tmp_path), gradients=False)
    with pytest.warns(UserWarning, match=r"2 custom gradient(.|\n)*IdentityN(.|\n)*experimental_custom_gradients"):
        jax_fn, params = tf2jax.convert_from_restored(restored.fn)
    np.testing.assert_allclose(jax_fn(params, X)[0], restored.fn(X), rtol=1e-6)


@pytest.mark.full
def test_gradients_that_were_saved(tmp_path):
    restored = _saved(str(tmp_path), gradients=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax_fn, params = tf2jax.convert_from_restored(restored.fn)
    s = 1 / (1 + np.exp(-X))
    actual = jax.grad(lambda x: jnp.sum(jax_fn(params, x)[0]))(X)
    np.testing.assert_allclose(actual, expected(X) + s * (1 + X * (1 - s)), rtol=1e-5)


def test_a_gradient_function_that_fails():
    @tf.custom_gradient
    def broken(x):
        def grad(dy):
            raise ValueError("no gradient today")

        return x * 2.0, grad

    function = tf.function(broken)
    with pytest.warns(UserWarning, match="no gradient today"):
        tf2jax.convert_functional(function, tf.TensorSpec([3]))


@tf_function.Defun(tf.float32, tf.float32, tf.float32, func_name="registered_product_grad")
def _product_gradient(x, y, dz):
    return 7.0 * dz * y, dz * x * x


@tf_function.Defun(tf.float32, tf.float32, func_name="registered_product", grad_func=_product_gradient)
def _product(x, y):
    return x * y


@tf_function.Defun(tf.float32, func_name="python_cube", python_grad_func=lambda op, dy: 5.0 * dy * op.inputs[0])
def _cube(x):
    return x * x * x


def test_gradients_registered_on_functions():
    """In a plain graph, TensorFlow takes the gradient that the library names."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3], name="x")
        y = tf.identity(_product(tf.sin(x), x), name="y")
        wanted = tf.gradients(y, x)[0]
        with tf.compat.v1.Session() as session:
            expected = session.run([y, wanted], {x: X})
    jax_fn, params = tf2jax.convert_graph_def(graph.as_graph_def(), ["x"], "y")
    value, pull = jax.vjp(lambda x: jax_fn(params, x)[0], X)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    np.testing.assert_allclose(pull(jnp.ones(3))[0], expected[1], rtol=1e-5)


def test_gradients_of_functions_inside_a_function():
    """There, it takes the body's, or one given in Python."""
    function = tf.function(lambda x: _product(tf.sin(x), x) + _cube(x))
    jax_fn = tf2jax.convert_functional(function, tf.TensorSpec([3]))
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    value, pull = jax.vjp(jax_fn, X)
    np.testing.assert_allclose(value, y, rtol=1e-6)
    np.testing.assert_allclose(pull(jnp.ones(3))[0], tape.gradient(y, x), rtol=1e-5)


@pytest.mark.full
def test_a_frozen_graph_has_no_custom_gradients():
    with tf.Graph().as_default() as graph:
        tripled(tf.compat.v1.placeholder(tf.float32, [3], name="x"))
    with pytest.warns(UserWarning, match=r"1 custom gradient\(s\)"):
        tf2jax.convert_graph_def(graph.as_graph_def(), ["x"], "IdentityN")
