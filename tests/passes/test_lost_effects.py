"""Nodes with side effects are lowered, removable, or raise."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import function as tf_function

import tf2jax_lite as tf2jax
from tf2jax_lite import lowering
from tf2jax_lite.errors import UnsupportedOpsError
from tf2jax_lite.support.op_traits import REMOVABLE

SPEC = tf.TensorSpec([], tf.int64)


def _insert(x):
    """Put something into a table; no tensor depends on it."""
    table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
    tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=x, values=x)
    return x


def _in_a_loop(x):
    return tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, _insert(x)), (0, x))[1]


# Where the insertion stands.
LOCATIONS = {
    "main": _insert,
    "a called function": lambda x: tf.function(_insert)(x),
    "a called function, its result unused": lambda x: (tf.function(_insert)(x), x + 1)[1],
    "a branch": lambda x: tf.cond(x > 0, lambda: _insert(x), lambda: x),
    "a loop": _in_a_loop,
    "a loop, its result unused": lambda x: (_in_a_loop(x), x + 1)[1],
}


@pytest.mark.full
@pytest.mark.parametrize("name", LOCATIONS)
def test_an_insertion_raises(name):
    with pytest.raises(UnsupportedOpsError, match=r"LookupTableInsertV2: node '.*', which has side effects") as info:
        tf2jax.convert_functional(tf.function(LOCATIONS[name]), SPEC)
    assert info.value.ops == ("LookupTableInsertV2",) or info.value.ops == ("LookupTableInsertV2", "MutableHashTableV2")
    assert "raise_on_lost_effect" in str(info.value)


@pytest.mark.parametrize("name", LOCATIONS)
def test_an_insertion_is_left_out_with_a_warning(name):
    function = tf.function(LOCATIONS[name])
    with (
        tf2jax.override_config("raise_on_lost_effect", False),
        pytest.warns(UserWarning, match="1 node.* are left out:\n  LookupTableInsertV2: node"),
    ):
        jax_fn = tf2jax.convert_functional(function, SPEC)
    assert jax_fn(np.int32(3)) == function(tf.constant(3, tf.int64))


def _graph(build):
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.int64, [], name="x")
        tf.identity(build(x), name="y")
    return graph.as_graph_def()


def test_graphs_of_tensorflow_1_run_what_is_reached():
    """A session runs nodes that the result reaches over data and control."""

    def unreached(x):
        _insert(x)
        return x + 1

    def reached(x):
        table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
        with tf.control_dependencies([tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=x, values=x)]):
            return x + 1

    jax_fn, _ = tf2jax.convert_graph_def(_graph(unreached), ["x:0"], ["y:0"])
    (y,), _ = jax_fn({}, np.int32(1))
    assert y == 2
    with pytest.raises(UnsupportedOpsError, match="LookupTableInsertV2"):
        tf2jax.convert_graph_def(_graph(reached), ["x:0"], ["y:0"])


@pytest.mark.parametrize("op", ["QueueEnqueue", "BarrierInsertMany"])
def test_first_ops_of_tensorflow_1_that_only_act(op):
    """Ops on references are not stateful; without results, they have effects."""

    def acts(x):
        if op == "QueueEnqueue":
            queue = tf.raw_ops.FIFOQueue(component_types=[tf.int64], shapes=[[]])
            done = tf.raw_ops.QueueEnqueue(handle=queue, components=[x])
        else:
            barrier = tf.raw_ops.Barrier(component_types=[tf.int64], shapes=[[]])
            done = tf.raw_ops.BarrierInsertMany(handle=barrier, keys=["k"], values=x[None], component_index=0)
        with tf.control_dependencies([done]):
            return x + 1

    with pytest.raises(UnsupportedOpsError, match=f"{op}: node"):
        tf2jax.convert_graph_def(_graph(acts), ["x:0"], ["y:0"])


def test_a_function_called_by_its_name_runs_every_stateful_node():
    """Defun's have no control outputs: there, TensorFlow keeps what is stateful."""

    @tf_function.Defun(tf.int64)
    def inner(x):
        _insert(x)
        return x + 1

    with pytest.raises(UnsupportedOpsError, match="LookupTableInsertV2"):
        tf2jax.convert_graph_def(_graph(lambda x: inner(x)), ["x:0"], ["y:0"])


def _summary(x):
    writer = tf.raw_ops.SummaryWriter()
    tf.raw_ops.WriteScalarSummary(writer=writer, step=1, tag="x", value=x)


# Stateful and unused, but removable.
UNUSED = {
    "a queue": lambda x: tf.raw_ops.FIFOQueueV2(component_types=[tf.int64]),
    "a dataset": lambda x: tf.data.Dataset.range(x),
    "random numbers": lambda x: tf.raw_ops.NonDeterministicInts(shape=[2]),
    "printing": lambda x: tf.print("seen"),
    "an assertion": lambda x: tf.debugging.assert_positive(x),
    "a summary": _summary,
    "the time": lambda x: tf.timestamp(),
}


@pytest.mark.full_cases("a queue", "the time")
@pytest.mark.parametrize("name", UNUSED)
def test_removable_ops(name):
    def fn(x):
        UNUSED[name](x)
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tf2jax.convert_functional(tf.function(fn), SPEC)(np.int32(3)) == 4


def _stateful_ops():
    found = op_def_pb2.OpList()
    found.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {proto.name: proto for proto in found.op if proto.is_stateful or not proto.output_arg}


@pytest.mark.full
def test_removable_ops_behave_as_their_rationale_states():
    """TensorFlow's OpDefs agree: makers take no resource, and so on."""
    ops = _stateful_ops()
    known = lowering.known_ops()
    changing = ("Insert", "Remove", "Enqueue", "Dequeue", "Assign", "Push", "Pop", "Save", "InitializeTable")
    for name, rationale in REMOVABLE.items():
        assert name in ops, name
        handles = [a.type == types_pb2.DT_RESOURCE for a in ops[name].input_arg]
        outputs = [a.type for a in ops[name].output_arg]
        if rationale.startswith("creates") and name not in (
            "MakeWeakResourceHandle",
            "TensorArrayGrad",
            "TensorArrayGradV2",
        ):
            assert not any(handles) and outputs, name
        if rationale.startswith("describes"):
            assert outputs == [types_pb2.DT_VARIANT], name
        if rationale.startswith(("only reads", "draws")):
            assert outputs, name
            assert not any(a.is_ref for a in ops[name].input_arg), name
        if not rationale.startswith(("creates", "frees")):
            assert name.startswith("Is") or not any(word in name for word in changing), name
    assert {"VarHandleOp", "Stack", "StackV2"} & REMOVABLE.keys()
    # Ops with side effects that are neither registered nor removable raise.
    for name in ("LookupTableInsertV2", "QueueEnqueueV2", "IteratorGetNext", "WriteFile", "EagerPyFunc", "SaveV2"):
        assert name in ops and name not in known and name not in REMOVABLE
