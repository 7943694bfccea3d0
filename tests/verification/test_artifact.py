"""An artifact beside TensorFlow: both backends, and a damaged one."""

import importlib

import jax
import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import ExportError, InputError
from tf2jax_lite.pipeline.model_files import convert_file

from . import models


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    path = tmp_path_factory.mktemp("artifact") / "out"
    functions = {"serving_default": tf2jax.convert_saved_model(models.TESTDATA / "tf_module", "serving_default")}
    tf2jax.export_functions(functions, path, platforms=["cpu"])
    return path


@pytest.mark.full
def test_both_backends_agree(artifact):
    both = ("stablehlo", "source")
    result = tf2jax.verify(models.TESTDATA / "tf_module", artifact, train=True, backends=both)
    assert result.ok, [(s.error, s.outputs) for s in result.signatures]
    repeat, serving = result.signatures
    assert {o.against for o in serving.outputs} == {"jax", "stablehlo", "source"}
    assert {o.kind for o in serving.outputs if o.against == "source"} == {"result", "variable"}
    assert "no signature" in repeat.notes[0]


@pytest.mark.full
def test_an_artifact_with_64_bits(tmp_path):
    with jax.enable_x64(True):
        functions = {"serving_default": tf2jax.convert_saved_model(models.TESTDATA / "tf_module", "serving_default")}
        tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"])
    options = {"signatures": ["serving_default"], "backends": ["stablehlo"]}
    result = tf2jax.verify(models.TESTDATA / "tf_module", tmp_path / "out", **options)
    assert result.ok, [(s.error, s.outputs) for s in result.signatures]


@pytest.mark.full
def test_other_params_are_noticed(artifact, tmp_path, monkeypatch):
    loading = importlib.import_module("tf2jax_lite.export.reader")
    read = loading.read_params
    monkeypatch.setattr(loading, "read_params", lambda *a: {n: np.asarray(v) + 1 for n, v in read(*a).items()})
    result = tf2jax.verify(models.TESTDATA / "tf_module", artifact, signatures=["serving_default"])
    (signature,) = result.signatures
    assert not result.ok
    assert {o.against for o in signature.outputs if not o.ok} == {"stablehlo"}
    assert signature.bisection is None  # the conversion in this process agrees


@pytest.mark.full
def test_an_artifact_of_another_model(artifact, tmp_path):
    """Nothing would be compared, which is no agreement."""
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]).save(tmp_path / "model.keras")
    with pytest.raises(InputError, match="has none of the functions repeat"):
        tf2jax.verify(models.TESTDATA / "tf_module", artifact=artifact, signatures=["repeat"])
    other = {"other": tf2jax.convert_saved_model(models.TESTDATA / "tf_module", "serving_default")}
    tf2jax.export_functions(other, tmp_path / "out", platforms=["cpu"])
    with pytest.raises(InputError, match="it has other"):
        tf2jax.verify(tmp_path / "model.keras", tmp_path / "out")


@pytest.mark.full
def test_seeds_that_keras_redraws(tmp_path):
    """A Keras file lacks seeds that were not given: each load draws another."""
    layers = [keras.layers.Dense(8), keras.layers.Dropout(0.5), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    keras.Sequential([keras.Input((4,)), *layers]).save(tmp_path / "model.keras")
    functions = convert_file(tmp_path / "model.keras", train=True)
    for random in ("tensorflow", "jax"):
        tf2jax.export_functions(functions, tmp_path / random, platforms=["cpu"], random=random)
        result = tf2jax.verify(tmp_path / "model.keras", tmp_path / random, train=True, bisect=False)
        assert result.ok, [(s.error, [o for o in s.outputs if not o.ok]) for s in result.signatures]
        found = [o for s in result.signatures for o in s.outputs if o.against == "stablehlo" and o.kind == "result"]
        assert found and any("draws random numbers" in o.note for o in found) == (random == "jax")


@pytest.mark.full
def test_damage_is_refused(artifact, tmp_path):
    with pytest.raises(ExportError):
        tf2jax.verify(models.TESTDATA / "tf_module", tmp_path)
    file = next(artifact.glob("*.safetensors"))
    content = file.read_bytes()
    try:
        save_file({n: np.asarray(v + 1) for n, v in load_file(file).items()}, file)
        with pytest.raises(ExportError, match="damaged"):
            tf2jax.verify(models.TESTDATA / "tf_module", artifact, signatures=["serving_default"])
    finally:
        file.write_bytes(content)
