"""Weights go back to TensorFlow: its outputs are then JAX's."""

import filecmp
import json
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tests.artifacts.conftest import make_examples
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import ExportError, InputError, InvalidModelError
from tf2jax_lite.export import export_functions
from tf2jax_lite.export.update import write_trained
from tf2jax_lite.finetuning import finetune_artifact
from tf2jax_lite.pipeline.model_files import convert_file

TESTDATA = Path(__file__).parents[2] / "testdata"
X = make_examples(7, 5)["features"]


def changed(artifact, out, seed=0):
    """Write an artifact with other floating params, as training would."""
    _, params = tf2jax.load(artifact, "serving_default")
    rng = np.random.default_rng(seed)
    new = {
        n: (np.asarray(v) + 0.1 * rng.normal(size=np.shape(v))).astype(v.dtype)
        for n, v in params.items()
        if v.dtype.kind == "f"
    }
    write_trained(artifact, out, new, training={"by": "this test"})
    return new


@pytest.fixture(scope="module", params=["tf_module", "keras_export", "tf_keras_save"])
def saved(request, tmp_path_factory):
    """SavedModels of tf.Module, of Keras 3 and of tf_keras."""
    folder = tmp_path_factory.mktemp(request.param)
    source = TESTDATA / request.param
    functions = convert_file(source, signatures=["serving_default"])
    export_functions(functions, folder / "artifact", platforms=["cpu"], options={"model": str(source)})
    return source, folder


@pytest.mark.default_cases("tf_keras_save")
def test_tensorflow_then_gives_what_jax_gives(saved):
    source, folder = saved
    new = changed(folder / "artifact", folder / "trained")
    report = tf2jax.export_to_tf(folder / "trained", folder / "tf")
    assert set(report.changed) == set(new) and report.model == str(source)
    serving = tf.saved_model.load(str(folder / "tf")).signatures["serving_default"]
    _, inputs = serving.structured_input_signature
    rng = np.random.default_rng(1)
    arrays = {}
    for name, spec in inputs.items():
        shape = [3 if d is None else d for d in spec.shape]
        drawn = rng.normal(size=shape) if spec.dtype.is_floating else rng.integers(0, 5, shape)
        arrays[name] = drawn.astype(spec.dtype.as_numpy_dtype)
    expected = serving(**{k: tf.constant(v) for k, v in arrays.items()})
    for backend in ("stablehlo", "source") if source.name == "tf_module" else ("stablehlo",):
        fn, params = tf2jax.load(folder / "trained", "serving_default", backend=backend)
        found, _ = fn(params, **arrays)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)
    # Beside the model it came from, TensorFlow is given the artifact's weights.
    result = CliRunner().invoke(app, ["verify", str(source), str(folder / "trained"), "--signature", "serving_default"])
    assert result.exit_code == 0, result.output
    # Only the variables changed the results of TensorFlow.
    before = tf.saved_model.load(str(source)).signatures["serving_default"]
    old = before(**{k: tf.constant(v) for k, v in arrays.items()})
    assert any(not np.allclose(old[name], expected[name]) for name in expected)
    assert filecmp.cmp(source / "saved_model.pb", folder / "tf" / "saved_model.pb", shallow=False)
    # The keys of the checkpoint are the same, so readers by key (TensorFlow Serving) find everything.
    keys = [dict(tf.train.list_variables(str(p / "variables" / "variables"))) for p in (source, folder / "tf")]
    assert keys[0] == keys[1]


@pytest.mark.full
def test_a_keras_model_back_to_both_forms(artifact, keras_file, tmp_path):
    finetune_artifact(
        artifact,
        make_examples(60, 0),
        tmp_path / "trained",
        loss="sparse_categorical_crossentropy",
        from_logits=True,
        epochs=1,
        learning_rate=0.05,
    )
    fn, params = tf2jax.load(tmp_path / "trained", "serving_default")
    expected = np.asarray(fn(params, X)[0])
    report = tf2jax.export_to_tf(tmp_path / "trained", tmp_path / "tf")
    assert any("moving_mean" in name for name in report.changed)
    restored = tf.saved_model.load(str(tmp_path / "tf"))
    np.testing.assert_allclose(restored.serve(X), expected, rtol=1e-5, atol=1e-5)
    for name in ("new.keras", "new"):
        result = CliRunner().invoke(app, ["export-tf", str(tmp_path / "trained"), str(tmp_path / name), "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["path"] == str(tmp_path / name)  # Keras prints its exports
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "new.keras")(X), expected, rtol=1e-5, atol=1e-5)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    # Beside the model it came from, TensorFlow runs with the artifact's weights; beside the new one with its own.
    for model in (keras_file, tmp_path / "new.keras"):
        verified = tf2jax.verify(model, tmp_path / "trained", train=True, batch_sizes=(3,))
        assert verified.ok and [s.signature for s in verified.signatures] == ["serving_default", "train"], verified
    # The original is as it was.
    assert not np.allclose(keras.models.load_model(keras_file)(X), expected)


@pytest.mark.full
def test_what_is_refused(artifact, tmp_path):
    source = TESTDATA / "tf_module"
    with pytest.raises(InputError, match="only SavedModels take tags="):
        tf2jax.export_to_tf(artifact, tmp_path / "out", tags=["serve"])  # of a Keras file
    with pytest.raises(InvalidModelError, match="no signature 'train'"):
        tf2jax.export_to_tf(artifact, tmp_path / "out", model=source)
    with pytest.raises(InvalidModelError, match="model="):
        moved = tmp_path / "moved"
        shutil.copytree(source, moved)
        functions = convert_file(moved, signatures=["serving_default"])
        export_functions(functions, tmp_path / "a", platforms=["cpu"], options={"model": str(moved)})
        shutil.rmtree(moved)
        tf2jax.export_to_tf(tmp_path / "a", tmp_path / "out")
    with pytest.raises(ExportError, match="has no variables"):
        tf2jax.export_to_tf(tmp_path / "a", tmp_path / "out", model=TESTDATA / "keras_export")
    assert not (tmp_path / "out").exists()
    tf2jax.export_to_tf(tmp_path / "a", tmp_path / "out", model=source)
    with pytest.raises(ExportError, match="exists"):
        tf2jax.export_to_tf(tmp_path / "a", tmp_path / "out", model=source)
    export_functions(functions, tmp_path / "b", platforms=["cpu"])
    with pytest.raises(InputError, match="does not say which model"):
        tf2jax.export_to_tf(tmp_path / "b", tmp_path / "out2")
    with pytest.raises(ExportError, match="no param 'nothing'"):
        write_trained(tmp_path / "a", tmp_path / "c", {"nothing": np.zeros(1)})
    name = next(iter(tf2jax.load(tmp_path / "a", "serving_default")[1]))
    with pytest.raises(ExportError, match="the artifact has"):
        write_trained(tmp_path / "a", tmp_path / "c", {name: np.zeros((1, 2, 3), np.float32)})
    assert not (tmp_path / "c").exists() and not (tmp_path / "out2").exists()


ALONE = """
import sys
for name in ("tf2jax_lite", "jax", "jaxlib"):
    sys.modules[name] = None
import numpy as np
import tensorflow as tf
folder, data, out = sys.argv[1:]
serving = tf.saved_model.load(folder).signatures["serving_default"]
(name,) = serving.structured_input_signature[1]
x = np.load(data)["x"]
found = [next(iter(serving(**{name: tf.constant(part)}).values())).numpy() for part in (x, x[:1])]
np.savez(out, *found)
"""


@pytest.mark.default_cases("new head")
@pytest.mark.parametrize("options", [["--classes", "5"], []], ids=["new head", "same head"])
def test_trained_model_serves_in_a_process_of_tensorflow_alone(options, artifact, tmp_path):
    """A new head needs --stablehlo; the original's graph does for the same one."""
    data = {**make_examples(30, 1), "y": np.arange(30) % (5 if options else 3)}
    np.savez(tmp_path / "data.npz", **data)
    words = [
        "finetune",
        artifact,
        "--data",
        tmp_path / "data.npz",
        "--out",
        tmp_path / "tuned",
        "--from-logits",
        *options,
    ]
    result = CliRunner().invoke(app, [str(word) for word in [*words, "--epochs", "1"]])
    assert result.exit_code == 0, result.output
    out = tmp_path / "saved_model"
    if options:
        with pytest.raises(InputError, match=r"another head.*stablehlo=True"):
            tf2jax.export_to_tf(tmp_path / "tuned", out)
        options = ["--stablehlo"]
    result = CliRunner().invoke(app, ["export-tf", str(tmp_path / "tuned"), str(out), *options])
    assert result.exit_code == 0, (result.output, result.exception)
    np.savez(tmp_path / "x.npz", x=X)
    command = [sys.executable, "-c", ALONE, out, tmp_path / "x.npz", tmp_path / "y.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    fn, params = tf2jax.load(tmp_path / "tuned", "serving_default")
    for part, found in zip((X, X[:1]), np.load(tmp_path / "y.npz").values(), strict=True):
        expected = np.asarray(next(iter(tf.nest.flatten(fn(params, part)[0]))))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
