"""GraphDefs of one invalid node or function, and the allowed outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.core.framework import node_def_pb2

from .strange_protos import BOOL, FLOAT, INT, LONG, const, function, graph, node, oversized

F, I, L = np.float32, np.int32, np.int64  # noqa: E741  (as in TensorFlow's tables of kernels)


def one(op: str, *inputs: Any, **attrs: Any) -> Any:
    """Return a graph of one node, on the argument ``"x"`` and constants."""
    nodes = [const(f"in{i}", value) for i, value in enumerate(inputs) if not isinstance(value, str)]
    wires = [value if isinstance(value, str) else f"in{i}" for i, value in enumerate(inputs)]
    return graph(*nodes, node("y", op, *wires, **attrs))


def raw(made: node_def_pb2.NodeDef, **fields: Any) -> node_def_pb2.NodeDef:
    """Add attributes of bytes and of lists of integers to a node."""
    for key, value in fields.items():
        if isinstance(value, bytes):
            made.attr[key].s = value
        else:
            made.attr[key].list.i.extend(value)
    return made


def einsum(equation: str, count: int) -> Any:
    return graph(raw(node("y", "Einsum", *["x"] * count, N=count, T=FLOAT), equation=equation.encode()))


def relu(name: str = "f", result: str = "a:activations:0") -> Any:
    return function(name, {"i": FLOAT}, (result, FLOAT), [node("a", "Relu", "i", T=FLOAT)])


def call(*inputs: str, takes: int = 1, gives: int = 1, functions: Any = ()) -> Any:
    made = node("y", "PartitionedCall", *inputs, f="f", Tin=[FLOAT] * takes, Tout=[FLOAT] * gives)
    return graph(made, functions=functions or [relu()])


def frames(kind: str) -> Any:
    """Return a TF1 loop with one error."""
    inside = "outside" if kind == "two frames" else "m"
    nodes = [
        raw(node("e", "Enter", "x", T=FLOAT, is_constant=False, parallel_iterations=10), frame_name=b"a"),
        raw(node("outside", "Enter", "x", T=FLOAT, is_constant=False, parallel_iterations=10), frame_name=b"b"),
        node("m", "Merge", "e", "n", T=FLOAT, N=2),
        node("c", "Less", "m", inside, T=FLOAT),
        const("axis", I([0])),
        node("all", "All", "c", "axis", Tidx=INT, keep_dims=False),
        node("l", "LoopCond", "all"),
        node("s", "Switch", "m", "all" if kind == "no condition" else "l", T=FLOAT),
        node("n", "NextIteration", "outside" if kind == "another frame's value" else "s:1", T=FLOAT),
        node("ex", "Exit", "s", T=FLOAT),
        node("y", "Relu", "s" if kind == "no exit" else "ex", T=FLOAT),
    ]
    return graph(*(n for n in nodes if n.name != "l" or kind != "no condition"))


def doubled(times: int) -> Any:
    """Return a loop that concatenates the argument with itself."""
    carried = {"i": INT, "v": FLOAT}
    cond = function(
        "cond", carried, ("t:z:0", BOOL), [const("n", I(times)), node("t", "Less", "i", "n:output:0", T=INT)]
    )
    nodes = [const("one", I(1)), node("a", "AddV2", "i", "one:output:0", T=INT), const("axis", I(0))]
    nodes.append(node("g", "ConcatV2", "v", "v", "axis:output:0", N=2, T=FLOAT, Tidx=INT))
    body = function("body", carried, ("a:z:0", INT), nodes)
    body.signature.output_arg.add(name="more", type=FLOAT.as_datatype_enum)
    body.ret["more"] = "g:output:0"
    loop = node("w", "StatelessWhile", "start", "x", T=[INT, FLOAT], cond="cond", body="body")
    total = node("y", "Sum", "w:1", "axis", T=FLOAT, Tidx=INT, keep_dims=False)
    return graph(const("start", I(0)), const("axis", I([0])), loop, total, functions=[cond, body])


def of_type(number: int) -> Any:
    made = node_def_pb2.NodeDef(name="c", op="Const")
    made.attr["dtype"].type = made.attr["value"].tensor.dtype = number
    made.attr["value"].tensor.tensor_shape.dim.add(size=2)
    return graph(made, node("y", "AddV2", "x", "c", T=FLOAT))


def image(op: str, *more: Any, **attrs: Any) -> Any:
    """Return a node on the argument as an image of 1 x 2 x 1 x 1."""
    nodes = [const(f"in{i}", value) for i, value in enumerate(more)]
    shaped = node("image", "Reshape", "x", "shape", T=FLOAT, Tshape=INT)
    lists = {key: attrs.pop(key) for key in list(attrs) if isinstance(attrs[key], bytes | list)}
    made = raw(node("y", op, "image", *(n.name for n in nodes), **attrs), **lists)
    return graph(const("shape", I([1, 2, 1, 1])), shaped, *nodes, made)


def filtered(strides: list[int], pads: list[int]) -> Any:
    kernel, padding = np.ones((1, 1, 1, 1), F), b"EXPLICIT" if pads else b"SAME"
    return image("Conv2D", kernel, T=FLOAT, strides=strides, padding=padding, explicit_paddings=pads)


def fft() -> Any:
    spectrum = node("s", "RFFT", "x", "n", Treal=FLOAT)
    return graph(const("n", I([2**31 - 1])), spectrum, node("y", "ComplexAbs", "s"))


NODES = {
    "two functions of one name": (lambda: call("x", functions=[relu(), relu()]), 2),
    "a function that returns an unknown node": (lambda: call("x", functions=[relu(result="unknown:z:0")]), 2),
    "a function that returns output 77": (lambda: call("x", functions=[relu(result="a:activations:77")]), 2),
    "fewer types than inputs": (lambda: call("x", takes=0), 2),
    "more types than inputs": (lambda: call("x", takes=3), 2),
    "more results than the function's": (lambda: call("x", gives=5), 2),
    **{
        f"a loop with {kind}": (lambda kind=kind: frames(kind), 2)
        for kind in ("no exit", "two frames", "no condition", "another frame's value")
    },
    "output 2^31": (lambda: graph(node("y", "Relu", "x:2147483648", T=FLOAT)), 2),
    "an output of many digits": (lambda: graph(node("y", "Relu", "x:" + "9" * 100_000, T=FLOAT)), 2),
    **{f"a constant of type {n}": (lambda n=n: of_type(n), 2) for n in (0, 13, 20, 21, 77, 101, 120)},
    "stride 0": (lambda: one("StridedSlice", "x", I([0]), I([1]), I([0]), T=FLOAT, Index=INT), 2),
    "reshape to 2^62": (lambda: one("Reshape", "x", L([2**62]), T=FLOAT, Tshape=LONG), 2),
    "reshape to 300 dimensions": (lambda: one("Reshape", "x", I([2] + [1] * 300), T=FLOAT, Tshape=INT), 2),
    "a range of tiny steps": (lambda: oversized("Range", *F([0, 1, 1e-38]), Tidx=FLOAT), 2),
    "a range of NaN": (lambda: oversized("Range", *F([0, 1, np.nan]), Tidx=FLOAT), 2),
    "a range without end": (lambda: oversized("Range", *F([0, np.inf, 1]), Tidx=FLOAT), 2),
    "unpack into -1": (lambda: one("Unpack", "x", T=FLOAT, num=-1, axis=0), 2),
    "unpack into 2^31": (lambda: one("Unpack", "x", T=FLOAT, num=2**31 - 1, axis=0), 2),
    "a million parts": (
        lambda: graph(
            const("indices", I([0, 1])),
            node("parts", "DynamicPartition", "x", "indices", T=FLOAT, num_partitions=10**6),
            node("y", "Relu", "parts:1", T=FLOAT),
        ),
        2,
    ),
    "split into 0": (lambda: one("Split", I(0), "x", T=FLOAT, num_split=0), 2),
    "concat along 99": (lambda: one("ConcatV2", "x", "x", I(99), T=FLOAT, N=2, Tidx=INT), 2),
    "an equation of a million letters": (lambda: einsum("a" * 10**6 + "->a", 1), 2),
    "an equation of dots": (lambda: einsum("...,...->....", 2), 2),
    "an equation of commas": (lambda: einsum(",,,,,,", 2), 2),
    "a region": (lambda: graph(node("y", "IfRegion", "x")), 2),
    "a loop that doubles 60 times": (lambda: doubled(60), 2),
    "scatter into 2^62": (lambda: one("ScatterNd", L([[0], [1]]), "x", L([2**62]), T=FLOAT, Tindices=LONG), 2),
    "segments of 2^31": (
        lambda: one("UnsortedSegmentSum", "x", I([0, 1]), I(2**31 - 1), T=FLOAT, Tindices=INT, Tnumsegments=INT),
        (0, 2),
    ),
    "a spectrum of 2^31": (fft, (0, 2)),
    "tiles of 2^50": (lambda: one("Tile", "x", L([2**50]), T=FLOAT, Tmultiples=LONG), 2),
    "padding of 2^50": (lambda: one("Pad", "x", L([[0, 2**50]]), T=FLOAT, Tpaddings=LONG), 2),
    "broadcast beyond 2^64": (lambda: one("BroadcastTo", "x", L([2**40, 2**40, 2]), T=FLOAT, Tidx=LONG), 2),
    "a convolution that stands still": (lambda: filtered([1, 0, 0, 1], []), 2),
    "a convolution padded by 2^40": (lambda: filtered([1, 1, 1, 1], [0, 0, 2**40, 2**40, 0, 0, 0, 0]), 2),
    "an image of 2^60": (lambda: image("ResizeBilinear", I([2**30, 2**30]), T=FLOAT), 2),
    "blocks of 2^40": (lambda: image("DepthToSpace", T=FLOAT, block_size=2**40), 2),
    "the 2^31 largest": (lambda: one("TopKV2", "x", I(2**31 - 1), T=FLOAT, sorted=True), 2),
    "an axis of 2^31": (lambda: one("Cumsum", "x", I(2**31 - 1), T=FLOAT, Tidx=INT), 2),
    "an axis twice": (lambda: one("Transpose", "x", I([0, 0]), T=FLOAT, Tperm=INT), 2),
}
