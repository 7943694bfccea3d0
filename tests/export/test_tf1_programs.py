"""TF1 programs with own savers, partitioned variables, devices of a cluster.

Each is verified, split, and gets the artifact's weights back.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tf2jax_lite
from tests._support import close
from tf2jax_lite.errors import ExportError, Tf2JaxError, UntrustedError
from tf2jax_lite.pipeline.inspect_model import describe_saved_model
from tf2jax_lite.verification import verify

tf1 = tf.compat.v1
_X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def _saved(path, *, resource=False, parts=0, names="{}", own="", device=""):
    """Write a TF1 SavedModel."""
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 4], name="x")
        partitioner = tf1.fixed_size_partitioner(parts) if parts else None
        with tf1.variable_scope("dense", use_resource=resource, partitioner=partitioner):
            kernel = tf1.get_variable("kernel", [4, 2], initializer=tf1.random_normal_initializer(seed=1))
        count = tf1.get_local_variable("count", initializer=tf.constant(1.0), use_resource=resource)
        y = tf.tanh(tf.matmul(x, tf.convert_to_tensor(kernel))) + count
        session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
        if own:
            tf1.train.Saver({own.format(v.op.name): v for v in tf1.global_variables()})
        saver = tf1.train.Saver({names.format(v.op.name): v for v in tf1.global_variables()})
        ends = [{key: tf1.saved_model.build_tensor_info(tensor)} for key, tensor in (("x", x), ("y", y))]
        builder = tf1.saved_model.Builder(str(path))
        signatures = {"serving_default": tf1.saved_model.build_signature_def(*ends)}
        main = tf1.local_variables_initializer()
        builder.add_meta_graph_and_variables(session, ["serve"], signatures, saver=saver, main_op=main)
        builder.save()
    edit(path, lambda graph: [setattr(node, "device", device) for node in graph.node])
    return path


def edit(path, change):
    file = path / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(proto.meta_graphs[0].graph_def)
    file.write_bytes(proto.SerializeToString())


_PROGRAMS = {
    "references": {},
    "own saver": {"own": "{}"},
    "own saver, other names": {"own": "other/{}", "resource": True},
    "parts": {"parts": 2},
    "renamed": {"names": "renamed/{}", "resource": True},
    "renamed parts, own saver": {"names": "renamed/{}", "parts": 2, "own": "{}"},
    "GPU": {"device": "/device:GPU:3"},
    "TPU": {"device": "/device:TPU:0", "resource": True},
    "parameter server": {"device": "/job:ps/replica:0/task:1/device:CPU:0"},
}


@pytest.mark.default_cases("own saver, other names", "renamed parts, own saver", "parameter server")
@pytest.mark.parametrize("program", _PROGRAMS)
def test_programs_verify_split_and_take_weights(tmp_path, program):
    model = _saved(tmp_path / "model", **_PROGRAMS[program])
    fn, params = tf2jax_lite.convert_saved_model(model)
    host, core, core_params = tf2jax_lite.convert_saved_model(model, split_host=True)
    close(core(core_params, **host(x=_X))[0]["y"], fn(params, _X)[0]["y"])
    assert verify(model).ok
    trained = {name: value if name == "count" else 2 * np.asarray(value) + 1 for name, value in params.items()}
    artifact = tmp_path / "artifact"
    tf2jax_lite.export_functions({"serving_default": (fn, trained)}, artifact, stablehlo=False)
    report = tf2jax_lite.export_to_tf(artifact, tmp_path / "back", model=model)
    assert report.changed == sorted(set(params) - {"count"}) and report.kept == ["count"]
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        tf1.saved_model.loader.load(session, ["serve"], str(tmp_path / "back"), clear_devices=True)
        name = graph.get_operation_by_name("add").outputs[0]
        close(fn(trained, _X)[0]["y"], session.run(name, {"x:0": _X}))


def test_a_changed_variable_that_no_checkpoint_holds(tmp_path):
    fn, params = tf2jax_lite.convert_saved_model(_saved(tmp_path / "model"))
    changed = {**params, "count": np.float32(7)}
    tf2jax_lite.export_functions({"serving_default": (fn, changed)}, tmp_path / "artifact", stablehlo=False)
    with pytest.raises(ExportError, match="count"):
        tf2jax_lite.export_to_tf(tmp_path / "artifact", tmp_path / "back", model=tmp_path / "model")
    assert not (tmp_path / "back").exists()


def _saves_first(graph):
    """Let the signature's result wait for the program's own saver."""
    next(node for node in graph.node if node.name == "add").input.append("^save/SaveV2")


def _reads_a_constant_file(graph):
    """Add a constant node that nothing reads; importing a graph evaluates such."""
    name = graph.node.add(name="name", op="Const")
    name.attr["dtype"].type = 7
    name.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/etc/hostname"))
    graph.node.add(name="unread", op="ReadFile", input=["name"])


@pytest.mark.parametrize(("change", "op"), [(_saves_first, "SaveV2"), (_reads_a_constant_file, "ReadFile")])
def test_nodes_that_tensorflow_would_run_are_refused(tmp_path, change, op):
    model = _saved(tmp_path / "model", own="{}")
    edit(model, change)
    with pytest.raises(UntrustedError, match=op):
        tf2jax_lite.convert_saved_model(model, split_host=True)
    (signature,) = verify(model).signatures
    assert op in signature.error


def _keys_are_numbers(graph):
    for node in graph.node:
        if node.name.endswith("RestoreV2/tensor_names"):
            node.attr["dtype"].type = 9
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([1]))


def _variable_of_resources(graph):
    for node in graph.node:
        if node.op == "VariableV2":
            node.attr["dtype"].type = 20


def _restores_without_inputs(graph):
    for node in graph.node:
        if node.op == "RestoreV2":
            del node.input[1:]


@pytest.mark.parametrize("change", [_keys_are_numbers, _variable_of_resources, _restores_without_inputs])
def test_damaged_variables(tmp_path, change):
    """They are read as far as possible, or are one error."""
    model = _saved(tmp_path / "model")
    edit(model, change)
    for read in (describe_saved_model, tf2jax_lite.convert_saved_model):
        try:
            read(model)
        except Tf2JaxError as error:
            assert not isinstance(error.__cause__, (AttributeError, IndexError, TypeError))


@pytest.mark.full
@pytest.mark.parametrize("device", ["/device:GPU:0", "/job:worker/task:2"])
@pytest.mark.parametrize("suffix", [".pb", ".meta"])
def test_files_of_graphs_on_devices(tmp_path, suffix, device):
    prefix = str(tmp_path / "model")
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 4], name="x")
        y = tf.tanh(x @ tf1.get_variable("w", [4, 2], use_resource=False), name="y")
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver({"other": tf1.global_variables()[0]})
        tf1.train.Saver().save(session, prefix)
        frozen = tf1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), [y.op.name])
    proto = frozen if suffix == ".pb" else tf1.MetaGraphDef.FromString((tmp_path / "model.meta").read_bytes())
    for node in proto.node if suffix == ".pb" else proto.graph_def.node:
        node.device = device
    file = tmp_path / f"model{suffix}"
    file.write_bytes(proto.SerializeToString())
    assert verify(file, ends=(["x"], ["y"])).ok
