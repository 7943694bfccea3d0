"""Trace an artifact's edited source, and write StableHLO and metadata that fit it."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.params import flatten_params
from tf2jax_lite.jaxprs.compat import used_inputs
from tf2jax_lite.support.errors import ExportError, InputError
from tf2jax_lite.support.limits import reading
from tf2jax_lite.values import static

from .artifact import ExportReport, array_entries, is_independent
from .atomic_dir import new_directory
from .interface_json import decode_interface
from .metadata import artifact_file, hashed_files, read_metadata, state_names, write_metadata
from .nnx import as_function
from .params_file import as_complex, read_tensors, write_params
from .reader import call_source, collect_results, import_source
from .stablehlo_module import serialize
from .stage import InputSpec, Staged


def update_artifact(
    path: str | Path,
    params: Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> ExportReport:
    """Write an artifact again after its ``model.py`` was edited.

    The source's functions are run, traced, for the shapes of the metadata. Their arguments and the structure of their
    results have to be the same; computations, params, and shapes of results may differ.

    Args:
      path: the artifact, which is replaced when everything is written. Its source runs: only for source that you trust.
      params: new params, nested or by name; those left out keep their values. Default: those of the artifact's files,
        which may have been replaced.
      out: a new directory for the result; ``path`` is then unchanged.
      progress: called with the name of each step as it begins.
    """
    folder = Path(path)
    with reading(str(folder), ExportError):
        metadata = read_metadata(folder)
        if metadata.get("source") is None:
            raise ExportError(f"{folder} has no source to update")
        if metadata.get("stacked"):
            raise InputError(
                f"{folder} has layers stacked by scan_layers, which cannot be updated. Convert without it."
            )
        arrays = _arrays(folder, metadata)
    arrays.update(flatten_params(params or {}))
    arrays = {name: np.asarray(value) for name, value in arrays.items()}
    described = {name: _param(metadata, name, value) for name, value in arrays.items()}
    progress("import model.py")
    module = import_source(artifact_file(folder, metadata, metadata["source"]))
    signatures: dict[str, Any] = {}
    modules: dict[str, bytes] = {}
    warnings: list[str] = []
    for name, entry in metadata["signatures"].items():
        progress(f"trace {name}")
        staged = _staged(name, entry, module, metadata, arrays, state_names(described))
        inputs, outputs = array_entries(staged)
        signatures[name] = {
            **entry,
            "inputs": inputs,
            "outputs": outputs,
            "variables": staged.variables,
            "updates": staged.updates,
            "rng": staged.rng,
            "independent": is_independent(staged, None),
        }
        if entry["stablehlo"] is not None:
            platforms = [p.strip() for p in metadata["options"].get("platforms", "cpu").split(",")]
            progress(f"lower {name} for {', '.join(platforms)}")
            modules[entry["stablehlo"]], problem, _ = serialize(staged, arrays, platforms)
            signatures[name]["differentiable"] = not problem
            warnings += [f"{name}: {problem}"] if problem else []
    unused = {info["file"] for info in metadata["params"].values()} | modules.keys()
    with new_directory(folder if out is None else Path(out), overwrite=out is None) as work:
        for name in metadata["files"].keys() - unused:
            if not name.endswith(".mlir"):  # the text of the StableHLO before
                shutil.copyfile(artifact_file(folder, metadata, name), work / name)
        for name, content in modules.items():
            (work / name).write_bytes(content)
        progress("write params")
        placed = write_params(arrays, work, state=state_names(described))
        changed = {
            **metadata,
            "signatures": signatures,
            "params": {name: {**info, "file": placed[name]} for name, info in described.items()},
            "warnings": warnings,
            "files": hashed_files(work),
        }
        sizes = write_metadata(work, changed)
    count = sum(value.size for name, value in arrays.items() if not changed["params"][name]["constant"])
    return ExportReport(str(out or path), sizes, list(signatures), count, warnings)


def _arrays(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arrays of an artifact's params files, as they are now."""
    found: dict[str, Any] = {}
    for file in dict.fromkeys(info["file"] for info in metadata["params"].values()):
        found.update(read_tensors(artifact_file(folder, metadata, file)))
    known = metadata["params"]
    return {name: as_complex(v, known[name]["dtype"]) if name in known else v for name, v in found.items()}


def _param(metadata: Mapping[str, Any], name: str, value: np.ndarray) -> dict[str, Any]:
    """Return the metadata of a param but for its file; new floats are trainable."""
    known = metadata["params"].get(name)
    trainable = bool(jnp.issubdtype(value.dtype, jnp.inexact))
    kept = known or {"trainable": trainable, "constant": False, "moving_statistic": False}
    return {**kept, "shape": list(value.shape), "dtype": value.dtype.name}


def _staged(
    name: str,
    entry: Mapping[str, Any],
    module: Any,
    metadata: Mapping[str, Any],
    arrays: Mapping[str, Any],
    state: Collection[str],
) -> Staged:
    """Trace a function of edited source."""
    recorded, interface = entry["function"], decode_interface(entry.get("interface"))
    written = getattr(module, recorded["name"], None)
    if written is None:
        raise ExportError(
            f"model.py defines no {recorded['name']}, the function of {name!r}. Public functions keep names"
        )
    if metadata.get("framework") == "nnx":
        written, rng = (
            as_function(written, module.to_variables, entry["updates"], training=recorded["training"]),
            bool(entry["rng"]),
        )
    else:
        rng = "rng" in inspect.signature(written).parameters
    specs = [InputSpec(i["name"], np.dtype(i["dtype"]), tuple(i["shape"])) for i in entry["inputs"]]
    updates: list[str] = []

    def traced(variables: list[str]) -> Staged:
        def function(given: list[Any], inputs: list[Any], key: list[Any]) -> Any:
            before = dict(zip(variables, given, strict=True))
            results, after = call_source(written, recorded, before, state, inputs, {"rng": key[0]} if key else {})
            flat: dict[int, Any] = {}
            collect_results(interface.outputs, results, flat)
            changed = {n: v for n, v in after.items() if v is not before.get(n)}
            updates[:] = changed
            return [jnp.asarray(flat[i]) for i in sorted(flat)], [jnp.asarray(v) for v in changed.values()]

        staged = Staged(None, variables, specs, rng, interface.outputs, [], updates, function)
        structs = [jax.ShapeDtypeStruct(arrays[n].shape, static.canonical(arrays[n].dtype)) for n in variables]
        key = [jax.eval_shape(lambda: jax.random.key(0))] if rng else []
        try:
            jaxpr, (results, _) = jax.make_jaxpr(function, return_shape=True)(structs, staged.arguments(), key)
        except ExportError:
            raise
        except Exception as error:  # whatever the edited code raises
            raise ExportError(f"model.py: {recorded['name']} fails: {type(error).__name__}: {error}") from error
        return dataclasses.replace(staged, jaxpr=jaxpr, results=list(results), updates=list(updates))

    staged = traced(list(arrays))
    used = [*used_inputs(staged.jaxpr)[: len(arrays)]]
    return traced([n for n, u in zip(arrays, used, strict=True) if u or n in staged.updates])
