"""GraphDefs as functions of the IR, printed and walked; damaged protos raise."""

import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.errors import InvalidModelError
from tf2jax_lite.frontend.concrete.concrete_function import load_concrete
from tf2jax_lite.frontend.graphdef import functions
from tf2jax_lite.ir.traversal import live_nodes


def _loaded():
    v = tf.Variable([1.0, 2.0], name="v")
    big = tf.constant(np.zeros(10, np.float32))

    @tf.function
    def inner(a, b):
        first, second = tf.split(a, 2)
        return first + b, second

    @tf.function
    def fn(x):
        unused = tf.sin(x)
        del unused
        p, q = inner(x, tf.constant(2.0))
        return {"p": p * v, "q": q + tf.reduce_sum(big)}

    return load_concrete(fn.get_concrete_function(tf.TensorSpec([4], name="x")), name="fn")


@pytest.mark.full
def test_functions_nodes_and_captures():
    graph = _loaded().graph
    assert graph.main.args[0].name == "x"
    assert graph.main.args[0].dtype == np.float32 and graph.main.args[0].shape == (4,)
    values = [c.value for c in graph.captures]
    assert sum(isinstance(v, ir.Variable) for v in values) == 1
    assert any(isinstance(v, np.ndarray) and v.shape == (10,) for v in values)
    (inner,) = [f for f in graph.functions.values() if "inner" in f.name]
    refs = [ref for node in inner.nodes for ref in node.inputs]
    assert any(ref.index == 1 for ref in (*refs, *inner.outputs)), "split:output:1 is the second output"


def test_it_prints_and_walks():
    graph = _loaded().graph
    text = str(graph)
    assert "func fn(x: float32[4]" in text and "Split(" in text
    assert {node.op for _, node in graph.walk()} >= {"Split", "AddV2", "ReadVariableOp"}
    assert len({function.name for function, _ in graph.walk()}) == 2


@pytest.mark.full
def test_only_what_is_needed_survives():
    main = _loaded().graph.main
    assert any(node.op == "Sin" for node in main.nodes)
    assert not any(node.op == "Sin" for node in live_nodes(main, ()))


def test_attributes_are_python_values_with_defaults():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [1, 4, 4, 2], "x")
        tf.raw_ops.Conv2D(input=x, filter=tf.zeros([1, 1, 2, 3]), strides=[1, 1, 1, 1], padding="SAME", name="conv")
    proto = graph.as_graph_def()
    for node in proto.node:
        if node.name == "conv":
            del node.attr["dilations"]
            del node.attr["data_format"]
    main = functions.load_main(proto, "main", [ir.Argument("x", np.dtype(np.float32))], ["conv:0"])
    (conv,) = [node for node in main.nodes if node.name == "conv"]
    assert conv.attrs["strides"] == [1, 1, 1, 1] and conv.attrs["padding"] == "SAME"
    assert conv.attrs["dilations"] == [1, 1, 1, 1] and conv.attrs["data_format"] == "NHWC"
    assert conv.attrs["T"] == np.float32 and conv.output_dtypes == (np.dtype(np.float32),)


def _proto():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2], "x")
        y = tf.identity(x, name="a")
        tf.identity(y, name="b")
    return graph.as_graph_def()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["missing input", "cycle", "twice", "bad index", "no inputs", "bad constant"])
def test_damaged_graphs(kind):
    proto = _proto()
    nodes = {node.name: node for node in proto.node}
    if kind == "missing input":
        nodes["a"].input[0] = "nowhere"
    elif kind == "cycle":
        nodes["a"].input[0] = "b"
    elif kind == "twice":
        proto.node.append(nodes["a"])
    elif kind == "bad index":
        nodes["b"].input[0] = "a:z"
    elif kind == "no inputs":
        del nodes["b"].input[:]
    elif kind == "bad constant":
        node = proto.node.add(name="c", op="Const")
        node.attr["dtype"].type = tf.float32.as_datatype_enum
        node.attr["value"].tensor.dtype = tf.float32.as_datatype_enum
        node.attr["value"].tensor.tensor_shape.dim.add(size=5)
        node.attr["value"].tensor.tensor_content = b"123"
    with pytest.raises(InvalidModelError):
        functions.load_main(proto, "main", [ir.Argument("x", np.dtype(np.float32))], ["b:0"])
