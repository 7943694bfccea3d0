"""What is not used any more is gone: weights, graphs, converted functions."""

import gc
import weakref

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tools.reliability.repeated import convert_one, make, measure

X = np.ones((2, 64), np.float32)


def collected(*refs):
    jax.clear_caches()
    for _ in range(3):
        gc.collect()
    return [ref() is None for ref in refs]


@pytest.mark.full
@pytest.mark.parametrize("index", [0, 1])  # without and with a custom gradient
def test_a_converted_function_does_not_keep_tensorflow_alive(index):
    model, spec = make(index)
    concrete = model.get_concrete_function(spec)
    refs = [weakref.ref(model), weakref.ref(concrete.graph), weakref.ref(concrete.variables[0])]
    jax_fn, params = tf2jax.convert(model, spec)
    expected = model(X).numpy()
    del model, concrete
    # TensorFlow never unregisters a custom gradient, which holds its graph; test_tensorflow_alone says so.
    gone = collected(*refs)
    assert gone[0] and gone[2] and (gone[1] or index == 1)
    np.testing.assert_allclose(jax_fn(params, X)[0], expected, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("index", [0, 1])
def test_tensorflow_alone_keeps_graphs_with_custom_gradients(index):
    model, spec = make(index)
    ref = weakref.ref(model.get_concrete_function(spec).graph)
    del model
    assert collected(ref) == [index == 0]


@pytest.mark.full
@pytest.mark.parametrize("jit", [False, True])
def test_weights_go_with_the_function(jit):
    model, spec = make(0)
    jax_fn, params = tf2jax.convert(model, spec)
    refs = [weakref.ref(jax_fn), weakref.ref(jax_fn.converted.program), weakref.ref(params["weights"])]
    result = (jax.jit(jax_fn) if jit else jax_fn)(params, X)
    del result, jax_fn, params, model
    assert collected(*refs) == [True] * 3


def save(path):
    module = tf.Module()
    weights = module.w = tf.Variable(np.ones((300, 300), np.float32), name="w")
    module.f = tf.function(lambda x: x @ weights, input_signature=[tf.TensorSpec([None, 300])])
    tf.saved_model.save(module, str(path), signatures=module.f)


@pytest.mark.full
def test_weights_go_with_a_saved_model(tmp_path):
    save(tmp_path)
    jax_fn, params = tf2jax.convert_saved_model(tmp_path)
    refs = [weakref.ref(jax_fn), *(weakref.ref(v) for v in params.values())]
    del jax_fn, params
    assert all(collected(*refs))


@pytest.mark.full
def test_constants_go_with_the_function():
    jax_fn = tf2jax.convert_functional(lambda x: x + tf.constant(np.ones((200, 200), np.float32)), X[:1, :1])
    graph = jax_fn.converted.program.graph
    refs = [weakref.ref(graph), weakref.ref(jax_fn)]
    jax.jit(jax_fn)(X[:1, :1])
    del graph, jax_fn
    assert all(collected(*refs))


@pytest.mark.full
def test_an_error_keeps_nothing():
    model, spec = make(0)
    refs = [weakref.ref(model)]
    with tf2jax.override_op("Tanh", lambda x: 1 / 0), pytest.raises(Exception, match="division"):
        jax_fn, params = tf2jax.convert(model, spec)
        jax_fn(params, X)
    refs.append(weakref.ref(jax_fn))
    del model, jax_fn, params
    assert all(collected(*refs))


@pytest.mark.full
@pytest.mark.parametrize("count", [24, pytest.param(1000, marks=pytest.mark.nightly)])
def test_many_conversions_leave_nothing(count):
    # Even numbers: those without a custom gradient.
    first, half, last = measure(count, lambda i: convert_one(2 * i), warm=6)
    for name in ("objects of the library", "TensorFlow graphs", "JAX arrays"):
        assert last.get(name, 0) <= first.get(name, 0), (name, first, half, last)
