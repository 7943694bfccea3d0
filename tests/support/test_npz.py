"""Archives of arrays: ``np.savez``'s load; invalid or large ones raise."""

import io
import zipfile

import numpy as np
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.support.npz import MAX_ARRAYS, read_npy, read_npz, shapes_in_npz

RNG = np.random.default_rng(0)
ARRAYS = {
    "plain": RNG.normal(size=(3, 4)).astype(np.float32),
    "fortran": np.asfortranarray(RNG.normal(size=(3, 4))),
    "scalar": np.float64(2.5),
    "empty": np.zeros((0, 3), np.int8),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a", b"bc"]),
    "no bytes": np.array([b"", b""], "S0"),
    "time": np.array(["2024-01-01"], "datetime64[D]"),
    "fields": np.array([(1, 2.0)], [("é", "<i4"), ("b", "<f8")]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_written_by_numpy_are_read(tmp_path, save):
    save(tmp_path / "x.npz", **ARRAYS)
    found = read_npz(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as data:
        assert set(found) == set(data.files)
        for name in data.files:
            np.testing.assert_array_equal(found[name], data[name], strict=True)
            assert found[name].flags.writeable, name
    assert shapes_in_npz(tmp_path / "x.npz") == {name: np.shape(array) for name, array in ARRAYS.items()}


def packed(size):
    """Return an archive of a thousandth of its memory."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.zeros(size, np.uint8))
    return buffer.getvalue()


def lying(shape):
    """Return a header that declares more than the file has."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def pickled():
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([{}], object))
    return buffer.getvalue()


def single():
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def empty(count):
    """Arrays that take no bytes, each of which takes a while."""
    buffer = io.BytesIO()
    np.savez(buffer, **{f"x{i}": np.zeros(0) for i in range(count)})
    return buffer.getvalue()


def with_a_flipped_byte():
    data = bytearray(packed(1 << 16))
    at = data.index(b"x.npy") + 40
    data[at] ^= 0xFF
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (packed(1 << 21), "max_input_bytes=1048576"),
        (lying((1 << 40,)), "the size that it declares"),
        (lying((1 << 62, 1 << 62, 1 << 62)), "the size that it declares"),
        (lying((-4,)), "not a readable .npz"),
        (empty(MAX_ARRAYS + 1), f"{MAX_ARRAYS + 1} arrays; at most {MAX_ARRAYS} are read"),
        (pickled(), "Python objects"),
        (single(), "not a zip file"),
        (with_a_flipped_byte(), "not a readable .npz"),
        (packed(1 << 16)[:-30], "not a zip file"),
        (b"", "not a zip file"),
    ],
)
def test_other_files_are_refused(tmp_path, data, match):
    (tmp_path / "x.npz").write_bytes(data)
    with tf2jax.override_config("max_input_bytes", 1 << 20):
        for kind in (InputError, DataError):
            with pytest.raises(kind, match=match):
                read_npz(tmp_path / "x.npz", kind)


@pytest.mark.full
def test_a_bomb_takes_no_memory(tmp_path):
    """It is refused by its header: 256 MiB of zeros would be seen."""
    import tracemalloc

    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (1 << 28,)})
        for _ in range(256):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with tf2jax.override_config("max_input_bytes", 1 << 27), pytest.raises(InputError, match="max_input_bytes"):
            read_npz(tmp_path / "x.npz")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


@pytest.mark.full
def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_npz(tmp_path / "x.npz")


def _npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8"])
def test_arrays_of_messages(kind, order):
    array = np.arange(6).reshape(2, 3).astype(kind, order=order)
    np.testing.assert_array_equal(read_npy(_npy(array), (2, 3), "f", "it"), array)
    assert read_npy(_npy(array[:0]), (0, 3), "f", "it").shape == (0, 3)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "not an array"),
        (b"PK", "not an array"),
        (_npy(np.zeros((3, 2))), r"shape \[3, 2\] where the model has \[2, 3\]"),
        (_npy(np.zeros((2, 3), int)), "dtype int64"),
        (_npy(np.full((2, 3), None)), "dtype object"),
        (_npy(np.zeros((2, 3)))[:-1], "does not have the size that it announces"),
        (_npy(np.zeros((2, 3))) + b"0", "does not have the size that it announces"),
        (_npy(np.zeros((2, 3))).replace(b"(2, 3)", b"(1<<9)"), "not an array"),
    ],
)
def test_other_arrays_of_messages_are_refused(data, match):
    with pytest.raises(InputError, match=f"^it.*{match}"):
        read_npy(data, (2, 3), "f", "it")
