"""Params in safetensors files, split when they are large."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tf2jax_lite.errors import ExportError

__all__ = ["SHARD_BYTES", "as_complex", "read_tensors", "write_tensors"]

SHARD_BYTES = 5 * 1000**3

# safetensors has no complex numbers: they are stored with a last dimension of real and imaginary parts.
_COMPLEX = {"complex64": np.float32, "complex128": np.float64}


def write_tensors(tensors: Mapping[str, Any], folder: Path, *, shard_bytes: int = SHARD_BYTES) -> dict[str, str]:
    """Writes arrays to ``params.safetensors``, or to several files if they are larger than ``shard_bytes``.

    Args:
      tensors: name to array.
      folder: where to.
      shard_bytes: largest file; a tensor that is larger gets a file of its own.

    Returns:
      The file of each name.

    Raises:
      ExportError: an array's dtype has no place in the format.
    """
    shards: list[list[str]] = [[]]
    size = 0
    for name, value in tensors.items():
        nbytes = int(np.prod(np.shape(value), dtype=np.int64)) * np.dtype(value.dtype).itemsize
        if shards[-1] and size + nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += nbytes
    files: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        single = len(shards) == 1
        file = "params.safetensors" if single else f"params-{number:05d}-of-{len(shards):05d}.safetensors"
        _save({name: _plain(tensors[name]) for name in names}, folder / file)
        files.update(dict.fromkeys(names, file))
    return files


def _plain(value: Any) -> np.ndarray:
    array = np.asarray(value)
    array = np.ascontiguousarray(array).reshape(array.shape)  # other layouts are written wrongly
    return array[..., None].view(_COMPLEX[array.dtype.name]) if array.dtype.name in _COMPLEX else array


def _save(tensors: dict[str, np.ndarray], path: Path) -> None:
    try:
        safetensors.numpy.save_file(tensors, str(path))
    except (safetensors.SafetensorError, AttributeError, KeyError) as error:
        raise ExportError(f"these params cannot be written as safetensors: {error}") from error


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Reads all arrays of a file.

    Raises:
      ExportError: the file is damaged.
    """
    try:
        return safetensors.numpy.load_file(str(path))
    except Exception as error:  # SafetensorError, and what damaged headers lead to
        raise ExportError(f"{path.name} is damaged: {error}") from error


def as_complex(array: np.ndarray, dtype: str) -> np.ndarray:
    """Undoes how complex numbers are stored."""
    return np.ascontiguousarray(array).view(dtype)[..., 0] if dtype in _COMPLEX else array
