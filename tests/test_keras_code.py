"""Keras files that hold code: refused before Keras, or tf_keras after it, would run that."""

import json
import zipfile

import h5py
import numpy as np
import pytest

import tf2jax_lite
from tf2jax_lite import model_files
from tf2jax_lite.errors import InvalidModelError, UntrustedError
from tf2jax_lite.keras_code import refuse_code


def lambda_model(tmp_path, library, suffix):
    """A model whose Lambda layer would make a file when it is loaded or built; written by the library itself."""
    keras = pytest.importorskip(library)
    marker = tmp_path / "ran"
    text = str(marker)
    run = eval(f"lambda x: (open({text!r}, 'w').close(), x)[1]")
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Lambda(run)])
    path = tmp_path / f"model{suffix}"
    model.save(path)
    marker.unlink(missing_ok=True)
    return path, marker


@pytest.mark.parametrize(("library", "suffix"), [("keras", ".keras"), ("keras", ".h5"), ("tf_keras", ".h5")])
def test_layers_that_hold_code_are_refused(tmp_path, library, suffix):
    path, marker = lambda_model(tmp_path, library, suffix)
    with pytest.raises(UntrustedError, match="Lambda"):
        model_files.convert_file(path)
    assert not marker.exists()


def test_a_layer_that_was_asked_for_by_name_goes_on_to_keras(tmp_path):
    path, _ = lambda_model(tmp_path, "tf_keras", ".h5")
    with tf2jax_lite.override_config("trusted", "Lambda"):
        refuse_code(path)


def test_code_is_found_at_any_depth_and_other_layers_pass(tmp_path):
    path = tmp_path / "m.keras"
    for name, refused in (("Dense", False), ("builtins>Lambda", True), ("TorchModuleWrapper", True)):
        config = {"class_name": name, "config": {}}
        for _ in range(20):
            config = {"class_name": "Model", "config": {"layers": [config]}}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", json.dumps(config))
        if refused:
            with pytest.raises(UntrustedError):
                refuse_code(path)
        else:
            refuse_code(path)


def test_damaged_configurations(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", "[" * 100_000)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = np.arange(3)
    for name in ("m.keras", "m.h5"):
        with pytest.raises(InvalidModelError):
            refuse_code(tmp_path / name)
