"""Functions of TF1 SavedModels, whose variables are nodes of the graph."""

from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite

tf1 = tf.compat.v1
DATA = Path(__file__).parent.parent.parent.parent / "testdata" / "tf1"
W = np.arange(6, dtype=np.float32).reshape(3, 2)
X = np.ones((1, 3), np.float32)


def _saved(path, build):
    with tf.Graph().as_default(), tf1.Session() as session:
        ends = build()
        session.run(tf1.global_variables_initializer())
        tf1.saved_model.simple_save(session, str(path), *ends)
    return path


def _dense():
    x = tf1.placeholder(tf.float32, [None, 3], "x")
    with tf1.variable_scope("m", use_resource=False):
        w = tf1.get_variable("w", initializer=W)
        b = tf1.get_variable("b", initializer=np.ones(2, np.float32), trainable=False)
        calls = tf1.get_variable("calls", initializer=np.float32(0), trainable=False)
    with tf.control_dependencies([tf1.assign_add(calls, 1.0)]):
        return {"x": x}, {"y": tf.identity(x @ w + b)}


@pytest.mark.full
def test_restored_signature_reads_reference_variables():
    with np.load(DATA / "classifier.npz") as data:
        fn, params = tf2jax_lite.convert_from_restored(
            tf.saved_model.load(str(DATA / "classifier"), ["serve"]).signatures["serving_default"]
        )
        trainable, other = tf2jax_lite.split_params(params)
        assert set(other) == {"bn/moving_mean", "bn/moving_variance"}
        assert set(trainable) == {"dense/w/part_0", "dense/w/part_1", "bn/gamma", "bn/beta", "out"}
        found, new = jax.jit(fn)(params, x=data["x"], training=np.array(True))
        np.testing.assert_allclose(found["logits"], data["logits_0"], rtol=2e-5, atol=1e-6)
        assert not np.array_equal(new["bn/moving_mean"], params["bn/moving_mean"])


def test_restored_signature_reads_table_of_its_graph():
    fn, params = tf2jax_lite.convert_from_restored(
        tf.saved_model.load(str(DATA / "classifier"), ["serve"]).signatures["lookup"]
    )
    found, _ = fn(params, np.array([b"dog", b"cow", b"cat"], object))
    assert list(found["ids"]) == [1, -1, 0] and not params


@pytest.mark.full
def test_restored_signature_called_in_function_trains(tmp_path):
    signature = tf.saved_model.load(str(_saved(tmp_path / "model", _dense))).signatures["serving_default"]

    def twice(x):
        y = signature(x=x)["y"]
        return tf.cond(tf.reduce_sum(x) > 0, lambda: signature(x=x)["y"] + y, lambda: y)

    fn, params = tf2jax_lite.convert(twice, tf.TensorSpec([None, 3]))
    trainable, other = tf2jax_lite.split_params(params)
    assert set(trainable) == {"m/w"} and set(other) == {"m/b", "m/calls"}
    found, new = jax.jit(fn)(params, X)
    np.testing.assert_allclose(found, 2 * (X @ W + 1))
    assert new["m/calls"] == 2
    grads = jax.grad(lambda p: fn({**params, **p}, X)[0].sum())(trainable)
    np.testing.assert_allclose(grads["m/w"], 2 * np.ones((3, 2)))


def test_two_loads_of_one_model_have_their_own_params(tmp_path):
    path = str(_saved(tmp_path / "model", _dense))
    first, second = (tf.saved_model.load(path).signatures["serving_default"] for _ in range(2))
    fn, params = tf2jax_lite.convert(lambda x: first(x=x)["y"] - second(x=x)["y"], tf.TensorSpec([None, 3]))
    assert {"m/w", "m/w_1"} <= set(params)
    np.testing.assert_allclose(fn({**params, "m/w_1": 0 * W}, X)[0], X @ W)


@pytest.mark.parametrize("read_in_prefix", [False, True])
def test_split_host_reference_variables_are_params(tmp_path, read_in_prefix):
    table = np.random.default_rng(0).random((10, 4), np.float32)

    def build():
        x = tf1.placeholder(tf.string, [None], "x")
        text = x
        if read_in_prefix:
            shift = tf1.get_variable("shift", initializer=np.int32(5), use_resource=False, trainable=False)
            text = tf.strings.as_string(tf.strings.length(x) + shift)
        weights = tf1.get_variable("table", initializer=table, use_resource=False)
        rows = tf.nn.embedding_lookup(weights, tf.strings.to_hash_bucket_fast(text, 10))
        return {"x": x}, {"y": rows}

    path = _saved(tmp_path / "model", build)
    host, fn, params = tf2jax_lite.convert_saved_model(path, split_host=True)
    words = np.array([b"a", b"bc"], object)
    expected = tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.constant(words))["y"]
    assert list(params) == ["table"]
    np.testing.assert_array_equal(jax.jit(fn)(params, **host(words))[0]["y"], expected)
