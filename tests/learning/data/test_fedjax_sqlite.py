"""FedJAX's SQLite files: written here by msgpack alone, as its format says."""

import sqlite3
import zlib

import numpy as np
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.errors import DataError, UnknownClientError

msgpack = pytest.importorskip("msgpack")

EXAMPLES = {
    b"a": {"pixels": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "label": np.array([3, 1], np.int32)},
    b"b": {"pixels": np.ones((1, 3, 4), np.float32), "label": np.array([7], np.int32)},
}
TEXT = {"snippets": np.array([b"to be", b"or not"], object)}


def packed(examples):
    def extension(array):
        if array.dtype == object:
            return msgpack.ExtType(4, msgpack.packb((array.shape, list(array.flat)), use_bin_type=True))
        return msgpack.ExtType(1, msgpack.packb((array.shape, array.dtype.name, array.tobytes()), use_bin_type=True))

    return zlib.compress(msgpack.packb(examples, default=extension, strict_types=True))


def write(path, rows):
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE federated_data (client_id BLOB NOT NULL PRIMARY KEY, data BLOB NOT NULL, num_examples INTEGER"
            " NOT NULL)"
        )
        connection.executemany("INSERT INTO federated_data VALUES (?, ?, ?)", rows)
    connection.close()
    return path


def test_clients_of_a_fedjax_file(tmp_path):
    rows = [(i, packed(e), len(e["label"])) for i, e in reversed(EXAMPLES.items())]
    clients = fed.SQLiteFederatedData.new(write(tmp_path / "clients.sqlite", rows))
    assert isinstance(clients, fed.FedJAXSQLiteFederatedData)
    assert list(clients.client_ids()) == [b"a", b"b"] and clients.num_clients() == 2
    assert dict(clients.client_sizes()) == {b"a": 2, b"b": 1}
    for client_id, dataset in clients.clients():
        for name, value in EXAMPLES[client_id].items():
            np.testing.assert_array_equal(dataset.raw_examples[name], value)
            assert dataset.raw_examples[name].dtype == value.dtype
    assert [i for i, _ in clients.slice(start=b"b").clients()] == [b"b"]
    with pytest.raises(UnknownClientError):
        clients.get_client(b"c")
    (batch,) = clients.get_client(b"a").shuffle_repeat_batch(batch_size=2, seed=0)
    assert sorted(batch["label"].tolist()) == [1, 3]


def test_strings_and_other_formats(tmp_path):
    clients = fed.SQLiteFederatedData.new(write(tmp_path / "a.sqlite", [(b"a", packed(TEXT), 2)]))
    assert clients.get_client(b"a").raw_examples["snippets"].tolist() == [b"to be", b"or not"]
    path = write(tmp_path / "b.sqlite", [(b"a", b"123", 3)])
    own = fed.SQLiteFederatedData.new(path, lambda data: {"x": np.frombuffer(data, np.uint8)})
    assert own.get_client(b"a").raw_examples["x"].tolist() == [49, 50, 51]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"no zlib", "cannot be decoded"),
        (zlib.compress(b"\xc1"), "not msgpack"),
        (packed(TEXT)[:-3], "cut off"),
        (zlib.compress(msgpack.packb({"x": msgpack.ExtType(2, b"")})), "kind 2"),
        (packed({"x": np.zeros(3, np.float32)}), "3 examples where 2 are announced"),
    ],
    ids=["zlib", "msgpack", "truncated", "extension", "count"],
)
def test_damaged_records(tmp_path, record, message):
    clients = fed.SQLiteFederatedData.new(write(tmp_path / "clients.sqlite", [(b"a", record, 2)]))
    with pytest.raises(DataError, match=message):
        clients.get_client(b"a")


@pytest.mark.full
def test_a_large_record_is_refused(tmp_path):
    path = write(tmp_path / "clients.sqlite", [(b"a", packed({"x": np.zeros(10_000, np.float32)}), 10_000)])
    clients = fed.FedJAXSQLiteFederatedData(path, max_client_bytes=1000)
    with pytest.raises(DataError, match="more than 1000 bytes"):
        clients.get_client(b"a")


def test_strings_count_in_memory(tmp_path):
    """A megabyte of short strings takes 25 times as much, and packs to a kilobyte."""
    given = {"s": np.array([b"ab"] * 250_000, object)}
    path = write(tmp_path / "clients.sqlite", [(b"a", packed(given), 250_000)])
    assert path.stat().st_size < 50_000
    assert len(fed.FedJAXSQLiteFederatedData(path, max_client_bytes=1 << 24).get_client(b"a")) == 250_000
    with pytest.raises(DataError, match="max_client_bytes"):
        fed.FedJAXSQLiteFederatedData(path, max_client_bytes=1 << 23).get_client(b"a")


@pytest.mark.parametrize("data", [([1], [1]), ([1], [[b"a"]]), ([2], [b"a"]), ([1],), ([[1]], [b"a"]), 3, ([1], b"a")])
def test_strings_that_are_something_else(tmp_path, data):
    record = zlib.compress(msgpack.packb({"s": msgpack.ExtType(4, msgpack.packb(data))}))
    clients = fed.SQLiteFederatedData.new(write(tmp_path / "clients.sqlite", [(b"a", record, 1)]))
    with pytest.raises(DataError):
        clients.get_client(b"a")


@pytest.mark.parametrize(
    "data", [([1], 3, b"1234"), ([1], "float32", 3), ([1], [], b"1234"), ([1], "object", b"1" * 8)]
)
def test_arrays_that_are_something_else(tmp_path, data):
    record = zlib.compress(msgpack.packb({"x": msgpack.ExtType(1, msgpack.packb(data))}))
    clients = fed.SQLiteFederatedData.new(write(tmp_path / "clients.sqlite", [(b"a", record, 1)]))
    with pytest.raises(DataError):
        clients.get_client(b"a")
