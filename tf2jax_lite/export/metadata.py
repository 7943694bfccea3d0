"""Read and write metadata.json, untrusted input whose entries are checked."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.params import flatten_params, names_of, nest_params
from tf2jax_lite.support.errors import ExportError
from tf2jax_lite.support.limits import read_json

from .atomic_dir import METADATA, sha256

# Stored files hold these three strings, hence their British spelling.
FORMAT = "tf2jax_lite artefact"
"""The format of an artifact."""
FAMILY = "tf2jax_lite artefacts"
"""The format of a directory that holds several artifacts."""
FAMILY_MEMBERS = "artefacts"
"""The key of their names."""
FORMAT_VERSION = 1
"""The version that is written; all versions from 1 to this one are read.

It increases if a reader of the version before would fail, or compute something else. New keys that such a reader may
ignore do not increase it.
"""

_MAX_RANK = 64  # NumPy's
_MAX_PATH = 100
"""Maximum number of scopes in a param's name, which become nested dicts.

Models have under twenty.
"""
_FILE = {"sha256": str, "bytes": int}
_PARAM = {"file": str, "dtype": str, "shape": list, "trainable": bool}
_SIGNATURE = {"variables": [str], "updates": [str], "rng": bool, "inputs": [{"name": str, "dtype": str, "shape": list}]}
_OUTPUTS = {"outputs": [{"dtype": str, "shape": list}]}


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read and check an artifact's metadata."""
    file = folder / METADATA
    if not file.exists():
        raise ExportError(f"{folder} is not an artifact: it has no {METADATA}")
    metadata = read_json(file, ExportError)
    if isinstance(metadata, dict) and metadata.get("format") == FAMILY:
        raise ExportError(f"{folder} holds several artifacts: {metadata.get(FAMILY_MEMBERS)}; name one of them")
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ExportError(f"{file} is not the metadata of a tf2jax_lite artifact")
    if metadata.get("format_version") != FORMAT_VERSION:
        _check_older(folder, metadata.get("format_version"))
    for key, kind in (("signatures", dict), ("params", dict), ("files", dict)):
        if not isinstance(metadata.get(key), kind):
            raise ExportError(f"{file}: {key} is missing or of another type")
    options = metadata.get("options", {})
    if not isinstance(options, dict) or not isinstance(options.get("training", []), list):
        raise ExportError(f"{file}: options are of another type")
    if not isinstance(metadata.get("warnings", []), list):
        raise ExportError(f"{file}: warnings are of another type")
    for name, info in metadata["files"].items():
        _inside(folder, name)
        _check(f"{file}: file {name!r}", info, _FILE)
    for name, info in metadata["params"].items():
        where = f"{file}: param {name[:100]!r}"
        _check(where, info, _PARAM)
        if len(info["shape"]) > _MAX_RANK or not all(type(size) is int and size >= 0 for size in info["shape"]):
            raise ExportError(f"{where}: the shape is of another form")
        if name.count("/") > _MAX_PATH:
            raise ExportError(f"{where}: the name has more than {_MAX_PATH} scopes")
    for name, entry in metadata["signatures"].items():
        _check_signature(f"the metadata of signature {name!r}", entry)
    return metadata


def _check_signature(where: str, entry: Any) -> None:
    _check(where, entry, _SIGNATURE)
    if entry.get("outputs") is not None:
        _check(where, entry, _OUTPUTS)
    for item in entry["inputs"]:
        try:
            np.dtype(item["dtype"])
        except TypeError as error:
            raise ExportError(f"{where} names a dtype {item['dtype']!r}, which does not exist") from error


def _check_older(folder: Path, version: Any) -> None:
    """Raise `ExportError` for versions that no earlier release has written."""
    if type(version) is int and 1 <= version < FORMAT_VERSION:
        return
    newer = " Upgrade: pip install --upgrade tf2jax-lite." if type(version) is int and version > FORMAT_VERSION else ""
    raise ExportError(f"{folder} has format version {version}; this release reads 1 to {FORMAT_VERSION}.{newer}")


def hashed_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the size and the SHA-256 of the files in a directory, by name."""
    return {f.name: {"sha256": sha256(f), "bytes": f.stat().st_size} for f in sorted(folder.iterdir())}


def write_metadata(folder: Path, metadata: Mapping[str, Any]) -> dict[str, int]:
    """Write metadata; return the sizes of its files in bytes, its own included."""
    content = (json.dumps(metadata, indent=2, sort_keys=True) + "\n").encode()
    (folder / METADATA).write_bytes(content)
    return {name: int(info["bytes"]) for name, info in metadata["files"].items()} | {METADATA: len(content)}


def _check(where: str, found: Any, kinds: Mapping[str, Any]) -> None:
    """Check entries against a type, a list ``[type]``, or a dict of types."""
    if not isinstance(found, dict):
        raise ExportError(f"{where} is not an object")
    for key, kind in kinds.items():
        value: Any = found.get(key)
        if isinstance(kind, list):
            fits = isinstance(value, list) and (isinstance(kind[0], dict) or all(isinstance(v, kind[0]) for v in value))
        else:
            fits = isinstance(value, kind) and not (kind is int and (value < 0 or isinstance(value, bool)))
        if not fits:
            raise ExportError(f"{where}: {key} is missing or of another type")
        if isinstance(kind, list) and isinstance(kind[0], dict):
            for number, item in enumerate(value if isinstance(value, list) else ()):
                _check(f"{where}: {key} {number}", item, kind[0])


def artifact_file(folder: Path, metadata: Mapping[str, Any], name: Any) -> Path:
    """Return the path of a listed file of an artifact.

    All that is read of an artifact, except for `METADATA`, goes through here.
    """
    if not isinstance(name, str) or name not in metadata["files"]:
        raise ExportError(
            f"{str(name)[:200]!r} is not a file of the artifact {folder}: its {METADATA} does not list it"
        )
    return _inside(folder, name)


def _inside(folder: Path, name: Any) -> Path:
    """Return an artifact's file; raise `ExportError` for names that hold a path."""
    if not isinstance(name, str) or not name or Path(name).name != name or name.startswith("."):
        raise ExportError(f"the metadata names a file {name!r}, which is not a plain name")
    file = folder / name
    if file.is_symlink() or not file.is_file():
        raise ExportError(f"{folder} lacks {name}")
    return file


def check_hashes(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Compare an artifact's files with the hashes in its metadata."""
    for name, info in metadata["files"].items():
        if sha256(artifact_file(folder, metadata, name)) != info["sha256"]:
            if name == metadata.get("source"):
                raise ExportError(
                    f"{folder / name} was edited after conversion. Run tf2jax-lite update {folder}, which checks it "
                    "and writes StableHLO and metadata that fit it."
                )
            raise ExportError(f"{folder / name} is damaged: its SHA-256 is not the one in the metadata")


@contextlib.contextmanager
def checked_hashes(folder: Path, metadata: Mapping[str, Any]) -> Iterator[None]:
    """Compare an artifact's files with their hashes while the block runs."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        checked = pool.submit(check_hashes, folder, metadata)
        try:
            yield
        finally:
            checked.result()


def named_signature(metadata: Mapping[str, Any], wanted: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry of a signature.

    Without a name, it is the only signature, or ``serving_default``.
    """
    found = metadata["signatures"]
    if wanted is None:
        wanted = next(iter(found)) if len(found) == 1 else "serving_default"
    if wanted not in found:
        raise ExportError(f"no signature {wanted!r}; there are {', '.join(sorted(found))}")
    return wanted, found[wanted]


_FLAGS = ("trainable", "constant", "moving_statistic")


def find_stacks(stack_layers: Callable[[Any], Any], params: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the params that a generated module stacks.

    Returns:
      Stacks; none if they would hold params of which only some are trainable, constant, or moving statistics.
    """
    names = list(params)
    numbers = flatten_params(stack_layers(nest_params({name: np.int32(i) for i, name in enumerate(names)})))
    listed = np.array(names, object)  # NumPy's own strings drop NUL characters at the end
    found = {str(k): listed[np.asarray(v)].tolist() for k, v in numbers.items() if np.ndim(v)}
    for key, layers in found.items():
        if any(params[name][flag] != params[key][flag] for name in names_of(layers) for flag in _FLAGS):
            return {}
    return found


def state_names(params: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the names of arrays that do not train, which source takes apart.

    Args:
      params: the metadata of arrays by name.
    """
    return {name for name, info in params.items() if not (info["trainable"] and _is_inexact(info["dtype"]))}


def _is_inexact(dtype: str) -> bool:
    return jnp.issubdtype(np.dtype(dtype), np.inexact)


def read_stacks(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stacks that an artifact's functions take."""
    found, params = metadata.get("stacked", {}), metadata["params"]
    try:
        for key, layers in found.items():
            names = names_of(layers)
            shapes = {tuple(params[name]["shape"]) for name in names}
            if len(shapes) > 1 or names[0] != key or np.size(layers) != len(names) or len(set(names)) < len(names):
                raise ValueError(f"those of {key!r} do not fit")
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ExportError(f"the metadata of stacked params cannot be read: {type(error).__name__}: {error}") from error
    return found
