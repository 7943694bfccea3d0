"""The function variant that TensorFlow's selector picks on CPU."""

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = np.array([1.0, 2.0], np.float32)


def _registered(interface, fn, device=None):
    attributes = {"api_implements": interface} | ({"api_preferred_device": device} if device else {})
    return tf.function(fn, experimental_attributes=attributes)


def _whole(interface, called, other):
    """Return a function that calls one variant and keeps the other (Keras)."""

    @tf.function
    def fn(x):
        result = called(x)
        other.get_concrete_function(x).add_to_graph()
        return result * 2.0

    return fn


@pytest.mark.default_cases("no device is called, CPU is there-devices0-10.0")
@pytest.mark.parametrize(
    "name, devices, expected",
    [
        ("no device is called, CPU is there", (None, "CPU"), 10.0),
        ("CPU is called", ("CPU", "GPU"), 1.0),
        ("GPU is called, CPU is there", ("GPU", "CPU"), 10.0),
        ("no CPU", (None, "GPU"), 1.0),
    ],
)
def test_variant(name, devices, expected):
    interface = f"times_{name.replace(' ', '_').replace(',', '')}"
    called = _registered(interface, lambda x: x * 1.0, devices[0])
    other = _registered(interface, lambda x: x * 10.0, devices[1])
    fn = _whole(interface, called, other)
    np.testing.assert_allclose(fn(X), X * expected * 2)
    np.testing.assert_allclose(tf2jax.convert_functional(fn, tf.TensorSpec([2]))(X), X * expected * 2)


@pytest.mark.full
def test_results_of_another_dtype_or_number_are_not_taken():
    called = _registered("unequal", lambda x: x * 1.0)
    other = _registered("unequal", lambda x: (x * 10.0, x), "CPU")
    fn = _whole("unequal", called, other)
    np.testing.assert_allclose(tf2jax.convert_functional(fn, tf.TensorSpec([2]))(X), X * 2)
