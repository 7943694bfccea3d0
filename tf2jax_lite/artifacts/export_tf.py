"""The command ``export-tf``: weights back into the TensorFlow model."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.calling.names import match_names
from tf2jax_lite.calling.structures import OutputRef
from tf2jax_lite.export.atomic_dir import new_directory, write_file
from tf2jax_lite.export.interface_json import decode_interface
from tf2jax_lite.export.metadata import check_hashes, read_metadata
from tf2jax_lite.export.reader import flat_results, module_file, read_params
from tf2jax_lite.stablehlo.parsing.exported import read_exported
from tf2jax_lite.support.errors import ExportError, InputError, InvalidModelError
from tf2jax_lite.support.extras import require_tensorflow


@dataclasses.dataclass(frozen=True)
class TfExportReport:
    """Summary of an export.

    Attributes:
      path: the SavedModel, or the Keras file.
      model: the model that the artifact came from.
      changed: names of the variables whose values differ from that model's.
      kept: names of the others.
    """

    path: str
    model: str
    changed: list[str]
    kept: list[str]


def export_to_tf(
    artifact: str | Path,
    saved_model_dir: str | Path,
    *,
    model: str | Path | None = None,
    tags: Sequence[str] | None = None,
    stablehlo: bool = False,
) -> TfExportReport:
    """Write an artifact's weights into the TensorFlow model it was made from.

    A SavedModel is copied, and its checkpoint gets new values under the same keys: signatures, functions, assets and
    everything else stay byte for byte, so the copy serves like the original. The weights are assigned to a Keras model,
    which is exported as a SavedModel, or saved as a Keras file if ``saved_model_dir`` ends in ``.keras`` or ``.h5``.
    The result is read again and compared with the artifact before it gets its name.

    With ``stablehlo``, the SavedModel is a new one, whose signatures call the artifact's StableHLO by an op of
    TensorFlow: for functions with a new head, of edited source, or of JAX.

    Args:
      artifact: the artifact, usually a trained one.
      saved_model_dir: the directory to create, which must not exist.
      model: the original: a SavedModel directory or a Keras file. By default the path that ``convert`` recorded.
      tags: of a SavedModel, which MetaGraph.
      stablehlo: write a SavedModel that needs no original.

    Returns:
      A report with the names of changed variables.

    Raises:
      ExportError: the artifact does not fit the model, ``saved_model_dir`` exists, or it cannot be written.
      InvalidModelError: the original cannot be read.
      InputError: the original is not known, or takes no tags.
      MissingLibraryError: TensorFlow is not installed.

    Example:
      >>> report = tf2jax.export_to_tf("TUNED", "SAVED_MODEL")
    """
    require_tensorflow()
    folder, out = Path(artifact), Path(saved_model_dir)
    metadata = read_metadata(folder)
    if out.exists():
        raise ExportError(f"{out} exists; choose another name")
    if stablehlo:
        _stablehlo(folder, metadata, out)
        return TfExportReport(str(out), "", sorted(metadata["params"]), [])
    source = _original(folder, metadata, model)
    if tags and not source.is_dir():
        raise InputError("only SavedModels take tags=")
    params = {
        str(name): np.asarray(value)
        for name, value in read_params(folder, metadata).items()
        if not metadata["params"][name].get("constant")
    }
    if any(training.get("classes") for training in (metadata.get("options") or {}).get("training", [])):
        raise InputError(
            f"{folder} has another head than {source}, which its weights do not fit. Write a SavedModel of its "
            "StableHLO: stablehlo=True."
        )
    if source.is_dir():
        changed = _saved_model(source, out, params, list(metadata["signatures"]), tags)
    elif source.suffix in (".keras", ".h5", ".hdf5"):
        changed = _keras(source, out, params, list(metadata["signatures"]))
    else:
        raise InputError(
            f"{source}: a frozen graph has no variables; weights go back into SavedModels and Keras files."
        )
    return TfExportReport(str(out), str(source), changed, sorted(params.keys() - set(changed)))


def _original(folder: Path, metadata: Mapping[str, Any], model: str | Path | None) -> Path:
    recorded = (metadata.get("options") or {}).get("model")
    if model is None and recorded is None:
        raise InputError(f"{folder} does not say which model it came from; give its path (model=).")
    source = Path(model if model is not None else str(recorded))
    if not source.exists():
        hint = "" if model is not None else " (it is the path recorded at conversion; give another with model=)"
        raise InvalidModelError(f"{source}: no such file or directory{hint}")
    return source


def _variables(functions: Mapping[str, Any], params: Mapping[str, Any], source: Path) -> dict[str, Any]:
    from tf2jax_lite.frontend.runtime.write_back import function_variables

    variables = function_variables(functions)
    return _matched(params, variables, source)


def _matched(params: Mapping[str, Any], variables: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """Return a model's variables by the artifact's names.

    Raises:
      ExportError: a param is none of them.
    """
    names = match_names(params, variables)
    missing = sorted(params.keys() - names.keys())
    if missing:
        raise ExportError(f"{source} has no variables {missing}; the artifact is not of this model")
    return {name: variables[names[name]] for name in params}


def _saved_model(
    source: Path, out: Path, params: Mapping[str, np.ndarray], signatures: Sequence[str], tags: Sequence[str] | None
) -> list[str]:
    from tf2jax_lite.frontend.runtime import write_back
    from tf2jax_lite.frontend.saved import meta_graph, saved_model

    model = saved_model.SavedModel(source, tags)
    if meta_graph.is_tf1(model.meta_graph):
        return _tf1_saved_model(source, out, params, model.meta_graph)
    restored = model.load()
    functions = {name: saved_model.signature(restored, name, source) for name in signatures}
    variables = _variables(functions, params, source)
    values = {name: write_back.fitting(variables[name], value, name) for name, value in params.items()}
    changed = [n for n, v in sorted(values.items()) if not np.array_equal(variables[n].numpy(), v)]
    keys = write_back.checkpoint_keys(source, restored, {name: variables[name] for name in changed})
    with new_directory(out, overwrite=False) as work:
        write_back.copy_saved_model(source, work, {keys[name]: values[name] for name in changed})
        again = saved_model.load(work, tags)
        written = _variables({n: saved_model.signature(again, n, work) for n in signatures}, params, work)
        _check({name: variable.numpy() for name, variable in written.items()}, values, out)
    return changed


def _tf1_saved_model(source: Path, out: Path, params: Mapping[str, np.ndarray], proto: Any) -> list[str]:
    """Write weights into a TF1 SavedModel; TensorFlow does not load its graph."""
    from tf2jax_lite.frontend.runtime import write_back
    from tf2jax_lite.frontend.saved import meta_graph
    from tf2jax_lite.pipeline.convert import initial_value

    variables = _matched(params, meta_graph.variable_keys(source, proto), source)
    read = meta_graph.variable_values(source, proto, initial_value)
    before = {name: np.asarray(read(name, node)) for name, (node, _) in variables.items()}
    values = {n: write_back.fitting(v, params[n], n) for n, v in before.items()}
    changed = [name for name in sorted(values) if not np.array_equal(before[name], values[name])]
    lost = [name for name in changed if variables[name][1] is None]
    if lost:
        raise ExportError(f"{source}: its checkpoint holds no variables {lost}, which the artifact has changed")
    with new_directory(out, overwrite=False) as work:
        parts = {variables[name][1]: values[name] for name in changed}
        write_back.copy_saved_model(source, work, write_back.whole_values(source, parts))
        again = meta_graph.variable_values(work, proto, initial_value)
        _check({name: np.asarray(again(name, node)) for name, (node, _) in variables.items()}, values, out)
    return changed


def _keras(source: Path, out: Path, params: Mapping[str, np.ndarray], signatures: Sequence[str]) -> list[str]:
    from tf2jax_lite.frontend.runtime import write_back
    from tf2jax_lite.pipeline.model_files import keras_functions, load_keras

    model = load_keras(source)
    functions = {
        name: function.get_concrete_function(specs)
        for name, function, specs in keras_functions(model, train="train" in signatures, where=str(source))
    }
    variables = _variables(functions, params, source)
    values = {name: write_back.fitting(variables[name], value, name) for name, value in params.items()}
    changed = [n for n, v in sorted(values.items()) if not np.array_equal(variables[n].numpy(), v)]
    for name in changed:
        variables[name].assign(values[name])
    if out.suffix in (".keras", ".h5", ".hdf5"):
        with tempfile.TemporaryDirectory(prefix="tf2jax_lite") as folder:
            work = Path(folder) / out.name
            model.save(work)
            read = zip(load_keras(work).weights, model.weights, strict=True)  # without seeds, which files do not store
            if not all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in read):
                raise ExportError(f"{out}: the file that Keras wrote differs from the artifact")
            write_file(out, work.read_bytes(), overwrite=False)
        return changed
    # Keras prints the temporary path.
    with new_directory(out, overwrite=False) as work, contextlib.redirect_stdout(io.StringIO()):
        model.export(str(work))
    return changed


def _check(variables: Mapping[str, Any], values: Mapping[str, np.ndarray], out: Path) -> None:
    wrong = [name for name, value in values.items() if not np.array_equal(variables[name], value)]
    if wrong:
        raise ExportError(f"{out}: the variables {wrong[:5]} were not written with the artifact's values")


def _stablehlo(folder: Path, metadata: Mapping[str, Any], out: Path) -> None:
    """Write a SavedModel that calls an artifact's StableHLO.

    Functions that draw random numbers are left out.
    """
    from tf2jax_lite.frontend.runtime.stablehlo_model import CalledModule, save_modules

    check_hashes(folder, metadata)
    modules = {}
    for name, entry in metadata["signatures"].items():
        if entry["stablehlo"] is None or entry["rng"]:
            continue
        exported = read_exported(module_file(folder, metadata, name).read_bytes())
        results = flat_results(decode_interface(entry["interface"]).outputs).items()
        positions = {path: ref.index for path, ref in results if isinstance(ref, OutputRef)}
        inputs = [info["name"] for info in entry["inputs"]]
        modules[name] = CalledModule(exported, entry["variables"], inputs, positions, entry["updates"])
    if not modules:
        raise ExportError(f"{folder} has no function with StableHLO that takes no random key")
    params = {str(name): np.asarray(value) for name, value in read_params(folder, metadata).items()}
    trainable = {name for name, info in metadata["params"].items() if info["trainable"]}
    with new_directory(out, overwrite=False) as work:
        save_modules(work, modules, params, trainable)
