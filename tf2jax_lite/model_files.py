"""Model files of every kind as converted functions: SavedModels, Keras files, frozen graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tf2jax_lite import api
from tf2jax_lite.errors import InputError, InvalidModelError
from tf2jax_lite.function import AnnotatedFunction

__all__ = ["convert_file"]

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
    progress: Callable[[str], None] = lambda step: None,
) -> Functions:
    """Converts a model file.

    Args:
      path: a SavedModel directory, a Keras file (``.keras``, ``.h5``, ``.hdf5``) or a frozen GraphDef (``.pb``).
      signatures: of a SavedModel, which to convert; all that take arrays if left out.
      tags: of a SavedModel, which MetaGraph.
      train: of a Keras file, add the function ``train``, which runs in training mode.
      inputs: of a frozen graph, names of tensors that become arguments; its placeholders if left out.
      outputs: of a frozen graph, names of results; what no node reads if left out.
      constants_as_params: of a frozen graph, make weights params.
      progress: called with the name of each step as it begins.

    Returns:
      Name to function and params. A Keras model and a frozen graph have the one name ``serving_default``.

    Raises:
      InvalidModelError: there is no such model, or it is damaged.
      InputError: an option does not go with this kind of model.
    """
    path = Path(path)
    if path.is_dir():
        _refuse(train, "--train needs a Keras file: a SavedModel holds the modes that it was saved with")
        return _saved_model(path, signatures, tags, progress)
    if not path.is_file():
        raise InvalidModelError(f"{path}: no such file or directory")
    _refuse(bool(tags), "--tag goes with SavedModels")
    if path.suffix in (".keras", ".h5", ".hdf5"):
        return _chosen(_keras(path, train, progress), signatures)
    if path.suffix == ".pb":
        _refuse(train, "--train needs a Keras file")
        return _chosen(_frozen(path, inputs, outputs, constants_as_params, progress), signatures)
    raise InvalidModelError(f"{path}: neither a SavedModel directory, nor a .keras, .h5 or .pb file")


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
    path: Path, signatures: Sequence[str] | None, tags: Sequence[str] | None, progress: Callable[[str], None]
) -> Functions:
    from tf2jax_lite.loading import saved_model

    if not signatures:
        progress("load")
        restored = saved_model.load(path, tags)
        signatures = [name for name in restored.signatures if name != "__saved_model_init_op"]
        if not signatures:
            raise InvalidModelError(f"{path} has no signatures")
    found: Functions = {}
    for name in signatures:
        progress(f"convert {name}")
        found[name] = api.convert_saved_model(path, name, tags)
    return found


def _keras(path: Path, train: bool, progress: Callable[[str], None]) -> Functions:
    import tensorflow as tf

    progress("load")
    model = _load_keras(path)
    specs = tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape, t.dtype, name=getattr(t, "name", "input").split(":")[0]), _inputs(path, model)
    )
    found: Functions = {}
    for name, training in (("serving_default", False), *((("train", True),) if train else ())):
        progress(f"convert {name}")

        def call(inputs: Any, training: bool = training) -> Any:
            return model(inputs, training=training)

        call.__name__ = name
        found[name] = api.convert(tf.function(call), specs)
    return found


def _inputs(path: Path, model: Any) -> Any:
    """Returns the symbolic inputs of a Keras model, in their structure."""
    try:
        return model.input
    except (AttributeError, ValueError):  # a Sequential that was not called has a list only
        inputs = getattr(model, "inputs", None)
    if not inputs:
        raise InvalidModelError(f"{path}: the model does not say what its inputs are; call it once before saving")
    return inputs[0] if len(inputs) == 1 else list(inputs)


def _load_keras(path: Path) -> Any:
    """Loads with Keras 3, else with tf_keras; neither runs code from the file."""
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

    progress("load")
    if not inputs or not outputs:
        first, last = default_ends(path)
        inputs, outputs = inputs or first, outputs or last
    progress("convert serving_default")
    converted = api.convert_graph_def(path, list(inputs), list(outputs), constants_as_params=constants_as_params)
    return {"serving_default": converted}
