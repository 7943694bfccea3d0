"""Checkpoints and initializers that ask for more memory than their files hold."""

import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

import tf2jax_lite
from tf2jax_lite.errors import InvalidModelError, LimitError
from tf2jax_lite.frontend.safety import checkpoint_index
from tf2jax_lite.frontend.saved import checkpoint_reader
from tf2jax_lite.frontend.saved.checkpoint_reader import Checkpoint
from tf2jax_lite.pipeline import initial_values
from tf2jax_lite.pipeline.steps import plan_graph
from tf2jax_lite.support.config import Config


@pytest.fixture
def prefix(tmp_path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(np.arange(6.0).reshape(2, 3)))
    return checkpoint.write(str(tmp_path / "point"))


def test_a_checkpoint_is_read(prefix):
    found = Checkpoint(prefix)
    np.testing.assert_array_equal(found.read(("v/.ATTRIBUTES/VARIABLE_VALUE", "")), np.arange(6.0).reshape(2, 3))


def test_tensors_larger_than_their_files(prefix, monkeypatch):
    """TensorFlow reads big-endian checkpoints; its reader is made to report sizes."""
    load = tf.compat.v1.train.NewCheckpointReader

    class Reader:
        def __init__(self, path):
            self._reader = load(path)

        def get_variable_to_shape_map(self):
            return {"v/.ATTRIBUTES/VARIABLE_VALUE": [1 << 20, 1 << 20]}

        def get_variable_to_dtype_map(self):
            return self._reader.get_variable_to_dtype_map()

    def big_endian(*args):
        header, entries = checkpoint_index.read_index(*args)
        header.endianness = 1
        return header, entries

    monkeypatch.setattr(checkpoint_reader, "read_index", big_endian)
    monkeypatch.setattr(tf.compat.v1.train, "NewCheckpointReader", Reader)
    with pytest.raises(InvalidModelError, match="more than the"):
        Checkpoint(prefix)


def crc32c(data):
    total = 0xFFFFFFFF
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = (total >> 1) ^ (0x82F63B78 if total & 1 else 0)
    return total ^ 0xFFFFFFFF


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def table(entries):
    """Return a LevelDB table with correct checksums."""
    data = b""

    def block(pairs):
        nonlocal data
        text = b"".join(varint(0) + varint(len(k)) + varint(len(v)) + k + v for k, v in pairs) + struct.pack(
            "<II", 0, 1
        )
        place = varint(len(data)) + varint(len(text))
        total = crc32c(text + b"\0")
        masked = ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFFFFFF
        data += text + b"\0" + struct.pack("<I", masked)
        return place

    place, nothing = block(entries), block([])
    footer = nothing + block([(b"\xff", place)])
    return data + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


V = ("v/.ATTRIBUTES/VARIABLE_VALUE", "")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda entry: None, ""),
        (lambda entry: [entry.shape.dim.add(size=1) for _ in range(300)], "302 dimensions"),
        (lambda entry: entry.shape.dim.add(size=-1), "shape"),
        (lambda entry: [entry.shape.dim.add(size=1 << 40) for _ in range(2)], "shape"),
        (lambda entry: entry.slices.add().extent.add(start=0, length=1), "a part of"),
    ],
)
def test_shapes_over_which_tensorflow_ends_the_process(prefix, change, match):
    index = Path(f"{prefix}.index")
    entries = list(checkpoint_index._entries(index.read_bytes()))
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(dict(entries)[b"v/.ATTRIBUTES/VARIABLE_VALUE"])
    change(entry)
    entries = [(k, entry.SerializeToString() if k.startswith(b"v/") else v) for k, v in entries]
    index.write_bytes(table(entries))
    if not match:
        assert ("v/.ATTRIBUTES/VARIABLE_VALUE", "") in Checkpoint(prefix)
        return
    with pytest.raises(InvalidModelError, match=match):
        Checkpoint(prefix)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda entry: entry.shape.dim[0].CopyFrom(type(entry.shape.dim[0])(size=1 << 40)), "more than the"),
        (lambda entry: setattr(entry, "offset", 1 << 20), "more than the"),
        (lambda entry: setattr(entry, "offset", -1), "more than the"),
        (lambda entry: setattr(entry, "size", 1 << 50), "more than the"),
        (lambda entry: setattr(entry, "shard_id", 7), "the file is missing"),
        (lambda entry: setattr(entry, "dtype", 1000), "dtype"),
        (lambda entry: setattr(entry, "dtype", 0), "dtype"),
        (lambda entry: setattr(entry, "dtype", 20), "dtype"),
        (lambda entry: setattr(entry, "dtype", 101), "dtype"),
    ],
)
def test_tensors_that_their_files_cannot_hold(prefix, change, match):
    index = Path(f"{prefix}.index")
    entries = list(checkpoint_index._entries(index.read_bytes()))
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(dict(entries)[b"v/.ATTRIBUTES/VARIABLE_VALUE"])
    change(entry)
    index.write_bytes(table([(k, entry.SerializeToString() if k.startswith(b"v/") else v) for k, v in entries]))
    with pytest.raises(InvalidModelError, match=match):
        Checkpoint(prefix)


def test_every_changed_byte_of_numbers_is_noticed(prefix):
    """The index has a checksum of each tensor, and of each of its own blocks."""
    data = Path(f"{prefix}.data-00000-of-00001")
    written = data.read_bytes()
    entry = Checkpoint(prefix)._entries[V[0]]
    for at in range(entry.offset, entry.offset + entry.size, 7):
        data.write_bytes(written[:at] + bytes([written[at] ^ 4]) + written[at + 1 :])
        with pytest.raises(InvalidModelError, match="damaged"):
            Checkpoint(prefix).read(V)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two checkpoints, and the file of the newest."""
    saved = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0]))
    saved.save(str(tmp_path / "made" / "point"))
    saved.v.assign([3.0, 4.0])
    saved.save(str(tmp_path / "made" / "point"))
    return tmp_path / "made"


def test_a_folder_gives_its_newest_checkpoint(folder, tmp_path):
    """Its state's path is ignored: it is in the folder, which may have moved."""
    np.testing.assert_array_equal(Checkpoint(folder).read(V), [3, 4])
    tf.train.Checkpoint(v=tf.Variable([5.0, 6.0])).write(str(tmp_path / "point-1"))
    for path in (tmp_path / "point-1", "../point-1", "/elsewhere/point-1"):
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "{path}"')
        np.testing.assert_array_equal(Checkpoint(folder).read(V), [1, 2])


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "checkpoint: cannot be read"),
        (b"", "Invalid checkpoint state"),
        (b'model_checkpoint_path: "../"', "names no checkpoint"),
        (b'model_checkpoint_path: "nothing"', "not a checkpoint"),
        (b'model_checkpoint_path: "point-2', "names no checkpoint"),
        (b"\xff\xfe", "checkpoint"),
        (b'all_model_checkpoint_paths: "point-2"', "Invalid checkpoint state"),
    ],
)
def test_folders_whose_state_says_nothing(folder, content, match):
    (folder / "checkpoint").unlink()
    if content is not None:
        (folder / "checkpoint").write_bytes(content)
    with pytest.raises(InvalidModelError, match=match):
        Checkpoint(folder)


def test_a_folder_whose_checkpoint_would_end_the_process(folder):
    index = folder / "point-2.index"
    entries = []
    for key, value in checkpoint_index._entries(index.read_bytes()):
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(value) if key.startswith(b"v/") else None
        if entry is not None:
            for _ in range(300):
                entry.shape.dim.add(size=1)
        entries.append((key, value if entry is None else entry.SerializeToString()))
    index.write_bytes(table(entries))
    with pytest.raises(InvalidModelError, match="301 dimensions"):
        Checkpoint(folder)


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_damaged_checkpoints(prefix, part):
    data = Path(f"{prefix}.{part}").read_bytes()
    for at in range(0, len(data), max(1, len(data) // 16)):
        broken = bytearray(data)
        broken[at] ^= 0x55
        Path(f"{prefix}.{part}").write_bytes(broken)
        try:
            found = Checkpoint(prefix)
            found.read(("v/.ATTRIBUTES/VARIABLE_VALUE", ""))
        except InvalidModelError:
            pass


def initial_value(proto, variable):
    return initial_values.initial_value(proto, variable, lambda graph: plan_graph(graph, Config()))


def test_initializers_that_would_make_much():
    """Only initializers state sizes; the value's sum would be one number."""
    with tf.Graph().as_default() as graph:
        big = tf.random.uniform(tf.constant([1 << 20, 1 << 18]), name="big")
        v = tf.compat.v1.get_variable("v", initializer=tf.constant(0.0), use_resource=True)
        tf.compat.v1.assign(v, tf.reduce_sum(big), name="set")
    proto = graph_pb2.GraphDef()
    for node in graph.as_graph_def().node:
        if node.op != "AssignVariableOp" or node.name.startswith("set"):
            proto.node.add().CopyFrom(node)
    with pytest.raises(LimitError, match="initializer of 'v'"):
        initial_value(proto, "v")
    small = graph_pb2.GraphDef()
    small.CopyFrom(graph.as_graph_def())
    assert initial_value(small, "v") == 0
    assert tf2jax_lite.get_config("max_constant_bytes") == 1 << 31


@pytest.mark.default_cases("True-None-0-unknown number of steps")
@pytest.mark.parametrize(
    ("v2", "limit", "inner", "text"),
    [
        (False, 2**31 - 1, 0, "unknown number of steps"),
        (True, None, 0, "unknown number of steps"),
        (True, 300, 20, "takes 6000 steps of loops; 1000 are"),
    ],
)
def test_initializers_that_would_take_long(v2, limit, inner, text, monkeypatch):
    """One that counts to 2**31, one whose end is drawn, and one with a loop in a loop."""
    monkeypatch.setattr(initial_values, "MAX_STEPS", 1000)
    was = tf.compat.v1.control_flow_v2_enabled()
    (tf.compat.v1.enable_control_flow_v2 if v2 else tf.compat.v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default() as graph:
            end = limit or tf.cast(tf.random.uniform([]) + 3.0, tf.int32)

            def halved(x, times, within=0):
                def body(i, x):
                    return i + 1, halved(x, within) if within else x * 0.5

                return tf.identity(tf.compat.v1.while_loop(lambda i, x: i < times, body, (0, x))[1])

            def counted(end=end):
                return halved(tf.random.uniform([]), end, inner)

            tf.compat.v1.get_variable("v", initializer=counted, use_resource=True)
            tf.compat.v1.get_variable("w", initializer=tf.random.truncated_normal([3]), use_resource=True)
    finally:
        (tf.compat.v1.enable_control_flow_v2 if was else tf.compat.v1.disable_control_flow_v2)()
    proto = graph.as_graph_def()
    with pytest.raises(LimitError, match=f"initializer of 'v'.*{text}"):
        initial_value(proto, "v")
    if not limit:
        assert initial_value(proto, "w").shape == (3,)
