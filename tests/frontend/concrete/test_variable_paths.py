"""Params named after the attributes of the model."""

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite


class Kernel(tf.Module):
    def __init__(self, value):
        super().__init__()
        self.scale = tf.Variable(value, name="softplus")


class Process(tf.Module):
    def __init__(self):
        super().__init__()
        self.kernel = Kernel([1.0])
        self.others = [Kernel([2.0])]
        self.named = {"mean": tf.Variable([3.0], name="softplus")}

    def plain(self, x):
        return x * self.kernel.scale + self.others[0].scale - self.named["mean"]

    @tf.function
    def __call__(self, x):
        return self.plain(x)


PATHS = {"kernel/scale": 1.0, "others/0/scale": 2.0, "named/mean": 3.0}
SPEC = tf.TensorSpec([1])


def _values(params):
    return {str(name): float(value[0]) for name, value in params.items()}


@pytest.mark.full
@pytest.mark.parametrize("of", [lambda m: m, lambda m: m.plain, lambda m: m.__call__, lambda m: tf.function(m.plain)])
def test_params_of_module_named_by_path(of):
    model = Process()
    fn, params = tf2jax_lite.convert(of(model), SPEC)
    assert _values(params) == PATHS
    np.testing.assert_allclose(fn(params, np.float32([2]))[0], [1.0])
    np.testing.assert_allclose(fn({**params, "kernel/scale": np.float32([2])}, np.float32([2]))[0], [3.0])


def test_params_of_closure_start_with_its_names():
    process, extra = Process(), tf.Variable([4.0], name="softplus")
    _, params = tf2jax_lite.convert(lambda x: process(x) * extra, SPEC)
    assert _values(params) == {**{f"process/{name}": value for name, value in PATHS.items()}, "extra": 4.0}


@pytest.mark.full
def test_params_of_saved_model_named_by_path(tmp_path):
    model = Process()
    tf.saved_model.save(model, str(tmp_path), signatures=model.__call__.get_concrete_function(SPEC))
    assert _values(tf2jax_lite.convert_saved_model(tmp_path)[1]) == PATHS


@pytest.mark.full
def test_params_of_unrepeated_names_keep_them():
    model = Process()
    model.kernel.scale = tf.Variable([1.0], name="weight")
    assert set(tf2jax_lite.convert(model, SPEC)[1]) == {"weight", "others/0/scale", "named/mean"}


@pytest.mark.full
def test_params_named_by_variable_are_numbered():
    with tf2jax_lite.override_config("param_names", "variable"):
        assert set(tf2jax_lite.convert(Process(), SPEC)[1]) == {"softplus", "softplus_1", "softplus_2"}
