"""Readers of standard data sets, and synthetic clients of their form."""

import json
import sqlite3

import numpy as np
import pytest

from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.federated import datasets
from tf2jax_lite.learning.data.example_proto import new_example

ALL = [datasets.EMNIST, datasets.CIFAR100, datasets.SHAKESPEARE, datasets.STACKOVERFLOW]


def serialized(examples, row):
    message = new_example()
    for name, values in examples.items():
        feature = message.features.feature[name]
        kind = {"O": "bytes_list", "f": "float_list"}.get(values.dtype.kind, "int64_list")
        getattr(feature, kind).value.extend(np.atleast_1d(values[row]).ravel().tolist())
    return message.SerializeToString()


def write_sqlite(path, clients):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
        connection.execute("CREATE TABLE examples (client_id TEXT, split_name TEXT, serialized_example_proto BLOB)")
        for client_id, dataset in clients.clients():
            number = len(dataset)
            connection.execute("INSERT INTO client_metadata VALUES (?, 'train', ?)", (client_id, number))
            rows = [(client_id, "train", serialized(dataset.raw_examples, row)) for row in range(number)]
            connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
    connection.close()


def write_hdf5(path, clients):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for client_id, dataset in clients.clients():
            for name, values in dataset.raw_examples.items():
                kind = h5py.string_dtype("ascii") if values.dtype == object else values.dtype
                file.create_dataset(f"examples/{client_id}/{name}", data=values, dtype=kind)


@pytest.mark.parametrize("write", [write_sqlite, write_hdf5], ids=["sqlite", "hdf5"])
@pytest.mark.parametrize("dataset", ALL, ids=lambda dataset: dataset.name)
def test_synthetic_clients_have_the_form_of_the_files(dataset, write, tmp_path):
    clients = dataset.synthetic(3, seed=1, least=2, most=5)
    assert clients.num_clients() == 3
    write(tmp_path / "clients", clients)
    read = dataset.load_data(tmp_path / "clients")
    for client_id, expected in clients.clients():
        found = read.get_client(client_id).raw_examples
        assert found.keys() == dataset.element_spec.keys()
        for name, spec in dataset.element_spec.items():
            assert found[name].shape[1:] == spec.shape and found[name].dtype == spec.dtype
            np.testing.assert_array_equal(found[name], expected.raw_examples[name])


def test_synthetic_clients_differ_and_are_reproducible():
    first, again = (datasets.EMNIST.synthetic(2, seed=3) for _ in range(2))
    a, b = (dict(first.clients())[name].raw_examples for name in first.client_ids())
    assert not np.array_equal(a["label"][:5], b["label"][:5])
    np.testing.assert_array_equal(a["pixels"], dict(again.clients())["emnist_00000"].raw_examples["pixels"])
    assert a["pixels"].min() >= 0 and a["pixels"].max() <= 1
    with pytest.raises(InputError, match="most is"):
        datasets.EMNIST.synthetic(2, least=5, most=4)


def test_file_of_another_data_set_raises(tmp_path):
    write_hdf5(tmp_path / "clients.h5", datasets.EMNIST.synthetic(1, least=2, most=2))
    with pytest.raises(DataError, match="those of cifar100 are"):
        datasets.CIFAR100.load_data(tmp_path / "clients.h5").get_client("emnist_00000")


def test_features_get_the_dtype_of_the_data_set(tmp_path):
    """A file with wider labels, and one with other images."""
    h5py = pytest.importorskip("h5py")
    for path, side in (("good", 28), ("bad", 27)):
        with h5py.File(tmp_path / path, "w") as file:
            file["examples/a/label"] = np.array([3, 4], np.int64)
            file["examples/a/pixels"] = np.ones((2, side, side), np.float64)
    found = datasets.EMNIST.load_data(tmp_path / "good").get_client("a").raw_examples
    assert {name: value.dtype.name for name, value in found.items()} == {"label": "int32", "pixels": "float32"}
    with pytest.raises(DataError, match=r"'pixels' is float64\[27, 27\]; that of emnist is float32\[28, 28\]"):
        datasets.EMNIST.load_data(tmp_path / "bad").get_client("a")


def test_leaf_files(tmp_path):
    for number, users in enumerate((["a", "b"], ["c"])):
        data = {user: {"x": [[1.5, 2.0]] * (i + 1), "y": ["to be"] * (i + 1)} for i, user in enumerate(users)}
        content = {"users": users, "num_samples": [1, 2][: len(users)], "user_data": data}
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    clients = datasets.load_leaf(tmp_path)
    assert dict(clients.client_sizes()) == {"a": 1, "b": 2, "c": 1}
    found = clients.get_client("b").raw_examples
    assert found["x"].dtype == np.float32 and found["x"].tolist() == [[1.5, 2.0]] * 2
    assert found["y"].tolist() == ["to be"] * 2
    (tmp_path / "2.json").write_text('{"users": ["a"], "user_data": {"a": {"x": [1], "y": [1]}}}')
    with pytest.raises(DataError, match="client 'a' is in another file"):
        datasets.load_leaf(tmp_path)
    for content in ('{"users": ["d"]}', '{"users": [7], "user_data": []}', "[]", '{"users": 1, "user_data": {}}'):
        (tmp_path / "2.json").write_text(content)
        with pytest.raises(DataError, match="not a file of LEAF"):
            datasets.load_leaf(tmp_path)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("null", "a list, not NoneType"),
        ("3", "a list, not int"),
        ('"text"', "a list, not str"),
        ('{"a": 1}', "a list, not dict"),
        ("[null]", "not NoneType"),
        ("[1, null]", "NoneType and numbers"),
        ('[1, "a"]', "numbers and text"),
        ('[{"a": 1}]', "not dict"),
        ("[[1, null], [2]]", "NoneType and numbers"),
        ("[100000000000000000000]", "more than 64 bits"),
        ("[" * 900 + "]" * 900, np.zeros(0)),
        ("[" * 100_000, "nested too deeply|damaged"),
        ("[[1, 2], [3]]", [[1, 2], [3]]),
        ('[["a", "b"], ["c", "d"]]', [["a", "b"], ["c", "d"]]),
        ('["a", "b"]', ["a", "b"]),
        ("[true, false]", [True, False]),
        ("[[1.5, 2]]", [[1.5, 2.0]]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_values_of_leaf_files(values, expected, tmp_path):
    path = tmp_path / "l.json"
    path.write_text(f'{{"users": ["a"], "user_data": {{"a": {{"x": {values}}}}}}}')
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            datasets.load_leaf(path)
    else:
        found = datasets.load_leaf(path).get_client("a").raw_examples["x"]
        assert values.startswith("[[[") or found.tolist() == expected


def test_leaf_files_of_synthetic_clients(tmp_path):
    """Files have them bit for bit; without variances the clients' means are near."""
    clients = datasets.synthetic_leaf(3, seed=1, least=4, most=9, features=5, classes=3)
    datasets.save_leaf(tmp_path / "train.json", clients)
    content = json.loads((tmp_path / "train.json").read_text())
    assert content["users"] == list(clients.client_ids()) and content["num_samples"] == [
        size for _, size in clients.client_sizes()
    ]
    read = datasets.load_leaf(tmp_path)
    for client_id, expected in clients.clients():
        found = read.get_client(client_id).raw_examples
        assert found.keys() == {"x", "y"}
        for name, value in expected.raw_examples.items():
            assert found[name].dtype == value.dtype
            np.testing.assert_array_equal(found[name], value)
    spreads = [
        np.std([dataset.raw_examples["x"].mean() for _, dataset in datasets.synthetic_leaf(50, beta=beta).clients()])
        for beta in (0, 4)
    ]
    np.testing.assert_allclose(spreads, [1 / np.sqrt(60), 2], rtol=0.3)  # of the means of 60 features
    with pytest.raises(InputError, match="beta"):
        datasets.synthetic_leaf(1, beta=-1)
    with pytest.raises(DataError, match="as JSON has"):
        datasets.save_leaf(tmp_path / "text.json", datasets.SHAKESPEARE.synthetic(1))
