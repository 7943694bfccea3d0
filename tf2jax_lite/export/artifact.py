"""Artefacts: a directory with params, StableHLO and source, from which TensorFlow is gone."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tf2jax_lite.calling.structures import OutputRef, TensorArgument, map_structure
from tf2jax_lite.pipeline.converted_function import AnnotatedFunction, ConvertedFunction
from tf2jax_lite.support.errors import ExportError, InputError, Tf2JaxError
from tf2jax_lite.support.text import size_text

from . import codegen, interface_json
from .atomic_dir import METADATA, new_directory, sha256
from .orbax import write_checkpoint
from .params_file import SHARD_BYTES, write_tensors
from .predictions import prediction_kinds
from .stablehlo_module import serialize
from .stage import Staged, argument_names
from .symbolic_dims import stage_symbolic

__all__ = ["FORMAT", "FORMAT_VERSION", "ExportReport", "converted_function", "entry", "export_functions"]

FORMAT = "tf2jax_lite artefact"
FORMAT_VERSION = 1
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """What was written.

    Attributes:
      path: the directory.
      files: file name to size in bytes.
      signatures: names of the exported functions.
      parameters: number of parameters (elements of all params).
      warnings: what could not be written, and why.
    """

    path: str
    files: dict[str, int]
    signatures: list[str]
    parameters: int
    warnings: list[str]


def export_functions(
    functions: Mapping[str, tuple[AnnotatedFunction, Mapping[str, Any]]],
    path: str | Path,
    *,
    shapes: Mapping[str, str] | Sequence[str] | None = None,
    platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
    dtype: Any = None,
    title: str = "",
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    stablehlo: bool = True,
    checkpoint: bool = False,
    shard_bytes: int = SHARD_BYTES,
    progress: Callable[[str], None] = lambda step: None,
) -> ExportReport:
    """Writes converted functions as an artefact.

    Args:
      functions: name to a function and its params, as `tf2jax_lite.convert` and `tf2jax_lite.convert_saved_model`
        return them. Params of one name are one array.
      path: the directory to make. It appears when all is written.
      shapes: shapes of arguments, by name (of any of the functions) or in order (of each), such as
        ``"b, 224, 224, 3"``; names are symbolic dimensions.
        Unknown dimensions are symbolic where nothing else is said.
      platforms: what StableHLO is lowered for.
      dtype: floating dtype to which floating params are converted (``bfloat16``), and in which the functions compute.
      title: first line of the source's docstring.
      options: recorded in the metadata.
      overwrite: replace an artefact that is there.
      stablehlo: write StableHLO, too.
      checkpoint: write params as an Orbax checkpoint, too (``checkpoint/``; needs the extra ``checkpoint``).
      shard_bytes: largest params file.
      progress: called with the name of each step as it begins.

    Raises:
      ExportError: a function cannot be written, neither as StableHLO nor as source, or ``path`` cannot be.
      InputError: ``shapes`` do not fit, or there is no such platform.
    """
    platforms = _platforms(platforms)
    given = dict.fromkeys(functions, shapes) if not isinstance(shapes, Mapping) else _by_function(functions, shapes)
    params = _merged(functions)
    if dtype is not None:
        params = {name: _cast(value, np.dtype(dtype)) for name, value in params.items()}
    trainable = {name: bool(getattr(name, "trainable", True)) for name in params}
    warnings: list[str] = []
    with new_directory(Path(path), overwrite=overwrite) as folder:
        entries, signatures, unread = {}, {}, []
        spelled = codegen.Names()
        for name, (fn, _) in functions.items():
            progress(f"trace {name}")
            converted = converted_function(fn)
            staged = stage_symbolic(converted, given[name], params, dtype)
            function = spelled.new(name, "model")
            try:
                entries[name] = entry(name, converted, staged, function)
            except Tf2JaxError:  # of calls back to Python, of which there is no StableHLO either
                raise
            except Exception as error:  # an artefact is of use without source, too
                unread.append(f"{name}: {type(error).__name__}: {error}")
            signatures[name] = _signature(converted, staged)
            if restrictions := staged.restrictions():
                warnings.append(f"{name}: only for sizes where {' and '.join(restrictions)}")
            if stablehlo:
                progress(f"lower {name} for {', '.join(platforms)}")
                file = "model.stablehlo" if len(functions) == 1 else f"model.{function}.stablehlo"
                try:
                    module, problem = serialize(staged, params, platforms)
                    (folder / file).write_bytes(module)
                    signatures[name]["stablehlo"] = file
                    signatures[name]["differentiable"] = not problem
                    if problem:
                        warnings.append(f"{name}: {problem}")
                except ExportError as error:
                    warnings.append(f"{name}: {error}")
        progress("write source")
        if unread:
            text, constants = None, {}
            warnings.extend(f"no source: {why}" for why in unread)
        else:
            text, constants = _source(entries, title, signatures, warnings)
        if text is not None:
            (folder / "model.py").write_text(text, encoding="utf-8")
        lost = [name for name, found in signatures.items() if text is None and found["stablehlo"] is None]
        if lost:
            raise ExportError(f"there would be no way to run {', '.join(map(repr, lost))}: {'; '.join(warnings)}")
        arrays = {**params, **constants}
        progress(f"write params ({size_text(sum(v.nbytes for v in arrays.values()))})")
        placed = write_tensors({n: arrays[n] for n in sorted(arrays)}, folder, shard_bytes=shard_bytes)
        files = {f.name: {"sha256": sha256(f), "bytes": f.stat().st_size} for f in sorted(folder.iterdir())}
        if checkpoint:
            progress(f"write checkpoint ({size_text(sum(v.nbytes for v in arrays.values()))})")
            write_checkpoint(arrays, folder / "checkpoint")
        metadata = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "versions": {name: importlib.metadata.version(name) for name in ("jax", "numpy")},
            "source": "model.py" if text is not None else None,
            "signatures": signatures,
            "params": {
                str(name): {
                    "shape": list(np.shape(value)),
                    "dtype": np.dtype(value.dtype).name,
                    "trainable": trainable.get(name, False),
                    "constant": name not in params,
                    "file": placed[name],
                }
                for name, value in sorted(arrays.items())
            },
            "options": dict(options or {}),
            "warnings": warnings,
            "files": files,
        }
        content = (json.dumps(metadata, indent=2, sort_keys=True) + "\n").encode()
        (folder / METADATA).write_bytes(content)
        sizes = {name: int(info["bytes"]) for name, info in files.items()} | {METADATA: len(content)}
    count = sum(int(np.prod(np.shape(v), dtype=np.int64)) for v in params.values())
    return ExportReport(str(path), sizes, list(functions), count, warnings)


def _by_function(functions: Mapping[str, Any], shapes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns for each function the shapes of its own arguments; each shape is of an argument of at least one."""
    known = {name: argument_names(converted_function(fn)) for name, (fn, _) in functions.items()}
    there = {argument: None for arguments in known.values() for argument in arguments}
    unknown = [name for name in shapes if name not in there]
    if unknown:
        raise InputError(f"no argument {unknown[0]!r}; there are {', '.join(there) or 'none'}")
    return {name: {a: shapes[a] for a in arguments if a in shapes} for name, arguments in known.items()}


def _platforms(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in _PLATFORMS]
    if unknown or not names:
        raise InputError(f"platforms are some of {', '.join(_PLATFORMS)}, not {unknown[0] if unknown else 'none'!r}")
    return list(dict.fromkeys(names))


def converted_function(fn: AnnotatedFunction) -> ConvertedFunction:
    """Returns what is behind a converted function.

    Raises:
      InputError: it is something else.
    """
    found = getattr(getattr(fn, "fn", None), "converted", None)
    if not isinstance(found, ConvertedFunction):
        raise InputError(f"expected a function as tf2jax_lite.convert returns it, got {type(fn).__name__}")
    return found


def _merged(functions: Mapping[str, tuple[AnnotatedFunction, Mapping[str, Any]]]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for _, given in functions.values():
        for name, value in given.items():
            if isinstance(value, jax.ShapeDtypeStruct):
                raise ExportError(f"param {name!r} has no value; load the model's variables first")
            if name in params and params[name] is not value and not _same(params[name], value):
                raise ExportError(f"two functions have different values for param {name!r}")
            params.setdefault(name, value)
    return params


def _same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return hashlib.sha256(a.tobytes()).digest() == hashlib.sha256(b.tobytes()).digest()


def _cast(value: Any, dtype: np.dtype) -> Any:
    floating = jax.numpy.issubdtype(value.dtype, jax.numpy.floating)
    return np.asarray(value).astype(dtype) if floating else value


def entry(name: str, converted: ConvertedFunction, staged: Staged, function: str) -> codegen.Entry:
    """Returns a traced function as an entry of a source module, with the arguments that the original takes.

    Args:
      name: TensorFlow's name for it.
      converted: the function.
      staged: what tracing it gave.
      function: its name in the source.
    """
    interface = converted.interface
    spelled = codegen.Names()
    inputs = [spelled.new(spec.name, "x") for spec in staged.inputs]
    arguments: dict[str, Any] = {}
    named = [(interface.argument_name(i), a) for i, a in enumerate(interface.args)]
    for argument, structure in [*named, *interface.kwargs.items()]:
        if not _leaves(structure):
            continue  # a literal, baked in
        if isinstance(structure, TensorArgument):
            arguments[inputs[structure.index]] = codegen.Ref(structure.index)
        else:
            refs = map_structure(lambda x: codegen.Ref(x.index) if isinstance(x, TensorArgument) else x, structure)
            arguments[spelled.new(argument, "inputs")] = refs
    results = len(staged.results)
    block = codegen.from_jaxpr(staged.jaxpr)
    return codegen.Entry(
        name=function,
        block=block,
        variables=[str(v) for v in staged.variables],
        inputs=inputs,
        arguments=arguments,
        rng=staged.rng,
        structure=map_structure(lambda x: codegen.Ref(x.index) if isinstance(x, OutputRef) else x, staged.outputs),
        updates={str(u): results + i for i, u in enumerate(staged.updates)},
        doc=_doc(name, staged, inputs),
    )


def _leaves(structure: Any) -> list[TensorArgument]:
    found: list[TensorArgument] = []
    map_structure(lambda x: found.append(x) if isinstance(x, TensorArgument) else None, structure)
    return found


def _doc(name: str, staged: Staged, inputs: Sequence[str]) -> list[str]:
    lines = [f"TensorFlow function {name!r}.", "", "Args:", "  params: dict from variable name to array."]
    for given, spec in zip(inputs, staged.inputs, strict=True):
        shape = ", ".join(map(str, spec.shape))
        lines.append(f"  {given}: {spec.dtype.name}[{shape}].")
    if staged.rng:
        lines.append("  rng: a key, as jax.random.key makes it.")
    return [*lines, "", "Returns:", "  The results, and params with updated variables."]


def _signature(converted: ConvertedFunction, staged: Staged) -> dict[str, Any]:
    interface = converted.interface
    kinds = prediction_kinds(staged.jaxpr)
    return {
        "inputs": [{"name": s.name, "dtype": s.dtype.name, "shape": list(s.shape)} for s in staged.inputs],
        "outputs": [
            {
                "dtype": np.dtype(r.dtype).name,
                "shape": [d if isinstance(d, int) else str(d) for d in r.shape],
                "kind": kind,
            }
            for r, kind in zip(staged.results, kinds, strict=False)  # updates stand after the results
        ],
        "interface": interface_json.encode_interface(interface),
        "variables": [str(v) for v in staged.variables],
        "updates": [str(v) for v in staged.updates],
        "rng": staged.rng,
        "stablehlo": None,
        "function": None,
    }


def _source(
    entries: Mapping[str, codegen.Entry], title: str, signatures: dict[str, Any], warnings: list[str]
) -> tuple[str | None, dict[str, Any]]:
    try:
        text, constants = codegen.write_module(
            list(entries.values()),
            [
                title or "A model converted from TensorFlow.",
                "",
                "Needs JAX and numpy only; params are a dict of arrays.",
            ],
        )
    except ExportError as error:
        warnings.append(f"no source: {error}")
        return None, {}
    except Exception as error:  # an artefact is of use without source, too
        warnings.append(f"no source: {type(error).__name__}: {error}")
        return None, {}
    for name, entry in entries.items():
        arguments = [interface_json.encode(a) for a in entry.arguments.values()]
        signatures[name]["function"] = {"name": entry.name, "arguments": arguments}
    return text, constants
