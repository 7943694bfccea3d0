"""Propose argument types and static keywords of candidates.

They are read from the steps before a root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax import lax

from tf2jax_lite.export.codegen.block_ir import Equation

from .candidates import Proposal
from .graph import Graph
from .local_rules import uniform_number
from .shapes import aval


def _scalar(dtype: Any) -> jax.ShapeDtypeStruct:
    return aval((), dtype)


def like_output(numbers: int = 0) -> Callable[[Graph, Equation], Iterable[Proposal]]:
    """Propose one argument of the output's type, and numbers of its dtype."""

    def propose(graph: Graph, step: Equation) -> Iterable[Proposal]:
        output = step.outputs[0].aval
        yield [output, *[_scalar(output.dtype)] * numbers], {}

    return propose


def with_keywords(*choices: dict[str, Any]) -> Callable[[Graph, Equation], Iterable[Proposal]]:
    """Propose one argument of the output's type, with each of some keywords."""
    return lambda graph, step: [([step.outputs[0].aval], words) for words in choices]


def axis_argument(axes: tuple[int, ...], rank: int) -> Any:
    """Return an axis argument: None for all, -1 for the last."""
    if len(axes) == rank:
        return None
    first, *more = axes
    return axes if more else -1 if first == rank - 1 else first


def summed(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the operand and axes of the sum that a step divides."""
    maker = graph.definition(step.inputs[0])
    if maker is not None and maker.name == "reduce_sum" and maker.params["axes"]:
        x = maker.inputs[0].aval
        axes = tuple(sorted(int(a) for a in maker.params["axes"]))
        yield (
            [x],
            {"axis": axis_argument(axes, len(x.shape))} | ({"keepdims": True} if maker.params.get("keepdims") else {}),
        )


def sum_axis(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the output's type and the axis of the sum before the second operand."""
    output = step.outputs[0].aval
    for maker in list(graph.before(step.inputs[1]))[:2]:
        if maker.name == "reduce_sum" and len(maker.params["axes"]) == 1:
            axis = axis_argument((int(maker.params["axes"][0]),), len(output.shape))
            yield [output], {} if axis == -1 else {"axis": 0 if axis is None else axis}


def mean_of_squares(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the operand of the mean that a step is."""
    if step.params["function"] == "jnp.mean":
        yield [step.inputs[0].aval], dict(step.params["keywords"])


def standardized(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the output's type, a number, and the axes of the mean before it."""
    output = step.outputs[0].aval
    mean = next((s for v in step.inputs if (s := graph.nearest(v, "jnp.mean")) is not None), None)
    if mean is not None and len(mean.inputs[0].aval.shape) == len(output.shape):
        words = dict(mean.params["keywords"])
        yield [output, _scalar(output.dtype)], {"axis": words["axis"]} if words.get("axis", -1) != -1 else {}


def taken(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the operand and indices of a gather along one axis."""
    p, (x, indices) = step.params, (v.aval for v in step.inputs)
    axes = p["dimension_numbers"].start_index_map
    modes = {lax.GatherScatterMode.FILL_OR_DROP: "fill", lax.GatherScatterMode.CLIP: "clip"}
    if len(axes) == 1 and len(indices.shape) and p["mode"] in modes:
        words = {"axis": axes[0], "mode": modes[p["mode"]]}
        if p["fill_value"] is not None:
            words["fill_value"] = p["fill_value"]
        yield [x, aval(indices.shape[:-1], indices.dtype)], words


def taken_or_zero(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose arguments of a gather along one axis that fills with zeros."""
    for avals, words in taken(graph, step):
        if words["mode"] == "fill" and words.get("fill_value") == 0:
            yield avals, {"axis": words["axis"]} if words["axis"] else {}


def taken_along(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose a matrix and the columns that a gather takes of each row."""
    for avals, _ in taken_of_each(graph, step):
        if all(len(a.shape) == 2 for a in avals):
            yield avals, {"axis": -1, "mode": "fill", "fill_value": 0}


def taken_of_each(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose arguments of a batched gather along one axis that fills with zeros.

    It gathers along the first axis of each example.
    """
    p, (x, indices) = step.params, (v.aval for v in step.inputs)
    numbers = p["dimension_numbers"]
    batches = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    zeros = p["mode"] == lax.GatherScatterMode.FILL_OR_DROP and p["fill_value"] == 0
    if batches == ((0,), (0,)) and numbers.start_index_map == (1,) and zeros:
        yield [x, aval(indices.shape[:-1], indices.dtype)], {}


def dynamic_item(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the operand and index of a slice of length 1."""
    maker = graph.definition(step.inputs[0])
    if maker is not None and maker.name == "dynamic_slice":
        yield [maker.inputs[0].aval, maker.inputs[1].aval], {"keepdims": False}


def divided(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose one argument of the output's type, and a positive divisor."""
    maker = graph.nearest(step.inputs[1], "rem")
    number = uniform_number(graph, maker.inputs[1]) if maker is not None else None
    if number is not None and number.dtype.kind == "i" and number > 0:
        yield [step.outputs[0].aval], {"divisor": int(number)}


def along_axis(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the operand and the axis of an index of an extremum."""
    (axis,), x = step.params["axes"], step.inputs[0].aval
    yield [x], {} if axis == len(x.shape) - 1 else {"axis": int(axis)}


def powers(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose two arguments of the output's type."""
    yield [step.outputs[0].aval] * 2, {}


def one_hot(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose indices that are compared with the positions along the last axis."""
    maker, output = graph.definition(step.inputs[0]), step.outputs[0].aval
    if maker is not None and maker.name == "eq" and output.shape and isinstance(output.shape[-1], int):
        words = {"num_classes": output.shape[-1], "dtype": output.dtype}
        yield [aval(output.shape[:-1], maker.inputs[0].aval.dtype)], words


def rows(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the output's type, two vectors along its last axis, and a number."""
    yield from _vectors(step, 2)


def channels(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the output's type, four vectors along its last axis, and a number."""
    yield from _vectors(step, 4)


def channels_of_images(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the arguments of `channels`, with a mean of as many axes as the output."""
    for (x, mean, *others), words in channels(graph, step):
        yield [x, aval((*[1] * (len(x.shape) - 1), *mean.shape), mean.dtype), *others], words


def _vectors(step: Equation, count: int) -> Iterable[Proposal]:
    x = step.outputs[0].aval
    if len(x.shape) > 1:
        yield [x, *[aval(x.shape[-1:], x.dtype)] * count, _scalar(x.dtype)], {}


def conv(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose operands and keywords of a 2-D convolution."""
    p = step.params
    x, kernel = (v.aval for v in step.inputs)
    if len(x.shape) != 4 or any(d != 1 for d in p["lhs_dilation"]):
        return
    words: dict[str, Any] = {}
    if any(s != 1 for s in p["window_strides"]):
        words["strides"] = tuple(p["window_strides"])
    rest: dict[str, Any] = {}
    if any(d != 1 for d in p["rhs_dilation"]):
        rest["dilation"] = tuple(p["rhs_dilation"])
    if p["feature_group_count"] != 1:
        rest["groups"] = p["feature_group_count"]
    padding = tuple(map(tuple, p["padding"]))
    for choice in ({}, {"padding": "VALID"}, {"padding": padding}):
        yield [x, kernel], words | choice | rest


def conv1d(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose operands and keywords of a 1-D convolution."""
    images = graph.definition(step.inputs[0])
    makers = [graph.definition(v) for v in images.inputs] if images is not None else []
    arrays = [maker.inputs[0].aval for maker in makers if maker is not None and maker.inputs]
    if images is None or images.params.get("function") != "_conv" or [len(a.shape) for a in arrays] != [3, 3]:
        return
    words = dict(images.params["keywords"])
    yield arrays, {w: v[1] if w in ("strides", "dilation") else v for w, v in words.items()}


def depthwise(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose operands and keywords of a convolution of each channel by itself."""
    maker = graph.definition(step.inputs[1])
    kernel = maker.inputs[0].aval if maker is not None and maker.name == "reshape" else None
    if kernel is not None and len(kernel.shape) == 4 and kernel.shape[2] == step.params["feature_group_count"]:
        for (x, _), words in conv(graph, step):
            yield [x, kernel], {word: value for word, value in words.items() if word != "groups"}


def conv_transpose(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose operands, strides and padding of a transposed convolution of images."""
    p = step.params
    x, kernel = (v.aval for v in step.inputs)
    if len(x.shape) == 4 and any(d != 1 for d in p["lhs_dilation"]):
        yield [x, kernel], {"strides": tuple(p["lhs_dilation"]), "padding": tuple(map(tuple, p["padding"]))}


def pool(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the operand, window, strides and padding of a pooling of images."""
    p, x = step.params, step.inputs[0].aval
    if len(x.shape) == 4:
        words = {"window": tuple(p["window_dimensions"][1:-1]), "strides": tuple(p["window_strides"][1:-1])}
        for padding in ("VALID", "SAME", tuple(map(tuple, p["padding"]))):
            yield [x], {**words, "padding": padding}


def attention(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose queries, keys, values, a scale, and a mask with its fill value."""
    makers = [graph.definition(v) for v in step.inputs]
    softmax = next((s for s in makers if s is not None and s.params.get("function") == "jax.nn.softmax"), None)
    if softmax is None:
        return
    value = next(v for v in step.inputs if graph.definition(v) is not softmax)
    scores = graph.nearest(softmax.inputs[0], "einsum")
    chosen = graph.nearest(softmax.inputs[0], "select_n")
    if scores is None or len(scores.inputs) != 2:
        return
    number = _scalar(step.outputs[0].aval.dtype)
    for a, b in (scores.inputs, scores.inputs[::-1]):
        arrays = [a.aval, b.aval, value.aval, number]
        yield (arrays if chosen is None else [*arrays, chosen.inputs[0].aval, number]), {}


def gru_cell(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the input, state and weights of a GRU cell, whose biases are stacked."""
    state = step.outputs[0].aval
    blend = graph.nearest(step.inputs[-1], "tanh")
    gates = [graph.nearest(blend.inputs[0], name) for name in ("split", "slice")] if blend is not None else []
    products = [graph.nearest(s.inputs[0], "dot_general") for s in gates if s is not None]
    if len(state.shape) == 2 and len(products) == 2 and None not in products:
        (x, kernel), (_, recurrent) = ([v.aval for v in s.inputs] for s in products if s is not None)
        yield [x, state, kernel, recurrent, aval((2, kernel.shape[-1]), kernel.dtype)], {}


def lstm_cell(graph: Graph, step: Equation) -> Iterable[Proposal]:
    """Propose the input, states and weights of an LSTM cell.

    The root is the product of a gate and the tanh of the cell's state.
    """
    split = next((s for v in step.inputs for s in list(graph.before(v))[:2] if s.name == "split"), None)
    if split is None:
        return
    found = [s for s in graph.before(split.inputs[0]) if s.name == "dot_general"]
    state = step.outputs[0].aval
    for first, second in (found[:2], found[1::-1]) if len(found) > 1 else ():
        x, kernel = (v.aval for v in first.inputs)
        hidden, recurrent = (v.aval for v in second.inputs)
        yield [x, hidden, state, kernel, recurrent, aval(kernel.shape[-1:], kernel.dtype)], {}
