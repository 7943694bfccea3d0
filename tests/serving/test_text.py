"""A text classifier with its tokenizer: convert, run, serve and verify strings."""

import json
import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import invoke
from tests.serving.test_serve import LENGTH, ROOT, get, post, serving
from tf2jax_lite.export.metadata import hashed_files

HOST = "host.serving_default.pb"
TEXTS = ["a good film", "A bad film!", "good, good", "bad"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Return a folder with a Keras model of strings and its artifact, and its results."""
    folder = tmp_path_factory.mktemp("text")
    vectorize = keras.layers.TextVectorization(output_sequence_length=6)
    vectorize.adapt(TEXTS)
    text = keras.Input((), dtype="string", name="text")
    embedded = keras.layers.Embedding(vectorize.vocabulary_size(), 8)(vectorize(text))
    scores = keras.layers.Dense(2, "softmax")(keras.layers.LSTM(5)(embedded))
    model = keras.Model(text, scores)
    model.export(folder / "model", verbose=False)
    out = folder / "film"
    result = invoke(
        "convert", folder / "model", out, "--signature", "serving_default", "--split-host", "--platforms", "cpu"
    )
    assert result.exit_code == 0, result.output
    return folder, model(tf.constant(TEXTS)).numpy()


def test_inspect_names_the_option_for_strings(classifier):
    folder, _ = classifier
    result = invoke("inspect", folder / "model")
    assert result.exit_code == 1 and "convert MODEL OUT --split-host" in result.output, result.output


def test_run_takes_strings_or_ids(classifier, tmp_path):
    folder, expected = classifier
    ids = tf2jax.load_host(folder / "film")(TEXTS)
    for arrays in ({"text": np.array(TEXTS)}, ids):
        np.savez(tmp_path / "x.npz", **arrays)
        result = invoke("run", folder / "film", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
        assert result.exit_code == 0, result.output
        with np.load(tmp_path / "y.npz") as found:
            (scores,) = found.values()
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_ids_run_without_tensorflow(classifier, tmp_path):
    folder, _ = classifier
    np.savez(tmp_path / "ids.npz", **tf2jax.load_host(folder / "film")(TEXTS))
    np.savez(tmp_path / "text.npz", text=np.array(TEXTS))
    code = "import sys; sys.modules['tensorflow'] = None; from tf2jax_lite.cli import main; main()"
    for name, status in (("ids", 0), ("text", 2)):
        arguments = ["run", folder / "film", "--input", tmp_path / f"{name}.npz", "--output", tmp_path / "y.npz"]
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert bool(status) == ("pip install tensorflow" in done.stderr)


def test_trained_artifact_takes_strings(classifier, tmp_path):
    folder, expected = classifier
    ids = tf2jax.load_host(folder / "film")(TEXTS)
    np.savez(tmp_path / "data.npz", **ids, y=np.array([1, 0, 1, 0]))
    out = tmp_path / "trained"
    options = ["--out", out, "--optimizer", "sgd", "--learning-rate", 1.0, "--batch-size", 2]
    result = invoke("finetune", folder / "film", "--data", tmp_path / "data.npz", *options)
    assert result.exit_code == 0, result.output
    np.savez(tmp_path / "x.npz", text=np.array(TEXTS))
    result = invoke("run", out, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "y.npz") as found:
        (scores,) = found.values()
    assert np.abs(scores - expected).max() > 1e-3


def test_verify_compares_the_stored_host_part(classifier):
    folder, _ = classifier
    result = invoke("verify", folder / "model", folder / "film", "--signature", "serving_default", "--json")
    assert result.exit_code == 0, result.output
    outputs = json.loads(result.output)["signatures"][0]["outputs"]
    assert {o["against"] for o in outputs if o["ok"]} == {"jax", "stablehlo", "host"}


def test_verify_finds_another_host_part(classifier, tmp_path):
    """The core is the same, and a table has other ids."""
    folder, _ = classifier
    out = tmp_path / "film"
    shutil.copytree(folder / "film", out)
    graph = tf.compat.v1.GraphDef.FromString((out / HOST).read_bytes())
    (keys,) = [node for node in graph.node if node.name.endswith("/keys")]
    words = tf.make_ndarray(keys.attr["value"].tensor)
    keys.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(words[::-1]))
    (table,) = [node for node in graph.node if node.op == "HashTableV2"]
    table.attr["shared_name"].s = b"other"
    (out / HOST).write_bytes(graph.SerializeToString())
    metadata = json.loads((out / "metadata.json").read_text())
    metadata["files"][HOST] = hashed_files(out)[HOST]
    (out / "metadata.json").write_text(json.dumps(metadata))
    np.savez(tmp_path / "x.npz", text=np.array(TEXTS))
    options = ["--signature", "serving_default", "--inputs", tmp_path / "x.npz", "--json"]
    result = invoke("verify", folder / "model", out, *options)
    assert result.exit_code == 1 and result.output, result.exception
    outputs = json.loads(result.output)["signatures"][0]["outputs"]
    assert {o["against"] for o in outputs if not o["ok"]} == {"host"}


def test_serve_answers_strings(classifier):
    for library in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(library)
    folder, expected = classifier
    with serving(folder / "film", "--max-batch", 2) as (port, _):
        (described,) = json.loads(get(port, "/v2/models/film"))["inputs"]
        assert described == {"name": "text", "datatype": "BYTES", "shape": [-1]}
        first = "/v1/models/film:predict"
        rows = [{"text": text} for text in TEXTS[:-1]] + [{"text": {"b64": "YmFk"}}]
        for body in ({"instances": TEXTS}, {"instances": rows}, {"inputs": {"text": TEXTS}}):
            status, content, _ = post(port, first, body)
            assert status == 200, content
            (found,) = json.loads(content).values()
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        entry = {"name": "text", "shape": [4], "datatype": "BYTES"}
        binary = b"".join(len(t).to_bytes(4, "little") + t for t in map(str.encode, TEXTS))
        header = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": len(binary)}}]}).encode()
        for body, headers in (
            ({"inputs": [{**entry, "data": TEXTS}]}, {}),
            (header + binary, {LENGTH: str(len(header))}),
        ):
            status, content, _ = post(port, "/v2/models/film/infer", body, headers)
            assert status == 200, content
            (output,) = json.loads(content)["outputs"]
            np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), expected, rtol=1e-5, atol=1e-6)
        for path, body, headers, says in (
            (first, {"instances": ["a", 3]}, {}, "instances[1] is text, not a number"),
            (first, {"instances": [["a"], ["b", "c"]]}, {}, "instances[0] is text, not a list"),
            (first, {"instances": [{"text": {"b64": "?"}}]}, {}, "instances[*].text[0].b64 is not base64"),
            (first, {"instances": [["a", "b"]]}, {}, "shape (1, 2) of argument text"),
            (first, {"inputs": {"words": ["a"]}}, {}, "inputs.words"),
            ("/v2/models/film/infer", {"inputs": [{**entry, "data": ["a"]}]}, {}, "inputs[0].data has 1 elements"),
            ("/v2/models/film/infer", header + binary[:-1], {LENGTH: str(len(header))}, "binary_data_size is"),
            (
                "/v2/models/film/infer",
                header + b"\xff" * len(binary),
                {LENGTH: str(len(header))},
                "inputs[0] has 4 tex",
            ),
        ):
            status, content, _ = post(port, path, body, headers)
            assert (status, says in content.decode().replace('\\"', "'")) == (400, True), content
        assert post(port, first, {"instances": TEXTS})[0] == 200
