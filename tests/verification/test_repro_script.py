"""The script for one node: it runs by itself, and prints the difference."""

import runpy
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.ops.traits import Static, Update

from . import models


def wrong_matmul(a, b, *, transpose_a=False, transpose_b=False, grad_a=False, grad_b=False):
    return jnp.matmul(a.T if transpose_a else a, b.T if transpose_b else b) * 1.01


def wrong_sum(input, axis: Static, *, keep_dims=False):
    return jnp.sum(input, tuple(int(a) for a in axis.reshape(-1)), keepdims=keep_dims) + jnp.ones((), input.dtype)


def wrong_assign(resource: Update, value):
    return resource + value + 1


def assigns():
    variable = tf.Variable([1.0, 2.0])

    def function(x):
        variable.assign_add(x)
        return variable.read_value()

    return function


FLOATS = tf.TensorSpec([2, 2])
CASES = {
    "matmul": (lambda: lambda x: tf.matmul(x, x, transpose_b=True), FLOATS, "MatMul", wrong_matmul),
    "static": (lambda: lambda x: tf.reduce_sum(x, [1]), FLOATS, "Sum", wrong_sum),
    "bfloat16": (lambda: tf.tanh, tf.TensorSpec([3], tf.bfloat16), "Tanh", lambda x: jnp.tanh(x) * 2),
    "list": (
        lambda: lambda x: tf.concat([x, x * 2.0], 0),
        FLOATS,
        "ConcatV2",
        lambda values, axis: jnp.concatenate(values, int(axis))[::-1],
    ),
    "attributes": (
        lambda: lambda x: tf.cast(x, tf.int32, name="c"),
        FLOATS,
        "Cast",
        lambda x, *, DstT, Truncate=False: (x + 1.5).astype(DstT),
    ),
    "variable": (
        assigns,
        tf.TensorSpec([2]),
        "AssignAddVariableOp",
        wrong_assign,
    ),
}


def run(script, capsys):
    """Run it in this process, where an op may be replaced."""
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(script), run_name="__main__")
    jax.config.update("jax_enable_x64", False)  # which the script switches on
    return stopped.value.code, capsys.readouterr().out


@pytest.mark.default_cases("static")
@pytest.mark.parametrize("name", CASES)
def test_repro(name, tmp_path, capsys):
    make, spec, op, wrong = CASES[name]
    function = tf.function(make())
    concrete = function.get_concrete_function(spec)
    with tf2jax.override_op(op, wrong):
        result = tf2jax.verify(concrete, train=True, repro=tmp_path / "repro")
        assert not result.ok and result.signatures[0].bisection.suspects[0].op == op
        assert result.repro is not None, result.signatures[0].notes
        code, text = run(result.repro, capsys)
        assert (code, "DIFFERS" in text) == (1, True), text
    code, text = run(result.repro, capsys)
    assert (code, "agrees" in text) == (0, True), text
    with np.load(tmp_path / "repro" / "inputs.npz", allow_pickle=False) as data:
        assert data.files


@pytest.mark.full
def test_repro_in_a_process_of_its_own(tmp_path):
    with tf2jax.override_op("Softmax", models.softmax):
        path = models.TESTDATA / "tf_module"
        result = tf2jax.verify(path, signatures=["serving_default"], repro=tmp_path)
    assert "raw_ops.Softmax" in (tmp_path / "repro.py").read_text()
    command = [sys.executable, "repro.py"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(models.ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0 and "agrees" in done.stdout, done.stderr
    assert result.repro == str(tmp_path / "repro.py")


def test_names_from_a_model_stay_text(tmp_path):
    """A node's name ends in a docstring; it must not get out of it."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], "x")
        tf.tanh(x, name="y")
    proto = graph.as_graph_def()
    with tf2jax.override_op("Tanh", models.tanh):
        (tmp_path / "g.pb").write_bytes(proto.SerializeToString())
        result = tf2jax.verify(tmp_path / "g.pb")
        suspect = result.signatures[0].bisection.suspects[0]
    import dataclasses

    from tf2jax_lite.verification.repro_script import write_repro

    evil = dataclasses.replace(suspect, path='a"""\nimport os\nos.abort()\n"""', function="b\\", location="c\n\u2028d")
    text = write_repro(evil, tmp_path / "out").read_text()
    assert compile(text, "repro.py", "exec") and "\nos.abort" not in text and "\nimport os\nos" not in text


def test_what_cannot_stand_by_itself_is_a_note(tmp_path):
    @tf.function
    def function(x):
        array = tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            array = array.write(i, x + tf.cast(i, tf.float32))
        return array.stack()

    def wrong(input_handle, element_shape: Static, *, element_dtype, num_elements=-1):
        return jnp.zeros((3, 2))

    concrete = function.get_concrete_function(tf.TensorSpec([2]))
    with tf2jax.override_op("TensorListStack", wrong):
        result = tf2jax.verify(concrete, repro=tmp_path)
    assert result.signatures[0].bisection.suspects[0].op == "TensorListStack"
    assert result.repro is None and "no reproduction" in result.signatures[0].notes[0]
