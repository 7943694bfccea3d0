"""Memory of datasets: strings that all are one string of the file."""

import h5py
import numpy as np
import pytest

from tf2jax_lite.errors import DataError
from tf2jax_lite.learning.data import TFFHDF5FederatedData
from tf2jax_lite.support.hdf5 import memory_bytes

LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (100,)},
    "compressed": {"chunks": (100,), "compression": "gzip"},
    "matrix": {"shape": (25, 40), "chunks": (10, 10)},
}


def strings(path, layout, *, one):
    """Write 1,000 strings of 10 kB; of ``one`` the file has the first alone."""
    with h5py.File(path, "w") as file:
        text = b"x" * 10_000
        shape = LAYOUTS[layout].get("shape", (1000,))
        given = np.array([text] + [b"" if one else text] * 999, object).reshape(shape)
        dataset = file.create_dataset("examples/c/s", data=given, dtype=h5py.string_dtype(), **LAYOUTS[layout])
        if dataset.chunks is None:
            places = [(dataset.id.get_offset(), dataset.id.get_storage_size())]
        else:
            chunks = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
            places = [(chunk.byte_offset, chunk.size) for chunk in chunks]
    if one:
        raw = bytearray(path.read_bytes())
        reference = raw[places[0][0] :][:16]
        for offset, size in places:
            raw[offset : offset + size] = reference * (size // 16)
        path.write_bytes(raw)


@pytest.mark.parametrize(
    ("layout", "one"), [(k, o) for k in LAYOUTS for o in (True, False) if k != "compressed" or not o]
)
def test_strings_are_counted(layout, one, tmp_path):
    path = tmp_path / "f.h5"
    strings(path, layout, one=one)
    assert path.stat().st_size < (200_000 if one else 20_000_000)
    with h5py.File(path) as file:
        dataset = file["examples/c/s"]
        assert set(map(len, dataset[()].flat)) == {10_000}
        assert 10_000_000 < memory_bytes(dataset, 1 << 40) < 12_100_000
        assert 1_000_000 < memory_bytes(dataset, 1_000_000) < 12_100_000
    if layout != "matrix":
        assert len(TFFHDF5FederatedData(path).get_client("c")) == 1000
    with pytest.raises(DataError, match="max_client_bytes=1000000"):
        TFFHDF5FederatedData(path, max_client_bytes=1_000_000).get_client("c")


@pytest.mark.parametrize("array", [np.zeros((3, 4)), np.array([b"ab", b"c"]), np.zeros(0)])
def test_other_arrays(array, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        assert memory_bytes(file.create_dataset("x", data=array), 1 << 30) == array.nbytes
        text = file.create_dataset("s", data=np.array([], object), dtype=h5py.string_dtype())
        assert memory_bytes(text, 1 << 30) == 0


def test_references_that_are_cut_short(tmp_path):
    path = tmp_path / "f.h5"
    strings(path, "contiguous", one=False)
    with h5py.File(path) as file:
        offset = file["examples/c/s"].id.get_offset()
    path.write_bytes(path.read_bytes()[: offset + 5000])
    with pytest.raises(DataError):
        TFFHDF5FederatedData(path).get_client("c")


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "compressed"])
@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (16, bytes(16)),  # an object of no bytes, over which the HDF5 library does not end
        (24, b"\x01\x04"),  # an object that ends within another
        (24, b"\xff" * 8),
        (0, b"gcol"),
        (8, b"\xff" * 7),
    ],
)
def test_damaged_collections_of_strings(layout, offset, data, tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        text = np.array([b"a", b"bc", b"def"] * 40, object)
        file.create_dataset("examples/c/s", data=text, dtype=h5py.string_dtype(), **LAYOUTS[layout])
    assert len(TFFHDF5FederatedData(path).get_client("c")) == 120
    raw = bytearray(path.read_bytes())
    start = raw.find(b"GCOL") + offset
    raw[start : start + len(data)] = data
    path.write_bytes(raw)
    with pytest.raises(DataError):
        TFFHDF5FederatedData(path).get_client("c")
