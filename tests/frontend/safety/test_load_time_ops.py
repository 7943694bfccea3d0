"""Functions that TensorFlow runs on load are checked first.

They must end, fit into memory, and touch nothing.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.trackable import resource

import tf2jax_lite
from tf2jax_lite.errors import InvalidModelError, LimitError, UnsupportedError, UntrustedError
from tf2jax_lite.frontend.saved import saved_model

tf1 = tf.compat.v1


class Waiting(resource.TrackableResource):
    """A table, beside which its initializer does something else."""

    def __init__(self, run):
        self._run = run
        super().__init__()

    def _create_resource(self):
        return tf.raw_ops.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.int64)

    def _initialize(self):
        return self._run()


def save(path, run):
    model = tf.Module()
    model.resource = Waiting(run)
    _ = model.resource.resource_handle
    model.f = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec([2], tf.float32)])
    tf.saved_model.save(model, str(path), signatures=model.f)
    return path


def count_for_ever():
    # The result is used, so that TensorFlow's optimizer cannot drop the loop.
    end = tf.while_loop(lambda i: i >= 0, lambda i: i * 0 + 1, [tf.constant(0, tf.int64)])[0]
    tf.debugging.assert_equal(end, tf.constant(0, tf.int64))


def wait_for_ever():
    queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.float32])
    tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32])


def write_a_file(path):
    tf.raw_ops.PrintV2(input=tf.constant("written"), output_stream=f"file://{path}", end="\n")


def much(sizes):
    tf.debugging.assert_equal(tf.fill(sizes, 1.0)[0], 1.0)


@pytest.mark.default_cases("count_for_ever-While", "wait_for_ever-QueueDequeueV2")
@pytest.mark.parametrize(
    ("run", "op"),
    [
        (count_for_ever, "While"),
        (wait_for_ever, "QueueDequeueV2"),
        (lambda: tf.raw_ops.DatasetFromGraph(graph_def=tf.constant("")), "DatasetFromGraph"),
        (lambda: much(tf.cast(tf.strings.to_number(tf.constant(["9e12"])), tf.int64)), "StringToNumber"),
    ],
)
def test_ops_that_must_not_run_while_loading(tmp_path, run, op):
    path = save(tmp_path / "model", run)
    with pytest.raises(UntrustedError, match=op):
        tf2jax_lite.convert_saved_model(path)


def test_printing_to_a_file(tmp_path):
    """`PrintV2` writes to a file if its output_stream says so, and anywhere."""
    out = tmp_path / "out.txt"
    path = save(tmp_path / "model", lambda: write_a_file(out))
    out.unlink(missing_ok=True)
    with pytest.raises(UntrustedError, match=r"PrintV2.*writes files"):
        tf2jax_lite.convert_saved_model(path)
    assert not out.exists()


@pytest.mark.full
def test_arrays_that_do_not_fit(tmp_path):
    path = save(tmp_path / "model", lambda: much(tf.constant([1 << 43], tf.int64)))
    with pytest.raises(LimitError, match="Fill"):
        tf2jax_lite.convert_saved_model(path)
    small = save(tmp_path / "small", lambda: much(tf.constant([1000], tf.int64)))
    assert tf2jax_lite.convert_saved_model(small) is not None
    with tf2jax_lite.override_config("max_constant_bytes", 2000), pytest.raises(LimitError, match="4000 bytes"):
        tf2jax_lite.convert_saved_model(small)


def joined(times):
    text = tf.constant("x" * 64)
    for _ in range(times):
        text = tf.raw_ops.Add(x=text, y=text)
    tf.debugging.assert_equal(tf.equal(text, ""), False)


def test_strings_that_double(tmp_path):
    """Save functions join keys of the checkpoint (Keras's TextVectorization)."""
    with pytest.raises(LimitError, match="Add"):
        tf2jax_lite.convert_saved_model(save(tmp_path / "model", lambda: joined(40)))
    assert tf2jax_lite.convert_saved_model(save(tmp_path / "small", lambda: joined(3))) is not None


def test_shapes_that_a_file_claims_are_not_believed(tmp_path):
    """A size argument is what the caller says, despite the attributes."""

    @tf.function(input_signature=[tf.TensorSpec([1], tf.int64)])
    def inner(sizes):
        return tf.fill(tf.reshape(sizes, [1]), 1.0)

    path = save(tmp_path / "model", lambda: tf.debugging.assert_equal(inner(tf.constant([3], tf.int64))[0], 1.0))
    with pytest.raises(UntrustedError, match="its memory use"):
        tf2jax_lite.convert_saved_model(path)
    with tf2jax_lite.override_config("trusted", "Fill"):
        tf2jax_lite.convert_saved_model(path)


def test_ops_that_are_trusted_by_name_run(tmp_path):
    path = save(tmp_path / "model", lambda: tf.debugging.assert_greater(tf.strings.to_number("3"), 2.0))
    with pytest.raises(UntrustedError, match="StringToNumber"):
        tf2jax_lite.convert_saved_model(path)
    with tf2jax_lite.override_config("trusted", "StringToNumber"):
        function, params = tf2jax_lite.convert_saved_model(path)
    np.testing.assert_array_equal(function(params, np.ones(2, np.float32))[0]["output_0"], [2.0, 2.0])


@pytest.mark.parametrize("restored", [False, True])
def test_a_resource_that_is_no_variable_is_called_so(tmp_path, restored):
    model = tf.Module()
    model.resource = Waiting(lambda: None)
    handle = model.resource.resource_handle

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def size(x):
        return x + tf.cast(tf.raw_ops.LookupTableSizeV2(table_handle=handle), tf.float32)

    model.f = size
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=size)
    with pytest.raises(UnsupportedError, match="not a variable"):
        if restored:
            tf2jax_lite.convert_saved_model(tmp_path / "model")
        else:
            tf2jax_lite.convert(size, np.ones(2, np.float32))


def save_tf1(path):
    """Save a TF1 model with tables of a range, local and restored variables."""
    with tf1.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.string, [2], name="x")
        keys = tf1.constant(["a", "b"])
        values = tf1.range(2, dtype=tf.int64)
        table = tf1.lookup.StaticHashTable(tf1.lookup.KeyValueTensorInitializer(keys, values), -1)
        scale = tf1.get_variable("scale", initializer=tf1.constant(2.0))
        local = tf1.Variable(tf1.fill([2], 3.0), collections=[tf1.GraphKeys.LOCAL_VARIABLES])
        y = tf1.cast(table.lookup(x), tf.float32) * scale + local
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer(), tf1.tables_initializer()])
        main = tf1.group(tf1.tables_initializer(), tf1.local_variables_initializer())
        tf1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y}, legacy_init_op=main)
    return path


def test_models_of_tensorflow_1_load(tmp_path):
    restored = saved_model.load(save_tf1(tmp_path / "model"))
    y = restored.signatures["serving_default"](tf.constant(["b", "c"]))["y"]
    np.testing.assert_array_equal(y, [5.0, 1.0])


@pytest.mark.full
@pytest.mark.parametrize("way", ["restore", "table_initializer", "damaged"])
def test_graphs_of_tensorflow_1(tmp_path, way):
    """The restoring op may read a checkpoint, not write; initializers neither."""
    path = save_tf1(tmp_path / "model")
    file = path / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    meta = proto.meta_graphs[0]
    saving = next(node.name for node in meta.graph_def.node if node.op == "SaveV2")
    if way == "restore":
        restoring = next(node for node in meta.graph_def.node if node.name == meta.saver_def.restore_op_name)
        restoring.input.append(f"^{saving}")
    elif way == "table_initializer":
        meta.collection_def["table_initializer"].node_list.value.append(saving)
    else:
        meta.collection_def["local_variables"].bytes_list.value.append(b"\xff\xff")
    file.write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidModelError if way == "damaged" else UntrustedError, match=r"SaveV2|cannot be read"):
        saved_model.load(path)
