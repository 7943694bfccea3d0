"""Nodes that compute the same made one, where sizes depend on it.

``tf.boolean_mask(a, mask)`` and ``tf.boolean_mask(b, mask)`` each ask `tf.where` which elements of the mask are true.
TensorFlow finds at run time that the two results are of one size; while tracing only one and the same node tells.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ops.registry import lookup

__all__ = ["join_twins"]


def join_twins(graph: ir.Graph) -> ir.Graph:
    """Returns the graph with nodes joined that compute the same, in functions in which data decides sizes."""
    return graph.mapped(_function)


def _function(function: ir.Function) -> ir.Function:
    if not any(map(_has_dynamic_size, function.ops)):
        return function
    names: dict[str, str] = {}  # of a node that goes, the one that stays
    first: dict[Any, str] = {}

    def renamed(ref: ir.TensorRef) -> ir.TensorRef:
        return ref._replace(node=names[ref.node]) if ref.node in names else ref

    kept: list[ir.Node] = []
    for node in function.nodes:
        node = node if names.keys().isdisjoint(ref.node for ref in node.inputs) else _with_inputs(node, renamed)
        key = _key(node)
        if key is not None and first.setdefault(key, node.name) != node.name:
            names[node.name] = first[key]
        else:
            kept.append(node)
    if not names:
        return function
    nodes = tuple(
        dataclasses.replace(node, control=tuple(dict.fromkeys(names.get(c, c) for c in node.control)))
        if not names.keys().isdisjoint(node.control)
        else node
        for node in kept
    )
    return dataclasses.replace(
        function,
        nodes=nodes,
        outputs=tuple(map(renamed, function.outputs)),
        control_outputs=tuple(dict.fromkeys(names.get(c, c) for c in function.control_outputs)),
    )


def _has_dynamic_size(name: str) -> bool:
    op = lookup(name)
    return op is not None and op.bound is not None and not op.always_pads


def _with_inputs(node: ir.Node, renamed: Any) -> ir.Node:
    return dataclasses.replace(node, inputs=tuple(map(renamed, node.inputs)))


def _key(node: ir.Node) -> Any:
    """Returns what nodes that compute the same have in common; None for a node that does more than that."""
    op = lookup(node.op)
    if op is None or not op.plain or op.needs_context or node.stateful or node.control or node.functions:
        return None
    key = (node.op, node.inputs, node.groups, tuple((name, _hashable(v)) for name, v in sorted(node.attrs.items())))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes()) if value.dtype != object else value
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value
