"""CSV, JSON lines, images, data sets of the Hub: values, and errors by line."""

import importlib.util
import pickle
import sys
import types

import numpy as np
import pytest

from tf2jax_lite.errors import DataError, MissingLibraryError
from tf2jax_lite.learning.data import HubRows, ImageFolder, open_data
from tf2jax_lite.support.config import override_config

pytest.importorskip("grain")
Image = pytest.importorskip("PIL.Image")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def everything(data):
    return data.first(len(data))


def test_csv_has_integers_and_floats(tmp_path):
    """A byte order mark, quotes, spaces and empty lines are fine; files are joined."""
    write(tmp_path / "a" / "1.csv", '\ufeffx,"y", big\n1.5,2,3\n\n"-1e3",4,9007199254740993\n')
    write(tmp_path / "a" / "2.csv", "x,y,big\nnan,6,7\n")
    found = everything(open_data(tmp_path / "a"))
    np.testing.assert_array_equal(found["x"], [1.5, -1000, np.nan])
    np.testing.assert_array_equal(found["y"], [2, 4, 6])
    assert found["big"].dtype == np.int64 and found["big"][1] == 9007199254740993


def test_csv_of_many_rows_is_read_in_blocks(tmp_path):
    """A column is floats if a late row is."""
    rows = [str(i) for i in range(9000)] + ["0.5"]
    found = everything(open_data(write(tmp_path / "a.csv", "x\n" + "\n".join(rows))))
    np.testing.assert_array_equal(found["x"], np.asarray(rows, np.float64))


def test_json_lines_hold_nested_lists(tmp_path):
    found = everything(
        open_data(write(tmp_path / "a.jsonl", '{"x": [[1, 2], [3, 4]], "y": 0}\n\n{"y": 1, "x": [[5, 6], [7, 8.5]]}\n'))
    )
    np.testing.assert_array_equal(found["x"], [[[1, 2], [3, 4]], [[5, 6], [7, 8.5]]])
    np.testing.assert_array_equal(found["y"], [0, 1])


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "x,y\n1,2\n3\n", r"a\.csv, line 3: 1 values for 2 columns"),
        ("a.csv", "x,y\n1,2\n3,cat\n", r"a\.csv, line 3: 'y' is 'cat', and a model takes numbers"),
        ("a.csv", "x,y\n1,\n", r"a\.csv, line 2: 'y' is ''"),
        ("a.csv", "x,x\n1,2\n", "is not names of columns that differ"),
        ("a.csv", "", "is not names of columns that differ"),
        ("a.csv", "x,y\n", "has no rows"),
        ("a.csv", "x\n\0\n", r"a\.csv, line 2"),
        ("a.jsonl", '{"x": 1}\n{"x": }\n', r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl, line 1 is an object with fields"),
        ("a.jsonl", '{"x": [1, 2]}\n{"x": [1]}\n', r"a\.jsonl, line 2: 'x' is \[1\], unlike in the first line"),
        ("a.jsonl", '{"x": 1}\n{"z": 1}\n', r"a\.jsonl, line 2: 'x' is missing, unlike"),
        ("a.jsonl", '{"x": "text"}\n', r"a\.jsonl, line 1: 'x' is 'text', and a model takes numbers"),
        ("a.jsonl", '{"x": [[1], [1, 2]]}\n', r"a\.jsonl, line 1: 'x' is no array"),
        ("a.jsonl", "[" * 100_000, "nested too deeply"),
        ("a.txt", "x", r"a\.txt is not training data.*\.csv and \.jsonl.*\.parquet.*images.*hf://datasets/NAME"),
    ],
)
def test_errors_name_the_line(name, text, says, tmp_path):
    with pytest.raises(DataError, match=says):
        open_data(write(tmp_path / name, text))


def test_files_of_a_folder_agree(tmp_path):
    write(tmp_path / "a" / "1.csv", "x\n1\n")
    write(tmp_path / "a" / "2.csv", "z\n1\n")
    with pytest.raises(DataError, match=r"has the columns \['z'\], and .*has \['x'\]"):
        open_data(tmp_path / "a")
    write(tmp_path / "a" / "3.jsonl", '{"x": 1}\n')
    with pytest.raises(DataError, match=r"not training data; found are \['.csv', '.jsonl'\]"):
        open_data(tmp_path / "a")


def test_tables_count_in_memory(tmp_path):
    file = write(tmp_path / "a.csv", "x\n" + "1\n" * 1000)
    with override_config("max_input_bytes", 4000), pytest.raises(DataError, match="more than max_input_bytes"):
        open_data(file)


@pytest.fixture
def images(tmp_path):
    for number, name in enumerate(("cat", "dog")):
        for i in range(3):
            (tmp_path / "images" / name).mkdir(parents=True, exist_ok=True)
            pixels = np.full((6, 4, 3), 40 * number + i, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    (tmp_path / "images" / "README").write_text("no image")
    return tmp_path / "images"


def test_images_have_the_class_of_their_folder(images):
    found = everything(open_data(images, label="kind"))
    assert found["image"].shape == (6, 6, 4, 3) and found["image"].dtype == np.uint8
    np.testing.assert_array_equal(found["kind"], [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(found["image"][:, 0, 0, 0], [0, 1, 2, 40, 41, 42])
    rows = ImageFolder(images, "y", (3, 2, 1))
    assert rows.classes == ["cat", "dog"] and rows[5]["image"].shape == (3, 2, 1)
    assert len(pickle.loads(pickle.dumps(rows))) == 6
    (images / "dog" / "2.png").write_bytes(b"\x89PNG nonsense")
    with pytest.raises(DataError, match=r"dog.2\.png: cannot be read"):
        ImageFolder(images)[5]


def test_large_images_are_refused(images):
    with override_config("max_input_bytes", 90), pytest.raises(DataError, match=r"4 x 6 pixels takes more"):
        open_data(images)


def test_hub_address(monkeypatch):
    """Options stand after a question mark; a missing library is named."""
    calls = []

    features = {"x": types.SimpleNamespace(dtype="float32"), "y": types.SimpleNamespace(names=["cat", "dog"])}

    class Found(list):
        @property
        def features(self):
            return features

        def with_format(self, kind):
            assert kind == "numpy"
            return self

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        return Found([{"x": np.float32([1, 2]), "y": 3}])

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    data = open_data("hf://datasets/org/name?split=test&config=small")
    assert data.class_names == ["cat", "dog"]
    found = everything(data)
    assert calls == [(("org/name", "small"), {"split": "test"})]
    np.testing.assert_array_equal(found["x"], [[1, 2]])
    features["text"] = types.SimpleNamespace(dtype="string")
    with pytest.raises(DataError, match="the column 'text' is text"):
        HubRows("hf://datasets/name")
    with pytest.raises(DataError, match="an address is hf://datasets/NAME"):
        HubRows("hf://datasets/name?revision=1")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingLibraryError, match=r"tf2jax-lite\[datasets\]"):
        HubRows("hf://datasets/name")


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="datasets is an extra")
def test_hub_rows_of_a_local_folder(tmp_path):
    write(tmp_path / "data" / "train.csv", "a,b,y\n1,2,0\n3,4,1\n")
    found = everything(open_data(f"hf://datasets/{tmp_path / 'data'}"))
    np.testing.assert_array_equal(found["y"], [0, 1])
