"""Params that train are the variables that the source framework trains."""

import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf2jax_lite
from tf2jax_lite import federated
from tf2jax_lite.frontend.concrete import variable_values as trainable
from tf2jax_lite.frontend.concrete.variable_values import trained_variables
from tf2jax_lite.frontend.saved.meta_graph import variable_trains
from tf2jax_lite.pipeline.inspect_model import describe_model
from tf2jax_lite.pipeline.model_files import convert_file, convert_keras_model

SPEC = tf.TensorSpec((None, 3))
LIBRARIES = pytest.mark.parametrize("lib", [keras, tf_keras], ids=["keras", "tf_keras"])


def frozen_base(lib):
    """Return a head on a frozen base, whose tf.Variables still have the flag."""
    layers = lib.layers
    base = lib.Sequential([layers.Input((3,)), layers.Dense(2, name="d"), layers.BatchNormalization(name="bn")])
    base.trainable = False
    model = lib.Sequential([layers.Input((3,)), base, layers.Dense(2, name="head")])
    assert len(model.trainable_variables) == 2 < sum(getattr(v, "_value", v).trainable for v in model.variables)
    return model


def trained(converted):
    """Return the names of params that train, without the models' names."""
    return {"/".join(name.split("/")[-2:]) for name in tf2jax_lite.split_params(converted[1])[0]}


HEAD = {"head/kernel", "head/bias"}


class Around(tf.Module):
    """A module with a variable of its own around a Keras model."""

    def __init__(self, model):
        super().__init__(name="around")
        self.model = model
        self.scale = tf.Variable(1.0, name="own/scale")
        self.count = tf.Variable(1.0, name="own/count", trainable=False)

    @tf.function(input_signature=[SPEC])
    def __call__(self, x):
        return self.model(x) * self.scale * self.count


@LIBRARIES
def test_convert_frozen_layers_do_not_train(lib):
    model = frozen_base(lib)
    assert trained(tf2jax_lite.convert(model, SPEC)) == HEAD
    assert trained(tf2jax_lite.convert(model.call, SPEC)) == HEAD
    model.layers[0].trainable = True
    assert trained(tf2jax_lite.convert(model, SPEC)) == HEAD | {"d/kernel", "d/bias", "bn/gamma", "bn/beta"}


@pytest.mark.full
@LIBRARIES
def test_convert_layer_enabled_in_frozen_model_does_not_train(lib):
    model = frozen_base(lib)
    model.trainable = False
    model.layers[-1].trainable = True  # Keras trains no layer of a frozen model
    assert trained(tf2jax_lite.convert(model, SPEC)) == set()


@pytest.mark.full
@LIBRARIES
def test_convert_module_and_function_keep_layers_frozen(lib):
    model = frozen_base(lib)
    module = Around(model)
    around = {*HEAD, "own/scale"}
    assert trained(tf2jax_lite.convert(module, SPEC)) == around
    assert trained(tf2jax_lite.convert(module.__call__.get_concrete_function())) == around
    assert trained(tf2jax_lite.convert(tf.function(lambda x: model(x)), SPEC)) == HEAD
    assert trained(tf2jax_lite.convert(lambda x: [model][0](x), SPEC)) == HEAD


def test_layers_of_a_closure_are_found_without_a_search(monkeypatch):
    model = frozen_base(keras)
    monkeypatch.setattr(trainable, "_live_holders", lambda: pytest.fail("searched all objects"))
    assert trained(tf2jax_lite.convert(tf.function(lambda x: model(x)), SPEC)) == HEAD
    assert trained(tf2jax_lite.convert(lambda x: model(x), SPEC)) == HEAD


def test_closure_may_have_variables_without_a_value():
    model = frozen_base(keras)

    def function(x):
        return model(x) if x is not None else later

    assert trained(tf2jax_lite.convert(function, SPEC)) == HEAD
    later = None


@pytest.mark.full
@LIBRARIES
def test_convert_file_keeps_layers_frozen(lib, tmp_path):
    model = frozen_base(lib)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        functions = convert_file(tmp_path / name, train=True)
        assert [trained(functions[mode]) for mode in ("serving_default", "train")] == [HEAD, HEAD]


@pytest.mark.default_cases("keras")
@LIBRARIES
def test_convert_saved_model_keeps_layers_frozen(lib, tmp_path):
    path = str(tmp_path / "model")
    frozen_base(lib).export(path, verbose=False) if lib is keras else frozen_base(lib).save(path, save_format="tf")
    assert describe_model(path).trainable == 2
    assert trained(tf2jax_lite.convert_saved_model(path)) == HEAD
    restored = tf.saved_model.load(path)
    assert trained(tf2jax_lite.convert(restored.signatures["serving_default"])) == HEAD
    function = restored.serve if lib is keras else restored.signatures["serving_default"]
    assert trained(tf2jax_lite.convert_from_restored(function)) == HEAD


@pytest.mark.full
def test_convert_saved_model_of_module_keeps_layers_frozen(tmp_path):
    tf.saved_model.save(Around(frozen_base(tf_keras)), tmp_path)
    around = {*HEAD, "own/scale"}
    assert describe_model(tmp_path).trainable == 3
    assert trained(tf2jax_lite.convert_saved_model(tmp_path)) == around
    assert trained(tf2jax_lite.convert_from_restored(tf.saved_model.load(tmp_path).__call__)) == around


@pytest.mark.full
def test_convert_saved_model_own_list_decides(tmp_path):
    module = tf.Module()
    module.a, module.b = tf.Variable([1.0, 2.0], name="net/a"), tf.Variable([1.0, 2.0], name="net/b")
    module.f = tf.function(lambda x: module.a * x + module.b, input_signature=[tf.TensorSpec((2,))])
    root = tf.train.Checkpoint(f=module.f, variables=[module.a, module.b], trainable_variables=[module.b])
    tf.saved_model.save(root, tmp_path, signatures=module.f)
    assert describe_model(tmp_path).trainable == 1
    assert trained(tf2jax_lite.convert_saved_model(tmp_path)) == {"net/b"}


@pytest.mark.full
def test_convert_module_own_property_decides():
    class Partly(tf.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = tf.Variable(1.0, name="net/a"), tf.Variable(1.0, name="net/b")

        @property
        def trainable_variables(self):
            return (self.b,)

        def __call__(self, x):
            return self.a * x + self.b

    assert trained(tf2jax_lite.convert(Partly(), tf.TensorSpec(()))) == {"net/b"}


@pytest.mark.full
@LIBRARIES
def test_convert_states_of_stateful_rnn_do_not_train(lib, tmp_path):
    layers = lib.layers
    model = lib.Sequential([layers.Input((4, 3), batch_size=2), layers.SimpleRNN(2, stateful=True, name="rnn")])
    spec = tf.TensorSpec((2, 4, 3))
    model(np.zeros(spec.shape, np.float32))
    for function in (model, tf.function(lambda x: model(x))):
        converted = tf2jax_lite.convert(function, spec)
        assert len(converted[1]) == 4
        assert {name.split("/")[-1] for name in trained(converted)} == {"kernel", "recurrent_kernel", "bias"}
    if lib is tf_keras:
        model.save(tmp_path, save_format="tf")
        assert describe_model(tmp_path).trainable == 3
        assert len(trained(tf2jax_lite.convert_saved_model(tmp_path))) == 3


@pytest.mark.default_cases("keras")
@LIBRARIES
def test_create_model_from_tf_keeps_layers_frozen(lib):
    model = federated.create_model_from_tf(frozen_base(lib), "mse")
    weights = model.init(None)
    assert {"/".join(name.split("/")[-2:]) for name in weights.trainable} == HEAD


def test_convert_keras_model_lora_freezes_kernel():
    layer = keras.layers.Dense(2, name="dense")
    model = keras.Sequential([keras.layers.Input((3,)), layer])
    layer.enable_lora(1)
    names = {name.split("/")[-1] for name in trained(convert_keras_model(model)["train"])}
    assert names == {v.name for v in model.trainable_variables}
    assert "kernel" not in names


@pytest.mark.full
def test_variable_trains_node_of_imported_graph_is_found():
    float32 = np.dtype("float32")
    assert variable_trains("w", "scope/w", float32, {"scope/w"})
    assert not variable_trains("b", "scope/b", float32, {"scope/w"})
    assert variable_trains("w", "w", float32, None)
    assert not variable_trains("n", "n", np.dtype("int32"), None)


@pytest.mark.full
def test_other_threads_build_tuples_meanwhile():
    """With a list of all objects, some tens of these tuples failed."""
    errors, stop = [], threading.Event()

    def build():
        while not stop.is_set():
            try:
                tuple(i for i in range(50))
            except SystemError as error:
                errors.append(error)

    threads = [threading.Thread(target=build) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(10):
            trained_variables([keras.Variable(1.0).value])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not errors
