"""One client's examples in the safetensors format, which never runs code.

Dtypes that safetensors lacks are kept as bytes, with the dtype in the metadata: strings (fixed-width, and objects of
varying length), bfloat16 and other dtypes of ml_dtypes, complex128, dates.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.export.plain_dtypes import from_plain, to_plain
from tf2jax_lite.federated.data.examples import check_examples
from tf2jax_lite.federated.data.preprocessor import Examples
from tf2jax_lite.support.errors import DataError

_DTYPES = "dtypes"  # the metadata's key
_LENGTHS = "#lengths"  # ends the name of the lengths of strings


def encode_examples(examples: Examples, where: str = "client data") -> bytes:
    """Return examples as one string of bytes.

    Args:
      examples: dict from feature to array. Arrays of objects hold bytes only, or str only.
      where: the location in error messages.

    Raises:
      DataError: a dtype that cannot be stored (objects other than strings, records).
    """
    tensors: dict[str, np.ndarray] = {}
    dtypes: dict[str, Any] = {}
    for name, array in check_examples(examples, where).items():
        if name == "__metadata__" or name.endswith(_LENGTHS):
            raise DataError(f"{where}: the name of feature {name!r} is reserved; rename it")
        if array.dtype == object:
            kind, tensors[name], tensors[name + _LENGTHS] = _pack_strings(array, f"{where}, feature {name!r}")
            dtypes[name] = kind
            continue
        try:
            tensors[name], kind = to_plain(array)
        except ValueError as error:
            raise DataError(f"{where}, feature {name!r}: {error}") from error
        if kind is not None:
            dtypes[name] = kind
    return safetensors.numpy.save(tensors, {_DTYPES: json.dumps(dtypes)} if dtypes else None)


def decode_examples(record: bytes, where: str = "client data") -> dict[str, np.ndarray]:
    """Return the examples that `encode_examples` was given.

    Raises:
      DataError: the bytes are damaged, or something else.
    """
    try:
        tensors = safetensors.numpy.load(record)
        header = json.loads(record[8 : 8 + int.from_bytes(record[:8], "little")])
        dtypes = json.loads(header.get("__metadata__", {}).get(_DTYPES, "{}"))
        examples = {}
        for name, array in tensors.items():
            if name.endswith(_LENGTHS):
                continue
            kind = dtypes.get(name)
            if kind in ("bytes", "str"):
                examples[name] = _unpack_strings(kind, array, tensors[name + _LENGTHS])
            else:
                examples[name] = from_plain(array, kind)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{where}: the record is damaged: {error}") from error
    return check_examples(examples, where)


def _pack_strings(array: np.ndarray, where: str) -> tuple[str, np.ndarray, np.ndarray]:
    items = list(array.flat)
    kinds = {type(item) for item in items}
    if kinds <= {str}:
        kind, encoded = "str", [item.encode() for item in items]
    elif kinds <= {bytes, np.bytes_}:
        kind, encoded = "bytes", [bytes(item) for item in items]
    else:
        names = sorted(kind.__name__ for kind in kinds)
        raise DataError(f"{where}: an array of objects holds bytes only or str only to be stored, not {names}")
    lengths = np.array([len(item) for item in encoded], np.int64).reshape(array.shape)
    return kind, np.frombuffer(b"".join(encoded), np.uint8), lengths


def _unpack_strings(kind: str, data: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    if lengths.dtype != np.int64 or data.dtype != np.uint8 or (lengths < 0).any() or (lengths > data.size).any():
        raise ValueError("the lengths of strings are damaged")
    ends = np.cumsum(lengths.ravel())
    if (ends[-1] if ends.size else 0) != data.size:
        raise ValueError("the lengths of strings do not add up")
    content = data.tobytes()
    strings = np.empty(lengths.size, object)
    for index, end in enumerate(ends):
        item = content[end - lengths.flat[index] : end]
        strings[index] = item.decode() if kind == "str" else item
    return strings.reshape(lengths.shape)
