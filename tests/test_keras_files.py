"""Keras files of subclassed models and of layers that a package defines."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tests._support import invoke
from tf2jax_lite.cli.advice import for_shell
from tf2jax_lite.errors import InputError, InvalidModelError
from tf2jax_lite.pipeline import model_files

LAYERS = """
import keras

class {name}(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.dense = keras.layers.Dense(3, name="dense")

    def call(self, inputs):
        return self.dense(inputs["a"]) + inputs["b"]

@keras.saving.register_keras_serializable("{name}")
class Scale(keras.layers.Layer):
    def call(self, x):
        return 2 * x
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A module, its name, and what makes Keras forget it."""
    name = f"layers_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(LAYERS.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(name)

    def forget():
        sys.modules.pop(name, None)
        keras.saving.get_custom_objects().pop(f"{name}>Scale", None)

    yield module, name, forget
    forget()


def test_convert_subclassed_keras_file_has_built_shapes(tmp_path, package):
    module, name, forget = package
    x = {"a": np.ones((2, 4), np.float32), "b": np.ones((2, 3), np.float32)}
    model = getattr(module, name)()
    expected = model(x).numpy()
    model.save(tmp_path / "m.keras")
    forget()
    with tf2jax_lite.override_config("trusted", name):
        fn, params = model_files.convert_file(tmp_path / "m.keras")["serving_default"]
        wide = model_files.convert_file(tmp_path / "m.keras", shapes={"a": "b,t,4", "b": "b,t,3"})["serving_default"]
    np.testing.assert_allclose(fn(params, x)[0], expected, rtol=1e-6)

    def shapes(function):
        return {name: spec.shape for name, spec in function.converted.interface.tensors().items()}

    assert shapes(fn) == {"inputs/a": (None, 4), "inputs/b": (None, 3)}
    assert shapes(wide[0]) == {"inputs/a": (None, None, 4), "inputs/b": (None, None, 3)}


def test_keras_specs_without_shapes_asks_for_them(package):
    module, name, _ = package
    with pytest.raises(InvalidModelError, match="shapes="):
        model_files.keras_specs(getattr(module, name)())


@pytest.mark.default_cases("--import")
@pytest.mark.parametrize("option", ["--import", "--trust"])
def test_keras_file_of_registered_layer_converts(tmp_path, package, option):
    module, name, forget = package
    keras.Sequential([keras.Input((4,)), module.Scale(), keras.layers.Dense(2)]).save(tmp_path / "m.keras")
    forget()
    result = invoke("inspect", tmp_path / "m.keras")
    assert result.exit_code != 0 and "--import" in for_shell(str(result.exception), "inspect")
    result = invoke("inspect", tmp_path / "m.keras", option, name)
    assert result.exit_code == 0, result.output
    assert "Keras model" in result.output and "MatMul 1" in result.output and "every op is supported" in result.output


def test_import_option_finds_layers_that_h5_does_not_place(tmp_path, package):
    tf_keras = pytest.importorskip("tf_keras")
    _, _, forget = package
    own = f"own_{tmp_path.name}"
    (tmp_path / f"{own}.py").write_text(
        "import tf_keras\nclass Twice(tf_keras.layers.Layer):\n    def call(self, x):\n        return 2 * x\n"
    )
    layers = [tf_keras.layers.Input((4,)), __import__(own).Twice(), tf_keras.layers.Dense(2)]
    tf_keras.Sequential(layers).save(tmp_path / "m.h5")
    forget()
    result = invoke("inspect", tmp_path / "m.h5")
    assert isinstance(result.exception, InvalidModelError) and "Unknown layer: 'Twice'" in str(result.exception)
    assert "custom_objects" in str(result.exception)
    assert "--import" in for_shell(str(result.exception), "inspect")
    result = invoke("inspect", tmp_path / "m.h5", "--import", own)
    assert result.exit_code == 0, result.output
    result = invoke("inspect", tmp_path / "m.h5", "--import", "no_such_module")
    assert isinstance(result.exception, InputError) and "no_such_module" in str(result.exception)


def test_load_keras_error_shows_the_cause(tmp_path):
    @keras.saving.register_keras_serializable("gone")
    class Gone(keras.layers.Layer):
        def __init__(self, factor, **options):
            super().__init__(**options)

        def get_config(self):
            return super().get_config()

    keras.Sequential([keras.Input((4,)), Gone(3)]).save(tmp_path / "m.keras")
    with pytest.raises(InvalidModelError, match="factor") as caught:
        model_files.load_keras(tmp_path / "m.keras")
    assert "tf_keras" not in str(caught.value) and "config={" not in str(caught.value)


@pytest.mark.full
def test_keras_specs_list_of_shapes_keeps_its_structure(package):
    class Sum(keras.Model):
        def call(self, inputs):
            return inputs[0] + inputs[1]

    model = Sum()
    model([np.ones((2, 4), np.float32), np.ones((2, 4), np.float32)])
    specs = model_files.keras_specs(model)
    assert specs == [tf.TensorSpec([None, 4], tf.float32)] * 2
