"""Memory that datasets of HDF5 files take, known before they are read."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

import numpy as np

_PER_STRING = 33  # bytes of an empty `bytes`
# Strings of variable length are references into collections of objects, "global heaps".
_REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("index", "<u4")])
_DEFLATE = 1  # H5Z_FILTER_DEFLATE


def memory_bytes(dataset: Any, limit: int) -> int:
    """Return the bytes of a dataset in memory, or a number above ``limit``.

    All references to strings may lead to one string, so that a megabyte of file becomes gigabytes of memory. Their
    lengths are counted, and the collections that they lead to are checked: the HDF5 library reads damaged ones forever.
    Of layouts and filters whose references are not read here, strings are read in pieces, which are within the limit if
    each string were as large as the file.

    Args:
      dataset: an ``h5py.Dataset`` of numbers or strings, in the file itself.
    """
    found = dataset.nbytes
    if not dataset.dtype.hasobject or found > limit or not dataset.size:
        return found
    found += _PER_STRING * dataset.size
    file = dataset.file.id.get_vfd_handle()
    references = _references(dataset, file, limit)
    if references is not None:
        fields = np.frombuffer(references, _REFERENCE)
        found += int(fields["length"].sum(dtype=np.uint64))
        if found <= limit:
            _check_heaps(file, dataset.file.userblock_size, np.unique(fields["heap"]).tolist())
        return found
    size = max(os.fstat(file).st_size, 1)
    *rows, columns = dataset.shape
    for row in np.ndindex(*rows):
        start = 0
        while start < columns and found <= limit:
            stop = min(columns, start + max(1, (limit - found) // size))
            found += sum(map(len, dataset[(*row, slice(start, stop))]))
            start = stop
    return found


def _references(dataset: Any, file: int, limit: int) -> bytes | None:
    """Return the references to strings, as the file has them; None if unknown."""
    if dataset.id.get_offset() is not None:
        found = _read(file, dataset.id.get_storage_size(), dataset.id.get_offset(), limit)
        if len(found) != _REFERENCE.itemsize * dataset.size:
            raise ValueError(f"{dataset.name} is cut short")
        return found
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if dataset.chunks is None or filters not in ([], [_DEFLATE]):
        return None
    found = b""
    for number in range(dataset.id.get_num_chunks()):
        chunk = dataset.id.get_chunk_info(number)
        data = _read(file, chunk.size, chunk.byte_offset, limit)
        size = _REFERENCE.itemsize * int(np.prod(dataset.chunks, dtype=object))
        if filters and not chunk.filter_mask:
            data = zlib.decompressobj().decompress(data, size)
        if len(data) != size or len(found) > 4 * limit:
            raise ValueError(f"a chunk of {dataset.name} has another size")
        found += data
    return found


def _read(file: int, size: int, offset: int, limit: int) -> bytes:
    return os.pread(file, size, offset) if size <= 2 * limit else b""


def _check_heaps(file: int, base: int, addresses: list[int]) -> None:
    """Raise an error for collections of objects whose sizes do not add up."""
    end = left = os.fstat(file).st_size
    for address in addresses:
        if not address:  # of an empty string
            continue
        head = os.pread(file, 16, base + address) if address < end else b""
        size = struct.unpack("<Q", head[8:])[0] if head[:4] == b"GCOL" and len(head) == 16 else end + 1
        left -= size
        if left < 0:
            raise ValueError("its strings are not in the file")
        heap, position = os.pread(file, size, base + address), 16
        while position + 16 <= len(heap):
            index, length = struct.unpack_from("<H6xQ", heap, position)
            position += length if index == 0 else 16 + -(-length // 8) * 8
            if (index == 0 and length < 16) or position > len(heap):
                raise ValueError("the sizes of its strings do not add up")
