"""Common-subexpression elimination (CSE) in functions with data-dependent shapes.

``tf.boolean_mask(a, mask)`` and ``tf.boolean_mask(b, mask)`` each call `tf.where` on the mask. TensorFlow finds at run
time that the two results have the same size; while tracing, only one common node shows it. XLA eliminates the common
subexpressions of other functions.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.build import with_inputs
from tf2jax_lite.ops.registry import lookup
from tf2jax_lite.support.config import Config


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Merge nodes of equal value, in functions with data-dependent result shapes."""
    del config
    return graph.mapped(_function)


def _function(function: ir.Function) -> ir.Function:
    if not any(map(_has_dynamic_size, function.ops)):
        return function
    names: dict[str, str] = {}  # of removed nodes, to those that replace them
    first: dict[Any, str] = {}

    def renamed(ref: ir.TensorRef) -> ir.TensorRef:
        return ref._replace(node=names[ref.node]) if ref.node in names else ref

    kept: list[ir.Node] = []
    for node in function.nodes:
        node = with_inputs(node, tuple(map(renamed, node.inputs))) if names else node
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


def _key(node: ir.Node) -> Any:
    """Return a key that is equal for nodes of equal value."""
    # It is None for a node with an effect or a random key.
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


def _has_dynamic_size(name: str) -> bool:
    op = lookup(name)
    return op is not None and op.bound is not None and not op.always_pads
