"""A wrong op is found by the name of its node, in every kind of model."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.ops.traits import Update
from tf2jax_lite.verification.bisection import _MAX_ITERATIONS

from . import models

FAULTS = {
    "digits_conv": (lambda t: models.DIGITS, "Relu", models.relu, "conv2d"),
    "tf_module": (lambda t: models.TESTDATA / "tf_module", "Softmax", models.softmax, "Softmax"),
    "keras_export": (lambda t: models.TESTDATA / "keras_export", "Sigmoid", models.sigmoid, "conv2d"),
    "tf_keras_save": (lambda t: models.TESTDATA / "tf_keras_save", "Relu", models.relu, "conv1d"),
    "lstm": (models.lstm, "Sigmoid", models.sigmoid, "lstm"),
    "transformer": (models.transformer, "Erfc", models.erfc, "Erfc"),
}


# More models, among them a transformer, are in tests/models/test_demo_set.py.
@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.full if n == "transformer" else ()) for n in FAULTS]
)
def test_seeded_fault_is_located(name, tmp_path):
    make, op, wrong, where = FAULTS[name]
    path = make(tmp_path)
    with tf2jax.override_op(op, wrong):
        (signature,) = tf2jax.verify(path, batch_sizes=(2,), signatures=["serving_default"]).signatures
    assert not signature.ok and not signature.error
    found = signature.bisection
    first = found.suspects[0]
    assert first.op == op and where in first.path, found.summary
    # It is reported on its own evidence, and no other op is.
    assert first.own_error > 1e-4
    assert {s.op for s in found.suspects} == {op}
    assert first.inputs and "min" in first.inputs[0]
    assert not found.not_run


def loops(x, steps, after=2):
    total = tf.zeros_like(x)
    for i in tf.range(steps):
        if i > after:
            total += tf.tanh(x)
        else:
            total += tf.sin(x)
    return total


def traced(function, *specs):
    return tf.function(function).get_concrete_function(*specs)


@pytest.mark.full
def test_inside_loops_and_branches():
    concrete = traced(loops, tf.TensorSpec([3]), tf.TensorSpec([], tf.int32))
    inputs = {"x": np.float32([0.1, 0.5, 1.0]), "steps": np.int32(6)}
    with tf2jax.override_op("Tanh", models.tanh):
        (signature,) = tf2jax.verify(concrete, inputs=inputs).signatures
    first = signature.bisection.suspects[0]
    assert (first.op, first.iteration) == ("Tanh", [3])
    assert first.location.split(":")[0] == __file__
    line = int(first.location.split(":")[1])
    assert "total += tf.tanh(x)" in Path(__file__).read_text().splitlines()[line - 1]


@pytest.mark.full
@pytest.mark.parametrize(("steps", "ops"), [(4, {"Tanh"}), (_MAX_ITERATIONS + 20, {"Tanh", "StatelessWhile"})])
def test_after_a_gradient(steps, ops):
    """Unused values of TensorFlow's gradients in loops are not compared."""

    def nested(x, steps):
        for _ in tf.range(steps):
            while tf.reduce_sum(x) < 1.0:
                x = x + tf.exp(-x)
            x = tf.tanh(x)
        return x

    function = tf.function(nested)
    x = tf.constant([0.1, 0.5, 1.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x, tf.constant(steps))
    tape.gradient(y, x)
    concrete = function.get_concrete_function(tf.TensorSpec([3]), tf.TensorSpec([], tf.int32))
    inputs = {"x": x.numpy(), "steps": np.int32(steps)}
    with tf2jax.override_op("Tanh", models.tanh):
        (signature,) = tf2jax.verify(concrete, inputs=inputs).signatures
    assert not signature.error and not signature.bisection.not_run
    assert {s.op for s in signature.bisection.suspects} == ops
    (signature,) = tf2jax.verify(concrete, inputs=inputs, bisect=True).signatures
    assert signature.ok and not signature.bisection.not_run, signature


def test_long_loops_are_one_node():
    def late(x, steps):
        return loops(x, steps, _MAX_ITERATIONS)

    concrete = traced(late, tf.TensorSpec([3]), tf.TensorSpec([], tf.int32))
    inputs = {"x": np.float32([0.1, 0.5, 1.0]), "steps": np.int32(_MAX_ITERATIONS + 20)}
    with tf2jax.override_op("Tanh", models.tanh):
        (signature,) = tf2jax.verify(concrete, inputs=inputs).signatures
    assert [s.op for s in signature.bisection.suspects] == ["StatelessWhile"]
    (signature,) = tf2jax.verify(concrete, inputs=inputs, bisect=True).signatures
    assert signature.ok and not signature.bisection.suspects


@pytest.mark.full
def test_a_fault_that_comes_late_is_told_from_what_it_is_fed():
    """Two faults: both are reported, and no op between or after them is."""

    def function(x):
        return tf.exp(tf.cos(tf.sin(tf.abs(x))))

    with (
        tf2jax.override_op("Sin", lambda x: jnp.sin(x) * 1.1),
        tf2jax.override_op("Exp", lambda x: jnp.exp(x) + 1),
    ):
        (signature,) = tf2jax.verify(traced(function, tf.TensorSpec([4]))).signatures
    assert [s.op for s in signature.bisection.suspects] == ["Sin", "Exp"]
    assert signature.bisection.suspects[1].input_error > 1e-3
    assert {n.op for n in signature.bisection.nodes if n.suspect} == {"Sin", "Exp"}


@pytest.mark.full
def test_an_op_that_raises_is_named():
    def wrong(x):
        raise ValueError("out of order")

    with tf2jax.override_op("Sin", wrong):
        (signature,) = tf2jax.verify(traced(lambda x: tf.sin(x) + 1.0, tf.TensorSpec([4]))).signatures
    assert "out of order" in signature.error and not signature.ok
    assert signature.bisection.suspects[0].op == "Sin"
    assert "out of order" in signature.bisection.suspects[0].problem


def test_assignments():
    variable = tf.Variable([1.0, 2.0], name="v")

    def function(x):
        variable.assign_add(x)
        return tf.reduce_sum(variable) * 2.0

    concrete = traced(function, tf.TensorSpec([2]))

    def wrong(resource: Update, value):
        return resource + value * 1.5

    with tf2jax.override_op("AssignAddVariableOp", wrong):
        (signature,) = tf2jax.verify(concrete, train=True).signatures
    assert {o.kind for o in signature.outputs if not o.ok} == {"result", "variable"}
    assert [s.op for s in signature.bisection.suspects] == ["AssignAddVariableOp"]
    assert variable.numpy().tolist() == [1.0, 2.0]
    (signature,) = tf2jax.verify(concrete, train=True, bisect=True).signatures
    assert signature.ok and not signature.bisection.suspects


@pytest.mark.full
def test_rounding_that_grows_is_not_blamed_on_a_node():
    def function(x):
        return tf.exp(tf.exp(x * 3.0)) - tf.exp(tf.exp(x * 3.0) * 1.0000001)

    (signature,) = tf2jax.verify(traced(function, tf.TensorSpec([4])), rtol=1e-5, bisect=True).signatures
    assert not signature.bisection.suspects
    assert "by itself" in signature.bisection.summary or "equal" in signature.bisection.summary


class Saved(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([3])])
    def call(self, x):
        return tf.nn.softmax(x * 2.0)


def test_lines_that_a_saved_model_recorded(tmp_path):
    module = Saved()
    options = tf.saved_model.SaveOptions(save_debug_info=True)
    tf.saved_model.save(module, str(tmp_path), signatures=module.call, options=options)
    with tf2jax.override_op("Softmax", models.softmax):
        (signature,) = tf2jax.verify(tmp_path).signatures
    file, line = signature.bisection.suspects[0].location.split(":")
    assert file == __file__ and "softmax" in Path(__file__).read_text().splitlines()[int(line) - 1]


@pytest.mark.full
def test_unused_results_do_not_count():
    """FusedBatchNormV3's reserved results in inference are not compared."""
    ones = tf.ones([3])

    def function(x):
        return tf.compat.v1.nn.fused_batch_norm(x, ones, ones, ones, ones, is_training=False)[0]

    (signature,) = tf2jax.verify(traced(function, tf.TensorSpec([2, 2, 2, 3])), bisect=True).signatures
    assert signature.ok and not signature.bisection.suspects
