"""`finetune` on the formats of data that users have, from the command line."""

import json
import shutil
import sys
import types

import numpy as np
import pytest
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tf2jax_lite.cli.app import app

pytest.importorskip("grain")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    """Artifacts of one input of columns, of an input for each column, and of images."""
    import tensorflow as tf

    from tf2jax_lite.export import export_functions
    from tf2jax_lite.pipeline.model_files import convert_keras_model

    layers = tf.keras.layers
    age, height = (layers.Input([1], name=name) for name in ("age", "height"))
    models = {
        "matrix": tf.keras.Sequential([layers.Input([2], name="x"), layers.Dense(3, "softmax")]),
        "columns": tf.keras.Model(
            {"age": age, "height": height}, layers.Dense(3, "softmax")(layers.Concatenate()([age, height]))
        ),
        "images": tf.keras.Sequential(
            [layers.Input([4, 6, 1]), layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2, "softmax")]
        ),
    }
    folder = tmp_path_factory.mktemp("classifiers")
    for name, model in models.items():
        export_functions(convert_keras_model(model, train=False), folder / name, platforms=["cpu"])
    return folder


def write(kind, folder):
    """Write three classes as a table, or two as images."""
    rng = np.random.default_rng(0)
    rows = [(rng.normal(), rng.normal(), i % 3) for i in range(30)]
    path = folder / f"data.{kind}"
    if kind == "csv":
        path.write_text("age,height,kind\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    elif kind == "jsonl":
        path.write_text(
            "".join(json.dumps(dict(zip(("age", "height", "kind"), row, strict=True))) + "\n" for row in rows)
        )
    else:
        for i in range(8):
            (path / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
            pixels = np.full((8, 9, 3), 255 * (i % 2), np.uint8)  # of another size and more channels
            Image.fromarray(pixels).save(path / "ab"[i % 2] / f"{i}.png")
    return path


@pytest.mark.full_cases("columns-csv", "columns-jsonl")
@pytest.mark.parametrize(
    ("model", "kind"), [("matrix", "csv"), ("columns", "csv"), ("columns", "jsonl"), ("images", "images")]
)
def test_finetune_reads(model, kind, classifiers, tmp_path):
    data = write(kind, tmp_path)
    words = ["finetune", classifiers / model, "--data", data, "--eval", data, "--label", "kind"]
    words += ["--out", tmp_path / "out", "--epochs", 3, "--learning-rate", 0.1, "--batch-size", 8]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    records = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    assert records[-1]["eval/loss"] < records[0]["eval/loss"]
    before, after = (tf2jax.load(p, backend="source")[1] for p in (classifiers / model, tmp_path / "out"))
    assert any(not np.array_equal(after[n], before[n]) for n in before)
    (training,) = json.loads((tmp_path / "out" / "metadata.json").read_text())["options"]["training"]
    assert training.get("class_names") == (["a", "b"] if kind == "images" else None)


class Rows(list):
    """The part of ``datasets.Dataset`` that is read."""

    features = types.MappingProxyType(
        {"x": types.SimpleNamespace(dtype="float32"), "kind": types.SimpleNamespace(names=["cat", "dog", "owl"])}
    )

    def with_format(self, kind):
        assert kind == "numpy"
        return self


def test_finetune_reads_a_name_of_the_hub(classifiers, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = Rows({"x": rng.normal(size=2).astype(np.float32), "kind": i % 3} for i in range(30))
    found = {"org/name": rows}
    stub = types.SimpleNamespace(load_dataset=lambda name, *more, split: found[name])
    monkeypatch.setitem(sys.modules, "datasets", stub)
    words = ["finetune", classifiers / "matrix", "--data", "hf://datasets/org/name?split=train", "--label", "kind"]
    words += ["--out", tmp_path / "out", "--epochs", 2, "--batch-size", 8]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    records = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    first, last = (record for record in records if "loss" in record)
    assert last["loss"] < first["loss"]
    (training,) = json.loads((tmp_path / "out" / "metadata.json").read_text())["options"]["training"]
    assert training["class_names"] == ["cat", "dog", "owl"]


def test_evaluation_needs_the_same_classes(classifiers, tmp_path):
    data = write("images", tmp_path)
    (tmp_path / "other" / "b").mkdir(parents=True)
    shutil.copy(data / "b" / "1.png", tmp_path / "other" / "b")
    words = [
        "finetune",
        classifiers / "images",
        "--data",
        data,
        "--eval",
        tmp_path / "other",
        "--out",
        tmp_path / "out",
    ]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code and "evaluation data are ['b'], and those of the training" in str(result.exception)
