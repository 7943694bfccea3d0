"""Keras files with code raise before Keras, or tf_keras, would run it."""

import json
import zipfile

import h5py
import numpy as np
import pytest

import tf2jax_lite
from tf2jax_lite.errors import InvalidModelError, LimitError, UntrustedError
from tf2jax_lite.frontend.safety.keras_config import reject_code
from tf2jax_lite.pipeline import model_files


def lambda_model(tmp_path, library, suffix):
    """Return a model whose Lambda layer makes a file when loaded or built.

    The library itself writes the model.
    """
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


def test_trusted_layer_reaches_keras(tmp_path):
    path, _ = lambda_model(tmp_path, "tf_keras", ".h5")
    with tf2jax_lite.override_config("trusted", "Lambda"):
        reject_code(path)


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
                reject_code(path)
        else:
            reject_code(path)


def keras_file(path, config):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "2.15.0", "date_saved": ""}))
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", b"")
    return path


def named(module, name, config=None, **more):
    return {"module": module, "class_name": name, "config": {} if config is None else config, **more}


@pytest.mark.parametrize(
    ("inner", "match"),
    [
        (named("evil_module", "Payload"), "evil_module: would be imported"),
        (named("evil_module", "function", "call"), "evil_module: would be imported"),
        (named("os.path", "Payload", registered_name="x>Payload"), "os.path: would be imported"),
        (named("builtins", "function", "eval"), r"builtins.eval"),
        (named("builtins", "Dense"), "builtins: would be imported"),
        (named("keras.utils", "get_file"), r"keras.utils.get_file: is no layer"),
        (named("tf_keras.src.utils.generic_utils", "function", "func_load"), "func_load: is no function that"),
        (named("tf_keras.src.layers", "core.Lambda"), "Lambda: layers of this class"),
        (named("tf_keras.layers", "Nothing", registered_name="Lambda"), "Lambda: layers of this class"),
        (named("keras.layers", "TFSMLayer", {"filepath": "/x"}), "TFSMLayer"),
        (named("evil_module", "__typespec__", spec_name="Spec"), "evil_module: would be imported"),
        (named("keras.layers", "StringLookup", {"vocabulary": "/etc/passwd"}), "/etc/passwd: is a file"),
        (
            {"class_name": "ResidualWrapper", "config": {"residual_fn_type": "lambda"}},
            "Lambda: .residual_fn. holds code",
        ),
    ],
)
def test_objects_outside_keras_raise(tmp_path, monkeypatch, inner, match):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = keras_file(tmp_path / "m.keras", named("keras", "Sequential", {"name": "s", "layers": [inner]}))
    with pytest.raises(UntrustedError, match=match):
        model_files.convert_file(path)
    assert not (tmp_path / "ran").exists()


def test_registered_objects_and_functions_of_keras_pass(tmp_path):
    keras = pytest.importorskip("keras")

    @keras.saving.register_keras_serializable("mine")
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, "gelu"), Doubled()])
    model.compile("adam", "mse")
    model.save(tmp_path / "m.keras")
    reject_code(tmp_path / "m.keras")
    try:
        keras.saving.get_custom_objects().pop("mine>Doubled")
        with pytest.raises(UntrustedError, match="would be imported, for 'Doubled'"):
            reject_code(tmp_path / "m.keras")
    finally:
        keras.saving.get_custom_objects()["mine>Doubled"] = Doubled


def test_a_file_that_is_an_archive_and_hdf5_both(tmp_path):
    """zipfile looks at a file's end, HDF5 at its beginning."""
    path, marker = lambda_model(tmp_path, "tf_keras", ".h5")
    good = keras_file(tmp_path / "good.keras", named("keras", "Sequential", {"layers": []}))
    path.write_bytes(path.read_bytes() + good.read_bytes())
    assert zipfile.is_zipfile(path)
    with pytest.raises(UntrustedError, match="Lambda"):
        model_files.convert_file(path)
    assert not marker.exists()


def test_damaged_configurations(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", "[" * 100_000)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = np.arange(3)
    for name in ("m.keras", "m.h5"):
        with pytest.raises(InvalidModelError):
            reject_code(tmp_path / name)


@pytest.mark.parametrize("sizes", [{"units": 1 << 31}, {"input_dim": 1 << 20, "output_dim": 1 << 20}])
def test_weights_that_no_memory_holds(tmp_path, sizes):
    """Keras makes a layer's weights before it reads any."""
    layer = {"module": "keras.layers", "class_name": "Dense", "config": {"name": "wide", **sizes}}
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"config": {"layers": [layer]}}))
    with pytest.raises(LimitError, match=r"'wide'.*max_constant_bytes"):
        reject_code(tmp_path / "m.keras")


@pytest.mark.default_cases("<lambda>-declares 4398046511104 bytes")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda group: group.create_dataset("kernel", (1 << 20, 1 << 20), "f4"), "declares 4398046511104 bytes"),
        (lambda group: group.create_dataset("kernel", (4,), "u1", external=[("/etc/passwd", 0, 4)]), "another file"),
        (lambda group: group.__setitem__("kernel", h5py.ExternalLink("/etc/passwd", "/x")), "is a link"),
        (lambda group: group.__setitem__("kernel", h5py.SoftLink("/model_weights/dense")), "is a link"),
    ],
)
def test_weights_that_the_file_does_not_hold(tmp_path, make, match):
    keras = pytest.importorskip("keras")
    path = tmp_path / "m.h5"
    keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="dense")]).save(path)
    reject_code(path)
    with h5py.File(path, "r+") as file:
        file["model_weights/dense/again"] = file["model_weights"]  # a circle
    reject_code(path)
    with h5py.File(path, "r+") as file:
        make(file["model_weights/dense"].create_group("more"))
    with pytest.raises(InvalidModelError, match=match):
        model_files.convert_file(path)
