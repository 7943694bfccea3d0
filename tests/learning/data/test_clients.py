"""Sources of clients: TFF's tables and their errors; unreadable files."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tf2jax_lite.errors import DataError
from tf2jax_lite.learning.data.client_files import open_clients
from tf2jax_lite.learning.data.example_proto import new_example


@pytest.mark.parametrize("name", ["clients.npz", "clients.sqlite", "clients.h5"])
def test_clients_in_a_folder_that_may_not_be_entered(monkeypatch, name):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)  # root, as tests may run, is refused nothing
    with pytest.raises(DataError, match=f"{name} cannot be read: Permission denied"):
        open_clients(Path("somewhere") / name)


@pytest.fixture
def tff_file(tmp_path):
    """Write two clients with features of several values, one, bytes, and none."""
    path = tmp_path / "clients.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
    database.execute("CREATE TABLE examples (client_id TEXT, split_name TEXT, serialized_example_proto BLOB)")
    for client, split, count in (("a", "train", 3), ("a", "test", 1), ("b", "train", 2)):
        database.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", (client, split, count))
        for i in range(count):
            feature = (example := new_example()).features.feature
            feature["x"].float_list.value.extend([i, i + 0.5])
            feature["y"].int64_list.value.append(i)
            feature["name"].bytes_list.value.append(client.encode())
            feature["nothing"].float_list.SetInParent()
            row = (client, split, example.SerializeToString())
            database.execute("INSERT INTO examples VALUES (?, ?, ?)", row)
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize(("split", "sizes"), [(None, {"a": 3, "b": 2}), ("test", {"a": 1})])
def test_tffs_tables_are_known_by_themselves(tff_file, split, sizes):
    found = {client_id: data.all_examples() for client_id, data in open_clients(tff_file, split=split).clients()}
    assert {client_id: len(examples["y"]) for client_id, examples in found.items()} == sizes
    for client_id, examples in found.items():
        rows = np.arange(sizes[client_id])
        np.testing.assert_array_equal(examples["x"], np.stack([rows, rows + 0.5], axis=1).astype(np.float32))
        np.testing.assert_array_equal(examples["y"], rows)
        assert set(examples) == {"x", "y", "name"}


def test_splits_and_messages_that_are_none(tff_file):
    with pytest.raises(DataError, match=r"no split 'dev'; there are \['train', 'test'\]"):
        open_clients(tff_file, split="dev")
    with pytest.raises(DataError, match="only SQLite files with TFF's tables have splits"):
        open_clients(tff_file.parent, split="train")
    database = sqlite3.connect(tff_file)
    database.execute("UPDATE examples SET serialized_example_proto = x'ffff'")
    database.commit()
    database.close()
    with pytest.raises(DataError, match=r"the first example: no tf.train.Example"):
        open_clients(tff_file)


@pytest.mark.default_cases("change2-int64\\\\[\\\\]", "change3-is of 3 examples, and 'x' has shape")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"client_id": np.arange(4).astype(np.float32)}, "integers or text of shape .* float32"),
        ({"client_id": np.zeros((4, 1), int)}, r"int64\[4, 1\]"),
        ({"client_id": np.int64(3)}, r"int64\[\]"),
        ({"client_id": np.zeros(3, int)}, "is of 3 examples, and 'x' has shape"),
        ({"x": np.zeros((3, 2))}, r"is of 4 examples, and 'x' has shape \[3, 2\]"),
        ({"x": np.float32(0)}, r"'x' has shape \[\]"),
    ],
)
def test_who_owns_what_must_be_said_of_each_example(tmp_path, change, says):
    np.savez(tmp_path / "c.npz", **{"client_id": np.array([0, 1, 0, 1]), "x": np.zeros((4, 2)), **change})
    with pytest.raises(DataError, match=says):
        open_clients(tmp_path / "c.npz")


def test_arrays_without_examples(tmp_path):
    np.savez(tmp_path / "c.npz", client_id=np.zeros(0, int), x=np.zeros((0, 4)))
    with pytest.raises(DataError, match="no client has any examples"):
        open_clients(tmp_path / "c.npz")
