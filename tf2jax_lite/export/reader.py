"""Read artifacts without TensorFlow or pickle; Python source runs only on request."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.coercion import is_key, kind_of
from tf2jax_lite.calling.integers import fit_integers
from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.calling.names import accepted_names, match_arrays
from tf2jax_lite.calling.params import (
    Stacks,
    VariableName,
    flatten_params,
    names_of,
    nest_params,
    nest_parts,
    stacked,
)
from tf2jax_lite.calling.structures import OutputRef, TensorArgument, by_name, map_structure
from tf2jax_lite.jaxprs.compat import ir
from tf2jax_lite.pipeline.keras_training import TrainingFacts
from tf2jax_lite.stablehlo.parsing.exported import checked_call, read_exported
from tf2jax_lite.support.config import Config, current_config, with_active_checks
from tf2jax_lite.support.errors import (
    DtypeMismatchError,
    ExportError,
    InputError,
    MissingKeyError,
    MissingParamError,
    Tf2JaxError,
)
from tf2jax_lite.support.limits import reading

from .dimension_syntax import MULTIPLE
from .hub import local_artifact
from .interface_json import decode, decode_interface
from .loaded_function import LoadedFunction
from .metadata import artifact_file, checked_hashes, named_signature, read_metadata, read_stacks, state_names
from .params_file import as_complex, read_tensors
from .predictions import LOGITS, PROBABILITIES, UNKNOWN

_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def read_artifact(
    path: str | Path, signature: str | None, backend: str, verify_hashes: bool, stack_layers: bool
) -> tuple[LoadedFunction, dict[str, Any]]:
    """Return a function of an artifact and its params. See `load`."""
    folder = local_artifact(path)
    with reading(str(folder), ExportError):
        return _read(folder, signature, backend, verify_hashes, stack_layers)


def _read(
    folder: Path, signature: str | None, backend: str, verify_hashes: bool, stack_layers: bool
) -> tuple[LoadedFunction, dict[str, Any]]:
    metadata, name, entry, interface = read_signature(folder, signature)
    stacks = read_stacks(metadata)
    with checked_hashes(folder, metadata) if verify_hashes else contextlib.nullcontext():
        params = read_params(folder, metadata)
        exported = _from_stablehlo(folder, metadata, name) if backend == "stablehlo" else None
    if stack_layers:
        params = stacked(params, stacks)
    if exported is None:
        call, taken = _from_source(folder, metadata, entry, interface, stacks, current_config()), None
    else:
        _check_counts(exported, entry, interface, name)
        call, taken = _bound(exported, entry, interface, stacks, current_config())
    try:
        training = TrainingFacts.from_json(entry.get("training"))
    except ValueError as error:
        raise ExportError(f"the metadata of {name!r} cannot be read: {error}") from error
    statistics = frozenset(n for n, info in metadata["params"].items() if info.get("moving_statistic") is True)
    function = LoadedFunction(
        call,
        interface,
        bool(_draws(entry) if backend == "source" else entry["rng"]),
        taken=taken,
        kinds=_kinds(entry, interface),
        independent=entry.get("independent") is True,
        training=training,
        moving_statistics=statistics,
        doc=f"{name} of {folder.name}. {interface.expected()}",
    )
    return function, params


def read_signature(folder: Path, signature: str | None) -> tuple[dict[str, Any], str, dict[str, Any], Interface]:
    """Return an artifact's metadata, and the name, entry and interface of a function.

    See `load`.
    """
    metadata = read_metadata(folder)
    name, entry = named_signature(metadata, signature)
    return metadata, name, entry, decode_interface(entry.get("interface"))


def _kinds(entry: Mapping[str, Any], interface: Interface) -> Any:
    """Return the kinds of results (`prediction_kinds`), or None if not recorded."""
    outputs = entry.get("outputs")
    outputs = outputs if isinstance(outputs, list) else []
    found = [info.get("kind") if isinstance(info, dict) else None for info in outputs]
    leaves = [leaf.index for leaf in jax.tree.leaves(interface.outputs) if isinstance(leaf, OutputRef)]
    if not all(0 <= i < len(found) and found[i] in (PROBABILITIES, LOGITS, UNKNOWN) for i in leaves):
        return None
    return interface.results(found)


def read_params(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Read an artifact's params, and its large constants."""
    files: dict[str, dict[str, np.ndarray]] = {}
    params: dict[str, Any] = {}
    for name, info in metadata["params"].items():
        file, dtype, shape = info["file"], info["dtype"], tuple(info["shape"])
        if file not in files:
            files[file] = read_tensors(artifact_file(folder, metadata, file))
        if name not in files[file]:
            raise ExportError(f"{file} lacks param {name!r}")
        value = as_complex(files[file][name], dtype)
        if value.shape != shape or value.dtype.name != dtype:
            raise ExportError(
                f"param {name!r} is {value.dtype}{list(value.shape)}; the metadata says {dtype}{list(shape)}"
            )
        params[VariableName(name, info["trainable"])] = value
    return params


def module_file(folder: Path, metadata: Mapping[str, Any], name: str) -> Path:
    """Return the file with a function's StableHLO."""
    file = metadata["signatures"][name].get("stablehlo")
    if file is None:
        raise ExportError(f"{folder} has no StableHLO for {name!r}; load it with backend='source'")
    return artifact_file(folder, metadata, file)


def _from_stablehlo(folder: Path, metadata: Mapping[str, Any], name: str) -> Any:
    file = module_file(folder, metadata, name)
    try:
        return read_exported(file.read_bytes())
    except Tf2JaxError as error:
        raise ExportError(f"{file}: {error}") from error


def _check_counts(exported: Any, entry: Mapping[str, Any], interface: Interface, name: str) -> None:
    """Raise `ExportError` if metadata and StableHLO differ in array counts."""
    taken, given = exported.in_tree.children()[:1], exported.out_tree
    counts = [_counts(tree) for tree in (*taken, given)]
    expected = [len(entry["variables"]), len(entry["inputs"]), int(bool(entry["rng"]))]
    leaves = [leaf.index for leaf in jax.tree.leaves(interface.outputs) if isinstance(leaf, OutputRef)]
    results = counts[-1][0] if counts[-1] else 0
    if counts != [expected, [results, len(entry["updates"])]] or any(not 0 <= i < results for i in leaves):
        raise ExportError(f"the metadata of {name!r} do not fit its StableHLO module: the numbers of arrays differ")


def _counts(tree: Any) -> list[int]:
    """Return the number of arrays in each part; -1 for others than lists."""
    return [len(part.children()) if part.num_leaves == len(part.children()) else -1 for part in tree.children()]


def _bound(
    exported: Any, entry: Mapping[str, Any], interface: Interface, stacks: Stacks, config: Config
) -> tuple[Callable[..., Any], Sequence[np.dtype]]:
    """Return the function of a module, and the dtypes of the arrays that it takes."""
    variables, updates = list(entry["variables"]), list(entry["updates"])
    needs_key = bool(entry["rng"])
    (held, taken, _), _ = jax.tree.unflatten(exported.in_tree, [np.dtype(a.dtype) for a in exported.in_avals])
    # The module keeps the types that it was exported with, independent of jax_enable_x64.
    needs_x64 = any(_canonical_32(a.dtype) != a.dtype for a in (*exported.in_avals, *exported.out_avals))

    call_module = checked_call(exported)

    def call(params: Mapping[str, Any], inputs: list[Any], key: list[Any]) -> Any:
        given = [_in_width(params[v], d) for v, d in zip(variables, held, strict=True)]
        arrays = [_as_dtype(v, d, interface) for v, d in zip(inputs, taken, strict=True)]
        try:
            return call_module(given, arrays, key)
        except (ValueError, ir.MLIRError) as error:  # MLIR's where a result would have a size below 0
            text = " ".join(str(error).split())
            fix = "For other sizes, export a symbolic dimension with shapes=."
            if "Expected value >= 1" in text:
                fix = "An empty batch runs with backend='source'."
            raise InputError(f"{interface.name}: the inputs do not fit the StableHLO. {fix} {text}") from error

    def function(*args: Any, **kwargs: Any) -> Any:
        params, args = interface.take_params(args, kwargs)
        rng = interface.take_key(args, kwargs)
        bound = interface.bind(args, kwargs, with_active_checks(config))
        given = _complete(params, variables, stacks, interface)
        if needs_key and rng is None:
            raise MissingKeyError(f"{interface.name} draws random numbers: call it with rng=jax.random.key(seed)")
        key = [_key_data(rng)] if needs_key else []
        with jax.enable_x64(True) if needs_x64 else contextlib.nullcontext():
            results, changed = call(given, bound.flat, key)
        results = [jnp.asarray(v, _canonical(v.dtype)) for v in results]
        after = {n: _in_width(v, _canonical(params.get(n, v).dtype)) for n, v in zip(updates, changed, strict=True)}
        return interface.results(results), {**params, **after}

    return function, taken


def _complete(
    params: Mapping[str, Any], variables: Sequence[str], stacks: Stacks, interface: Interface
) -> Mapping[str, Any]:
    """Return params as the function of an artifact takes them."""
    given = stacked(params, stacks) if stacks else params
    missing = [v for v in variables if v not in given]
    if missing:
        raise MissingParamError(f"{interface.name}: params lack {len(missing)} variable(s): {', '.join(missing[:10])}")
    return given


def _as_dtype(value: Any, dtype: np.dtype, interface: Interface) -> jax.Array:
    if kind_of(value.dtype) > kind_of(dtype):
        raise DtypeMismatchError(
            f"{interface.name}: got an array of {value.dtype} for {dtype}, which cannot hold it, and the StableHLO "
            f"module takes no other. Cast it. {interface.expected()}"
        )
    return jnp.asarray(value, dtype)


def _in_width(value: Any, dtype: np.dtype) -> Any:
    """Return an array as ``dtype`` if they differ only in 64 or 32 bits."""
    return jnp.asarray(value, dtype) if _canonical_32(value.dtype) == _canonical_32(dtype) else value


def _canonical_32(dtype: Any) -> np.dtype:
    return np.dtype(_NARROW.get(np.dtype(dtype).name, dtype))


def _canonical(dtype: np.dtype) -> np.dtype:
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def _key_data(rng: Any) -> Any:
    return jax.random.key_data(rng) if is_key(rng) else jnp.asarray(rng)


def _from_source(
    folder: Path,
    metadata: Mapping[str, Any],
    entry: Mapping[str, Any],
    interface: Interface,
    stacks: Stacks,
    config: Config,
) -> Callable[..., Any]:
    file, recorded = metadata.get("source"), entry.get("function")
    if file is None or recorded is None:
        raise ExportError(f"{folder} has no source; load it with backend='stablehlo'")
    try:
        arguments = [decode(a) for a in recorded["arguments"]]
        used = [leaf.index for leaf in jax.tree.leaves(arguments) if isinstance(leaf, OutputRef)]
        if not all(0 <= index < interface.count for index in used):
            raise ValueError(f"there are {interface.count} arrays, not {max(used) + 1}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ExportError(f"the metadata's arguments cannot be read: {type(error).__name__}: {error}") from error
    modules = metadata.get("framework") == "nnx"
    if modules:
        nnx = importlib.import_module(".nnx", __package__)
        nnx.import_nnx()
    path = artifact_file(folder, metadata, file)
    module = import_source(path)
    try:
        written = getattr(module, recorded["name"])
        if modules:
            nnx = importlib.import_module(".nnx", __package__)
            written = nnx.as_function(written, module.to_variables, entry["updates"], training=recorded["training"])
    except Exception as error:
        raise ExportError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error

    needed: list[str] = [
        *entry["variables"],
        *(name for name, info in metadata["params"].items() if info.get("constant")),
    ]
    keys = {name: key for key, layers in stacks.items() for name in names_of(layers)}
    needed = list(dict.fromkeys(keys.get(name, name) for name in needed))
    state = state_names(metadata["params"])

    def function(*args: Any, **kwargs: Any) -> Any:
        params, args = interface.take_params(args, kwargs)
        rng = interface.take_key(args, kwargs)
        flat = interface.bind(args, kwargs, with_active_checks(config)).flat
        _check_multiples(interface, entry, flat)
        if _draws(entry) and rng is None:
            raise MissingKeyError(f"{interface.name} draws random numbers: call it with rng=jax.random.key(seed)")
        key = {"rng": _typed(rng)} if _draws(entry) else {}
        complete = _complete(params, needed, stacks, interface)
        results, after = call_source(written, recorded, complete, state, flat, key)
        return results, {**params, **{name: after[name] for name in entry["updates"]}}

    return function


def call_source(
    written: Callable[..., Any],
    recorded: Mapping[str, Any],
    params: Mapping[str, Any],
    state: Collection[str],
    arrays: Sequence[Any],
    key: Mapping[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """Call a function of ``model.py`` with params by name.

    Args:
      written: the function.
      recorded: its metadata, which say whether it takes arrays that do not train apart.
      params: name to array.
      state: names of arrays that do not train.
      arrays: those of its further arguments, in the metadata's order.
      key: ``rng``, if the function takes it.

    Returns:
      The results, and name to array of the dicts that it returns.
    """
    if recorded.get("state"):
        trained = {name: value for name, value in params.items() if name not in state}
        given = nest_parts(trained, {name: value for name, value in params.items() if name in state})
    else:
        given = [nest_params(params)]
    args = [decode(argument) for argument in recorded["arguments"]]
    args = [map_structure(lambda x: arrays[x.index] if isinstance(x, OutputRef) else x, a) for a in args]
    results, *after = written(*given, *args, **key)
    return results, {name: value for part in after for name, value in flatten_params(part).items()}


def collect_results(structure: Any, results: Any, flat: dict[int, Any]) -> None:
    """Add the results that stand where the structure has references, by number."""
    if isinstance(structure, OutputRef):
        flat[structure.index] = results
        return
    keys: Any = ()
    if isinstance(structure, Mapping):
        keys = structure
    elif isinstance(structure, list | tuple):
        keys = range(len(structure))
    for key in keys:
        try:
            inner = results[str(key) if isinstance(structure, Mapping) else key]
        except (KeyError, IndexError, TypeError) as error:
            raise ExportError(f"model.py returns no result {key!r}, which callers expect") from error
        collect_results(structure[key], inner, flat)


def import_source(path: Path) -> Any:
    """Import an artifact's ``model.py``, whose code runs."""
    spec = importlib.util.spec_from_file_location("tf2jax_lite_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ExportError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _draws(entry: Mapping[str, Any]) -> bool:
    """Return whether a function's source takes a key."""
    return bool(entry["function"].get("rng", entry["rng"]))


def _check_multiples(interface: Interface, entry: Mapping[str, Any], flat: Sequence[Any]) -> None:
    """Raise `InputError` for sizes that are not the required multiples."""
    for info, array in zip(entry["inputs"], flat, strict=False):
        for axis, (size, wanted) in enumerate(zip(np.shape(array), info["shape"], strict=False)):
            match = MULTIPLE.fullmatch(wanted) if isinstance(wanted, str) else None
            times, more = (int(match[key] or unit) for key, unit in (("times", 1), ("more", 0))) if match else (1, 0)
            if size < more or (size - more) % times:
                raise InputError(f"{interface.name}: dimension {axis} of {info['name']} must be {wanted}, not {size}")


def _typed(rng: Any) -> Any:
    return rng if is_key(rng) else jax.random.wrap_key_data(jnp.asarray(rng))


def call_with_arrays(
    fn: LoadedFunction, params: Mapping[str, Any], arrays: Mapping[str, Any], rng: Any = None
) -> tuple[Any, Any]:
    """Call a loaded function with arrays by name.

    Leaves of a nested argument are named ``inputs/ids``. If the function takes one array, it may have any name.
    """
    args, kwargs = placed_arrays(fn.interface, arrays)
    key = {"rng": rng} if fn.needs_key else {}
    return fn(params, *args, **kwargs, **key)


def fitting_arrays(
    interface: Interface, taken: Sequence[np.dtype] | None, arrays: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Return arrays by name in a `LoadedFunction`'s dtypes.

    The result is an argument of `call_with_arrays`. Integers may become other integers that hold their values, and
    floats other floats; integers may become floats, and real numbers complex.
    """
    fitting: dict[str, np.ndarray] = {}

    def keep(name: str, spec: TensorArgument, array: Any) -> Any:
        computed = spec.dtype if taken is None else taken[spec.index]
        fitting[name] = _in_dtype(name, np.asarray(array), spec.dtype, computed)

    placed_arrays(interface, arrays, keep)
    return fitting


def _in_dtype(name: str, array: np.ndarray, wanted: np.dtype | None, computed: np.dtype | None) -> np.ndarray:
    if wanted is None or computed is None:
        return array
    kinds = (np.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    have, want = ([i for i, k in enumerate(kinds) if jnp.issubdtype(d, k)] for d in (array.dtype, wanted))
    if not (have and want and have <= want):
        raise InputError(f"array {name!r} is {array.dtype}; the function takes {wanted}")
    dtype = _canonical(computed)
    if want == [1]:
        return fit_integers(array, dtype, f"array {name!r}", wanted)
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def placed_arrays(
    interface: Interface,
    arrays: Mapping[str, Any],
    see: Callable[[str, TensorArgument, Any], Any] = lambda name, spec, array: array,
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments from named arrays passed through ``see(name, spec, array)``."""
    arguments = interface.tensors()
    chosen, left = match_arrays(arguments, arrays)
    taken: dict[int, Any] = {}
    for path, spec in arguments.items():
        if path not in chosen:
            names = " or ".join(map(repr, accepted_names(path, spec)))
            raise InputError(f"no array {names} among {', '.join(arrays) or 'none'}. {interface.expected()}")
        taken[spec.index] = see(chosen[path], spec, arrays[chosen[path]])
    if left:
        names = "; ".join(" or ".join(map(repr, accepted_names(path, spec))) for path, spec in arguments.items())
        raise InputError(f"no argument for {', '.join(left)}. The names are {names}. {interface.expected()}")
    placed = map_structure(lambda x: taken[x.index] if isinstance(x, TensorArgument) else x, [*interface.args])
    return placed, map_structure(lambda x: taken[x.index] if isinstance(x, TensorArgument) else x, {**interface.kwargs})


def flat_results(results: Any) -> dict[str, Any]:
    """Return results by name: ``output_0``, or paths such as ``scores/0``."""
    if not isinstance(results, Mapping):
        several = results if isinstance(results, (list, tuple)) else [results]
        results = {f"output_{i}": value for i, value in enumerate(several)}
    return by_name(results, lambda leaf: leaf is not None)
