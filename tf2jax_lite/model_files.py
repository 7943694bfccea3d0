"""Model files of every kind as converted functions: SavedModels, Keras files, frozen graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite import api
from tf2jax_lite.errors import InputError, InvalidModelError
from tf2jax_lite.function import AnnotatedFunction
from tf2jax_lite.keras_code import refuse_code
from tf2jax_lite.units import size_text

__all__ = ["convert_file", "convert_keras_model", "keras_functions", "load_keras"]

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
    progress: Callable[[str], None] = lambda step: None,
) -> Functions:
    """Converts a model file.

    Args:
      path: a SavedModel directory, a Keras file (``.keras``, ``.h5``, ``.hdf5``), a frozen GraphDef (``.pb``) or a
        TF1 checkpoint's graph (``.meta``), whose variables are read from the checkpoint beside it.
      signatures: of a SavedModel, which to convert; all that take arrays if left out.
      tags: of a SavedModel, which MetaGraph.
      train: of a Keras file, add the function ``train``, which runs in training mode.
      inputs: of a frozen graph, names of tensors that become arguments; its placeholders if left out.
      outputs: of a frozen graph, names of results; what no node reads if left out.
      constants_as_params: of a frozen graph, make weights params.
      split_host: leave strings, decoders and tables in front of the model in TensorFlow: each function is the core
        alone, and its attribute ``host`` what stands before it.
      progress: called with the name of each step as it begins.

    Returns:
      Name to function and params. A Keras model and a frozen graph have the one name ``serving_default``.

    Raises:
      InvalidModelError: there is no such model, or it is damaged.
      InputError: an option does not go with this kind of model.
    """
    path = Path(path)
    if not path.is_dir() and not path.is_file():
        raise InvalidModelError(f"{path}: no such file or directory")
    if path.is_dir() or not path.name.endswith((".pb", ".meta")):  # all of a checkpoint's name may be .meta
        own = "--input and --output go with .pb and .meta files; other models say what theirs are"
        _refuse(bool(inputs or outputs), own)
        _refuse(not constants_as_params, "--no-constants-as-params goes with .pb and .meta files")
    if path.is_dir():
        _refuse(train, "--train needs a Keras file: a SavedModel holds the modes that it was saved with")
        return _saved_model(path, signatures, tags, split_host, progress)
    _refuse(bool(tags), "--tag goes with SavedModels")
    if path.suffix in (".keras", ".h5", ".hdf5"):
        return _chosen(_keras(path, train, split_host, progress), signatures)
    if path.name.endswith((".pb", ".meta")):
        _refuse(train, "--train needs a Keras file")
        _refuse(
            split_host, "--split-host goes with SavedModels and Keras files; of a .pb, name what to cut at as --input"
        )
        return _chosen(_frozen(path, inputs, outputs, constants_as_params, progress), signatures)
    raise InvalidModelError(f"{path}: neither a SavedModel directory, nor a .keras, .h5, .pb or .meta file")


def _load_step(path: Path) -> str:
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    return f"load ({size_text(sum(f.stat().st_size for f in files))})"


def _refuse(given: bool, message: str) -> None:
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
    progress: Callable[[str], None],
) -> Functions:
    from tf2jax_lite.loading import saved_model

    if not signatures:
        progress(_load_step(path))
        found_in = saved_model.meta_graph(path, tags)
        named = [name for name in found_in.signature_def if not name.startswith("__saved_model")]
        signatures = sorted(named, key=lambda name: (name != "serving_default", name))
        if not signatures:
            raise InvalidModelError(f"{path} has no signatures")
    found: Functions = {}
    for name in signatures:
        progress(f"convert {name}")
        if split_host:
            found[name] = api.convert_saved_model(path, name, tags, split_host=True)[1:]
        else:
            found[name] = api.convert_saved_model(path, name, tags)
    return found


def _keras(path: Path, train: bool, split_host: bool, progress: Callable[[str], None]) -> Functions:
    progress(_load_step(path))
    model = load_keras(path)
    return convert_keras_model(model, train=train, split_host=split_host, progress=progress, where=str(path))


def convert_keras_model(
    model: Any,
    *,
    specs: Any = None,
    train: bool = True,
    regularization: bool = False,
    split_host: bool = False,
    progress: Callable[[str], None] = lambda step: None,
    where: str = "Keras model",
) -> Functions:
    """Converts a Keras model (Keras 3 or tf_keras) in evaluation mode and, if asked, in training mode.

    Args:
      model: the model.
      specs: the structure of its input, of ``tf.TensorSpec``s; the model's own if left out.
      train: add the function ``train``, which runs in training mode.
      regularization: ``train`` returns ``(results, sum of model.losses)``.
      split_host: leave strings, decoders and tables in front of the model in TensorFlow; see `convert_file`.
      progress: called with the name of each step as it begins.
      where: what errors name.

    Returns:
      ``serving_default`` and ``train``, each with its params. Variables of both have the same names.

    Raises:
      InvalidModelError: the model does not say what its inputs are.
      UnsupportedError: it cannot be converted.
    """
    found: Functions = {}
    for name, function, given in keras_functions(
        model, specs=specs, train=train, regularization=regularization, where=where
    ):
        progress(f"convert {name}")
        if split_host:
            found[name] = api.split_concrete(function.get_concrete_function(given), name)[1:]
        else:
            found[name] = api.convert(function, given)
    return found


def keras_functions(
    model: Any, *, specs: Any = None, train: bool = True, regularization: bool = False, where: str = "Keras model"
) -> list[tuple[str, Any, Any]]:
    """Returns what `convert_keras_model` converts: ``(name, tf.function, structure of tf.TensorSpec)`` for each mode.

    Raises:
      InvalidModelError: the model does not say what its inputs are.
    """
    import tensorflow as tf

    if specs is None:
        specs = tf.nest.map_structure(
            lambda t: tf.TensorSpec(t.shape, t.dtype, name=getattr(t, "name", "input").split(":")[0]),
            _inputs(where, model),
        )
    found: list[tuple[str, Any, Any]] = []
    for name, training in (("serving_default", False), *((("train", True),) if train else ())):

        def call(inputs: Any, training: bool = training) -> Any:
            results = model(inputs, training=training)
            if not (training and regularization):
                return results
            losses = [tf.cast(loss, tf.float32) for loss in model.losses]
            return results, tf.add_n(losses) if losses else tf.constant(0.0)

        call.__name__ = name
        function = tf.function(call)
        function._tf2jax_lite_model = model  # which says which variables train
        found.append((name, function, specs))
    return found


def _inputs(where: str, model: Any) -> Any:
    """Returns the symbolic inputs of a Keras model, in their structure."""
    try:
        return model.input
    except (AttributeError, ValueError):  # a Sequential that was not called has a list only
        inputs = getattr(model, "inputs", None)
    if not inputs:
        raise InvalidModelError(f"{where}: the model does not say what its inputs are; call it once before saving")
    return inputs[0] if len(inputs) == 1 else list(inputs)


def load_keras(path: Path) -> Any:
    """Loads with Keras 3, else with tf_keras; neither runs code from the file.

    Raises:
      InvalidModelError: neither can.
      UntrustedError: a layer holds code, and ``config.trusted`` does not name it.
    """
    refuse_code(path)
    problems = []
    for module in ("keras", "tf_keras"):
        try:
            library = __import__(module)
        except ImportError:
            continue
        if module == "keras" and not str(library.__version__).startswith("3"):
            continue
        try:
            options = {"compile": False, "safe_mode": True} if path.suffix == ".keras" else {"compile": False}
            return library.models.load_model(path, **options)
        except Exception as error:  # Keras raises anything for files that it does not understand
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            problems.append(f"{module}: {type(error).__name__}: {first}")
    raise InvalidModelError(f"{path}: not a model that Keras loads ({'; '.join(problems) or 'Keras is not installed'})")


def _frozen(
    path: Path,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    constants_as_params: bool,
    progress: Callable[[str], None],
) -> Functions:
    from tf2jax_lite.loading.frozen import default_ends

    progress(_load_step(path))
    if not inputs or not outputs:
        first, last = default_ends(path)
        inputs, outputs = inputs or first, outputs or last
    progress("convert serving_default")
    converted = api.convert_graph_def(path, list(inputs), list(outputs), constants_as_params=constants_as_params)
    return {"serving_default": converted}
