"""Store params: safetensors files, sharded by size, or an Orbax checkpoint."""

from __future__ import annotations

import importlib
import json
import math
import struct
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.calling.params import nest_parts
from tf2jax_lite.support.errors import ExportError, MissingLibraryError
from tf2jax_lite.support.stored_array import StoredArray

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
_NUMBERS = [
    np.dtype(f"{kind}{size}")
    for kind, sizes in (("f", (2, 4, 8)), ("i", (1, 2, 4, 8)), ("u", (1, 2, 4, 8)))
    for size in sizes
]
_NAMES = {
    **{dtype: f"{dtype.kind.upper()}{8 * dtype.itemsize}" for dtype in _NUMBERS},
    **{np.dtype(kind): name for name, kind in {**_FLOAT8, **_OTHERS}.items() if name != "C64"},
}


def write_params(
    arrays: Mapping[str, Any], folder: Path, *, state: Collection[str] = (), shard_bytes: int = SHARD_BYTES
) -> dict[str, str]:
    """Write ``params.safetensors``, of what trains, and ``state.safetensors``.

    Args:
      arrays: name to array.
      state: names of those that do not train.
      shard_bytes: maximum size of a file; a larger array gets a file of its own.

    Returns:
      Name to file.
    """
    parts = {"params": {n: v for n, v in sorted(arrays.items()) if n not in state}}
    parts["state"] = {n: v for n, v in sorted(arrays.items()) if n in state}
    files: dict[str, str] = {}
    for stem, part in parts.items():
        if part or stem == "params":
            files |= _write_shards(part, folder, stem, shard_bytes)
    return files


def _write_shards(tensors: Mapping[str, Any], folder: Path, stem: str, shard_bytes: int) -> dict[str, str]:
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
        file = f"{stem}.safetensors" if single else f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors"
        _save({name: tensors[name] for name in names}, folder / file)
        files.update(dict.fromkeys(names, file))
    return files


def _save(tensors: Mapping[str, Any], path: Path) -> None:
    """Write a file piece by piece; the library's writer needs all arrays in memory."""
    order = sorted(tensors, key=lambda name: (-_itemsize(tensors[name]), name))  # aligned, as the library has it
    header: dict[str, Any] = {}
    position = 0
    for name in order:
        kind, shape = _stored_type(tensors[name])
        size = math.prod(np.shape(tensors[name])) * np.dtype(tensors[name].dtype).itemsize
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            for piece in _pieces(tensors[name]):
                stream.write(piece.reshape(-1).view(np.uint8).data)


def _pieces(value: Any) -> Iterator[np.ndarray]:
    """Yield an array's elements in C order, little-endian."""
    if isinstance(value, StoredArray):
        yield from value.chunks()
        return
    array = np.ascontiguousarray(value)
    yield array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("<"))


def _itemsize(value: Any) -> int:
    dtype = np.dtype(value.dtype)
    return np.dtype(_COMPLEX.get(dtype.name, dtype)).itemsize


def _stored_type(value: Any) -> tuple[str, list[int]]:
    """Return the format's name for a dtype, and the shape in the file."""
    dtype, shape = np.dtype(value.dtype), list(np.shape(value))
    if dtype.name in _COMPLEX:
        dtype, shape = np.dtype(_COMPLEX[dtype.name]), [*shape, 2]
    if dtype not in _NAMES:
        raise ExportError(f"these params cannot be written as safetensors: the format has no dtype {dtype.name}")
    return _NAMES[dtype], shape


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a file."""
    try:
        with safetensors.safe_open(str(path), "np") as file:
            kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  (it is not a mapping)
        if kinds.isdisjoint(_FLOAT8):
            return safetensors.numpy.load_file(str(path))
        return {name: _array(found) for name, found in safetensors.deserialize(path.read_bytes())}
    except Exception as error:  # SafetensorError, and others for damaged headers
        raise ExportError(f"{path.name} cannot be read: {error}") from error


def _array(found: Mapping[str, Any]) -> np.ndarray:
    kind = found["dtype"]
    dtype = {**_FLOAT8, **_OTHERS}.get(kind) or np.dtype(f"{kind[0].lower()}{int(kind[1:]) // 8}")  # F32, I64, U8
    return np.frombuffer(found["data"], dtype).reshape(found["shape"])


def as_complex(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return a stored array as complex numbers if its dtype is complex."""
    return np.ascontiguousarray(array).view(dtype)[..., 0] if dtype in _COMPLEX else array


def require_orbax() -> Any:
    """Return the module ``orbax.checkpoint``."""
    try:
        return importlib.import_module("orbax.checkpoint")
    except ImportError:
        raise MissingLibraryError("a checkpoint needs Orbax: pip install 'tf2jax-lite[checkpoint]'") from None


def write_checkpoint(arrays: Mapping[str, Any], state: Collection[str], path: Path) -> None:
    """Write nested dicts ``params`` and ``state``, as functions of source take them."""
    orbax = require_orbax()
    whole = {str(name): np.asarray(value) for name, value in arrays.items()}
    trained = {name: value for name, value in whole.items() if name not in state}
    nested = nest_parts(trained, {name: value for name, value in whole.items() if name in state})
    try:
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.absolute(), dict(zip(("params", "state"), nested, strict=True)))
    except Exception as error:  # Orbax fails in many ways
        raise ExportError(f"Orbax cannot write these params: {type(error).__name__}: {error}") from error
