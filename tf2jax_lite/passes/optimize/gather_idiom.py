"""Concatenations of slices of one split to one gather.

Keras repeats elements (``UpSampling1D``, ``repeat_elements``) with a split into single steps, each of which it
concatenates several times. XLA's compile time is quadratic in the number of concatenated slices.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_value, skip
from tf2jax_lite.support.config import Config

_MIN_SLICES = 16  # consecutive slices; XLA handles a few well, such as the gates of a recurrent layer
_SPLITS = frozenset({"Split", "Unpack"})


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace concatenated consecutive slices of one split by ``_GatherPieces``."""
    del config
    return graph.mapped(_function)


def _function(function: ir.Function) -> ir.Function:
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
    for source, run in itertools.groupby(zip(parts, pieces, strict=True), lambda part: part[1] and part[1][0]):
        refs, found = zip(*run, strict=True)
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
