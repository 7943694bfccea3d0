"""Constants of strings, counted by their bytes before they are computed."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2

import tf2jax_lite
from tf2jax_lite.errors import Tf2JaxError

STRING, INT32, FLOAT = types_pb2.DT_STRING, types_pb2.DT_INT32, types_pb2.DT_FLOAT
WORD = b"x" * 1000
MANY = np.array([b"y" * 100_000, *[b""] * 1000], object)


def computed(op, inputs, times=1, **attrs):
    """Return the result of an op of constants, or of its own result ``times`` times."""
    graph = graph_pb2.GraphDef()
    names = [f"c{i}" for i in range(len(inputs))]
    for name, value in zip(names, inputs, strict=True):
        node = graph.node.add(name=name, op="Const")
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        node.attr["dtype"].type = node.attr["value"].tensor.dtype
    for number in range(times):
        node = graph.node.add(name=f"n{number}", op=op, input=names)
        for name, value in attrs.items():
            if isinstance(value, list):
                node.attr[name].list.type.extend(value)
            elif isinstance(value, bytes):
                node.attr[name].s = value
            elif name.startswith(("T", "out", "index")):
                node.attr[name].type = value
            else:
                node.attr[name].i = value
        names = [node.name] * len(inputs)
    with tf2jax_lite.override_config("max_constant_bytes", 1 << 20):
        fn, params = tf2jax_lite.convert_graph_def(graph.SerializeToString(), [], [names[0]])
        return fn(params)[0][0]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Add", [WORD] * 2, {"T": STRING, "times": 12}),
        ("Add", [np.array([[WORD]] * 40, object), np.array([WORD] * 40, object)], {"T": STRING}),
        ("StringJoin", [WORD] * 2, {"N": 2, "times": 12}),
        ("StringJoin", [np.array([b"a"] * 100, object)] * 3, {"N": 3, "separator": b"s" * 10_000}),
        ("StringFormat", [WORD] * 2, {"T": [STRING] * 2, "template": b"%s%s", "times": 12}),
        ("AsString", [np.arange(9, dtype=np.int32)], {"T": INT32, "width": 1 << 20, "fill": b"0"}),
        ("AsString", [np.arange(9, dtype=np.float32)], {"T": FLOAT, "precision": 1 << 20}),
        ("Fill", [np.int32([5000]), WORD], {"T": STRING, "index_type": INT32}),
        ("Tile", [np.array([WORD], object), np.int32([5000])], {"T": STRING, "Tmultiples": INT32}),
        ("BroadcastTo", [np.array([WORD], object), np.int32([5000])], {"T": STRING, "Tidx": INT32}),
        ("Pack", [WORD] * 2, {"T": STRING, "N": 2, "times": 12}),
        ("StringLength", [MANY], {}),
        ("StringToHashBucketFast", [MANY], {"num_buckets": 7}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_strings_past_the_limit(op, inputs, attrs):
    with pytest.raises(Tf2JaxError, match="max_constant_bytes allows 1048576"):
        computed(op, inputs, **attrs)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "match"),
    [
        ("Mul", [WORD, WORD], {"T": STRING}, "op of numbers"),
        ("Cumsum", [np.array([WORD] * 9, object), np.int32(0)], {"T": STRING, "Tidx": INT32}, "op of numbers"),
        ("AddN", [WORD] * 2, {"T": STRING, "N": 2}, "op of numbers"),
        ("Mul", [WORD, np.int32(1 << 30)], {"T": INT32}, "array of strings; expected int32"),
        ("Cumsum", [np.array([WORD] * 9, object), np.int32(0)], {"T": INT32, "Tidx": INT32}, "array of strings"),
    ],
)
def test_strings_for_ops_of_numbers(op, inputs, attrs, match):
    with pytest.raises(Tf2JaxError, match=match):
        computed(op, inputs, **attrs)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "expected"),
    [
        ("Add", [np.array([[b"a"], [b"bc"]], object), np.array([b"d", b""], object)], {"T": STRING},
         [[b"ad", b"a"], [b"bcd", b"bc"]]),
        ("StringJoin", [np.array([b"a", b"b"], object), b"c"], {"N": 2, "separator": b"-"}, [b"a-c", b"b-c"]),
        ("StringFormat", [WORD, WORD], {"T": [STRING] * 2, "template": b"%s%s"}, b'"%b""%b"' % (WORD, WORD)),
        ("AsString", [np.float32([1e30, 2])], {"T": FLOAT, "width": 4},
         [b"1000000015047466219876688855040.000000", b"2.000000"]),
        ("Fill", [np.int32([2]), WORD], {"T": STRING, "index_type": INT32}, [WORD] * 2),
        ("StringLength", [np.array([WORD, b""], object)], {}, [1000, 0]),
    ],
)  # fmt: skip
def test_strings_below_the_limit(op, inputs, attrs, expected):
    np.testing.assert_array_equal(computed(op, inputs, **attrs), np.array(expected, object))
