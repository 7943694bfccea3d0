"""Stores params in safetensors files, sharded by size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.support.errors import ExportError

__all__ = ["SHARD_BYTES", "as_complex", "read_tensors", "write_tensors"]

SHARD_BYTES = 5 * 1000**3

# safetensors has no complex dtypes: they are stored with a last axis of real and imaginary parts.
_COMPLEX = {"complex64": np.float32, "complex128": np.float64}
# Its file reader looks for these dtypes in numpy, which lacks them.
_FLOAT8 = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
_OTHERS = {"BF16": ml_dtypes.bfloat16, "BOOL": np.bool_, "C64": np.complex64}


def write_tensors(tensors: Mapping[str, Any], folder: Path, *, shard_bytes: int = SHARD_BYTES) -> dict[str, str]:
    """Write arrays to ``params.safetensors``, or to shards of ``shard_bytes``.

    Args:
      tensors: name to array.
      folder: the directory.
      shard_bytes: maximum size of a file; a larger tensor gets a file of its own.

    Returns:
      The file of each name.

    Raises:
      ExportError: the format does not support an array's dtype.
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
    array = np.ascontiguousarray(array).reshape(array.shape)  # safetensors ignores other layouts
    return array[..., None].view(_COMPLEX[array.dtype.name]) if array.dtype.name in _COMPLEX else array


def _save(tensors: dict[str, np.ndarray], path: Path) -> None:
    try:
        safetensors.numpy.save_file(tensors, str(path))
    except (safetensors.SafetensorError, AttributeError, KeyError) as error:
        raise ExportError(f"these params cannot be written as safetensors: {error}") from error


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a file.

    Raises:
      ExportError: the file is damaged.
    """
    try:
        with safetensors.safe_open(str(path), "np") as file:
            kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  (it is not a mapping)
        if kinds.isdisjoint(_FLOAT8):
            return safetensors.numpy.load_file(str(path))
        return {name: _array(found) for name, found in safetensors.deserialize(path.read_bytes())}
    except Exception as error:  # SafetensorError, and others for damaged headers
        raise ExportError(f"{path.name} is damaged: {error}") from error


def _array(found: Mapping[str, Any]) -> np.ndarray:
    kind = found["dtype"]
    dtype = {**_FLOAT8, **_OTHERS}.get(kind) or np.dtype(f"{kind[0].lower()}{int(kind[1:]) // 8}")  # F32, I64, U8
    return np.frombuffer(found["data"], dtype).reshape(found["shape"])


def as_complex(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return a stored array as complex numbers if its dtype is complex."""
    return np.ascontiguousarray(array).view(dtype)[..., 0] if dtype in _COMPLEX else array
