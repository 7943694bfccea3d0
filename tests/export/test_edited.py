"""An edited model.py is checked, traced again and served."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.cli.test_cli import invoke
from tf2jax_lite.errors import ExportError
from tf2jax_lite.export.edited import update_artifact

X = np.float32([[0.3, -1.0, 0.2], [-0.5, 0.1, 2.0]])


@pytest.fixture
def artifact(tmp_path):
    module = tf.Module()
    module.kernel = tf.Variable(np.eye(3, 4, dtype=np.float32), name="hidden/kernel")
    module.head = tf.Variable(np.ones([4, 2], np.float32), name="head/kernel")
    module.calls = tf.Variable(0, trainable=False, name="calls")

    @tf.function
    def model(x):
        module.calls.assign_add(1)
        return {"logits": tf.nn.relu(x @ module.kernel) @ module.head}

    converted = tf2jax.convert(model, tf.TensorSpec([None, 3]))
    tf2jax.export_functions({"model": converted}, tmp_path / "out", platforms=["cpu"], options={"platforms": "cpu"})
    return tmp_path / "out"


def edit(artifact, before, after):
    text = (artifact / "model.py").read_text()
    assert before in text
    (artifact / "model.py").write_text(text.replace(before, after))


def test_edited_source_is_served(artifact):
    _, params = tf2jax.load(artifact)
    edit(artifact, "jax.nn.relu", "jax.nn.gelu")
    with pytest.raises(ExportError, match=r"was edited after conversion. Run tf2jax-lite update"):
        tf2jax.load(artifact)
    assert invoke("update", artifact, "--quiet").exit_code == 0
    expected = jax.nn.gelu(X @ params["hidden/kernel"]) @ params["head/kernel"]
    for backend in ("stablehlo", "source"):
        fn, params = tf2jax.load(artifact, backend=backend)
        results, after = fn(params, X)
        np.testing.assert_allclose(results["logits"], expected, rtol=1e-6)
        assert after["calls"] == 1
        gradient = jax.grad(lambda w, fn=fn, params=params: fn({**params, "head/kernel": w}, X)[0]["logits"].sum())
        assert np.abs(gradient(params["head/kernel"])).max() > 0


def test_head_is_swapped_with_nested_params(artifact):
    params = {"head": {"kernel": np.full([4, 5], 2, np.float32), "bias": np.arange(5, dtype=np.float32)}}
    edit(artifact, '@ params["head"]["kernel"]', '@ params["head"]["kernel"] + params["head"]["bias"]')
    report = update_artifact(artifact, params)
    assert report.parameters == 12 + 20 + 5 + 1
    fn, held = tf2jax.load(artifact)
    assert fn(held, X[:1])[0]["logits"].shape == (1, 5)
    assert held["head/bias"].shape == (5,) and next(n for n in held if n == "head/bias").trainable


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("def model(", "def other(", "defines no model"),
        ("jax.nn.relu", "jax.nn.rulu", "model fails: AttributeError"),
        ('"logits"', '"scores"', "returns no result 'logits'"),
        ("import jax\n", "import jaxx\n", "cannot be imported"),
    ],
)
def test_faults_of_edits_are_named(artifact, before, after, message):
    edit(artifact, before, after)
    with pytest.raises(ExportError, match=message):
        update_artifact(artifact)
