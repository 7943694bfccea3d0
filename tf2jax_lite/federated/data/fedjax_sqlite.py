"""Clients in FedJAX's SQLite files.

Source: fedjax.SQLiteFederatedData. Needs msgpack (extra: fedjax), unless records have another format.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tf2jax_lite.federated.data.examples import check_examples
from tf2jax_lite.federated.data.preprocessor import Examples
from tf2jax_lite.federated.data.sqlite import SQLiteFederatedData
from tf2jax_lite.support.errors import DataError, MissingLibraryError

# Kinds of msgpack's extension type in FedJAX's records.
_ARRAY, _SCALAR, _STRINGS = 1, 3, 4
_PER_STRING = 48  # bytes of a string in memory, beside its characters, and of its place in an array


class FedJAXSQLiteFederatedData(SQLiteFederatedData):
    """Clients in a file with FedJAX's table ``federated_data``.

    ``SQLiteFederatedData.new(path)`` opens such files as well. Reading runs no code of the file.

    Args:
      path: the file.
      parse_examples: ``(bytes) -> dict of arrays``, decodes a client's record; FedJAX's format by default.
      max_client_bytes: the largest size of a decompressed record, in FedJAX's format.

    Raises:
      DataError: there is no such file, it is something else, or damaged.
      MissingLibraryError: msgpack is not installed, and records have FedJAX's format.
    """

    _TABLE = "federated_data"
    _COLUMNS = ("num_examples", "data")

    def __init__(
        self,
        path: str | os.PathLike,
        parse_examples: Callable[[bytes], Examples] | None = None,
        *,
        max_client_bytes: int = 1 << 30,
    ):
        super().__init__(path)
        self._parse = parse_examples or functools.partial(decompress_and_deserialize, max_bytes=max_client_bytes)
        if parse_examples is None:
            _library()

    def _decoded(self, where: str, *record: Any) -> Examples:
        (content,) = record
        try:
            return check_examples(self._parse(content), where)
        except (zlib.error, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            raise DataError(f"{where}: the record cannot be decoded: {error}") from error


def _library() -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise MissingLibraryError("FedJAX's files need msgpack: pip install 'tf2jax-lite[fedjax]'.") from error
    return msgpack


def decompress_and_deserialize(data: bytes, *, max_bytes: int = 1 << 30) -> dict[str, np.ndarray]:
    """Decode a client's record of FedJAX: zlib around msgpack.

    Args:
      data: the record.
      max_bytes: the largest decompressed size.

    Raises:
      DataError: the record is larger, or is something else.
    """
    library = _library()
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(data, max_bytes)
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise DataError(f"a client's record is cut off, or has more than {max_bytes} bytes (max_client_bytes)")
    left = [max_bytes]
    try:
        return library.unpackb(content, ext_hook=functools.partial(_extension, left=left), raw=False)
    except (library.exceptions.UnpackException, RecursionError) as error:
        raise DataError(f"a client's record is not msgpack: {error}") from error


def _extension(code: int, data: bytes, left: list[int]) -> Any:
    library = _library()
    if code == _STRINGS:
        unpacker = library.Unpacker(raw=True, max_buffer_size=len(data) or 1)
        unpacker.feed(data)
        if unpacker.read_array_header() != 2:
            raise DataError("a client's record has strings without a shape")
        shape = unpacker.unpack()
        count = unpacker.read_array_header()
        left[0] -= _PER_STRING * count + len(data)
        if left[0] < 0:
            raise DataError("a client's strings take more bytes than max_client_bytes allows")
        flat = [unpacker.unpack() for _ in range(count)]
        if not all(isinstance(item, bytes) for item in flat):
            raise DataError("a client's record has strings that are something else")
        strings = np.empty(count, object)
        strings[:] = flat
        return strings.reshape(shape)
    if code not in (_ARRAY, _SCALAR):
        raise DataError(f"a client's record has a value of kind {code}, which is no array")
    shape, name, buffer = library.unpackb(data, raw=True)
    if not isinstance(name, bytes) or not isinstance(buffer, bytes):
        raise DataError("a client's record has an array without a dtype, or without values")
    dtype = _dtype(name.decode())
    return np.frombuffer(buffer, dtype).reshape(shape)


def _dtype(name: str) -> np.dtype:
    import ml_dtypes  # has bfloat16

    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)
