"""Idioms that TensorFlow, Keras and jax2tf write with several nodes, to one node.

- `gather_idiom`: Keras repeats elements (``UpSampling1D``, ``repeat_elements``) with a split into single steps, each of
  which it concatenates several times. XLA's compile time is quadratic in the number of concatenated slices.
- `relu_idiom`: ``max(x, 0)`` of graphs exported with jax2tf is a Relu, whose gradient at 0 is 0.
- `tensor_array_stack`: TF1's ``TensorArray.stack()`` is a gather at ``range(size)``. With a data-dependent size, the
  range has no static shape; the stack of all elements has one when padded to ``config.dynamic_shape_bound``.
- `list_element_grads`: TensorFlow's gradient of reading a list's element is a list of the same length with only that
  element set, and every iteration adds up whole lists. The length and shape of that list come from another list, so
  that such a loop could only be unrolled.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import Nodes, constant_value, skip
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.patterns import match, op

_MIN_SLICES = 16  # consecutive slices; XLA handles a few well, such as the gates of a recurrent layer
_SPLITS = frozenset({"Split", "Unpack"})


def gather_idiom(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace concatenated consecutive slices of one split by ``_GatherPieces``."""
    del config
    return graph.mapped(_with_gathers)


def _with_gathers(function: ir.Function) -> ir.Function:
    if function.ops.isdisjoint(_SPLITS):
        return function
    nodes = {node.name: node for node in function.nodes}
    taken = {*nodes, *(arg.name for arg in function.args)}
    out = [made for node in function.nodes for made in _joined(node, nodes, taken)]
    return function if out == list(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _joined(node: ir.Node, nodes: Mapping[str, ir.Node], taken: set[str]) -> list[ir.Node]:
    """Return the nodes for a concatenation or stack with its runs of slices gathered."""
    if node.op not in ("ConcatV2", "Concat", "Pack") or not isinstance(node.output_dtypes[0], np.dtype):
        return [node]
    parts = {"ConcatV2": node.inputs[:-1], "Concat": node.inputs[1:], "Pack": node.inputs}[node.op]
    if len(parts) < _MIN_SLICES:
        return [node]
    axis = _axis(node, nodes)
    pieces = [_piece(ref, node.op, axis, nodes) for ref in parts]
    if axis is None or not any(pieces):
        return [node]
    made: list[ir.Node] = []
    rest: list[ir.TensorRef] = []
    for source, gather_idiom in itertools.groupby(zip(parts, pieces, strict=True), lambda part: part[1] and part[1][0]):
        refs, found = zip(*gather_idiom, strict=True)
        if source is None or len(refs) < _MIN_SLICES:
            rest += refs
            continue
        is_whole = len(refs) == len(parts)
        name = node.name if is_whole else ir.free_name(f"{node.name}/pieces", taken)
        split = nodes[source]
        made.append(
            build.node(
                "_GatherPieces",
                split.inputs[0 if split.op == "Unpack" else 1],
                name=name,
                control=node.control if is_whole else (),
                location=node.location,
                T=node.output_dtypes[0],
                pieces=np.array([piece[1] for piece in found]),
                count=len(split.output_dtypes),
                axis=axis,
            )
        )
        rest.append(ir.TensorRef(name))
    if not made or (node.op == "Pack" and len(rest) > 1):
        return [node]
    return made if made[-1].name == node.name else [*made, _with_parts(node, rest)]


def _with_parts(node: ir.Node, parts: list[ir.TensorRef]) -> ir.Node:
    inputs, groups = (*parts, node.inputs[-1]), (len(parts), None)
    if node.op == "Concat":
        inputs, groups = (node.inputs[0], *parts), (None, len(parts))
    spec = dataclasses.replace(node.spec, groups=groups, attrs={**node.attrs, "N": len(parts)})
    return ir.node_from_spec(spec, node.name, inputs, node.control)


def _axis(node: ir.Node, nodes: Mapping[str, ir.Node]) -> int | None:
    """Return the axis of a split or concatenation; None if it is not constant."""
    if node.op in ("Pack", "Unpack"):
        return node.attrs.get("axis", 0)
    value = constant_value(node.inputs[-1 if node.op == "ConcatV2" else 0], nodes)
    return int(value.reshape(())) if value is not None and value.size == 1 else None


def _piece(ref: ir.TensorRef, op: str, axis: int | None, nodes: Mapping[str, ir.Node]) -> tuple[str, int] | None:
    """Return the split along ``axis`` that yields a tensor, and the slice's index."""
    ref = skip(ref, nodes)
    split = nodes.get(ref.node)
    if split is None or split.op != ("Unpack" if op == "Pack" else "Split") or _axis(split, nodes) != axis:
        return None
    return ref.node, ref.index


def relu_idiom(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace ``max(x, 0)`` that jax2tf exported for ``jax.nn.relu`` by Relu.

    ``config.infer_relu_from_jax2tf`` enables this.

    jax2tf names nodes after the JAX functions they come from, which distinguishes a relu from a plain maximum. The two
    differ in the gradient at 0: that of relu is 0, that of TensorFlow's Maximum goes to the first argument.
    """
    return graph.mapped(_with_relus) if config.infer_relu_from_jax2tf else graph


def _with_relus(function: ir.Function) -> ir.Function:
    if "Maximum" not in function.ops:
        return function
    nodes = {node.name: node for node in function.nodes}

    def is_zero(ref: ir.TensorRef) -> bool:
        value = constant_value(ref, nodes, through=("Cast", "Identity", "BroadcastTo"))
        return value is not None and value.dtype.kind != "O" and not np.any(value)

    out = []
    for node in function.nodes:
        if node.op == "Maximum" and "jax2tf" in node.name and "_relu" in node.name and is_zero(node.inputs[1]):
            node = build.node("Relu", node.inputs[0], T=node.output_dtypes[0], like=node)
        out.append(node)
    return (
        function
        if all(a is b for a, b in zip(out, function.nodes, strict=True))
        else dataclasses.replace(function, nodes=tuple(out))
    )


_SIZE = op("TensorArraySizeV3", "handle", "flow")
_STACK = op("TensorArrayGatherV3", "handle", op("Range", 0, _SIZE, 1), "flow")


def tensor_array_stack(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace each gather of all elements of a TensorArray by ``_TensorArrayStack``."""
    del config
    return graph.mapped(_stacked) if "TensorArrayGatherV3" in graph.ops else graph


def _stacked(function: ir.Function) -> ir.Function:
    if "TensorArrayGatherV3" not in function.ops:
        return function
    nodes = Nodes(function)

    def stacked(node: ir.Node) -> ir.Node:
        found = match(_STACK, node, nodes)
        if found is None:
            return node
        attrs = {"dtype": node.output_dtypes[0], "element_shape": node.attrs.get("element_shape")}
        return build.node("_TensorArrayStack", found.values["handle"], found.values["flow"], like=node, **attrs)

    return dataclasses.replace(function, nodes=tuple(map(stacked, function.nodes)))


_SUMS = ("AddN", "AddV2")
_NEEDED = frozenset({"TensorListSetItem", "TensorListReserve"})
# A list with only one element set.
_SINGLE_UPDATE = op(
    "TensorListSetItem",
    op("TensorListReserve"),
    where=lambda node: isinstance(node.attrs.get("element_dtype"), np.dtype),
)
_INT32 = np.dtype(np.int32)


def list_element_grads(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace the addition of a list with one set element by an element update."""
    del config
    return graph.mapped(_function) if graph.ops.issuperset(_NEEDED) else graph


def _function(function: ir.Function) -> ir.Function:
    if not function.ops.issuperset(_NEEDED) or function.ops.isdisjoint(_SUMS):
        return function
    nodes = Nodes(function)
    out: list[ir.Node] = []
    for node in function.nodes:
        out += _added(node, nodes) if node.op in _SUMS and node.output_dtypes == (ir.VARIANT,) else [node]
    return function if len(out) == len(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _added(node: ir.Node, nodes: Nodes) -> list[ir.Node]:
    """Return the nodes that replace a sum of lists; the last of them has its name."""
    made = [nodes.producer(ref) for ref in node.inputs]
    single = [one if one is not None and match(_SINGLE_UPDATE, one, nodes) else None for one in made]
    whole = [ref for ref, one in zip(node.inputs, single, strict=True) if one is None]
    elements = [one for one in single if one is not None]
    if not elements or len(whole) != 1:
        return [node]
    (total,) = whole
    out: list[ir.Node] = []
    for number, one in enumerate(elements):
        _, index, value = one.inputs
        dtype = one.attrs["element_dtype"]
        name = f"{node.name}/element_{number}"
        last = number == len(elements) - 1
        control = (*node.control, *one.control)
        shape = build.node("Shape", value, name=f"{name}/shape", T=dtype, out_type=_INT32)
        item = build.node(
            "TensorListGetItem", total, index, shape, name=f"{name}/item", control=control, element_dtype=dtype
        )
        summed = build.node("AddV2", item, value, name=f"{name}/sum", T=dtype)
        written = build.node(
            "TensorListSetItem",
            total,
            index,
            summed,
            name=node.name if last else name,
            control=control,
            location=node.location,
            element_dtype=dtype,
        )
        out += [shape, item, summed, written]
        total = ir.TensorRef(written.name)
    return out
