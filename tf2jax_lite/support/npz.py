"""Reader of untrusted .npz files: no pickles, and bounded memory.

A compressed .npz of a few kilobytes can hold gigabytes of zeros, and a header can declare any shape. So the header of
each array is read first, and must agree with the size in the archive's directory before the data is read.
"""

from __future__ import annotations

import io
import math
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .config import current_config
from .errors import InputError, Tf2JaxError
from .limits import regular

MAX_ARRAYS = 10_000
"""Maximum number of arrays. Reading an empty array, which no other limit counts, takes time as well."""

_PARSING = threading.Lock()
"""NumPy parses headers as Python, which sometimes fails in threads: github.com/python/cpython/issues/106905."""

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # as 2.0, with field names in UTF-8
}


def read_npz(
    path: str | os.PathLike[str],
    kind: type[Tf2JaxError] = InputError,
    *,
    limit: int | None = None,
    option: str = "max_input_bytes",
) -> dict[str, np.ndarray]:
    """Return the arrays of a file that ``np.savez`` or ``np.savez_compressed`` wrote.

    Args:
      limit: maximum number of bytes of the arrays, unpacked; ``config.max_input_bytes`` if left out.
    """
    return _read(path, kind, limit, option, data=True)


def shapes_in_npz(
    path: str | os.PathLike[str], kind: type[Tf2JaxError] = InputError, *, limit: int | None = 1 << 62
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's arrays without reading them; see `read_npz`."""
    return _read(path, kind, limit, "max_input_bytes", data=False)


def read_npy(data: bytes, shape: tuple[int, ...], kind: str, where: str) -> np.ndarray:
    """Return the array that bytes in NumPy's format hold, if it is the one expected.

    Args:
      kind: the kind of its dtype: "f" for floating point of any width.
    """
    file = io.BytesIO(data)
    try:
        found, fortran, dtype = read_header(file)
    except Exception as error:  # NumPy's errors are of several kinds
        raise InputError(
            f"{where}: not an array in NumPy's format ({str(error) or type(error).__name__:.200})."
        ) from error
    if found != tuple(shape):
        raise InputError(f"{where} has shape {list(found)!s:.200} where the model has {list(shape)}")
    if dtype.kind != kind or dtype.hasobject:
        raise InputError(f"{where} has dtype {dtype!s:.80} where the model has one of kind {kind!r}")
    count = math.prod(found)
    if file.tell() + count * dtype.itemsize != len(data):
        raise InputError(f"{where} does not have the size that it announces")
    flat = np.frombuffer(data, dtype, count, file.tell()) if count else np.empty(0, dtype)
    return flat.reshape(found, order="F" if fortran else "C")


def _read(path: Any, kind: type[Tf2JaxError], limit: int | None, option: str, data: bool) -> dict[str, Any]:
    left = allowed = current_config().max_input_bytes if limit is None else limit
    found: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(regular(Path(path), kind)) as archive:
            members = archive.infolist()
            if len(members) > MAX_ARRAYS:
                raise ValueError(f"{len(members)} arrays; at most {MAX_ARRAYS} are read")
            for member in members:
                with archive.open(member) as file:
                    shape, fortran, dtype = read_header(file)
                    count = int(np.prod(shape, dtype=object))
                    if dtype.hasobject:
                        raise ValueError(f"{member.filename} holds Python objects")
                    if file.tell() + count * dtype.itemsize != member.file_size:
                        raise ValueError(f"{member.filename} does not have the size that it declares")
                    left -= count * dtype.itemsize
                    if left < 0:
                        raise ValueError(f"more than {option}={allowed} bytes; raise it if you trust the file")
                    flat = _elements(file, count, dtype) if data else None
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise ValueError(f"there are two arrays {name!r}")
                found[name] = shape if flat is None else flat.reshape(shape, order="F" if fortran else "C")
    except Tf2JaxError:
        raise
    except FileNotFoundError as error:
        raise kind(f"{path}: there is no such file.") from error
    except OSError as error:
        raise kind(f"{path}: not a readable .npz of arrays ({error.strerror or error}).") from error
    except Exception as error:  # zipfile, zlib, lzma and NumPy each have their own errors
        raise kind(f"{path}: not a readable .npz of arrays ({error or type(error).__name__}).") from error
    return found


def read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, Fortran order and dtype of the array at a file's position."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"npy format {version} is unknown")
    with _PARSING:
        return _HEADERS[version](file)


def _elements(file: Any, count: int, dtype: np.dtype) -> np.ndarray:
    flat = np.empty(count, dtype)
    if not flat.nbytes:
        return flat
    space = flat.view(np.uint8).data
    done = 0
    while done < len(space):
        read = file.readinto(space[done:])
        if not read:
            raise ValueError("cut short")
        done += read
    if file.read(1):  # zipfile checks the checksum at the end
        raise ValueError("more bytes than announced")
    return flat
