"""Models that agree in every check, and inputs that fit them."""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import InputError, InvalidModelError, LimitError
from tf2jax_lite.verification.index_ranges import index_ranges
from tf2jax_lite.verification.targets import convert_source, find_sources

from . import models


@pytest.mark.full
@pytest.mark.parametrize("name", ["tf_module", "keras_export", "tf_keras_save"])
def test_saved_models_agree(name):
    chosen = None if name == "tf_module" else ["serving_default"]
    options = {"grad": True, "train": True, "seeds": (1, 2), "batch_sizes": (3,), "signatures": chosen}
    result = tf2jax.verify(models.TESTDATA / name, **options)
    assert result.ok, [(s.error, s.outputs) for s in result.signatures]
    for signature in result.signatures:
        assert len(signature.cases) == 2 and signature.outputs and signature.bisection is None
        assert {"result", "gradient"} <= {o.kind for o in signature.outputs}
    json.dumps(result.as_json(), allow_nan=False)


@pytest.mark.full
def test_variables_after_a_call():
    result = tf2jax.verify(models.TESTDATA / "tf_module", signatures=["serving_default"], train=True)
    assert {o.name for o in result.signatures[0].outputs if o.kind == "variable"} == {"w", "b", "seen"}


@pytest.mark.full
def test_keras_file_in_both_modes(tmp_path):
    layers = [keras.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    path = tmp_path / "model.keras"
    keras.Sequential(layers).save(path)
    result = tf2jax.verify(path, train=True, grad=True, batch_sizes=(4,))
    assert result.ok, [(s.error, s.outputs) for s in result.signatures]
    assert [s.signature for s in result.signatures] == ["serving_default", "train"]
    # Dropout's seed moves on, and so do the averages.
    changed = {o.name.rsplit("/", 1)[-1] for o in result.signatures[1].outputs if o.kind == "variable"}
    assert {"moving_mean", "seed_generator_state"} <= changed


@pytest.mark.full
def test_gradients_that_differ():
    with tf2jax.override_op("Tanh", lambda x: tanh_with_another_gradient(x)):
        (signature,) = tf2jax.verify(concrete(tf.tanh, tf.TensorSpec([3])), grad=True).signatures
    assert {(o.kind, o.ok) for o in signature.outputs} == {("result", True), ("gradient", False)}


def tanh_with_another_gradient(x):
    import jax
    import jax.numpy as jnp

    return jnp.tanh(x) + x - jax.lax.stop_gradient(x)


def concrete(function, *specs):
    return tf.function(lambda *args: function(*args)).get_concrete_function(*specs)


@pytest.mark.full
def test_frozen_graph(tmp_path):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        tf.nn.softmax(tf.matmul(x, tf.constant(np.eye(3, 4), tf.float32)), name="y")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    assert tf2jax.verify(path, grad=True, bisect=True).ok
    with tf2jax.override_op("Softmax", models.softmax):
        result = tf2jax.verify(path)
    assert result.signatures[0].bisection.suspects[0].node == "y"


def test_callables():
    assert tf2jax.verify(lambda x: tf.sin(x), args=(tf.TensorSpec([None, 2]),)).ok
    with pytest.raises(InputError, match="expected a path"):
        tf2jax.verify(3)


def test_nan():
    inputs = {"args_0": np.float32([np.nan, -1.0, np.inf, 4.0])}
    (signature,) = tf2jax.verify(concrete(tf.sqrt, tf.TensorSpec([4])), inputs=inputs).signatures
    (output,) = signature.outputs
    assert output.ok and output.nan == (2, 2) and output.infinite == (1, 1)
    with tf2jax.override_op("Sqrt", lambda x: abs(x) ** 0.5):
        (signature,) = tf2jax.verify(concrete(tf.sqrt, tf.TensorSpec([4])), inputs=inputs).signatures
    (output,) = signature.outputs
    assert not output.ok and output.positions == ((1,),) and output.nan == (2, 1)
    first = signature.bisection.suspects[0]
    assert first.op == "Sqrt" and first.inputs[0]["nan"] == 1
    json.dumps(signature.as_json(), allow_nan=False)


def test_random_numbers_are_not_compared():
    def function(x):
        noise = tf.random.uniform([3])
        return {"fixed": x + 1.0, "noisy": tf.nn.relu(x + noise)}

    (signature,) = tf2jax.verify(concrete(function, tf.TensorSpec([3])), grad=True, bisect=True).signatures
    notes = {o.name: o.note for o in signature.outputs}
    assert signature.ok and not notes["fixed"] and "random" in notes["noisy"]
    assert not signature.bisection.suspects


@pytest.mark.parametrize("training", [False, True])
def test_random_numbers_of_a_branch(training):
    weight, mean = tf.Variable([2.0, 3.0, 4.0], name="weight"), tf.Variable(tf.zeros([8, 3]), name="mean")

    def function(x, training):
        y = tf.cond(training, lambda: tf.nn.dropout(x * weight, 0.5), lambda: tf.tanh(x * weight))
        mean.assign(0.5 * mean + y)
        return y

    compared = concrete(function, tf.TensorSpec([8, 3]), tf.TensorSpec([], tf.bool))
    inputs = {"args_1": np.array(training)}
    (signature,) = tf2jax.verify(compared, inputs=inputs, grad=True, train=True).signatures
    assert signature.ok
    noted = {(o.kind, o.name): bool(o.note) for o in signature.outputs}
    assert {noted[n] for n in noted if n[0] == "result"} == {noted["variable", "mean"]} == {training}, noted
    assert any(kind == "gradient" for kind, _ in noted) == (not training)
    with tf2jax.override_op("Tanh", lambda x: x):
        (signature,) = tf2jax.verify(compared, inputs=inputs, bisect=False).signatures
    assert signature.ok == training


def ranges_of(path):
    (source,) = find_sources(path)
    return index_ranges(convert_source(source).converted.program.graph)


def test_embedding_ranges(tmp_path):
    assert ranges_of(models.TESTDATA / "tf_keras_save")[0].limit == 11
    assert ranges_of(models.lstm(tmp_path))[0].limit == 50


@pytest.mark.full
def test_the_narrowest_table_counts():
    wide, narrow = tf.Variable(tf.zeros([9, 2])), tf.constant(np.zeros([2, 5], np.float32))

    def function(ids, free):
        rows = tf.gather(wide, tf.cast(ids, tf.int64)[:, 0])
        columns = tf.gather(narrow, tf.where(ids < 0, ids + 5, ids), axis=1)
        return rows, columns, free + 1

    made = concrete(function, tf.TensorSpec([None, 1], tf.int32), tf.TensorSpec([2], tf.int32))
    (source,) = find_sources(made)
    found = index_ranges(convert_source(source).converted.program.graph)
    assert {i: r.limit for i, r in found.items()} == {0: 5}
    assert tf2jax.verify(made, seeds=range(4)).ok


@pytest.mark.full
def test_given_inputs_that_do_not_fit():
    path = models.TESTDATA / "tf_module"
    for inputs, text in (
        ({"nope": np.zeros(3), "features": np.zeros((2, 4))}, "nope"),
        ({"features": np.zeros((2, 5), np.float32)}, "expected"),
        ({"features": np.array([["a"] * 4])}, "dtype"),
    ):
        with pytest.raises(InputError, match=text):
            tf2jax.verify(path, signatures=["serving_default"], inputs=inputs)
    for options in ({"batch_sizes": ()}, {"batch_sizes": (-1,)}, {"seeds": (-1,)}):
        with pytest.raises(InputError, match="batch"):
            tf2jax.verify(path, **options)
    with pytest.raises(InvalidModelError, match="serving_default"):
        tf2jax.verify(path, signatures=["nope"])


def test_batches_that_take_more_than_inputs_may():
    with pytest.raises(LimitError, match="max_input_bytes"):
        tf2jax.verify(models.TESTDATA / "tf_module", batch_sizes=(2**62,))


def test_shapes_that_depend_on_values():
    def where(x):
        return tf.where(x > 0.5)

    (signature,) = tf2jax.verify(concrete(where, tf.TensorSpec([8]))).signatures
    assert signature.ok and "outside jax.jit" in signature.notes[0]

    def reshape(x, n):
        return tf.reshape(x, [n, -1])

    inputs = {"x": np.zeros(6), "n": 2}
    made = tf.function(reshape).get_concrete_function(tf.TensorSpec([None]), tf.TensorSpec([], tf.int32))
    (signature,) = tf2jax.verify(made, inputs=inputs, grad=True, bisect=True).signatures
    assert signature.ok and not signature.notes
    assert not signature.bisection.suspects


def test_strings_pass_through():
    made = tf.function(lambda s, x: {"s": tf.identity(s), "x": x * 2.0}).get_concrete_function(
        tf.TensorSpec([2], tf.string), tf.TensorSpec([2])
    )
    (signature,) = tf2jax.verify(made, inputs={"s": np.array(["ab", "c"])}, bisect=True).signatures
    assert signature.ok and [o.name for o in signature.outputs] == ["s", "x"]


def test_inputs_that_tensorflow_refuses():
    def function(x):
        tf.debugging.assert_less(x, 0.0)
        return x

    (signature,) = tf2jax.verify(concrete(function, tf.TensorSpec([2]))).signatures
    assert not signature.ok and signature.error.startswith("TensorFlow itself fails")
    assert signature.bisection is None


@pytest.mark.full
def test_a_gradient_that_jax_has_not():
    def function(x):
        while tf.reduce_sum(x) < 100.0:
            tf.print(tf.reduce_sum(x))
            x = x * 1.5
        return x

    made = tf.function(function).get_concrete_function(tf.TensorSpec([3]))
    (signature,) = tf2jax.verify(made, grad=True).signatures
    assert {o.kind: o.ok for o in signature.outputs} == {"result": True, "gradient": False}
    assert re.search("ReverseModeError: .*effects", signature.outputs[-1].problem)


def test_verify_one_input_takes_any_name():
    made = concrete(tf.sin, tf.TensorSpec([3], name="x"))
    assert tf2jax.verify(made, inputs={"anything": np.ones(3, np.float32)}).ok
    with pytest.raises(InputError, match=r"no input.s. a, b\. The names are 'args_0' or 'x'"):
        tf2jax.verify(made, inputs={"a": np.ones(3), "b": np.ones(3)})
