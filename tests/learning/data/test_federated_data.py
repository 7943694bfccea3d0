"""Every kind of storage gives the same clients, and refuses damaged data."""

import itertools
import os
import sqlite3
import threading
import zipfile

import h5py
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite.errors import DataError, UnknownClientError
from tf2jax_lite.learning import data

RNG = np.random.default_rng(0)
SIZES = {"a": 3, "b/ü %": 1, "c": 0, "d": 5, "e": 2}
CLIENTS = {
    name: {
        "x": RNG.normal(size=(size, 2, 3)).astype(np.float32),
        "y": RNG.integers(-9, 9, size).astype(np.int32),
        "w": np.array([f"wörd{i}".encode() for i in range(size)], object),
    }
    for name, size in SIZES.items()
}
SPEC = {
    "x": tf.TensorSpec([2, 3], tf.float32),
    "y": tf.TensorSpec([], tf.int32),
    "w": tf.TensorSpec([], tf.string),
}


def _memory(path):
    return data.InMemoryFederatedData(CLIENTS)


def _sqlite(path):
    with data.SQLiteFederatedDataBuilder(path / "clients.sqlite") as builder:
        builder.add_many(reversed(CLIENTS.items()))
    return data.SQLiteFederatedData(path / "clients.sqlite")


def _npz(path):
    for name, examples in CLIENTS.items():
        # Objects would be pickled: npz holds fixed-width strings.
        np.savez(path / data.npz_file_name(name), **{**examples, "w": examples["w"].astype("S8")})
    return data.NpzFolderFederatedData(path)


def _hdf5(path):
    with h5py.File(path / "clients.h5", "w") as file:
        for name, examples in CLIENTS.items():
            name = name.replace("/", "|")  # HDF5 takes / for a path
            for key, value in examples.items():
                dtype = h5py.string_dtype() if key == "w" else value.dtype
                file.create_dataset(f"examples/{name}/{key}", data=value, dtype=dtype)
    return data.TFFHDF5FederatedData(path / "clients.h5")


def _example(features):
    kinds = {
        "x": lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v.ravel())),
        "y": lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=[v])),
        "w": lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=[v])),
    }
    feature = {name: kinds[name](value) for name, value in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _write_tff(path, clients, split="train"):
    """Write the tables of tff.simulation.datasets.save_to_sql_client_data."""
    # The protos are TensorFlow's own.
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)"
        )
        for name, examples in clients.items():
            size = len(examples["y"])
            connection.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", (name, split, size))
            for row in range(size):
                content = _example({key: value[row] for key, value in examples.items()})
                connection.execute("INSERT INTO examples VALUES (?, ?, ?)", (split, name, content))
    connection.close()


def _tff(path):
    _write_tff(path / "tff.sqlite", dict(reversed(CLIENTS.items())))
    return data.TFFSQLiteFederatedData(path / "tff.sqlite", SPEC)


STORAGES = {"memory": _memory, "sqlite": _sqlite, "npz": _npz, "hdf5": _hdf5, "tff": _tff}


@pytest.fixture(params=STORAGES)
def stored(request, tmp_path):
    return STORAGES[request.param](tmp_path)


def _id(stored, name):
    return name.replace("/", "|") if isinstance(stored, data.TFFHDF5FederatedData) else name


def _assert_same(examples, expected):
    assert set(examples) == set(expected)
    for name, array in expected.items():
        assert examples[name].shape == array.shape
        if array.dtype != object:
            assert examples[name].dtype == array.dtype
        np.testing.assert_array_equal(examples[name].astype(array.dtype), array)


def test_written_data_is_read_back(stored):
    names = [_id(stored, name) for name in CLIENTS]
    assert list(stored.client_ids()) == sorted(names)
    assert stored.num_clients() == len(CLIENTS)
    assert dict(stored.client_sizes()) == {_id(stored, name): size for name, size in SIZES.items()}
    read = dict(stored.clients())
    assert list(read) == sorted(names)
    for name, expected in CLIENTS.items():
        assert stored.client_size(_id(stored, name)) == SIZES[name]
        _assert_same(stored.get_client(_id(stored, name)).all_examples(), expected)
        _assert_same(read[_id(stored, name)].all_examples(), expected)
    assert [name for name, _ in stored.get_clients(["e", "a"])] == ["e", "a"]


@pytest.mark.parametrize("name", ["unknown", b"a", 3, "../a", None])
def test_unknown_clients(stored, name):
    for call in (stored.get_client, stored.client_size):
        with pytest.raises(UnknownClientError, match="has no client"):
            call(name)
    with pytest.raises(KeyError):  # as from FedJAX
        list(stored.get_clients([name]))


def test_slices_narrow(stored):
    part = stored.slice("a", "d")
    assert list(part.client_ids()) == [_id(stored, name) for name in ("a", "b/ü %", "c")]
    assert part.num_clients() == 3
    assert [name for name, _ in part.clients()] == list(part.client_ids()) == [name for name, _ in part.client_sizes()]
    assert list(part.slice("c", "z").client_ids()) == ["c"]
    assert list(stored.slice(stop="b").client_ids()) == ["a"]
    assert stored.num_clients() == 5, "the whole is not changed"
    for call in (part.get_client, part.client_size):
        with pytest.raises(UnknownClientError):
            call("d")


def test_preprocessors(stored):
    """Clients' functions may change example counts; batches' run on batches."""
    changed = stored.preprocess_client(
        lambda i, e: {"n": np.concatenate([e["y"], e["y"]]), "id": [i] * 2 * len(e["y"])}
    )
    changed = changed.preprocess_batch(lambda e: {**e, "size": len(e["n"])})
    assert dict(changed.client_sizes()) == {_id(stored, name): 2 * size for name, size in SIZES.items()}
    dataset = changed.get_client("d")
    assert set(dataset.raw_examples["id"]) == {"d"}
    assert [batch["size"] for batch in dataset.batch(batch_size=6)] == [6, 4]
    assert [len(dataset) for _, dataset in changed.clients()] == [size for _, size in changed.client_sizes()]
    assert "n" not in stored.get_client("d").raw_examples


@pytest.mark.default_cases("memory-1", "memory-5")
@pytest.mark.parametrize("buffer_size", [1, 2, 5, 99])
def test_shuffled_clients_have_each_client_once_a_pass(stored, buffer_size):
    passes = [
        [name for name, _ in itertools.islice(clients, 5)]
        for clients in [stored.shuffled_clients(buffer_size, seed=4)]
        for _ in range(6)
    ]
    assert all(sorted(names) == list(stored.client_ids()) for names in passes)
    assert (len({tuple(names) for names in passes}) > 1) == (buffer_size > 1)
    again = stored.shuffled_clients(buffer_size, seed=4)
    again.skip(10)
    assert [name for name, _ in itertools.islice(again, 5)] == passes[2]


def test_subsets(stored):
    subset = data.SubsetFederatedData(stored.preprocess_batch(lambda e: {"y": e["y"] + 1}), ["e", "a"])
    subset = subset.preprocess_batch(lambda e: {"y": e["y"] * 2})
    assert list(subset.client_ids()) == ["a", "e"]
    np.testing.assert_array_equal(subset.get_client("a").all_examples()["y"], (CLIENTS["a"]["y"] + 1) * 2)
    with pytest.raises(UnknownClientError):
        subset.get_client("d")
    with pytest.raises(UnknownClientError, match=r"lacks 1"):
        data.SubsetFederatedData(stored, ["a", "unknown"])


def test_shuffling_no_clients(stored):
    assert list(stored.slice("z").shuffled_clients(3)) == []


def test_several_threads_read(stored):
    found = []
    threads = [threading.Thread(target=lambda: found.append([len(d) for _, d in stored.clients()])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[3, 1, 0, 5, 2]] * 4


def test_tff_splits(tmp_path):
    path = tmp_path / "tff.sqlite"
    _write_tff(path, {"a": CLIENTS["a"], "d": CLIENTS["d"]}, "train")
    _write_tff(path, {"a": CLIENTS["e"]}, "test")
    both, test = data.TFFSQLiteFederatedData(path, SPEC), data.TFFSQLiteFederatedData(path, SPEC, "test")
    assert dict(both.client_sizes()) == {"a": 5, "d": 5}
    assert dict(test.client_sizes()) == {"a": 2}
    _assert_same(test.get_client("a").all_examples(), CLIENTS["e"])
    assert [len(dataset) for _, dataset in both.clients()] == [5, 5]


def test_an_iterator_of_tffs_files_is_for_builders(tmp_path):
    """With a function of a client's serialized examples, as FedJAX has it."""
    _write_tff(tmp_path / "tff.sqlite", {"a": CLIENTS["a"], "d": CLIENTS["d"]}, "train")
    _write_tff(tmp_path / "tff.sqlite", {"e": CLIENTS["e"]}, "test")
    clients = data.TFFSQLiteClientsIterator(tmp_path / "tff.sqlite", lambda rows: {"n": np.arange(len(rows))}, "train")
    with data.SQLiteFederatedDataBuilder(tmp_path / "own.sqlite") as builder:
        builder.add_many(clients)
    assert dict(data.SQLiteFederatedData(tmp_path / "own.sqlite").client_sizes()) == {b"a": 3, b"d": 5}


def test_tff_casts_as_parse_example_and_cast_do(tmp_path):
    """Parse_example gives int64 and float32; TFF casts to element_spec."""
    values = {"x": np.array([[1.5, 3e38, np.nan]], np.float32), "y": np.array([300])}
    _write_tff(tmp_path / "t", {"a": values})
    spec = {"x": tf.TensorSpec([3], tf.bfloat16), "y": tf.TensorSpec([], tf.uint8)}
    read = data.TFFSQLiteFederatedData(tmp_path / "t", spec).get_client("a").all_examples()
    parsed = tf.io.parse_single_example(
        _example({"x": values["x"][0], "y": 300}),
        {"x": tf.io.FixedLenFeature([3], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)},
    )
    for name in spec:
        expected = tf.cast(parsed[name], spec[name].dtype).numpy()
        assert read[name].dtype == expected.dtype
        np.testing.assert_array_equal(read[name][0].astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(
    "array",
    [
        *(
            np.arange(6).reshape(3, 2).astype(dtype)
            for dtype in ("?", "u1", "i2", "u8", "f2", "f8", "c8", "c16", ">i4")
        ),
        np.arange(6).reshape(3, 2).astype(ml_dtypes.bfloat16),
        np.arange(3).astype(ml_dtypes.float8_e4m3fn),
        np.array(["ab", "ü", ""]),
        np.array(["", "", ""]),
        np.array([b"ab", b"", b"c"]),
        np.array([b"a\0", b"", b"ccc"], object),
        np.array([["ü", "b"], ["", "d"]], object),
        np.array(["2020-01-01", "NaT"], "M8[s]"),
        np.zeros((0, 4), np.float32),
        np.zeros((0,), object),
        np.zeros((2, 0), np.int8),
        np.arange(12).reshape(3, 4).T,
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)
def test_sqlite_keeps_every_dtype(array, tmp_path):
    with data.SQLiteFederatedDataBuilder(tmp_path / "f") as builder:
        builder.add(b"\x00id", {"v": array})
    read = data.SQLiteFederatedData(tmp_path / "f").get_client(b"\x00id").all_examples()["v"]
    assert read.dtype == array.dtype.newbyteorder("=") and read.shape == array.shape
    np.testing.assert_array_equal(read, array)
    if array.dtype == object:
        assert [type(item) for item in read.flat] == [type(item) for item in array.flat]


class _Stop(Exception):
    pass


def test_the_builder_leaves_a_whole_file_or_none(tmp_path):
    path = tmp_path / "new" / "clients.sqlite"
    with pytest.raises(_Stop), data.SQLiteFederatedDataBuilder(path) as builder:
        builder.add("a", CLIENTS["a"])
        assert not path.exists()
        raise _Stop
    assert list(path.parent.iterdir()) == []
    with data.SQLiteFederatedDataBuilder(path) as builder:
        builder.add("a", CLIENTS["a"])
    before = path.read_bytes()
    with pytest.raises(DataError, match="exists"), data.SQLiteFederatedDataBuilder(path):
        pass
    with pytest.raises(_Stop), data.SQLiteFederatedDataBuilder(path, overwrite=True) as builder:
        raise _Stop
    assert path.read_bytes() == before
    with data.SQLiteFederatedDataBuilder(path, overwrite=True) as builder:
        builder.add("b", CLIENTS["a"])
    assert list(data.SQLiteFederatedData(path).client_ids()) == ["b"]
    assert os.listdir(path.parent) == ["clients.sqlite"]


@pytest.mark.parametrize(
    ("client_id", "examples", "match"),
    [
        ("a", CLIENTS["a"], "added before"),
        (3, CLIENTS["a"], "str or bytes"),
        ("b", {"x": np.array([{}], object)}, "bytes only or str only"),
        ("b", {"x": np.array([b"a", "a"], object)}, "bytes only or str only"),
        ("b", {"x": np.zeros(2, [("f", "i4")])}, "cannot be stored"),
        ("b", {"x": np.zeros(2), "y": np.zeros(3)}, "leading sizes"),
        ("b", {"x#lengths": np.zeros(2)}, "reserved"),
        ("b\ud800", CLIENTS["a"], "cannot write"),
    ],
)
def test_what_the_builder_refuses(client_id, examples, match, tmp_path):
    with data.SQLiteFederatedDataBuilder(tmp_path / "f") as builder:
        builder.add("a", CLIENTS["a"])
        with pytest.raises(DataError, match=match):
            builder.add(client_id, examples)
    assert data.SQLiteFederatedData(tmp_path / "f").num_clients() == 1


def _opened(kind, path):
    if kind == "tff":
        return data.TFFSQLiteFederatedData(path / "tff.sqlite", SPEC)
    if kind == "npz":
        return data.NpzFolderFederatedData(path)
    return {"sqlite": data.SQLiteFederatedData, "hdf5": data.TFFHDF5FederatedData}[kind](
        path / {"sqlite": "clients.sqlite", "hdf5": "clients.h5"}[kind]
    )


@pytest.mark.default_cases("npz", "sqlite", "tff")
@pytest.mark.parametrize("kind", ["sqlite", "npz", "hdf5", "tff"])
def test_flipped_bytes_and_cut_files_never_crash(kind, tmp_path):
    """Damage raises DataError, or is unseen where there is no checksum."""
    STORAGES[kind](tmp_path)
    files = sorted(path for path in tmp_path.iterdir())
    rng = np.random.default_rng(1)
    contents = {file: file.read_bytes() for file in files}
    refused = 0
    for trial in range(60):
        for file, content in contents.items():
            changed = bytearray(content)
            if trial % 3:
                for place in rng.integers(len(content), size=8):
                    changed[place] ^= int(rng.integers(1, 256))
            else:
                del changed[int(rng.integers(len(content))) :]
            file.unlink()  # h5py would go on with the file it has open
            file.write_bytes(changed)
        try:
            stored = _opened(kind, tmp_path)
            for _, dataset in stored.clients():
                dataset.all_examples()
            list(stored.client_sizes())
        except DataError:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize("kind", ["sqlite", "npz", "hdf5", "tff"])
def test_absent_files(kind, tmp_path):
    with pytest.raises(DataError, match=r"there is no|cannot be read"):
        _opened(kind, tmp_path / "absent")


@pytest.mark.parametrize("kind", ["sqlite", "hdf5", "tff"])
def test_other_files(kind, tmp_path):
    for name in ("clients.sqlite", "clients.h5", "tff.sqlite"):
        (tmp_path / name).write_bytes(b"something else" * 100)
    with pytest.raises(DataError, match="cannot be read"):
        _opened(kind, tmp_path)


def test_a_changed_record_is_noticed(tmp_path):
    _sqlite(tmp_path)
    with sqlite3.connect(tmp_path / "clients.sqlite") as connection:
        (record,) = connection.execute("SELECT examples FROM clients WHERE client_id = 'a'").fetchone()
        record = record[:-1] + bytes([record[-1] ^ 1])
        connection.execute("UPDATE clients SET examples = ? WHERE client_id = 'a'", [record])
    connection.close()
    with pytest.raises(DataError, match=r"client 'a': the record (cannot be read|is damaged)"):
        data.SQLiteFederatedData(tmp_path / "clients.sqlite").get_client("a")


def test_other_tables_and_views(tmp_path):
    with sqlite3.connect(tmp_path / "f") as connection:
        connection.execute("CREATE TABLE format (name)")
        connection.execute("CREATE VIEW clients AS SELECT 1 AS client_id, 1 AS num_examples, 1 AS crc32, 1 AS examples")
    with pytest.raises(DataError, match="no table 'clients'"):
        data.SQLiteFederatedData(tmp_path / "f")
    with sqlite3.connect(tmp_path / "f") as connection:
        connection.execute("DROP VIEW clients")
        connection.execute("CREATE TABLE clients (client_id, num_examples, crc32)")
    with pytest.raises(DataError, match=r"lacks \['examples'\]"):
        data.SQLiteFederatedData(tmp_path / "f")
    with sqlite3.connect(tmp_path / "f") as connection:
        connection.execute("ALTER TABLE clients ADD examples")
        connection.execute("INSERT INTO format VALUES ('tf2jax_lite federated data 999')")
    connection.close()
    with pytest.raises(DataError, match="this version reads"):
        data.SQLiteFederatedData(tmp_path / "f")


def test_a_virtual_table_is_no_table(tmp_path):
    """Its rows come from an endless view. The file tells without the module."""
    virtual = "CREATE VIRTUAL TABLE clients USING fts5(client_id, num_examples, crc32, examples, content='endless')"
    with sqlite3.connect(tmp_path / "f") as connection:
        connection.execute(
            "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT i AS rowid, i AS client_id, 1 AS num_examples, 0 AS crc32, x'00' AS examples FROM n"
        )
        connection.execute("CREATE TABLE format (name)")
        connection.execute("INSERT INTO format VALUES ('tf2jax_lite federated data 1')")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("INSERT INTO sqlite_master VALUES ('table', 'clients', 'clients', 0, ?)", (virtual,))
    connection.close()
    with pytest.raises(DataError, match="no table 'clients'"):
        data.SQLiteFederatedData(tmp_path / "f")


def test_reading_writes_nothing_beside_the_file(tmp_path):
    with sqlite3.connect(tmp_path / "f") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE clients (client_id, num_examples, crc32, examples)")
        connection.execute("CREATE TABLE format (name)")
    connection.close()
    with pytest.raises(DataError):
        data.SQLiteFederatedData(tmp_path / "f")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_npz_runs_no_pickles_and_believes_no_sizes(tmp_path):
    np.savez(tmp_path / "pickle.npz", x=np.array([{}], object), allow_pickle=True)
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros(1 << 20, np.uint8))
    with zipfile.ZipFile(tmp_path / "liar.npz", "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
    stored = data.NpzFolderFederatedData(tmp_path, max_client_bytes=1 << 19)
    for name, match in {"pickle": "Python objects", "liar": "size", "zeros": "max_client_bytes"}.items():
        with pytest.raises(DataError, match=match):
            stored.get_client(name)


def test_npz_keeps_fortran_order_and_new_npy_headers(tmp_path):
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    np.savez(tmp_path / "a.npz", x=array)
    np.testing.assert_array_equal(data.NpzFolderFederatedData(tmp_path).get_client("a").all_examples()["x"], array)


def test_two_names_of_one_client(tmp_path):
    for name in ("a.npz", "%61.npz"):
        np.savez(tmp_path / name, x=np.zeros(1))
    with pytest.raises(DataError, match="same client"):
        data.NpzFolderFederatedData(tmp_path)


def _h5(path, make):
    with h5py.File(path, "w") as file:
        make(file.create_group("examples/c"))
    return data.TFFHDF5FederatedData(path)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda g: g.__setitem__("x", h5py.ExternalLink("/etc/passwd", "/x")), "a link"),
        (lambda g: g.__setitem__("x", h5py.SoftLink("/examples")), "a link"),
        (lambda g: g.create_dataset("x", (4,), "u1", external=[("/etc/passwd", 0, 4)]), "another file"),
        (lambda g: g.create_dataset("x", (1 << 40,), "f8"), "max_client_bytes"),
        (lambda g: g.create_dataset("x", data=np.zeros(2, [("f", "i4")])), "neither numbers"),
        (lambda g: g.create_dataset("x", data=3), "scalar"),
        (lambda g: g.create_group("x"), "no dataset"),
        (lambda g: (g.create_dataset("x", data=[1]), g.create_dataset("y", data=[1, 2])), "leading sizes"),
        (lambda g: None, "no features|leading sizes"),
    ],
)
def test_hostile_hdf5(make, match, tmp_path):
    stored = _h5(tmp_path / "f.h5", make)
    for call in (stored.get_client, stored.client_size):
        with pytest.raises(DataError, match=match):
            call("c")


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ({"x": tf.TensorSpec([2, 3], tf.int64)}, "has float_list where element_spec's dtype int64 needs int64_list"),
        ({"x": tf.TensorSpec([7], tf.float32)}, r"has 6 values for \[7\]"),
        ({"z": tf.TensorSpec([], tf.float32)}, r"'z' has no value .* features are \['w', 'x', 'y'\]"),
        ({"x": tf.TensorSpec([None, 3], tf.float32)}, "known shape"),
        ({"x": tf.TensorSpec([2, 3], tf.complex64)}, "cannot hold complex64"),
        ({}, "no features"),
        (3, "element_spec is a dict"),
    ],
)
def test_element_specs_that_do_not_fit(spec, match, tmp_path):
    _write_tff(tmp_path / "t", {"a": CLIENTS["a"]})
    with pytest.raises(DataError, match=match):
        data.TFFSQLiteFederatedData(tmp_path / "t", spec).get_client("a")


@pytest.mark.full
def test_ids_without_an_order():
    with pytest.raises(DataError, match="order"):
        data.InMemoryFederatedData({"a": CLIENTS["a"], 1: CLIENTS["a"]})
