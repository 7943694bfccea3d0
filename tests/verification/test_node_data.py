"""Node data for Model Explorer name the nodes of the file by graph and index."""

import json
from pathlib import Path

import jax
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tf2jax_lite as tf2jax
from tf2jax_lite.support.errors import InputError

from . import models

SUSPECT = "#e53935"


def while_loop(tmp_path):
    """Save a loop whose condition and body have nodes of one name."""

    class Module(tf.Module):
        def __init__(self):
            self.factor = tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def __call__(self, x):
            def body(i, a):
                return i + 1, tf.sin(a) * self.factor

            return {"y": tf.while_loop(lambda i, a: i < 3, body, [0, x])[1]}

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "loop"), signatures=module.__call__)
    return tmp_path / "loop"


def frozen(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        tf.nn.softmax(tf.sin(x) + 1.0, name="y")
    (tmp_path / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return tmp_path / "frozen.pb"


def sine(x):
    return jax.numpy.sin(x) + 0.01


# The model, an op and its fault, and ops that placed nodes have besides.
CASES = {
    "function": (lambda t: models.TESTDATA / "tf_module", ("Softmax", models.softmax), {"StatefulPartitionedCall"}),
    "keras": (lambda t: models.TESTDATA / "keras_export", ("Sigmoid", models.sigmoid), {"Conv2D"}),
    "loop": (while_loop, ("Sin", sine), {"While", "Sin", "Less", "AddV2"}),
    "tf1": (lambda t: models.TESTDATA / "tf1" / "lstm", ("Sigmoid", models.sigmoid), {"MatMul"}),
    "frozen": (frozen, ("Softmax", models.softmax), {"Sin", "AddV2"}),
}
FAST = ("loop", "frozen")


def nodes_of(path: Path):
    """Return a file's nodes by graph and id, as Model Explorer numbers them."""
    data = (path / "saved_model.pb" if path.is_dir() else path).read_bytes()
    if path.is_dir():
        graph = saved_model_pb2.SavedModel.FromString(data).meta_graphs[0].graph_def
    else:
        graph = tf.compat.v1.GraphDef.FromString(data)
    found = {("main", str(i)): node for i, node in enumerate(graph.node)}
    for function in graph.library.function:
        names = ["GraphInputs", *(node.name for node in function.node_def)]
        found |= {(function.signature.name, str(names.index(node.name))): node for node in function.node_def}
    return found


def written(folder: Path, name: str):
    content = json.loads((folder / f"{name}.json").read_text())
    return {(graph, node): found for graph, data in content.items() for node, found in data["results"].items()}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.full) for n in CASES])
def test_nodes_are_those_of_the_file(name, tmp_path):
    make, (op, wrong), others = CASES[name]
    path, folder = make(tmp_path), tmp_path / "data"
    with tf2jax.override_op(op, wrong):
        result = tf2jax.verify(path, batch_sizes=(2,), signatures=["serving_default"], node_data=folder)
    compared = result.signatures[0].bisection.nodes
    nodes, errors, seconds = nodes_of(path), written(folder, "error"), written(folder, "seconds")
    assert {nodes[place].op for place in errors} >= {op, *others}
    for node in compared:
        known = [place for place in errors if nodes[place].name == node.node]
        assert known, node
        assert max(errors[place]["value"] for place in known) >= node.error
    red = {place for place, found in errors.items() if found.get("bgColor") == SUSPECT}
    assert {nodes[place].name for place in red} == {node.node for node in compared if node.suspect} != set()
    assert {nodes[place].op for place in red} == {op}
    # A call has the largest error, and the time, of the nodes in it.
    calls = [place for place in errors if nodes[place].op in ("StatefulPartitionedCall", "While")]
    assert all(errors[place]["value"] == max(found["value"] for found in errors.values()) for place in calls)
    total = sum(node.seconds for node in compared)
    assert max(found["value"] for found in seconds.values()) <= total
    assert all(found["value"] > 0 for found in seconds.values()) and seconds.keys() == errors.keys()


@pytest.mark.full
def test_condition_and_body_of_a_loop_are_graphs_of_their_own(tmp_path):
    """Both have a node ``while/Identity``."""
    path = while_loop(tmp_path)
    tf2jax.verify(path / "saved_model.pb", node_data=tmp_path / "data")
    nodes, errors = nodes_of(path), written(tmp_path / "data", "error")
    placed = {(graph.split("_")[1], nodes[graph, node].name) for graph, node in errors if graph.startswith("while_")}
    assert placed >= {("cond", "while/Less"), ("cond", "while/Identity"), ("body", "while/Sin")}
    assert ("body", "while/Less") not in placed and ("cond", "while/Sin") not in placed


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (models.TESTDATA / "tf_module", {"bisect": False}, "node by node"),
        (lambda x: x, {}, "SavedModel directory or a frozen .pb"),
        (Path("model.keras"), {}, "SavedModel directory or a frozen .pb"),
    ],
)
def test_models_that_model_explorer_does_not_read(model, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        tf2jax.verify(model, node_data=tmp_path, **options)


@pytest.mark.full
def test_without_the_option_no_node_is_timed(tmp_path):
    options = {"batch_sizes": (2,), "bisect": True, "signatures": ["serving_default"]}
    (signature,) = tf2jax.verify(models.TESTDATA / "tf_module", **options).signatures
    assert signature.bisection.nodes and all(node.seconds is None for node in signature.bisection.nodes)
