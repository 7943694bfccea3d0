"""Models that run code or touch files raise, unless named as allowed."""

import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tf2jax_lite
from tf2jax_lite.errors import InvalidModelError, UntrustedError
from tf2jax_lite.frontend.safety import unsafe_ops
from tf2jax_lite.frontend.saved import saved_model
from tf2jax_lite.pipeline.inspect_model import describe_saved_model


def save(path, function, **objects):
    model = tf.Module()
    for name, value in objects.items():
        setattr(model, name, value)
    model.f = tf.function(function, input_signature=[tf.TensorSpec([2], tf.float32)])
    tf.saved_model.save(model, str(path), signatures=model.f)
    return path


def edit(path, change):
    file = path / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(proto.meta_graphs[0])
    file.write_bytes(proto.SerializeToString())


def python_function(x):
    y = tf.numpy_function(lambda v: v + 1, [x], tf.float32)
    return tf.ensure_shape(y, [2])


def writes_file(path):
    def run(x):
        tf.io.write_file(str(path), "written")
        return x + 1

    return run


def reads_file(x):
    return x + tf.cast(tf.strings.length(tf.io.read_file("/etc/hostname")), tf.float32)


@pytest.mark.parametrize(("op", "make"), [("PyFunc", python_function), ("ReadFile", reads_file), ("WriteFile", None)])
def test_unsafe_ops_are_refused_by_name(tmp_path, op, make):
    out = tmp_path / "out.txt"
    path = save(tmp_path / "model", make or writes_file(out))
    assert describe_saved_model(path).signatures  # looking runs nothing
    for split_host in (False, True):
        with pytest.raises(UntrustedError, match=op):
            tf2jax_lite.convert_saved_model(path, split_host=split_host)
    assert not out.exists()


def test_trusted_op_stays_in_tensorflow(tmp_path):
    path = save(tmp_path / "model", reads_file)
    with tf2jax_lite.override_config("trusted", "ReadFile, WriteFile"):
        host, core, params = tf2jax_lite.convert_saved_model(path, split_host=True)
    expected = tf.saved_model.load(str(path)).f(tf.ones(2))
    np.testing.assert_allclose(core(params, **host(x=np.ones(2, np.float32)))[0]["output_0"], expected)


def test_initializers_are_looked_at_too(tmp_path):
    """TensorFlow fills tables on load; writing a file there needs no call."""
    out = tmp_path / "out.txt"
    names, numbers = tf.constant(["a"]), tf.constant([1.0])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(names, numbers), 0.0)
    path = save(tmp_path / "model", lambda x: x + table.lookup(tf.constant("a")), table=table)

    def plant(meta):
        functions = [f for f in meta.graph_def.library.function if "initializer" in f.signature.name]
        assert functions
        for function in functions:
            for name, text in (("file", str(out)), ("text", "written")):
                made = function.node_def.add(name=name, op="Const")
                made.attr["dtype"].type = 7
                made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(text))
            function.node_def.add(name="plant", op="WriteFile", input=["file:output:0", "text:output:0"])
            function.control_ret["plant"] = "plant"
            function.signature.control_output.append("plant")

    edit(path, plant)
    with pytest.raises(UntrustedError, match="WriteFile"):
        tf2jax_lite.convert_saved_model(path)
    assert not out.exists()


def test_only_savers_may_read_and_write_checkpoints(tmp_path):
    path = save(tmp_path / "model", lambda x: x + 1, v=tf.Variable([1.0, 2.0]))
    tf2jax_lite.convert_saved_model(path)

    def call_the_saver(meta):
        saver = next(f for f in meta.graph_def.library.function if any(n.op == "SaveV2" for n in f.node_def))
        ops = ("SaveV2", "RestoreV2")
        other = next(f for f in meta.graph_def.library.function if not any(n.op in ops for n in f.node_def))
        call = other.node_def.add(name="sneak", op="StatefulPartitionedCall")
        call.attr["f"].func.name = saver.signature.name

    edit(path, call_the_saver)
    with pytest.raises(UntrustedError, match="SaveV2"):
        tf2jax_lite.convert_saved_model(path)


@pytest.mark.default_cases("../../secret.txt", "/etc/hostname")
@pytest.mark.parametrize("name", ["../../secret.txt", "/etc/hostname", "link.txt"])
def test_assets_that_lead_out_of_the_model(tmp_path, name):
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("a\nb\n")
    (tmp_path / "secret.txt").write_text("secret\n")
    initializer = tf.lookup.TextFileInitializer(
        tf.saved_model.Asset(str(vocabulary)).asset_path, tf.string, 0, tf.int64, -1
    )
    table = tf.lookup.StaticHashTable(initializer, -1)
    path = save(tmp_path / "model", lambda x: x + tf.cast(table.lookup(tf.constant("b")), tf.float32), table=table)
    assert saved_model.load(path) is not None
    os.symlink(tmp_path / "secret.txt", path / "assets" / "link.txt")

    def lead_out(meta):
        for asset in meta.asset_file_def:
            asset.filename = name

    edit(path, lead_out)
    with pytest.raises(UntrustedError, match="leads out"):
        tf2jax_lite.convert_saved_model(path)
    with tf2jax_lite.override_config("trusted", name):
        assert unsafe_ops.asset_path(path, name)


def test_assets_that_are_pipes(tmp_path):
    (tmp_path / "assets").mkdir()
    os.mkfifo(tmp_path / "assets" / "words.txt")
    for read in (
        unsafe_ops.asset_path,
        lambda model, name: unsafe_ops.outside_file(str(model / "assets" / name), model),
    ):
        with pytest.raises(InvalidModelError, match="not a regular file"):
            read(tmp_path, "words.txt")


def test_tables_that_read_files_which_are_no_assets(tmp_path):
    (tmp_path / "secret.txt").write_text("secret\n")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        initializer = tf.lookup.TextFileInitializer(str(tmp_path / "secret.txt"), tf.string, 0, tf.int64, -1)
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        table = tf.lookup.StaticHashTable(initializer, -1)
        y = tf.identity(x + tf.cast(table.lookup(tf.constant("secret")), tf.float32), name="y")
        session.run(tf.compat.v1.tables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "model"), {"x": x}, {"y": y})

    def forget_assets(meta):
        del meta.asset_file_def[:]
        del meta.collection_def["saved_model_assets"]
        del meta.collection_def["asset_filepaths"]

    edit(tmp_path / "model", forget_assets)  # so the path of the constant stands
    with pytest.raises(UntrustedError, match="not an asset"):
        tf2jax_lite.convert_saved_model(tmp_path / "model")
    with tf2jax_lite.override_config("trusted", str(tmp_path / "secret.txt")):
        fn, params = tf2jax_lite.convert_saved_model(tmp_path / "model")
    np.testing.assert_array_equal(fn(params, x=np.ones(2, np.float32))[0]["y"], [1, 1])


@pytest.mark.full
def test_looking_at_a_model_loads_nothing(tmp_path, monkeypatch):
    path = save(tmp_path / "model", writes_file(tmp_path / "out.txt"))

    def no(*args, **kwargs):
        raise AssertionError("TensorFlow is asked to build or run something")

    for place, name in (
        (tf.saved_model, "load"),
        (tf.graph_util, "import_graph_def"),
        (tf.compat.v1, "Session"),
        (tf.Graph, "_create_op_internal"),
        (tf, "function"),
    ):
        monkeypatch.setattr(place, name, no)
    found = describe_saved_model(path)
    assert not found.supported
    assert "WriteFile" in str(found.signatures[0].unsupported)
    assert not (tmp_path / "out.txt").exists()
