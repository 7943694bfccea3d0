"""Arrays in files: values, conversion, and damage."""

import ml_dtypes
import numpy as np
import pytest

from tf2jax_lite.errors import InvalidModelError
from tf2jax_lite.support import crc32c, stored_array
from tf2jax_lite.support.stored_array import StoredArray


def written(folder, values, offset=3):
    """Write an array behind some bytes; return it as a stored one."""
    data = values.tobytes()
    file = folder / "data"
    file.write_bytes(bytes(offset) + data + b"more")
    checksum = crc32c.checksum(crc32c.update(crc32c.START, np.frombuffer(data, np.uint8)))
    return StoredArray(file, offset, values.shape, values.dtype, checksum=checksum, name="w")


@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7), (3000,)])
@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, "float64"])
def test_stored_array_is_the_array(shape, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_array, "_CHUNK_BYTES", 1 << 10)
    values = np.random.RandomState(0).standard_normal(shape).astype(dtype)
    found = written(tmp_path, values)
    assert (found.shape, found.dtype, found.ndim, found.size, found.nbytes) == (
        values.shape, values.dtype, values.ndim, values.size, values.nbytes,
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(found), values)
    half = found.astype("float16")
    assert half.dtype == np.float16 and half.nbytes == 2 * values.size and "float16" in repr(half)
    np.testing.assert_array_equal(np.asarray(half), values.astype("float16"))
    np.testing.assert_array_equal(np.asarray(found, np.float64), values.astype(np.float64))
    pieces = [piece.copy() for piece in found.chunks()]
    assert all(piece.nbytes <= 1 << 10 for piece in pieces)
    np.testing.assert_array_equal(np.concatenate([np.empty(0, dtype), *pieces]), values.reshape(-1))
    with pytest.raises(ValueError, match="must be read"):
        np.array(found, copy=False)


def test_stored_array_of_a_damaged_file(tmp_path):
    found = written(tmp_path, np.arange(100, dtype=np.float32))
    data = bytearray((tmp_path / "data").read_bytes())
    data[50] ^= 1
    (tmp_path / "data").write_bytes(data)
    with pytest.raises(InvalidModelError, match="its checksum differs"):
        np.asarray(found)
    (tmp_path / "data").write_bytes(data[:80])
    with pytest.raises(InvalidModelError, match="too short"):
        np.asarray(found)
    (tmp_path / "data").unlink()
    with pytest.raises(InvalidModelError, match="cannot be read"):
        np.asarray(found)
