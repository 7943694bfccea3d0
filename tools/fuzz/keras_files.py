"""Configurations of Keras files: seeds, mutators, and a watched reader."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from . import mutators

_CLASSES = (
    "Lambda TFOpLambda SlicingOpLambda TensorFlowOpLayer ClassMethod InstanceMethod TFSMLayer Dense Embedding GRU "
    "Conv2D TimeDistributed Normalization RepeatVector StringLookup function get_file load_model CSVLogger "
    "deserialize add __lambda__ __tensor__ __numpy__ __typespec__ __bytes__ __keras_tensor__ builtins>Dense np.save "
    "DTypePolicy Add Mean GlorotUniform ResidualWrapper LocallyConnected1D BatchNormalization Sequential Functional "
    "Model FeatureSpace"
)
_MODULES = (
    "keras keras.layers keras.utils keras.saving keras.callbacks keras.ops keras.src.ops.numpy "
    "keras.src.utils.file_utils tf_keras.src.utils.generic_utils tf_keras.layers builtins os subprocess tensorflow "
    "keras.initializers keras.src.saving.serialization_lib keras_hub.layers"
)
_FUNCTIONS = (
    "io.write_file compat.v1.io.write_file io.gfile.rmtree load_op_library py_function numpy_function print zeros "
    "ones math.multiply keras.utils.get_file keras.backend.sum raw_ops.WriteFile raw_ops.Add nn.relu reshape fill "
    "repeat relu get_file eval system deserialize_keras_object func_load softmax mse one_hot range"
)
_CHOICES = {
    "class_name": _CLASSES.split(),
    "module": [*_MODULES.split(), None],
    "registered_name": [*_CLASSES.split(), "Custom>Dense", "func_load", None],
    "function": _FUNCTIONS.split(),
    "config": _FUNCTIONS.split(),
    "activation": _FUNCTIONS.split(),
    "vocabulary": ["/etc/passwd", ["a"], {"class_name": "__bytes__", "config": {"value": "/etc/passwd"}}],
    "residual_fn_type": ["lambda", "function"],
    "attr_name": ["numpy", "__class__", "values"],
    "cls_symbol": ["RaggedTensor", "io.TFRecordWriter"],
    "inbound_nodes": [[["_CONSTANT_VALUE", -1, "victim", {"contents": "x"}]], [[["in", 0, 0, {}]]], []],
    "kernel_size": [[60000, 60000]],
    "axis": [[1], [1, 2], -1, 7],
}


def make_seeds(folder: Path) -> None:
    """Write small models by both libraries, in both formats."""
    for library in ("keras", "tf_keras"):
        for kind, model in _models(library).items():
            for suffix in (".keras", ".h5"):
                model.save(folder / f"{library}_{kind}{suffix}")


def _models(library: str) -> dict[str, Any]:
    import importlib

    import tensorflow as tf

    keras = importlib.import_module(library)
    layers = keras.layers
    x = layers.Input((4,), name="in")
    y = keras.ops.relu(x) if library == "keras" else tf.reshape(tf.math.multiply(x, 2.0)[:, 1:], [-1, 3])
    y = layers.Add()([layers.Dense(3, activation="relu")(y), layers.Dense(3, kernel_regularizer="l2")(x)])
    image = layers.Input((8, 8, 1), name="image")
    z = layers.BatchNormalization()(layers.Conv2D(2, 3, padding="same")(image))
    z = layers.Dropout(0.5)(layers.GlobalAveragePooling2D()(z))
    sequence = [layers.Input((5,)), layers.Embedding(7, 3), layers.Bidirectional(layers.GRU(2, return_sequences=True))]
    return {
        "dense": keras.Model(x, y),
        "image": keras.Model(image, z),
        "text": keras.Sequential([*sequence, layers.TimeDistributed(layers.Dense(2)), layers.Flatten()]),
        "words": keras.Sequential([layers.Input((1,), dtype="string"), layers.StringLookup(vocabulary=["a", "b"])]),
    }


def read_config(path: Path) -> bytes:
    """Return the configuration in a Keras file."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return archive.read("config.json")
    import h5py

    with h5py.File(path) as file:
        text = file.attrs["model_config"]
    return text.encode() if isinstance(text, str) else bytes(text)


def with_config(path: Path, config: bytes, out: Path) -> None:
    """Write a copy of a Keras file with another configuration."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(out, "w") as other:
            for name in archive.namelist():
                other.writestr(name, config if name == "config.json" else archive.read(name))
        return
    import h5py

    out.write_bytes(path.read_bytes())
    with h5py.File(out, "r+") as file:
        file.attrs["model_config"] = config.replace(b"\0", b" ").decode("utf-8", "replace").encode()


def other_names(rng: random.Random, data: bytes) -> bytes:
    """Name other classes, functions and modules, or nest layers otherwise."""
    document = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = [item for item in _objects(document) if "class_name" in item]
        item = rng.choice(places)
        inner = item["config"] if isinstance(item.get("config"), dict) else item
        kind = rng.random()
        if kind < 0.5:
            key = rng.choice(("class_name", "class_name", "module", "registered_name", "inbound_nodes"))
            item[key] = rng.choice(_CHOICES[key])
        elif kind < 0.8:
            key = rng.choice(sorted(_CHOICES.keys() - {"class_name", "module", "registered_name", "inbound_nodes"}))
            (inner if key != "config" else item)[key] = rng.choice(_CHOICES[key])
            if key == "function":
                item["class_name"] = rng.choice(("TFOpLambda", "SlicingOpLambda"))
        elif kind < 0.9:
            numbers = [key for key, value in inner.items() if type(value) is int] or ["units"]
            inner[rng.choice(numbers)] = mutators.integer(rng)
        else:
            other = json.loads(json.dumps(rng.choice(places)))
            item.clear()
            item.update(other if rng.random() < 0.5 else {"class_name": "TimeDistributed", "config": {"layer": other}})
    return json.dumps(document).encode()


def _objects(item: Any) -> Iterator[dict[str, Any]]:
    if isinstance(item, dict):
        yield item
    for value in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        yield from _objects(value)


class UnlistedError(AssertionError):
    """Keras found an object, or did something, that no list allows."""


_EVENTS = ("os.remove", "os.rename", "os.rmdir", "os.system", "shutil.rmtree", "socket.connect", "subprocess.Popen")
_WATCHING: list[list[str]] = []  # of audit events, which a process cannot stop to hear
_HEARD: list[bool] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCHING:
        return
    if event in _EVENTS or (event == "open" and str(arguments[1] or "r")[0] in "wax" and isinstance(arguments[0], str)):
        _WATCHING[-1].append(f"{event} {arguments[:1]}")


def load(path: Path) -> Any:
    """Load a Keras file; raise `UnlistedError` for names and effects.

    These are names that Keras finds and no list allows.
    """
    from tf2jax_lite.frontend.safety import keras_names
    from tf2jax_lite.pipeline import model_files

    if not _HEARD:
        sys.addaudithook(_hear)
        _HEARD.append(True)
    victim = path.parent / "victim"
    victim.write_text("mine")
    effects: list[str] = []
    try:
        with _watched(keras_names, effects):
            model_files.load_keras(path)
    finally:
        if victim.read_text() != "mine":
            effects.append("the victim was written")
        if effects:
            raise UnlistedError("; ".join(effects))


@contextlib.contextmanager
def _watched(keras_names: Any, effects: list[str]) -> Iterator[None]:
    import keras.src.saving.serialization_lib as new
    import tf_keras.src.layers.core.tf_op_layer as calls
    import tf_keras.src.saving.serialization_lib as old

    def checked(find: Any) -> Any:
        def found(*args: Any, **options: Any) -> Any:
            result = find(*args, **options)
            name, module = getattr(result, "__name__", repr(result)), getattr(result, "__module__", "")
            listed = name in layers or keras_names.is_class(name, module) or keras_names.is_function(name)
            if not listed and name not in keras_names.TYPE_SPECS:
                effects.append(f"found {module}.{name}")
            return result

        return found

    def symbol(name: Any) -> Any:
        if not (keras_names.computes_in_tensorflow(name) or name == "RaggedTensor"):
            effects.append(f"found {name}")
        return find_symbol(name)

    layers = keras_names.FUNCTION_LAYERS | keras_names.METHOD_LAYERS | {"TensorFlowOpLayer"}
    find_symbol = calls.get_symbol_from_name
    _WATCHING.append(effects)
    try:
        with (
            mock.patch.object(new, "_retrieve_class_or_fn", checked(new._retrieve_class_or_fn)),
            mock.patch.object(old, "_retrieve_class_or_fn", checked(old._retrieve_class_or_fn)),
            mock.patch.object(calls, "get_symbol_from_name", symbol),
        ):
            yield
    finally:
        _WATCHING.pop()
