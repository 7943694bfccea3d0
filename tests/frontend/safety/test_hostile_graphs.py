"""Hostile graphs: each raises one of our errors, before it uses time or memory."""

import time

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2

import tf2jax_lite
from tf2jax_lite.errors import InvalidModelError, LimitError, LoweringError
from tf2jax_lite.frontend.saved.graph_def_file import default_ends
from tf2jax_lite.frontend.saved.meta_graph import trainable_names


def node(graph, name, op, inputs=(), **attrs):
    made = graph.add(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        if isinstance(value, int):
            made.attr[key].type = value
        elif isinstance(value, str):
            made.attr[key].func.name = value
        else:
            made.attr[key].tensor.CopyFrom(tf.make_tensor_proto(value))
            made.attr["dtype"].type = made.attr[key].tensor.dtype
    return made


F32 = types_pb2.DT_FLOAT


def graph():
    made = graph_pb2.GraphDef()
    node(made.node, "x", "Placeholder", dtype=F32)
    return made


def convert(made, output="y"):
    return tf2jax_lite.convert_graph_def(made.SerializeToString(), ["x"], [output])


def function(made, name, callees):
    body = made.library.function.add()
    body.signature.name = name
    body.signature.input_arg.add(name="a", type=F32)
    body.signature.output_arg.add(name="r", type=F32)
    last = "a"
    for i, callee in enumerate(callees):
        call = body.node_def.add(name=f"call{i}", op="PartitionedCall", input=[last])
        call.attr["f"].func.name = callee
        for key in ("Tin", "Tout"):
            call.attr[key].list.type.append(F32)
        last = f"call{i}:output:0"
    body.ret["r"] = last


def calling(made, name):
    call = node(made.node, "y", "PartitionedCall", ["x"], f=name)
    for key in ("Tin", "Tout"):
        call.attr[key].list.type.append(F32)
    return made


def test_a_million_nodes_raise_at_once():
    # Counted before anything is read out: reading them would take a minute.
    made = graph()
    template = graph_pb2.GraphDef()
    node(template.node, "n", "NoOp")
    chunk = template.SerializeToString() * 1_000_000
    begin = time.process_time()
    with pytest.raises(LimitError, match="1000001 nodes; max_nodes"):
        tf2jax_lite.convert_graph_def(made.SerializeToString() + chunk, ["x"], ["x"])
    assert time.process_time() - begin < 20  # a bound on work, not on speed


def test_max_nodes_is_an_option_and_counts_functions():
    made = graph()
    function(made, "f", [])
    for i in range(30):
        made.library.function[0].node_def.add(name=f"n{i}", op="NoOp")
    calling(made, "f")
    convert(made)
    with tf2jax_lite.override_config("max_nodes", 31), pytest.raises(LimitError, match="32 nodes"):
        convert(made)


@pytest.mark.parametrize("callees", [{"f": ["f"]}, {"f": ["g"], "g": ["f"]}, {"f": ["g"], "g": ["h"], "h": ["g"]}])
def test_functions_that_call_themselves(callees):
    made = graph()
    for name, called in callees.items():
        function(made, name, called)
    with pytest.raises(InvalidModelError, match="calls itself"):
        convert(calling(made, "f"))


@pytest.mark.parametrize(("depth", "fits"), [(50, True), (70, False), (5000, False)])
def test_functions_nest_as_deep_as_tracing_can_follow(depth, fits):
    made = graph()
    for i in range(depth):
        function(made, f"f{i}", [f"f{i + 1}"] if i + 1 < depth else [])
    calling(made, "f0")
    if fits:
        fn, params = convert(made)
        np.testing.assert_array_equal(fn(params, np.ones(2, np.float32))[0][0], np.ones(2))
    else:
        with pytest.raises(LimitError, match="deep"):
            convert(made)


@pytest.mark.parametrize(("depth", "fits"), [(6, True), (40, False)])
def test_calls_that_double(depth, fits):
    """Each function calls the next twice: 2^40 calls, at a bounded depth."""
    made = graph()
    for i in range(depth):
        function(made, f"f{i}", [f"f{i + 1}"] * 2 if i + 1 < depth else [])
    calling(made, "f0")
    if fits:
        fn, params = convert(made)
        np.testing.assert_array_equal(fn(params, np.ones(2, np.float32))[0][0], np.ones(2))
    else:
        with pytest.raises(LimitError, match="expanded; max_nodes"):
            convert(made)


@pytest.mark.parametrize(
    ("inputs", "match"),
    [(["y", "y"], "cycle"), (["gone", "x"], "no node 'gone'"), (["x:b", "x"], "not a tensor name"), (["x"], "inputs")],
)
def test_wires_that_lead_nowhere(inputs, match):
    made = graph()
    node(made.node, "y", "AddV2", inputs, T=F32)
    with pytest.raises(InvalidModelError, match=match):
        convert(made)


@pytest.mark.parametrize(
    ("inputs", "output"), [(["x:3", "x"], "y"), (["z:1", "x"], "y"), (["x", "x"], "y:1"), (["n:0", "x"], "y")]
)
def test_an_output_that_its_node_does_not_have(inputs, output):
    made = graph()
    node(made.node, "z", "Neg", ["x"], T=F32)
    node(made.node, "n", "NoOp")
    node(made.node, "y", "AddV2", inputs, T=F32)
    with pytest.raises(InvalidModelError, match="output"):
        convert(made, output)


@pytest.mark.parametrize("name, match", [("a", "two arguments are called 'a'"), ("call0", "an argument and a node")])
def test_function_arguments_of_equal_names_raise(name, match):
    made = graph()
    function(made, "g", [])
    function(made, "f", ["g"])
    made.library.function[1].signature.input_arg.add(name=name, type=F32)
    calling(made, "f")
    with pytest.raises(InvalidModelError, match=match):
        convert(made)


def test_a_function_returns_an_output_that_its_node_does_not_have():
    made = graph()
    function(made, "f", [])
    node(made.library.function[0].node_def, "n", "Neg", ["a"], T=F32)
    made.library.function[0].ret["r"] = "n:y:5"
    with pytest.raises(InvalidModelError, match="output"):
        convert(calling(made, "f"))


def constant(made, name, dims, value=0.0):
    tensor = node(made.node, name, "Const", value=np.float32(value)).attr["value"].tensor
    for size in dims:
        tensor.tensor_shape.dim.add(size=size)


@pytest.mark.parametrize("dims", [[1 << 20, 1 << 20], [1 << 62, 1 << 62, 1 << 62], [-5, 3], [30_000, 30_000]])
def test_constants_that_declare_more_than_they_hold(dims):
    made = graph()
    constant(made, "c", dims)
    node(made.node, "y", "AddV2", ["x", "c"], T=F32)
    with pytest.raises(InvalidModelError, match=r"max_constant_bytes|has the shape"):
        convert(made)


def test_constants_count_together():
    # Each is small enough; all together are not, and would be read one after another.
    made = graph()
    for i in range(40):
        constant(made, f"c{i}", [1 << 14])
    node(made.node, "y", "AddV2", ["x", "c0"], T=F32)
    convert(made)
    with tf2jax_lite.override_config("max_constant_bytes", 1 << 20), pytest.raises(LimitError, match="together"):
        convert(made)


I32 = types_pb2.DT_INT32


def _fill(made):
    node(made.node, "d", "Const", value=np.array([1 << 20, 1 << 20], np.int32))
    constant(made, "v", [])
    node(made.node, "big", "Fill", ["d", "v"], T=F32, index_type=I32)


def _tile(made):
    node(made.node, "d", "Const", value=np.array([1 << 30, 64], np.int32))
    node(made.node, "v", "Const", value=np.ones((2, 2), np.float32))
    node(made.node, "big", "Tile", ["v", "d"], T=F32, Tmultiples=I32)


def _broadcast(made):
    node(made.node, "d", "Const", value=np.array([1 << 20, 1 << 20], np.int32))
    constant(made, "v", [])
    node(made.node, "big", "BroadcastTo", ["v", "d"], T=F32, Tidx=I32)


def _range(made):
    for name, value in (("a", 0.0), ("b", 1e30), ("c", 1e-3)):
        constant(made, name, [], value)
    node(made.node, "big", "Range", ["a", "b", "c"], Tidx=F32)


def _pad(made):
    node(made.node, "d", "Const", value=np.array([[0, 1 << 30], [1 << 20, 0]], np.int32))
    node(made.node, "v", "Const", value=np.ones((2, 2), np.float32))
    node(made.node, "big", "Pad", ["v", "d"], T=F32, Tpaddings=I32)


def _outer(made):
    node(made.node, "v", "Const", value=np.ones((1, 70_000), np.float32))
    node(made.node, "w", "Const", value=np.ones((70_000, 1), np.float32))
    node(made.node, "big", "Mul", ["v", "w"], T=F32)


def _doubled(made):
    # A chain of concatenations of a thing with itself: 2^40 elements from 40 nodes.
    node(made.node, "axis", "Const", value=np.int32(0))
    node(made.node, "c0", "Const", value=np.ones(2, np.float32))
    for i in range(40):
        joined = node(made.node, f"c{i + 1}", "ConcatV2", [f"c{i}", f"c{i}", "axis"], T=F32, Tidx=I32)
        joined.attr["N"].i = 2
    node(made.node, "big", "Identity", ["c40"], T=F32)


def _gathered(made):
    node(made.node, "v", "Const", value=np.ones((2, 70_000), np.float32))
    node(made.node, "i", "Const", value=np.zeros(70_000, np.int32))
    node(made.node, "axis", "Const", value=np.int32(0))
    node(made.node, "big", "GatherV2", ["v", "i", "axis"], Tparams=F32, Tindices=I32, Taxis=I32)


def _one_hot(made):
    node(made.node, "i", "Const", value=np.zeros(1000, np.int32))
    node(made.node, "n", "Const", value=np.int32(1 << 30))
    constant(made, "on", [])
    constant(made, "off", [])
    node(made.node, "big", "OneHot", ["i", "n", "on", "off"], T=F32, TI=I32)


def _array(made):
    node(made.node, "n", "Const", value=np.int32((1 << 31) - 1))
    node(made.node, "i", "Const", value=np.int32(0))
    node(made.node, "array", "TensorArrayV3", ["n"], dtype=F32)
    node(made.node, "written", "TensorArrayWriteV3", ["array", "i", "x", "array:1"], T=F32)
    node(made.node, "big", "TensorArrayReadV3", ["array", "i", "written"], dtype=F32)


@pytest.mark.parametrize(
    "make", [_fill, _tile, _broadcast, _range, _pad, _outer, _doubled, _gathered, _one_hot, _array]
)
def test_constants_that_grow_while_they_are_computed(make):
    made = graph()
    make(made)
    node(made.node, "y", "AddV2", ["x", "big"], T=F32)
    with tf2jax_lite.override_config("max_constant_bytes", 1 << 26):
        fn, params = convert(made)
    with pytest.raises(LoweringError, match="max_constant_bytes"):
        fn(params, np.float32(1))


def test_attributes_that_nest():
    made = graph()
    call = node(made.node, "y", "PartitionedCall", ["x"], f="f")
    inner = call.attr["f"].func
    for _ in range(200):  # deeper than protobuf parses; given as a proto
        inner = inner.attr["f"].func
        inner.name = "f"
    with pytest.raises(InvalidModelError, match="deep"):
        tf2jax_lite.convert_graph_def(made, ["x"], ["y"])


def test_lists_of_very_many_tensors():
    made = graph()
    packed = node(made.node, "y", "Unpack", ["x"], T=F32)
    packed.attr["num"].i = 1 << 40
    with pytest.raises(InvalidModelError, match="list of"):
        convert(made)


@pytest.mark.parametrize(
    ("where", "name", "field", "value"),
    [
        ("x", "dtype", "i", 1),  # what is fed
        ("x", "shape", "i", 3),
        ("y", "T", "i", 1),
        ("y", "T", "s", b"float"),
        ("z", "shape", "f", 1.5),  # what is not even reached
    ],
)
def test_attributes_of_another_kind(where, name, field, value):
    """The error names the node; a number as dtype would fail only later."""
    made = graph()
    node(made.node, "y", "Identity", ["x"], T=F32)
    node(made.node, "z", "Placeholder", dtype=F32)
    wrong = next(n for n in made.node if n.name == where)
    setattr(wrong.attr[name], field, value)
    with pytest.raises(InvalidModelError, match=f"node '{where}'.*attribute '{name}' is of the kind '{field}'"):
        convert(made)


def test_recorded_shapes_of_another_kind_are_not_used():
    """They only describe the node, so nothing is lost."""
    made = graph()
    node(made.node, "y", "Identity", ["x"], T=F32).attr["_output_shapes"].i = 5
    fn, params = convert(made)
    np.testing.assert_array_equal(fn(params, np.float32([1, 2]))[0][0], [1, 2])


def test_a_collection_of_variables_that_is_damaged():
    meta_graph = tf.compat.v1.MetaGraphDef()
    meta_graph.collection_def["trainable_variables"].bytes_list.value.append(b"\xff\xff\xff")
    with pytest.raises(InvalidModelError, match="'trainable_variables' cannot be read"):
        trainable_names(meta_graph)


@pytest.mark.parametrize(
    ("op", "second", "attrs"),
    [
        ("Tile", np.int64([1 << 61]), {"T": F32, "Tmultiples": types_pb2.DT_INT64}),
        ("BroadcastTo", np.int64([1 << 40, 1 << 40, 1]), {"T": F32, "Tidx": types_pb2.DT_INT64}),
        ("Reshape", np.int32([1] * 65), {"T": F32, "Tshape": I32}),
    ],
)
def test_results_that_no_array_can_hold(op, second, attrs):
    """XLA ends the process on overflow; numpy's arrays have 64 dimensions."""
    made = graph()
    made.node[0].attr["shape"].shape.dim.add(size=1)
    node(made.node, "k", "Const", value=second)
    node(made.node, "y", op, ["x", "k"], **attrs)
    fn, params = convert(made)
    with pytest.raises(LoweringError, match=r"'y'.*(1099511627776 bytes, the maximum|65 dimensions)"):
        jax.eval_shape(fn, params, jax.ShapeDtypeStruct((1,), np.float32))


def test_a_resized_image_that_no_memory_can_hold():
    made = graph()
    for _ in range(4):
        made.node[0].attr["shape"].shape.dim.add(size=1)
    node(made.node, "size", "Const", value=np.int32([1 << 30, 1 << 30]))
    node(made.node, "y", "ResizeBilinear", ["x", "size"], T=F32)
    fn, params = convert(made)
    with pytest.raises(LoweringError, match="1099511627776 bytes, the maximum"):
        jax.eval_shape(fn, params, jax.ShapeDtypeStruct((1, 1, 1, 1), np.float32))


def test_a_convolution_that_stands_still():
    made = graph()
    for _ in range(4):
        made.node[0].attr["shape"].shape.dim.add(size=1)
    node(made.node, "k", "Const", value=np.ones((1, 1, 1, 1), np.float32))
    still = node(made.node, "y", "Conv2D", ["x", "k"], T=F32)
    still.attr["strides"].list.i.extend([1, 0, 0, 1])
    still.attr["padding"].s = b"SAME"
    fn, params = convert(made)
    with pytest.raises(LoweringError, match="must be positive"):
        fn(params, np.ones((1, 1, 1, 1), np.float32))


def test_shapes_of_more_dimensions_than_tensorflow_has():
    made = graph()
    for _ in range(255):
        made.node[0].attr["shape"].shape.dim.add(size=1)
    node(made.node, "y", "Relu", ["x"], T=F32)
    with pytest.raises(InvalidModelError, match=r"'x'.*255 dimensions"):
        convert(made)


def test_an_output_whose_number_has_many_digits():
    made = graph()
    node(made.node, "y", "Relu", ["x:" + "9" * 100_000], T=F32)
    with pytest.raises(InvalidModelError, match="is not a tensor name") as caught:
        convert(made)
    assert len(str(caught.value)) < 1000


def test_a_node_named_like_an_output_is_not_found():
    made = graph()
    node(made.node, "y:x", "Relu", ["x"], T=F32)
    inputs, outputs = default_ends(made.SerializeToString())
    with pytest.raises(InvalidModelError, match="no node 'y'"):
        tf2jax_lite.convert_graph_def(made.SerializeToString(), inputs, outputs)
