"""Invalid GraphDefs that no mutation makes, and the allowed outcomes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, types_pb2

from .strange_protos import BOOL, FLOAT, INT, LONG, const, function, graph, node, oversized


def loop_without_end():
    cond = function("cond", {"i": INT}, ("t:output:0", BOOL), [node("t", "Const", dtype=BOOL, value=np.asarray(True))])
    body = function(
        "body",
        {"i": INT},
        ("a:z:0", INT),
        [const("one", np.int32(1)), node("a", "AddV2", "i", "one:output:0", T=INT)],
    )
    return graph(
        const("start", np.int32(0)),
        node("w", "StatelessWhile", "start", T=[INT], cond="cond", body="body"),
        node("c", "Cast", "w", SrcT=INT, DstT=FLOAT),
        node("y", "AddV2", "x", "c", T=FLOAT),
        functions=[cond, body],
    )


def loop_of_itself():
    itself = function(
        "f",
        {"i": FLOAT},
        ("w:output:0", FLOAT),
        [node("w", "StatelessWhile", "i", T=[FLOAT], cond="f", body="f")],
    )
    return graph(node("y", "PartitionedCall", "x", f="f", Tin=[FLOAT], Tout=[FLOAT]), functions=[itself])


def named_like_an_op():
    code = node("p", "PyFunc", "i", Tin=[FLOAT], Tout=[FLOAT])
    code.attr["token"].s = b"token"
    return graph(
        node("y", "Relu", "x", T=FLOAT), functions=[function("Relu", {"i": FLOAT}, ("p:output:0", FLOAT), [code])]
    )


def gradient_of_itself():
    double = function("f", {"i": FLOAT}, ("a:z:0", FLOAT), [node("a", "AddV2", "i", "i", T=FLOAT)])
    found = graph(node("y", "PartitionedCall", "x", f="f", Tin=[FLOAT], Tout=[FLOAT]), functions=[double])
    found.library.gradient.add(function_name="f", gradient_func="f")
    return found


def uncalled_code():
    code = node("p", "PyFunc", "i", Tin=[FLOAT], Tout=[FLOAT])
    code.attr["token"].s = b"token"
    return graph(
        node("y", "Relu", "x", T=FLOAT), functions=[function("never", {"i": FLOAT}, ("p:output:0", FLOAT), [code])]
    )


def joined_strings():
    nodes = [const("s0", np.asarray(b"x" * 64, object))]
    for i in range(40):
        nodes.append(node(f"s{i + 1}", "StringJoin", f"s{i}", f"s{i}", N=2))
    nodes += [node("n", "StringLength", "s40"), node("c", "Cast", "n", SrcT=INT, DstT=FLOAT)]
    return graph(*nodes, node("y", "AddV2", "x", "c", T=FLOAT))


def short_content():
    found = const("c", np.zeros(1000, np.float32))
    found.attr["value"].tensor.tensor_content = b"abc"
    return graph(found, node("y", "AddV2", "x", "c", T=FLOAT))


def negative_dims():
    found = const("c", np.zeros(2, np.float32))
    found.attr["value"].tensor.tensor_shape.dim[0].size = -7
    return graph(found, node("y", "AddV2", "x", "c", T=FLOAT))


def of_the_future():
    found = graph(node("y", "Relu", "x", T=FLOAT))
    found.versions.producer = found.versions.min_consumer = 2**31 - 1
    return found


def very_many_dimensions():
    found = node_def_pb2.NodeDef(name="z", op="Placeholder")
    found.attr["dtype"].type = types_pb2.DT_FLOAT
    for _ in range(100_000):
        found.attr["shape"].shape.dim.add(size=1)
    return graph(found, node("y", "Relu", "z", T=FLOAT))


def deep_chain(count):
    nodes = [node("n0", "Relu", "x", T=FLOAT)]
    nodes += [node(f"n{i}", "Relu", f"n{i - 1}", T=FLOAT) for i in range(1, count)]
    return graph(*nodes)


def array_of(op):
    return graph(
        const("size", np.int32(2**31 - 1)),
        node("a", op, "size", dtype=FLOAT, element_shape=tf.TensorShape([1000])),
        const("i", np.int32(0)),
        node("wr", "TensorArrayWriteV3", "a", "i", "x", "a:1", T=FLOAT),
        node("y", "TensorArrayReadV3", "a", "i", "wr", dtype=FLOAT),
    )


BIG = np.int32([2**20, 2**20])
GRAPHS = {
    "a loop of itself": (loop_of_itself, 2),
    "a function named like an op": (named_like_an_op, (0, 2)),
    "a gradient of itself": (gradient_of_itself, (0, 2)),
    "code that is never called": (uncalled_code, (0, 2)),
    "two nodes of one name": (lambda: graph(*[node("y", "Relu", "x", T=FLOAT)] * 2), 2),
    "a control edge to nothing": (lambda: graph(node("y", "Relu", "x", "^unknown", T=FLOAT)), 2),
    "an array of 2^31": (lambda: array_of("TensorArrayV3"), (0, 2)),
    "fill": (lambda: oversized("Fill", BIG, np.float32(1), T=FLOAT, index_type=INT), 2),
    "range": (lambda: oversized("Range", *np.float32([0, 1e12, 1]), Tidx=FLOAT), 2),
    "tile": (lambda: oversized("Tile", np.zeros((1, 1), np.float32), BIG, T=FLOAT, Tmultiples=INT), 2),
    "broadcast": (lambda: oversized("BroadcastTo", np.float32(1), BIG, T=FLOAT, Tidx=INT), 2),
    "linspace": (lambda: oversized("LinSpace", *np.float32([0, 1]), np.int64(2**40), T=FLOAT, Tidx=LONG), 2),
    "one hot": (
        lambda: oversized(
            "OneHot", np.zeros(1000, np.int32), np.int32(2**31 - 1), *np.float32([1, 0]), T=FLOAT, TI=INT
        ),
        2,
    ),
    "diagonal": (lambda: oversized("MatrixDiag", np.zeros(10**5, np.float32), T=FLOAT), (0, 2)),
    "pad": (lambda: oversized("Pad", np.zeros(1, np.float32), np.int64([[0, 2**40]]), T=FLOAT, Tpaddings=LONG), 2),
    "random": (lambda: oversized("RandomUniform", BIG, dtype=FLOAT, T=INT), (0, 2)),
    "a loop without end": (loop_without_end, (0, 2)),
    "joined strings": (joined_strings, 2),
    "less content than elements": (short_content, 2),
    "negative dimensions": (negative_dims, 2),
    "an attribute of NaN": (
        lambda: graph(node("y", "LeakyRelu", "x", T=FLOAT, alpha=float("nan"))),
        0,
    ),
    "a name of any letters": (lambda: graph(node("é\u202e/../x", "Relu", "x", T=FLOAT)), (0, 2)),
    "a version of the future": (of_the_future, (0, 2)),
    "100,000 dimensions": (very_many_dimensions, 2),
    "a chain of 2,000 nodes": (lambda: deep_chain(2000), 0),
}
