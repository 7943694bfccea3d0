"""Write artifacts after a training: a copy with other params, or several."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tf2jax_lite.calling.params import unstacked
from tf2jax_lite.support.errors import ExportError

from .artifact import ExportReport
from .atomic_dir import METADATA, new_directory
from .metadata import (
    FAMILY,
    FAMILY_MEMBERS,
    artifact_file,
    check_hashes,
    hashed_files,
    read_metadata,
    read_stacks,
    state_names,
    write_metadata,
)
from .params_file import SHARD_BYTES, write_checkpoint, write_params
from .reader import read_params


def write_trained(
    source: str | Path,
    path: str | Path,
    params: Mapping[str, Any],
    *,
    training: Mapping[str, Any] | None = None,
    extra: Mapping[str, bytes | Callable[[Path], None]] | None = None,
    overwrite: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> ExportReport:
    """Write a copy of an artifact with other params.

    Functions, StableHLO and source are unchanged.

    Args:
      source: the artifact's directory. It may be ``path``, with ``overwrite``.
      path: the directory to create; it appears when everything is written.
      params: name to array, in the shapes and dtypes of the artifact's params, or as `load` stacks them; 32-bit arrays
        for 64-bit params are allowed. Params left out, and those that did not change, keep their values.
      training: recorded in the metadata as ``options["training"]``, a list with one entry per training.
      extra: further files: name to content, or to a function that writes the file at a given path.
    """
    folder = Path(source)
    metadata = read_metadata(folder)
    arrays = {str(name): value for name, value in read_params(folder, metadata).items()}
    shapes = {name: value.shape for name, value in arrays.items()}
    for name, value in unstacked(params, read_stacks(metadata), shapes).items():
        arrays[str(name)] = _fitting(arrays, str(name), value)
    stale = {info["file"] for info in metadata["params"].values()} | set(extra or {})
    with new_directory(Path(path), overwrite=overwrite) as work:
        kept = metadata["files"].keys() - stale
        for name in kept:
            shutil.copyfile(artifact_file(folder, metadata, name), work / name)
        state = state_names(metadata["params"])
        placed = write_params(arrays, work, state=state, shard_bytes=shard_bytes)
        for name, content in (extra or {}).items():
            if Path(name).name != name or name.startswith(".") or (work / name).exists():
                raise ExportError(f"an artifact cannot hold a further file {name!r}")
            if callable(content):
                content(work / name)
            else:
                (work / name).write_bytes(content)
        files = hashed_files(work)
        if any(files[name]["sha256"] != metadata["files"][name]["sha256"] for name in kept):
            check_hashes(folder, metadata)  # which says the damaged file's name
        if (folder / "checkpoint").is_dir():
            # The old one holds the weights from before the training.
            write_checkpoint(arrays, state, work / "checkpoint")
        options = dict(metadata.get("options") or {})
        if training is not None:
            options["training"] = [*options.get("training", []), dict(training)]
        changed = {
            **metadata,
            "files": files,
            "options": options,
            "params": {name: {**info, "file": placed[name]} for name, info in metadata["params"].items()},
        }
        sizes = write_metadata(work, changed)
    count = sum(int(np.prod(v["shape"], dtype=np.int64)) for v in metadata["params"].values() if not v.get("constant"))
    return ExportReport(str(path), sizes, list(metadata["signatures"]), count, list(metadata.get("warnings", [])))


def _fitting(known: Mapping[str, np.ndarray], name: str, value: Any) -> np.ndarray:
    if name not in known:
        raise ExportError(f"the artifact has no param {name!r}")
    array, old = np.asarray(value), known[name]
    narrow = np.dtype(jax.dtypes.canonicalize_dtype(old.dtype))
    if array.shape != old.shape or array.dtype not in (old.dtype, narrow):
        raise ExportError(
            f"param {name!r} is {array.dtype.name}{list(array.shape)}; "
            f"the artifact has {old.dtype.name}{list(old.shape)}"
        )
    return old if np.array_equal(array, old.astype(array.dtype)) else array.astype(old.dtype)


def write_family(
    path: str | Path,
    members: Mapping[str, Callable[[Path], ExportReport]],
    *,
    extra: Mapping[str, bytes] | None = None,
    overwrite: bool = False,
) -> ExportReport:
    """Write artifacts into subdirectories, all of them or none.

    Args:
      members: name of a subdirectory to a function that writes an artifact there.
      extra: further files of the directory: name to content.

    Returns:
      A report: ``files`` has ``folder/file`` for those of members; other values are the first member's.
    """
    files: dict[str, int] = {}
    reports = []
    with new_directory(Path(path), overwrite=overwrite) as work:
        for name, write in members.items():
            reports.append(write(work / name))
            files |= {f"{name}/{file}": size for file, size in reports[-1].files.items()}
        sizes = {name: {"bytes": len(content)} for name, content in (extra or {}).items()}
        metadata = {"format": FAMILY, "format_version": 1, FAMILY_MEMBERS: list(members), "files": sizes}
        for name, content in {**(extra or {}), METADATA: (json.dumps(metadata, indent=2) + "\n").encode()}.items():
            (work / name).write_bytes(content)
            files[name] = len(content)
    first = reports[0]
    return ExportReport(str(path), files, first.signatures, first.parameters, first.warnings)
