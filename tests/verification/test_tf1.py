"""TF1 SavedModels against a session: results, gradients, tables."""

from pathlib import Path

import pytest
import tensorflow as tf

from tf2jax_lite.errors import InvalidModelError
from tf2jax_lite.frontend.safety import checkpoint_index
from tf2jax_lite.verification import verify
from tf2jax_lite.verification.targets import Session
from tools.fuzz.mutators import write_table

DATA = Path(__file__).parent.parent.parent / "testdata" / "tf1"


@pytest.mark.full
@pytest.mark.parametrize(
    "name, kinds", [("classifier", {"result", "variable", "gradient"}), ("lstm", {"result", "variable", "gradient"})]
)
def test_a_tf1_model_agrees(name, kinds):
    found = verify(DATA / name, signatures=["serving_default"], grad=True, train=True, batch_sizes=(2,), bisect=True)
    assert found.ok
    (signature,) = found.signatures
    assert {output.kind for output in signature.outputs} == kinds
    assert signature.bisection is not None and not signature.bisection.suspects[1:]


def test_a_lookup_of_strings_agrees():
    assert verify(DATA / "classifier", signatures=["lookup"], batch_sizes=(1, 3)).ok


def keys_twice(index):
    """Repeat each key of an index, over which TensorFlow ends the process."""
    pairs = list(checkpoint_index._entries(index.read_bytes()))
    index.write_bytes(write_table([pairs[0], *(pair for pair in pairs[1:] for _ in range(2))]))


@pytest.mark.parametrize("kind", ["model", "graph"])
def test_a_checkpoint_that_would_end_the_process(kind, tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        y = tf.identity(x @ v1.get_variable("v", [3, 2]), name="y")
        session.run(v1.global_variables_initializer())
        if kind == "model":
            v1.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": y})
            path, index = tmp_path / "m", tmp_path / "m" / "variables" / "variables.index"
        else:
            v1.train.Saver().save(session, str(tmp_path / "m"))
            path, index = tmp_path / "m.meta", tmp_path / "m.index"
    ends = (None, None) if kind == "model" else (["x"], ["y"])
    assert verify(path, batch_sizes=(2,), ends=ends).ok
    keys_twice(index)
    (found,) = verify(path, batch_sizes=(2,), ends=ends).signatures
    assert "keys do not increase" in found.error
    if kind == "graph":  # a route of its own: TensorFlow's Saver
        with pytest.raises(InvalidModelError, match="keys do not increase"):
            Session.of_meta_graph(path, ["y"])
