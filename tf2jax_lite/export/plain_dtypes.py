"""Encode arrays of dtypes that safetensors lacks as bytes.

These are ml_dtypes, complex128, dates and strings.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

_PLAIN = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}
_PLAIN |= {"float16", "float32", "float64", "complex64"}


def to_plain(array: np.ndarray) -> tuple[np.ndarray, str | None]:
    """Encode an array for storage.

    Args:
      array: of any shape, and any dtype except objects and records.

    Returns:
      ``(array, None)`` in C order and little-endian; or, for a dtype that cannot be stored, uint8 with the bytes of an
      element as the last axis, and the dtype's name for `from_plain`.
    """
    shape = np.shape(array)  # NumPy's ascontiguousarray makes scalars one-dimensional
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).reshape(shape)
    if array.dtype.name in _PLAIN:
        return array, None
    name = _name(array.dtype)
    return np.frombuffer(array.tobytes(), np.uint8).reshape(*shape, array.dtype.itemsize), name


def from_plain(array: np.ndarray, name: str | None) -> np.ndarray:
    """Decode the result of `to_plain`.

    Args:
      array: uint8 (..., bytes of an element), or any array if ``name`` is None.
    """
    if name is None:
        return array
    dtype = _dtype(name)
    if array.dtype != np.uint8 or array.ndim < 1 or array.shape[-1] != dtype.itemsize:
        raise ValueError(f"{array.dtype}{list(array.shape)} does not hold {dtype}")
    if dtype.itemsize == 0:  # strings that are all empty
        return np.zeros(array.shape[:-1], dtype)
    return np.frombuffer(array.tobytes(), dtype).reshape(array.shape[:-1])


def _name(dtype: np.dtype) -> str:
    if dtype.kind in "SUMmc":
        return dtype.str
    if dtype.fields is None and not dtype.hasobject and getattr(ml_dtypes, dtype.name, None) is not None:
        return dtype.name
    raise ValueError(f"dtype {dtype} cannot be stored; use numbers, bools or strings")


def _dtype(name: str) -> np.dtype:
    kind = getattr(ml_dtypes, name, None) if name.isidentifier() else None
    if isinstance(kind, type):
        return np.dtype(kind)
    if name[:2] not in ("<S", "|S", "<U", "<M", "<m", "<c"):
        raise ValueError(f"unknown dtype {name!r}")
    return np.dtype(name)
