"""Conversion of model files: SavedModels, Keras files, frozen graphs."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite.frontend.safety.keras_config import OWN_LAYERS, bounded_weights, imported, reject_code
from tf2jax_lite.support.errors import InputError, InvalidModelError, LimitError, UnsupportedError, UntrustedError
from tf2jax_lite.support.text import size_text

from . import convert
from .converted_function import AnnotatedFunction
from .keras_training import TrainingFacts, refused_variables
from .model_paths import KERAS_SUFFIXES, model_path

Functions = dict[str, tuple[AnnotatedFunction, dict[str, Any]]]


def convert_file(
    path: str | Path,
    *,
    signatures: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    train: bool = False,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    constants_as_params: bool = True,
    split_host: bool = False,
    shapes: Any = None,
    stored: bool = False,
    left_out: dict[str, Exception] | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Functions:
    """Convert a model file.

    Args:
      path: a SavedModel directory or its ``saved_model.pb``, a Keras file (``.keras``, ``.h5``, ``.hdf5``), a frozen
        GraphDef (``.pb``) or a TF1 checkpoint's graph (``.meta``), whose variables are in the checkpoint beside it.
      signatures: of a SavedModel, which to convert; all that take arrays if left out.
      train: of a Keras file, add the function ``train``, which runs in training mode.
      inputs: of a frozen graph, names of tensors that become arguments; its placeholders if left out.
      outputs: of a frozen graph, names of results; tensors that no node reads if left out.
      constants_as_params: of a frozen graph, make weights params.
      split_host: leave strings, decoders and tables before the model in TensorFlow: each function is the core, and its
        attribute ``host`` the prefix.
      shapes: of a Keras file whose model has no symbolic inputs, their shapes; see `keras_specs`.
      stored: of a SavedModel, leave params in its checkpoint; see `convert.signature_converter`.
      left_out: gets the errors of signatures that are not supported, which otherwise are raised.
      progress: called with the name of each step as it begins.

    Returns:
      Name to function and params. The name of a Keras model and of a frozen graph is ``serving_default``.
    """
    path = model_path(path)
    if not path.is_dir() and not path.is_file():
        raise InvalidModelError(f"{path}: no such file or directory")
    if path.is_dir() or not path.name.endswith((".pb", ".meta")):  # the whole name of a checkpoint's file may be .meta
        own = "--input and --output go with .pb and .meta files; other models say what theirs are"
        _reject(bool(inputs or outputs), own)
        _reject(not constants_as_params, "--no-constants-as-params goes with .pb and .meta files")
    if path.is_dir():
        _reject(train, "--train needs a Keras file: a SavedModel holds the modes that it was saved with")
        return _saved_model(path, signatures, tags, split_host, stored, left_out, progress)
    _reject(bool(tags), "--tag goes with SavedModels")
    if path.suffix in KERAS_SUFFIXES:
        return _chosen(_keras(path, train, split_host, shapes, progress), signatures)
    if path.name.endswith((".pb", ".meta")):
        _reject(train, "--train needs a Keras file")
        _reject(
            split_host, "--split-host goes with SavedModels and Keras files; of a .pb, name what to cut at as --input"
        )
        return _chosen(_frozen(path, inputs, outputs, constants_as_params, progress), signatures)
    raise InvalidModelError(f"{path}: neither a SavedModel directory, nor a .keras, .h5, .pb or .meta file")


def _load_step(path: Path) -> str:
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    return f"load ({size_text(sum(f.stat().st_size for f in files))})"


def _reject(given: bool, message: str) -> None:
    if given:
        raise InputError(message)


def _chosen(functions: Functions, signatures: Sequence[str] | None) -> Functions:
    if not signatures:
        return functions
    unknown = [name for name in signatures if name not in functions]
    if unknown:
        raise InvalidModelError(f"no signature {unknown[0]!r}; there are {', '.join(functions)}")
    return {name: functions[name] for name in signatures}


def _saved_model(
    path: Path,
    signatures: Sequence[str] | None,
    tags: Sequence[str] | None,
    split_host: bool,
    stored: bool,
    left_out: dict[str, Exception] | None,
    progress: Callable[[str], None],
) -> Functions:
    from tf2jax_lite.frontend.saved import saved_model

    if not signatures:
        progress(_load_step(path))
        found_in = saved_model.meta_graph(path, tags)
        named = [name for name in found_in.signature_def if not name.startswith("__saved_model")]
        signatures = sorted(named, key=lambda name: (name != "serving_default", name))
        if not signatures:
            raise InvalidModelError(f"{path} has no signatures")
    found: Functions = {}
    converter = None if split_host else convert.signature_converter(path, tags, stored=stored)
    for name in signatures:
        progress(f"convert {name}")
        try:
            if converter is None:
                found[name] = convert.convert_saved_model(path, name, tags, split_host=True)[1:]
            else:
                found[name] = converter(name)
        except UnsupportedError as error:
            if left_out is None or isinstance(error, UntrustedError):
                raise
            left_out[name] = error
    if not found and left_out:
        raise next(iter(left_out.values()))
    return found


def _keras(path: Path, train: bool, split_host: bool, shapes: Any, progress: Callable[[str], None]) -> Functions:
    progress(_load_step(path))
    model = load_keras(path)
    specs = keras_specs(model, str(path), shapes)
    return convert_keras_model(model, specs=specs, train=train, split_host=split_host, progress=progress)


def convert_keras_model(
    model: Any,
    *,
    specs: Any = None,
    train: bool = True,
    split_host: bool = False,
    progress: Callable[[str], None] = lambda step: None,
    where: str = "Keras model",
) -> Functions:
    """Convert a Keras model in evaluation mode and, on request, in training mode.

    Args:
      specs: the structure of its inputs with ``tf.TensorSpec`` leaves; the model's own if left out.
      train: add the function ``train``, which runs in training mode; of a model that adds losses (regularizers,
        ``add_loss``), it returns ``(results, their sum)``.
      split_host: leave strings, decoders and tables before the model in TensorFlow; see `convert_file`.
      progress: called with the name of each step as it begins.

    Returns:
      ``serving_default`` and ``train``, each with its params; equal variables have equal names. Their attribute
        ``training`` has the model's `TrainingFacts`.
    """
    found: Functions = {}
    for name, function, given in keras_functions(model, specs=specs, train=train, where=where):
        progress(f"convert {name}")
        if split_host:
            found[name] = convert.split_concrete(function.get_concrete_function(given), name)[1:]
        else:
            found[name] = convert.convert(function, given)
        found[name][0].training = function._tf2jax_lite_training  # known once the function is traced
    return found


def keras_functions(
    model: Any, *, specs: Any = None, train: bool = True, where: str = "Keras model"
) -> list[tuple[str, Any, Any]]:
    """Return (name, tf.function, structure of tf.TensorSpec) for each mode.

    See `convert_keras_model`.
    """
    if specs is None:
        specs = keras_specs(model, where)
    modes = (("serving_default", False), *((("train", True),) if train else ()))
    return [(name, _in_mode(model, name, training), specs) for name, training in modes]


def _in_mode(model: Any, name: str, training: bool) -> Any:
    """Return a Keras model in training or evaluation mode as a tf.function."""
    import tensorflow as tf

    facts = TrainingFacts(refused=refused_variables(model))

    def call(inputs: Any) -> Any:
        results = model(inputs, training=training)
        losses = [tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in model.losses]
        facts.adds_losses, facts.returns_losses = bool(losses), bool(losses) and training
        facts.masks_losses = any(_mask(result) is not None for result in tf.nest.flatten(results))
        return (results, tf.add_n(losses)) if facts.returns_losses else results

    call.__name__ = name
    function = tf.function(call)
    function._tf2jax_lite_model = model  # for `trained_variables`
    function._tf2jax_lite_training = facts
    return function


def convert_keras_mask(model: Any, specs: Any = None) -> tuple[AnnotatedFunction, dict[str, Any]]:
    """Convert the masks of a Keras model's results, as a function of its inputs.

    Returns:
      The function and its params: a structure like the results', with True for elements that count in losses.
    """
    import tensorflow as tf

    def mask(inputs: Any) -> Any:
        def of_result(result: Any) -> Any:
            found = _mask(result)
            return tf.ones(tf.shape(result)[:1], tf.bool) if found is None else tf.cast(found, tf.bool)

        return tf.nest.map_structure(of_result, model(inputs, training=True))

    function = tf.function(mask)
    function._tf2jax_lite_model = model
    return convert.convert(function, keras_specs(model) if specs is None else specs)


def _mask(result: Any) -> Any:
    return getattr(result, "_keras_mask", None)  # the same name in Keras 2 and 3


def keras_specs(model: Any, where: str = "Keras model", shapes: Any = None) -> Any:
    """Return the structure of a Keras model's inputs with ``tf.TensorSpec`` leaves.

    A subclassed model records the shapes that it was built with: their first dimension is the batch, and their dtype
    is the model's compute dtype.

    Args:
      shapes: for a model without symbolic inputs, the shapes to use instead of those that it was built with: a list, or
        a dict by name, of strings such as ``"b,224,224,3"``.
    """
    import tensorflow as tf

    try:
        inputs = model.input
    except (AttributeError, ValueError):  # a Sequential that was not called only has a list
        inputs = getattr(model, "inputs", None)
        inputs = inputs[0] if inputs and len(inputs) == 1 else list(inputs or ())
    if inputs is not None and not (isinstance(inputs, list) and not inputs):
        return tf.nest.map_structure(
            lambda t: tf.TensorSpec(t.shape, t.dtype, name=getattr(t, "name", "input").split(":")[0]), inputs
        )
    built = (getattr(model, "get_build_config", dict)() or {}).get("input_shape")
    if shapes:
        built = _given_shapes(shapes, built)
    if not built:
        raise InvalidModelError(
            f"{where}: the inputs of the model are unknown. Give their shapes (shapes=), or call it once "
            "before it is saved."
        )
    dtype = getattr(model, "compute_dtype", None) or "float32"

    def spec(shape: Any) -> Any:
        if isinstance(shape, dict):
            return {name: spec(item) for name, item in shape.items()}
        if any(isinstance(item, (list, tuple, dict)) for item in shape):
            return [spec(item) for item in shape]
        return tf.TensorSpec([None, *shape[1:]] if shapes is None else list(shape), dtype)

    return spec(built)


def _given_shapes(shapes: Any, built: Any) -> Any:
    """Parse shapes: None for symbols, integers for sizes."""

    def read(text: str) -> list[int | None]:
        sizes = [size.strip() for size in text.strip().strip("[]()").split(",")]
        return [int(size) if size.isdigit() else None for size in sizes if size]

    if isinstance(shapes, dict):
        found: Any = {name: read(text) for name, text in shapes.items()}
        return found if isinstance(built, dict) or len(found) > 1 else next(iter(found.values()))
    found = [read(text) for text in shapes]
    return found[0] if len(found) == 1 else found


def load_keras(path: Path) -> Any:
    """Load a file with Keras 3, else with tf_keras; neither runs code from the file."""
    modules = reject_code(path)
    problems = []
    libraries = ("keras",) if _is_keras_3(path) else ("keras", "tf_keras")
    for name in libraries:
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        if name == "keras" and not str(library.__version__).startswith("3"):
            continue
        try:
            options = {"compile": False, "safe_mode": True} if path.suffix == ".keras" else {"compile": False}
            with imported(modules), bounded_weights(path):
                return library.models.load_model(path, **options)
        except (InputError, LimitError):
            raise
        except Exception as error:  # Keras raises various errors for files that it cannot read
            problems.append(f"{name}: {type(error).__name__}: {_end_of(str(error))}")
    found = "; ".join(problems) or "Keras is not installed"
    raise InvalidModelError(f"{path}: not a model that Keras loads ({found}). {OWN_LAYERS}")


def _is_keras_3(path: Path) -> bool:
    """Whether Keras 3 wrote a file, so that tf_keras cannot read it."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                version = json.loads(archive.read("metadata.json")).get("keras_version", "")
        else:
            import h5py

            with h5py.File(path, "r") as file:
                version = file.attrs.get("keras_version", "")
    except Exception:  # a damaged file: loading it raises the specific error
        return False
    return (version.decode("ascii", "replace") if isinstance(version, bytes) else str(version)).startswith("3")


def _end_of(text: str) -> str:
    """Return the cause in a message of Keras, without quoted configurations."""
    cause = text.split("Exception encountered: ")[-1].split("Full object config:")[0]
    return " ".join(cause.split())[:300]


def _frozen(
    path: Path,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    constants_as_params: bool,
    progress: Callable[[str], None],
) -> Functions:
    from tf2jax_lite.frontend.saved.graph_def_file import default_ends

    progress(_load_step(path))
    inputs, outputs = default_ends(path, inputs, outputs)
    progress("convert serving_default")
    converted = convert.convert_graph_def(path, inputs, outputs, constants_as_params=constants_as_params)
    return {"serving_default": converted}
