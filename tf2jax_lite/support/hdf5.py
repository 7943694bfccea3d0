"""Memory that datasets of HDF5 files take, known before they are read."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

_PER_STRING = 33  # bytes of an empty `bytes`


def memory_bytes(dataset: Any, limit: int) -> int:
    """Return the bytes of a dataset in memory, or a number above ``limit``.

    Strings of variable length are references in the file. All of them may lead to one string, so that a megabyte of
    file becomes gigabytes of memory. The lengths are in the references, which are read alone if they lie together;
    otherwise strings are read in pieces that are within the limit if each string were as large as the file.

    Args:
      dataset: an ``h5py.Dataset`` of numbers or strings, in the file itself.
      limit: the largest number of interest.

    Raises:
      ValueError: the file is cut short.
    """
    found = dataset.nbytes
    if not dataset.dtype.hasobject or found > limit or not dataset.size:
        return found
    found += _PER_STRING * dataset.size
    file = dataset.file.id.get_vfd_handle()
    offset = dataset.id.get_offset()
    if offset is not None:
        stored = dataset.id.get_storage_size()
        references = os.pread(file, stored, offset) if stored <= 2 * limit else b""
        if len(references) != stored or stored % dataset.size or stored < 4 * dataset.size:
            raise ValueError(f"{dataset.name} is cut short")
        lengths = np.frombuffer(references, np.uint8).reshape(dataset.size, -1)[:, :4]
        return found + int(np.ascontiguousarray(lengths).view("<u4").sum(dtype=np.uint64))
    size = max(os.fstat(file).st_size, 1)
    *rows, columns = dataset.shape
    for row in np.ndindex(*rows):
        start = 0
        while start < columns and found <= limit:
            stop = min(columns, start + max(1, (limit - found) // size))
            found += sum(map(len, dataset[(*row, slice(start, stop))]))
            start = stop
    return found
