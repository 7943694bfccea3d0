"""Equal parts of nodes are read once; shared ones are small and constant."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

import tf2jax_lite
from tf2jax_lite.errors import InvalidModelError, LimitError
from tf2jax_lite.frontend.graphdef import functions, nodes
from tf2jax_lite.frontend.graphdef.op_defs import read_attrs
from tf2jax_lite.frontend.graphdef.size_limits import ConstantBytes


def _node(name, op, inputs=(), device="", **attrs):
    proto = node_def_pb2.NodeDef(name=name, op=op, input=inputs, device=device)
    for key, value in attrs.items():
        proto.attr[key].CopyFrom(value)
    return proto


def _type(dtype):
    return tf.compat.v1.AttrValue(type=tf.as_dtype(dtype).as_datatype_enum)


def _spec(proto):
    return nodes.read_node(proto, proto.name, ConstantBytes("graph"))[1]


def _const(name, value):
    tensor = tf.make_tensor_proto(value)
    return _node(
        name, "Const", dtype=tf.compat.v1.AttrValue(type=tensor.dtype), value=tf.compat.v1.AttrValue(tensor=tensor)
    )


@pytest.mark.parametrize("length", [1, 127, 128, 300, 20_000])  # lengths of one, two and three bytes
def test_nodes_that_differ_in_names_inputs_and_devices_share_a_form(length):
    one = _node("a", "Neg", ["x"], T=_type("float32"))
    other = _node(
        "b" * length, "Neg", ["c" * length, "^" + "d" * length], "/device:" + "e" * length, T=_type("float32")
    )
    assert _spec(one) is _spec(other)


@pytest.mark.parametrize("name", ["a", "a" * 127, "a" * 128, "\u00e4", "\u00e4" * 100, "a*"])
@pytest.mark.parametrize("inputs", [[], ["x"], ["x:1", "^" + "y" * 300], ["\u00f6" * 70, "*"]])
@pytest.mark.parametrize("device", ["", "/device:CPU:0"])
@pytest.mark.parametrize("op", ["AddN", "Unknown" * 30])
def test_inputs_are_those_of_the_proto(name, inputs, device, op):
    for attrs in ({}, {"N": tf.compat.v1.AttrValue(i=2), "T": _type("float32")}):
        if op == "AddN" and not attrs:
            continue
        proto = _node(name, op, inputs, device, **attrs)
        found, spec = nodes.read_node(proto, name, ConstantBytes("graph"))
        assert found == inputs
        assert spec.op == op and spec.attrs == read_attrs(proto)


def test_nodes_that_differ_in_op_or_attributes_do_not():
    protos = [
        _node("a", "Neg", ["x"], T=_type("float32")),
        _node("a", "Neg", ["x"], T=_type("float64")),
        _node("a", "Abs", ["x"], T=_type("float32")),
        _node("a", "Neg", ["x"], T=_type("float32"), _class=tf.compat.v1.AttrValue(s=b"x")),
    ]
    specs = [_spec(proto) for proto in protos]
    assert len({id(spec) for spec in specs}) == len(protos)
    for spec, proto in zip(specs, protos, strict=True):
        assert spec.attrs == read_attrs(proto)
        assert spec.node_spec.output_dtypes == (
            proto.attr["T"].type and tf.as_dtype(proto.attr["T"].type).as_numpy_dtype,
        )


def test_small_constants_are_shared_and_read_only_large_ones_are_not():
    small, large = np.arange(4, dtype=np.float32), np.arange(4000, dtype=np.float32)
    first, second = (_spec(_const(name, small)) for name in "ab")
    assert first is second
    np.testing.assert_array_equal(first.attrs["value"], small)
    assert not first.attrs["value"].flags.writeable
    first, second = (_spec(_const(name, large)) for name in "ab")
    assert first is not second
    np.testing.assert_array_equal(second.attrs["value"], large)


def test_large_constants_of_few_bytes_are_not_cached():
    """A splat: the options that bound constants apply to each conversion."""
    before = len(nodes._SPECS)
    _spec(_const("a", np.zeros([100, 100], np.float32)))
    assert len(nodes._SPECS) == before


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-30, np.nan, np.inf, 3])
def test_scalars_are_what_tensorflow_reads(value):
    for dtype in (np.float32, np.float64) if isinstance(value, float) else (np.int32, np.int64, np.float32):
        proto = _const("a", np.asarray(value, dtype))
        expected = tf.make_ndarray(proto.attr["value"].tensor)
        found = _spec(proto).attrs["value"]
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


def test_valid_order_is_kept_and_cycles_raise():
    def read(*edges):
        graph = graph_pb2.GraphDef(node=[_node(name, "Neg", inputs, T=_type("float32")) for name, *inputs in edges])
        args = [functions.ir.Argument("x", np.dtype(np.float32))]
        return [node.name for node in functions.load_main(graph, "f", args, [edges[-1][0]]).nodes]

    assert read(["a", "x"], ["b", "a"], ["c", "x"]) == ["a", "b", "c"]
    assert read(["a", "x", "^c"], ["b", "a"], ["c", "x"]) == ["c", "a", "b"]  # only what stands too late moves
    for edges in ([["a", "b"], ["b", "a"]], [["a", "a"]], [["a", "x", "^b"], ["b", "x", "^a"]]):
        with pytest.raises(InvalidModelError, match="cycle"):
            read(*edges)


@pytest.mark.full
def test_nodes_that_name_functions_are_not_kept():
    """Functions get a new name whenever they are traced, so that these would pile up."""
    inner = tf.function(lambda x: x + 1.0)
    tf2jax_lite.convert(tf.function(lambda x: inner(x) * 2.0), tf.TensorSpec([]))
    assert nodes._SPECS
    assert not any(spec.node_spec.functions for spec in nodes._SPECS.values())


@pytest.mark.parametrize("backwards", [False, True])
def test_nodes_come_in_an_order_whatever_that_of_the_proto(backwards):
    protos = [_const("a", 1.0), _node("b", "Neg", ["a"], T=_type("float32")), _node("c", "NoOp", ["^b"])]
    graph = graph_pb2.GraphDef(node=protos[::-1] if backwards else protos)
    main = functions.load_main(graph, "main", (), ["b:0"], ["c"])
    assert [(node.name, node.inputs, node.control) for node in main.nodes] == [
        ("a", (), ()),
        ("b", (("a", 0),), ()),
        ("c", (), ("b",)),
    ]


@pytest.mark.full
@pytest.mark.parametrize("name", ["a:0", "^a"])
def test_odd_names_are_no_inputs(name):
    """Node names in one place are no outputs or control edges in another."""
    protos = [_const(name, 1.0), _const("a", 2.0), _node("b", "Neg", [name], T=_type("float32"))]
    graph = graph_pb2.GraphDef(node=protos)
    if name == "^a":
        with pytest.raises(InvalidModelError, match="expected 1 inputs, found 0"):
            functions.load_main(graph, "main", (), ["b:0"])
    else:
        (b,) = [n for n in functions.load_main(graph, "main", (), ["b:0"]).nodes if n.name == "b"]
        assert b.inputs == (("a", 0),)


def test_constants_that_are_read_once_count_each_time():
    """Many small constants together may be larger than the options allow."""
    with tf2jax_lite.override_config("max_constant_bytes", 100):
        sizes = ConstantBytes("graph")
    for i in range(25):
        nodes.read_node(_const(f"c{i}", np.int32(7)), f"c{i}", sizes)
    with pytest.raises(LimitError, match="constants up to 'c25' take 104 bytes"):
        nodes.read_node(_const("c25", np.int32(7)), "c25", sizes)
