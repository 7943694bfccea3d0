"""Write artifacts: params, StableHLO and source that need no TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tf2jax_lite.calling.params import is_trainable, stacked
from tf2jax_lite.calling.structures import OutputRef, TensorArgument, iter_arguments, map_structure
from tf2jax_lite.jaxprs.independence import Examples, examples_of_results
from tf2jax_lite.pipeline.converted_function import AnnotatedFunction
from tf2jax_lite.stablehlo.api import StableHLOFunction
from tf2jax_lite.support.command_options import ExportOptions
from tf2jax_lite.support.errors import ExportError, InputError, LoweringError, Tf2JaxError, UnsupportedError
from tf2jax_lite.support.extras import require_device
from tf2jax_lite.support.options import takes
from tf2jax_lite.support.stored_array import StoredArray
from tf2jax_lite.support.text import size_text

from . import codegen, interface_json
from .atomic_dir import new_directory
from .dimension_syntax import dimension_names
from .host_part import write_host
from .jax_function import JaxFunction, jax_function
from .metadata import FORMAT, FORMAT_VERSION, find_stacks, hashed_files, state_names, write_metadata
from .params_file import SHARD_BYTES, write_checkpoint, write_params
from .predictions import prediction_kinds
from .source_function import from_source, returns_all, run_source
from .stablehlo_module import serialize
from .stage import InputSpec, Staged, argument_names, stage
from .symbolic_dims import stage_symbolic, with_offset
from .weight_only import WeightOnly, check_weights, stored_weights

_SOURCE = "model.py"
_LISTED = 4  # results whose shapes docstrings say
_FRAMEWORKS = ("jax", "nnx")
_RANDOM = ("jax", "tensorflow")
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """Summary of an export.

    Attributes:
      path: the directory.
      files: file name to size in bytes.
      signatures: names of the exported functions.
      parameters: number of parameters (elements of all params).
      warnings: the parts that could not be written, and why.
    """

    path: str
    files: dict[str, int]
    signatures: list[str]
    parameters: int
    warnings: list[str]


@takes(ExportOptions)
def export_functions(
    functions: Mapping[str, tuple[Any, ...]],
    path: str | Path,
    *,
    shapes: Mapping[str, str] | Sequence[str] | None = None,
    platforms: Sequence[str] = ("cpu", "cuda", "tpu"),
    dtype: Any = None,
    title: str = "",
    options: Mapping[str, Any] | None = None,
    stablehlo: bool = True,
    shard_bytes: int = SHARD_BYTES,
    left_out: dict[str, Exception] | None = None,
    progress: Callable[[str], None] = lambda step: None,
    **formats: Any,
) -> ExportReport:
    """Write functions as an artifact.

    Args:
      functions: name to a function and its params, as `tf2jax_lite.convert` and `tf2jax_lite.convert_saved_model`
        return them; or, of any JAX function, to ``(fn, params, *example arguments)``, where ``fn(params, *args)``, with
        ``rng=key`` if it has such an argument, returns the results. Its params are a pytree of arrays, all of which
        train but integers; sizes None of a ``jax.ShapeDtypeStruct`` are unknown. Functions share params of the same
        name.
      path: the directory to create; it appears when everything is written.
      shapes: shapes of arguments, by name (of any of the functions) or in order (of each), such as
        ``"b, 224, 224, 3"``; names are symbolic dimensions. Default: each unknown dimension is symbolic.
      platforms: the platforms to lower StableHLO for.
      dtype: floating dtype to which floating params are converted (``bfloat16``), and in which the functions compute.
      title: first line of the source's docstring.
      options: recorded in the metadata.
      stablehlo: write StableHLO, too.
      shard_bytes: maximum size of a params file.
      left_out: errors of functions that could not be converted, which become warnings; those that cannot be traced are
        added, as long as others can.
      progress: called with the name of each step as it begins.
      **formats: of `ExportOptions`. With ``scan_layers``, `load` and the source's ``load_params`` stack the params of
        equal layers; functions take both forms.

    Raises:
      ExportError: a function can be written neither as StableHLO nor as source, or ``path`` cannot be written.
      InputError: ``shapes`` do not fit, a platform or a framework is unknown, it does not support ``scan_layers``, or
        ``mlir`` is asked for without ``stablehlo``.

    Example:
      >>> functions = {"predict": tf2jax.convert(model, tf.TensorSpec([None, 3]))}
      >>> report = tf2jax.export_functions(functions, "OUT", platforms=["cpu"])
    """
    chosen = _chosen_formats(formats, stablehlo)
    platforms = _platforms(platforms)
    functions = {name: _with_interface(name, entry, shapes) for name, entry in functions.items()}
    given = dict.fromkeys(functions, shapes) if not isinstance(shapes, Mapping) else _by_function(functions, shapes)
    hosts = {name: getattr(fn, "host", None) for name, (fn, _) in functions.items()}
    functions, weights = _with_weights(functions, chosen.weights, dtype)
    params, loose = _chosen_params(functions, dtype), dtype is not None
    require_device()
    with new_directory(Path(path), overwrite=chosen.overwrite) as folder:
        traced = _traced(functions, given, params, dtype, left_out, progress)
        functions = {name: functions[name] for name in traced}
        params = {name: value for name, value in params.items() if any(name in own for _, own in functions.values())}
        warnings = [_LEFT_OUT.format(name, str(error).rstrip(".")) for name, error in (left_out or {}).items()]
        identifiers = _identifiers(functions)
        public = codegen.class_names(identifiers) if chosen.framework == "nnx" else identifiers
        entries, signatures, problems = _functions_of_source(functions, traced, public, chosen.framework, warnings)
        progress("write source")
        statistics = {name for found in entries.values() for name in found.statistics if not _trains(name, params)}
        layout = _layout(chosen, _params_entries(params, params, statistics))
        constants, problems = _write_source(folder / _SOURCE, entries, title, signatures, problems, layout)
        arrays = {**params, **constants}
        described = _params_entries(params, arrays, statistics)
        state = state_names(described)
        stacks: dict[str, Any] = {}
        drawn = [name for name, found in entries.items() if len(found.updates) < len(traced[name].updates)]
        for name in drawn:
            signatures[name]["random"] = "jax"
        if (chosen.scan_layers or (drawn and chosen.framework == "jax")) and not problems:
            module = run_source((folder / _SOURCE).read_text("utf-8"))
            stacks = _stacks_of_source(module, traced, entries, described) if chosen.scan_layers else {}
            own = {n: traced[n] for n in (traced if chosen.scan_layers else drawn)}
            traced |= _traced_source(module, own, entries, constants, state, stacks, signatures)
        held = jax.eval_shape(lambda given: stacked(given, stacks), params) if stacks else params
        for name, staged in traced.items() if stablehlo else ():
            progress(f"lower {name} for {', '.join(platforms)}")
            file = folder / ("model.stablehlo" if len(functions) == 1 else f"model.{identifiers[name]}.stablehlo")
            again = functools.partial(stage, converted_function(functions[name][0]), params=params, loose=loose)
            warnings += _write_stablehlo(file, name, staged, held, platforms, signatures[name], again, mlir=chosen.mlir)
        warnings += _write_hosts(folder, {name: hosts[name] for name in traced}, identifiers, signatures)
        warnings += _missing_source(problems, signatures, warnings)
        size = size_text(sum(v.nbytes for v in arrays.values()))
        progress(f"write params ({size})")
        placed = write_params(arrays, folder, state=state, shard_bytes=shard_bytes)
        files = {"source": None if problems else _SOURCE, "files": hashed_files(folder)}
        held_params = {name: {**info, "file": placed[name]} for name, info in described.items()}
        facts = {"framework": chosen.framework, "signatures": signatures, "params": held_params, "stacked": stacks}
        metadata = {**_format(), **files, **facts, "options": {**(options or {}), **weights}, "warnings": warnings}
        if chosen.checkpoint:
            progress(f"write checkpoint ({size})")
            write_checkpoint(arrays, state, folder / "checkpoint")
        sizes = write_metadata(folder, metadata)
    count = sum(int(np.prod(np.shape(v), dtype=np.int64)) for v in params.values())
    return ExportReport(str(path), sizes, list(functions), count, warnings)


def _with_interface(name: str, entry: tuple[Any, ...], shapes: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return a function and its params; a JAX function with its interface."""
    fn, params, *args = entry
    if isinstance(fn, StableHLOFunction) and not args:
        fn, args = fn.with_params, fn.types
    return jax_function(name, fn, params, args, shapes) if args else (fn, params)


def _chosen_formats(formats: Mapping[str, Any], stablehlo: bool) -> ExportOptions:
    """Return the options of an artifact's forms, which go together."""
    chosen = ExportOptions(**formats)
    if chosen.mlir and not stablehlo:
        raise InputError("mlir=True writes the text of the StableHLO, so it needs stablehlo=True")
    check_framework(chosen.framework, scan_layers=chosen.scan_layers)
    check_random(chosen.random)
    check_weights(chosen.weights)
    return chosen


def _with_weights(
    functions: Mapping[str, tuple[Any, Mapping[str, Any]]], kind: str | None, dtype: Any
) -> tuple[dict[str, tuple[Any, Mapping[str, Any]]], dict[str, Any]]:
    """Return functions of weights in fewer bits, and a record of them."""
    if kind is None:
        return dict(functions), {}
    if dtype is not None:
        raise InputError("weights= keeps the dtype of computations, which dtype= changes. Give one of them.")
    whole = _merged(functions)
    params, dtypes, errors = stored_weights(whole, kind)
    found = {}
    for name, (fn, own) in functions.items():
        small = WeightOnly(converted_function(fn), {n: d for n, d in dtypes.items() if n in own}, kind, fn.training)
        found[name] = small, {n: v for n, v in params.items() if n in small.variables}
    return found, {"weights": {"kind": kind, "errors": errors}}


def _identifiers(functions: Iterable[str]) -> dict[str, str]:
    names = codegen.Names()
    return {name: names.new(name, "model") for name in functions}


def _layout(chosen: ExportOptions, described: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options of the source's writer."""
    layout: dict[str, Any] = {"shape_comments": chosen.shape_comments, "scan_layers": chosen.scan_layers}
    layout["random"] = chosen.random
    state = state_names(described)
    if chosen.framework == "nnx":
        kinds = {n: "BatchStat" if info["moving_statistic"] else "NonTrainable" for n, info in described.items()}
        layout["writer"] = codegen.classes_writer({n: k if n in state else "Param" for n, k in kinds.items()})
    else:
        layout["state"] = state
    return layout


def _missing_source(
    problems: Sequence[str], signatures: Mapping[str, Mapping[str, Any]], warnings: Sequence[str]
) -> list[str]:
    """Return warnings of missing source; raise without StableHLO beside it."""
    found = [f"no source: {problem}" for problem in problems]
    lost = [name for name, entry in signatures.items() if problems and entry["stablehlo"] is None]
    if lost:
        reasons = "; ".join([*warnings, *found])
        raise ExportError(f"there would be no way to run {', '.join(map(repr, lost))}: {reasons}")
    return found


def _format() -> dict[str, Any]:
    """Return the format of an artifact's metadata, and the libraries that wrote it."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": {name: importlib.metadata.version(name) for name in ("jax", "numpy")},
    }


def _chosen_params(functions: Mapping[str, tuple[AnnotatedFunction, Mapping[str, Any]]], dtype: Any) -> dict[str, Any]:
    """Return the params of all functions by name, in a floating dtype if one is given."""
    params = _merged(functions)
    return params if dtype is None else {name: _cast(value, np.dtype(dtype)) for name, value in params.items()}


def _functions_of_source(
    functions: Mapping[str, tuple[AnnotatedFunction, Any]],
    traced: Mapping[str, Staged],
    public: Mapping[str, str],
    framework: str,
    warnings: list[str],
) -> tuple[dict[str, codegen.Entry], dict[str, dict[str, Any]], list[str]]:
    """Return functions of the source, their metadata, and why there is no source."""
    # Warnings of restricted sizes are added to ``warnings``.
    entries, signatures, problems = {}, {}, []
    for name, staged in traced.items():
        fn = functions[name][0]
        converted = converted_function(fn)
        try:
            entries[name] = entry(name, converted, staged, public[name], framework=framework)
        except Tf2JaxError:  # a Python callback, which StableHLO cannot hold either
            raise
        except Exception as error:  # an artifact without source is useful, too
            problems.append(f"{name}: {type(error).__name__}: {error}")
        signatures[name] = _signature(converted, staged)
        signatures[name]["independent"] = is_independent(staged, fn.training)
        if fn.training is not None:
            signatures[name]["training"] = dataclasses.asdict(fn.training)
        if restrictions := staged.restrictions():
            warnings.append(f"{name}: only for sizes where {' and '.join(restrictions)}")
    return entries, signatures, problems


def _stacks_of_source(
    module: Mapping[str, Any],
    traced: Mapping[str, Staged],
    entries: Mapping[str, codegen.Entry],
    described: Mapping[str, Any],
) -> Any:
    """Return the params of equal layers that the source stacks."""
    if "stack_layers" in module and all(returns_all(traced[name], found) for name, found in entries.items()):
        return find_stacks(module["stack_layers"], described)
    return {}


def _traced_source(
    module: Mapping[str, Any],
    traced: Mapping[str, Staged],
    entries: Mapping[str, codegen.Entry],
    constants: Mapping[str, Any],
    state: Collection[str],
    stacks: Any,
    signatures: Mapping[str, dict[str, Any]],
) -> dict[str, Staged]:
    """Return and record traces of the source's functions that return all results."""
    found = {}
    for name, staged in traced.items():
        if returns_all(staged, entries[name]):
            written, recorded = module[entries[name].name], signatures[name]["function"]
            found[name] = from_source(staged, entries[name], recorded, written, constants, state, stacks)
            for key in ("variables", "updates"):
                signatures[name][key] = [str(v) for v in getattr(found[name], key)]
            signatures[name]["rng"] = found[name].rng
    return found


_LEFT_OUT = "{} is left out: {}. --signature names the functions to convert, all of which then have to."


def _traced(
    functions: Mapping[str, tuple[AnnotatedFunction, Any]],
    given: Mapping[str, Any],
    params: Mapping[str, Any],
    dtype: Any,
    left_out: dict[str, Exception] | None,
    progress: Callable[[str], None],
) -> dict[str, Staged]:
    """Trace functions; leave out those that fail if that is allowed."""
    traced: dict[str, Staged] = {}
    failed: dict[str, Exception] = {}
    for name, (fn, _) in functions.items():
        progress(f"trace {name}")
        try:
            traced[name] = stage_symbolic(converted_function(fn), given[name], params, dtype)
        except (UnsupportedError, LoweringError, ExportError) as error:
            if left_out is None:
                raise
            failed[name] = error
    if failed and not traced:
        raise next(iter(failed.values()))
    if left_out is not None:
        left_out.update(failed)
    return traced


def check_framework(framework: str, *, scan_layers: bool = False) -> None:
    """Check the framework of source."""
    if framework not in _FRAMEWORKS:
        raise InputError(f"framework is one of {', '.join(_FRAMEWORKS)}, not {framework!r}")
    if framework == "nnx" and scan_layers:
        raise InputError("scan_layers is not supported for framework='nnx', whose layers are modules in an nnx.List")


def check_random(random: str) -> None:
    """Check how random numbers are drawn."""
    if random not in _RANDOM:
        raise InputError(f"random is one of {', '.join(_RANDOM)}, not {random!r}")


def _write_stablehlo(
    file: Path,
    name: str,
    staged: Staged,
    params: Mapping[str, Any],
    platforms: Sequence[str],
    signature: dict[str, Any],
    again: Callable[[Sequence[InputSpec]], Staged],
    *,
    mlir: bool,
) -> list[str]:
    """Write a function's StableHLO, record the file; return warnings."""
    # If JAX has to know that a size is larger than 1, ``again`` traces with an offset for it.
    while True:
        try:
            module, problem, exported = serialize(staged, params, platforms)
        except ExportError as error:
            module, problem, exported = b"", error, None
        larger = None if problem is None else with_offset(staged.inputs, problem.constraint)
        if larger is None:
            break
        try:
            staged = again(larger)
        except (LoweringError, ExportError):
            break
        signature["inputs"], signature["outputs"] = array_entries(staged)
    if exported is None:
        return [f"{name}: {problem}"]
    file.write_bytes(module)
    if mlir:
        file.with_suffix(".mlir").write_text(exported.mlir_module(), "utf-8")
    signature["stablehlo"] = file.name
    signature["differentiable"] = problem is None
    return [] if problem is None else [f"{name}: {problem}"]


def _write_hosts(
    folder: Path, hosts: Mapping[str, Any], identifiers: Mapping[str, str], signatures: Mapping[str, dict[str, Any]]
) -> list[str]:
    """Write the parts of functions that stay in TensorFlow; return warnings."""
    warnings = []
    for name, host in hosts.items():
        if host is None or not host.nodes:
            continue
        try:
            signatures[name]["host"] = write_host(host, folder / f"host.{identifiers[name]}.pb")
        except UnsupportedError as error:
            warnings.append(f"{name}: the part that stays in TensorFlow is not stored: {error}")
    return warnings


def _write_source(
    file: Path,
    entries: Mapping[str, codegen.Entry],
    title: str,
    signatures: dict[str, Any],
    problems: list[str],
    layout: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """Write the source module unless there are problems, and record functions."""
    # Returns the constants that the source reads from params, and the problems, which are empty if it was written.
    if problems:
        return {}, problems
    title = title or "A model converted from TensorFlow."
    needs = "JAX and numpy only; params are nested dicts of arrays."
    if "writer" in layout:
        needs = "JAX, Flax and numpy only; load_params reads nested params, of which from_params makes a model."
    doc = [title, "", f"Needs {needs}"]
    try:
        text, constants = codegen.write_module(list(entries.values()), doc, **layout)
    except ExportError as error:
        return {}, [str(error)]
    except Exception as error:  # an artifact without source is useful, too
        return {}, [f"{type(error).__name__}: {error}"]
    for name, entry in entries.items():
        arguments = [interface_json.encode(a) for a in entry.arguments.values()]
        facts = {"arguments": arguments, "rng": entry.rng, "state": entry.state, "training": entry.training}
        signatures[name]["function"] = {"name": entry.name, **facts}
    file.write_text(text, encoding="utf-8")
    return constants, []


def _params_entries(
    params: Mapping[str, Any], arrays: Mapping[str, Any], statistics: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return the metadata of params and constants, by name, without their files."""
    return {
        str(name): {
            "shape": list(np.shape(value)),
            "dtype": np.dtype(value.dtype).name,
            "trainable": name in params and is_trainable(name, value) is not False,
            "constant": name not in params,
            "moving_statistic": name in statistics,
        }
        for name, value in sorted(arrays.items())
    }


def _trains(name: str, params: Mapping[str, Any]) -> bool:
    return any(key == name and is_trainable(key, params[key]) is not False for key in params)


def _by_function(functions: Mapping[str, Any], shapes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return shapes by function; each name must belong to at least one function."""
    known = {name: argument_names(converted_function(fn)) for name, (fn, _) in functions.items()}
    every = {argument: None for arguments in known.values() for argument in arguments}
    unknown = [name for name in shapes if name not in every]
    if unknown:
        raise InputError(f"no argument {unknown[0]!r}; there are {', '.join(every) or 'none'}")
    return {name: {a: shapes[a] for a in arguments if a in shapes} for name, arguments in known.items()}


def _platforms(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in _PLATFORMS]
    if unknown or not names:
        raise InputError(f"platforms are some of {', '.join(_PLATFORMS)}, not {unknown[0] if unknown else 'none'!r}")
    return list(dict.fromkeys(names))


def converted_function(fn: AnnotatedFunction | JaxFunction | WeightOnly) -> Any:
    """Return the `ConvertedFunction` of a converted function, or one like it.

    Raises:
      InputError: the function is no such function.
    """
    if isinstance(fn, JaxFunction | WeightOnly):
        return fn
    if not isinstance(fn, AnnotatedFunction):
        raise InputError(
            f"expected a function as tf2jax_lite.convert returns it, got {type(fn).__name__}. Of another JAX function, "
            "give example arguments: (fn, params, *args)."
        )
    return fn.converted


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
    if not jax.numpy.issubdtype(value.dtype, jax.numpy.floating):
        return value
    return (value if isinstance(value, StoredArray) else np.asarray(value)).astype(dtype)


def entry(name: str, converted: Any, staged: Staged, function: str, *, framework: str = "jax") -> codegen.Entry:
    """Return a traced function as an entry of a source module.

    It has the arguments of the original.
    """
    interface = converted.interface
    names = codegen.Names(taken={"nnx", "rngs", "self"} if framework == "nnx" else {"given", "state"})
    arguments: dict[str, Any] = {}
    named = [(interface.argument_name(i), a) for i, a in enumerate(interface.args)]
    for argument, structure in [*named, *interface.kwargs.items()]:
        if next(iter_arguments(structure), None) is None:
            continue  # a literal, baked in
        refs = map_structure(lambda x: codegen.Result(x.index) if isinstance(x, TensorArgument) else x, structure)
        whole = isinstance(structure, TensorArgument)
        name_of = staged.inputs[structure.index].name if whole else argument
        arguments[names.new(name_of, "x" if whole else "inputs")] = refs
    sizes = [str(size) for spec in staged.inputs for size in spec.shape]
    names.reserve({name for size in sizes for name in dimension_names(size)})
    sources = dict(leaf for name, refs in arguments.items() for leaf in codegen.leaves_of(refs, name))
    inputs = [
        sources[i] if sources[i] in arguments else names.new(_key(sources[i]) or spec.name, "x")
        for i, spec in enumerate(staged.inputs)
    ]
    results = len(staged.results)
    block = codegen.from_jaxpr(staged.jaxpr)
    shapes = [_shape_text(result) for result in staged.results]
    variables = [str(v) for v in staged.variables]
    updates = {str(u): results + i for i, u in enumerate(staged.updates)}
    return codegen.Entry(
        name=function,
        block=block,
        variables=variables,
        inputs=inputs,
        arguments=arguments,
        rng=staged.rng,
        structure=map_structure(lambda x: codegen.Result(x.index) if isinstance(x, OutputRef) else x, staged.outputs),
        updates=updates,
        doc=f"{'JAX' if isinstance(converted, JaxFunction) else 'TensorFlow'} function {name!r}.",
        args_doc=[f"{sources[i]}: {_shape_text(spec)}." for i, spec in enumerate(staged.inputs)],
        results_doc=", ".join(shapes) if len(shapes) <= _LISTED else f"{len(shapes)} arrays",
        statistics=codegen.moving_statistics(block, variables, updates),
    )


def _key(source: str) -> str:
    """Return the key by which source reads an array of a dict, "" if it reads no dict."""
    found = re.search(r"""\[["']([^"']+)["']\]$""", source)
    return found[1] if found else ""


def _shape_text(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}[{', '.join(map(str, array.shape))}]"


def array_entries(staged: Staged) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the metadata of a function's arguments and results."""
    kinds = prediction_kinds(staged.jaxpr)
    inputs = [{"name": s.name, "dtype": s.dtype.name, "shape": list(s.shape)} for s in staged.inputs]
    outputs = [
        {"dtype": np.dtype(r.dtype).name, "shape": [d if isinstance(d, int) else str(d) for d in r.shape], "kind": kind}
        for r, kind in zip(staged.results, kinds, strict=False)  # updates stand after the results
    ]
    return inputs, outputs


def is_independent(staged: Staged, facts: Any) -> bool:
    """Return whether results provably depend on their own example alone."""
    each = Examples(0)
    tags = [*[None] * len(staged.variables), *[each if spec.shape else None for spec in staged.inputs]]
    try:
        found = examples_of_results(staged.jaxpr, [*tags, *[None] * staged.rng])[: len(staged.results)]
    except Exception:  # sizes that are not comparable
        return False
    added = [found.pop()] if facts is not None and facts.returns_losses else []
    return all(tag in (None, each) for tag in found) and all(tag is None for tag in added)


def _signature(converted: Any, staged: Staged) -> dict[str, Any]:
    interface = converted.interface
    inputs, outputs = array_entries(staged)
    return {
        "inputs": inputs,
        "outputs": outputs,
        "interface": interface_json.encode_interface(interface),
        "variables": [str(v) for v in staged.variables],
        "updates": [str(v) for v in staged.updates],
        "rng": staged.rng,
        "stablehlo": None,
        "function": None,
    }
