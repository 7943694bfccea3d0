"""A checkpoint that is larger than memory goes to safetensors piece by piece."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from tests.frontend.safety.test_hostile_checkpoints import table
from tf2jax_lite.export import params_file
from tf2jax_lite.frontend.safety import checkpoint_index
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint
from tf2jax_lite.support import crc32c

GIB = 1 << 30
KEY = "/.ATTRIBUTES/VARIABLE_VALUE"


def masked(checksum):
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def checksum_of_zeros(size):
    """Return the CRC-32C of a power of 2 of zero bytes."""
    low, high = crc32c._tables(size // 4)
    return crc32c.checksum(int(low[crc32c.START & 0xFFFF]) ^ int(high[crc32c.START >> 16]))


def sparse_checkpoint(folder, count):
    """Write a checkpoint of ``count`` variables of 1 GiB of zeros; return its prefix.

    The data file has a hole in their place.
    """
    prefix = tf.train.Checkpoint(v=tf.Variable(np.zeros(2, np.float32))).write(str(folder / "point"))
    index = Path(f"{prefix}.index")
    entries = dict(checkpoint_index._entries(index.read_bytes()))
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(entries.pop(f"v{KEY}".encode()))
    data = Path(f"{prefix}.data-00000-of-00001")
    start = data.stat().st_size
    for i in range(count):
        entry.shape.dim[0].size, entry.size, entry.offset = GIB // 4, GIB, start + i * GIB
        entry.crc32c = masked(checksum_of_zeros(GIB))
        entries[f"v{i}{KEY}".encode()] = entry.SerializeToString()
    index.write_bytes(table(sorted(entries.items())))
    with data.open("r+b") as stream:
        stream.truncate(start + count * GIB)
    if data.stat().st_blocks * 512 > GIB:
        pytest.skip("the file system has no sparse files")
    return prefix


def test_checksum_of_zeros():
    assert checksum_of_zeros(1 << 10) == crc32c.checksum(crc32c.update(crc32c.START, np.zeros(1 << 10, np.uint8)))


@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.full), pytest.param(60, marks=pytest.mark.nightly)]
)
def test_variables_beyond_memory_take_a_few_pieces_of_it(tmp_path, count):
    """The file of params is the null device.

    So the disk need not hold the values, either.
    """
    (tmp_path / "params.safetensors").symlink_to("/dev/null")
    tracemalloc.start()
    try:
        checkpoint = Checkpoint(sparse_checkpoint(tmp_path, count))
        values = {f"v{i}": checkpoint.stored((f"v{i}{KEY}", "")) for i in range(count)}
        params_file.write_params(values, tmp_path, shard_bytes=count * GIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(value.nbytes for value in values.values()) == count * GIB
    assert peak < 64 << 20
