"""Callables that can be traced, and the errors for others."""

import traceback

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import InputError

X = np.float32([1, 2])
SPEC = tf.TensorSpec([None], tf.float32)


class Scaled(tf.Module):
    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(2.0, name="scale")

    @tf.function
    def __call__(self, x):
        return x * self.scale


@pytest.mark.full
def test_restored_objects_with_a_call(tmp_path):
    module = Scaled()
    module(X)
    tf.saved_model.save(module, str(tmp_path))
    jax_fn, params = tf2jax.convert_from_restored(tf.saved_model.load(str(tmp_path)))
    assert set(params) == {"scale"}
    np.testing.assert_array_equal(jax_fn(params, X)[0], X * 2)
    np.testing.assert_array_equal(jax_fn(params, x=X)[0], X * 2)


def test_restored_objects_without_a_call_name_their_signatures(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: x * 2, input_signature=[SPEC])
    tf.saved_model.save(module, str(tmp_path), signatures={"twice": module.f})
    with pytest.raises(InputError, match=r"no __call__.*twice"):
        tf2jax.convert_from_restored(tf.saved_model.load(str(tmp_path)))


def test_restored_functions_without_a_trace(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: x * 2)
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(InputError, match="saved without a trace"):
        tf2jax.convert_from_restored(tf.saved_model.load(str(tmp_path)).f)


@pytest.mark.parametrize("fn", [None, 3, tf.Module(), lambda x: x, tf.function(lambda x: x), Scaled()])
def test_functions_that_were_not_restored_raise(fn):
    with pytest.raises(InputError, match="did not come out of a SavedModel"):
        tf2jax.convert_from_restored(fn)


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ({1: SPEC, "a": SPEC}, "could not trace"),  # keys that TensorFlow cannot sort
        (jax.random.key(0), "no dtype key"),
        (jax.eval_shape(lambda: jax.random.key(0)), "no dtype key"),
    ],
)
def test_arguments_that_tensorflow_cannot_take(arg, message):
    with pytest.raises(InputError, match=message):
        tf2jax.convert(tf.function(lambda x: x), arg)


@pytest.mark.full
def test_specs_from_tracers_of_unknown_size():
    sizes = jax.export.symbolic_shape("n")

    def outer(x):
        return tf2jax.convert_functional(tf.function(lambda x: x * 2), x)(x)

    exported = jax.export.export(jax.jit(outer))(jax.ShapeDtypeStruct(sizes, np.float32))
    np.testing.assert_array_equal(exported.call(X), X * 2)


@pytest.mark.full
def test_inside_a_function_that_tensorflow_traces():
    # AutoGraph has to rewrite the function that is converted, and would the converter, for seconds and with warnings.
    found, callers = [], []

    @tf.function
    def inner(x):
        callers.extend(frame.name for frame in traceback.extract_stack())
        if tf.reduce_sum(x) > 0:
            return x * 2
        return -x

    @tf.function
    def outer(x):
        found.append(tf2jax.convert_functional(inner, SPEC))
        return x

    outer(X)
    np.testing.assert_array_equal(found[0](X), X * 2)
    np.testing.assert_array_equal(found[0](-X), X)
    assert "convert_functional" in callers and "tf__convert_functional" not in callers
