"""Fetches that are operations, as in `tf.compat.v1.Session.run`."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
import tf2jax_lite.pipeline.model_files
from tf2jax_lite.errors import InvalidModelError
from tf2jax_lite.pipeline.inspect_model import describe_model
from tf2jax_lite.verification import verify

tf1 = tf.compat.v1
X = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)


def training(optimizer, use_resource):
    """Build a step named "train", without results: a group of assignments."""
    x = tf1.placeholder(tf.float32, [None, 2], name="x")
    w = tf1.get_variable("w", initializer=np.float32([[0.5], [-1.0]]), use_resource=use_resource)
    loss = tf.reduce_mean((x @ w - 1.0) ** 2, name="loss")
    optimizer.minimize(loss, name="train")


def saved(folder, build):
    """Write a checkpoint and graph; return its path, and the open session."""
    graph = tf.Graph()
    with graph.as_default():
        build()
        session = tf1.Session()
        session.run(tf1.global_variables_initializer())
        return f"{tf1.train.Saver().save(session, str(folder / 'model'))}.meta", session


@pytest.mark.full
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize(
    ("optimizer", "asked", "given"),
    [
        (lambda: tf1.train.AdamOptimizer(0.1), ["loss", "train"], lambda loss: (loss, None)),
        (lambda: tf1.train.MomentumOptimizer(0.1, 0.9), ["^train", "loss:0"], lambda loss: (None, loss)),
        (lambda: tf1.train.GradientDescentOptimizer(0.1), "train", lambda loss: None),
    ],
)
def test_a_training_step(use_resource, optimizer, asked, given, tmp_path):
    path, session = saved(tmp_path, lambda: training(optimizer(), use_resource))
    fn, params = tf2jax_lite.convert_graph_def(path, ["x"], asked)
    for call in (fn, jax.jit(fn)):
        # An operation is fetched by its name alone; the value of the loss is that before the step in both.
        loss, _ = session.run(["loss:0", "train"], {"x:0": X})
        found, params = call(params, X)
        expected = given(loss)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        np.testing.assert_allclose(jax.tree.leaves(found), jax.tree.leaves(expected), rtol=1e-5)
        with session.graph.as_default():
            values = session.run({v.op.name: v for v in tf1.global_variables()})
        assert set(values) <= set(params) | {"beta1_power", "beta2_power"} and "w" in params
        for name, value in params.items():
            np.testing.assert_allclose(value, values[name], rtol=1e-5, atol=1e-7)
    assert jax.tree.structure(fn.structured_outputs) == jax.tree.structure(given(tf.TensorSpec([])))


def counting():
    x = tf1.placeholder(tf.float32, [], name="x")
    n = tf1.get_variable("n", initializer=1.0, use_resource=True)
    tf.raw_ops.AssignAddVariableOp(resource=n.handle, value=x, name="more")
    tf.identity(x, name="y")
    tf.group(name="nothing")


@pytest.mark.parametrize(
    ("asked", "given", "after"),
    [
        (["y"], (3.0,), 1.0),
        (["y", "^more", "^more"], (3.0, None, None), 4.0),  # once, however often it is asked for
        (["^y", "nothing"], (None, None), 1.0),
        (["^x", "^n", "y"], (None, None, 3.0), 1.0),  # what is fed and what holds a variable do nothing
    ],
)
def test_operations_run_for_what_they_do(asked, given, after, tmp_path):
    path, _ = saved(tmp_path, counting)
    fn, params = tf2jax_lite.convert_graph_def(path, ["x"], asked)
    found, params = fn(params, 3.0)
    assert found == given and params.get("n", 1.0) == after
    assert [t.name for t in describe_model(path, inputs=["x"], outputs=asked).signatures[0].outputs] == [
        name for name, value in zip(asked, given, strict=True) if value is not None
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [("^none", "there is no node 'none'"), ("none", "there is no node 'none'"), ("nothing:0", "has 0 output")],
)
def test_missing_fetches_raise(asked, words, tmp_path):
    path, _ = saved(tmp_path, counting)
    with pytest.raises(InvalidModelError, match=words):
        tf2jax_lite.convert_graph_def(path, ["x"], [asked])


@pytest.mark.full
def test_operations_are_no_results_by_default(tmp_path):
    path, _ = saved(tmp_path, counting)
    fn, _ = tf2jax_lite.pipeline.model_files.convert_file(path)["serving_default"]
    assert "y" in (names := [spec.name for spec in fn.structured_outputs]) and "more" not in names


@pytest.mark.full
def test_verify_runs_training_steps(tmp_path):
    path, _ = saved(tmp_path, lambda: training(tf1.train.AdamOptimizer(0.1), False))
    found = verify(path, ends=(["x"], ["loss", "train"]), train=True, grad=True, batch_sizes=(2,))
    assert found.ok, found
    kinds = {(output.kind, output.name) for output in found.signatures[0].outputs}
    assert {("result", "output_0"), ("variable", "w"), ("variable", "w/Adam"), ("gradient", "w")} <= kinds


@pytest.mark.full
def test_verify_of_a_graph_without_variables(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [3], name="x")
        tf.group(tf.exp(x, name="y"), name="all")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    assert verify(tmp_path / "graph.pb", ends=(["x"], ["all", "y"])).ok
