"""Minimum and Maximum with a static limit, which bounds a loop or a size.

- `split_loop_bounds`: ``i < minimum(a, b)`` to ``i < a and i < b``. Often one limit is static and the other is
  runtime-dependent: `tf.compat.v1.nn.dynamic_rnn` runs up to ``minimum(time_steps, reduce_max(sequence_length))``. As a
  condition of its own, the static limit bounds the loop.
- `fold_clamps`: ``maximum(n, x)`` is ``n`` if the integer range of ``x`` is up to ``n``. The number of bins of
  `tf.math.bincount` is ``minimum(n, maximum(n, x))`` if ``minlength`` equals ``maxlength`` (Keras's CategoryEncoding),
  and ``maximum(256, x + 1)`` with ``x`` clipped to [0, 255] in Keras's Equalization. Folding makes it static although
  ``x`` is runtime-dependent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_value, producer, skip
from tf2jax_lite.jaxprs.interval import Interval
from tf2jax_lite.passes.analysis.integer_ranges import IntegerRanges
from tf2jax_lite.support.config import Config

# Comparisons that hold while the loop runs, with the position of the limit.
_COMPARISONS = {"Less": 1, "LessEqual": 1, "Greater": 0, "GreaterEqual": 0}
_TRANSPARENT = ("Identity", "LoopCond")


def split_loop_bounds(graph: ir.Graph, config: Config) -> ir.Graph:
    """Split such conditions in every loop. Values are the same, NaN included."""
    del config
    splitter = _Splitter(graph.functions)
    functions = {name: splitter.function(function) for name, function in graph.functions.items()}
    main = splitter.function(graph.main)
    if not splitter.made:
        return graph
    return dataclasses.replace(graph, main=main, functions={**functions, **splitter.made})


class _Splitter:
    def __init__(self, functions: Mapping[str, ir.Function]):
        self._functions = functions
        self.made: dict[str, ir.Function] = {}

    def function(self, function: ir.Function) -> ir.Function:
        """Return a function with its loops changed; their new functions are in ``made``."""
        if not any("cond" in node.attrs and "body" in node.attrs for node in function.callers):
            return function
        outside = {node.name: node for node in function.nodes}
        nodes = [self._loop(node, outside) if node.functions else node for node in function.nodes]
        return dataclasses.replace(function, nodes=tuple(nodes))

    def _loop(self, node: ir.Node, outside: Mapping[str, ir.Node]) -> ir.Node:
        refs = [node.attrs.get("cond"), node.attrs.get("body")]
        if not all(isinstance(ref, ir.FunctionRef) and ref.name in self._functions for ref in refs):
            return node
        cond, body = (self._functions[ref.name] for ref in refs)  # type: ignore[union-attr]
        if len(cond.outputs) != 1 or not len(cond.args) == len(body.args) == len(body.outputs) == len(node.inputs):
            return node  # the lowering raises on malformed loops
        split = _Condition(node, cond, body, outside)
        nodes = split.nodes()
        if not split.changed:
            return node
        more = tuple(ir.Argument(f"limit_{i}/of_loop", dtype) for i, dtype in enumerate(split.dtypes))
        number = len(self.made)
        names = [f"{f.name}/split_limits_{number + i}" for i, f in enumerate((cond, body))]
        self.made[names[0]] = dataclasses.replace(cond, name=names[0], args=(*cond.args, *more), nodes=nodes)
        self.made[names[1]] = dataclasses.replace(
            self.function(body),  # loops inside
            name=names[1],
            args=(*body.args, *more),
            outputs=(*body.outputs, *(ir.TensorRef(arg.name) for arg in more)),
            output_names=(*body.output_names, *(arg.name for arg in more)) if body.output_names else (),
        )
        inputs = (*node.inputs, *split.limits)
        attrs = {**node.attrs, "cond": ir.FunctionRef(names[0]), "body": ir.FunctionRef(names[1])}
        return dataclasses.replace(
            node,
            inputs=inputs,
            groups=(len(inputs),),
            attrs={key: value for key, value in attrs.items() if key not in ("T", "output_shapes", "_output_shapes")},
            output_dtypes=(*node.output_dtypes, *split.dtypes),
            output_shapes=None,
        )


class _Condition:
    """The condition of one loop, and the limits that become further arguments of it."""

    def __init__(self, loop: ir.Node, cond: ir.Function, body: ir.Function, outside: Mapping[str, ir.Node]):
        self._loop, self._cond, self._outside = loop, cond, outside
        self._inside = {node.name: node for node in cond.nodes}
        self._positions = {arg.name: index for index, arg in enumerate(cond.args)}
        inner = {node.name: node for node in body.nodes}
        ends = [skip(ref, inner, _TRANSPARENT).node for ref in body.outputs]
        self._constant = {i for i, (arg, end) in enumerate(zip(body.args, ends, strict=True)) if arg.name == end}
        self.limits: list[ir.TensorRef] = []
        self.dtypes: list[ir.DType] = []
        self.changed = False

    def nodes(self) -> tuple[ir.Node, ...]:
        """Return the condition's nodes with comparisons split."""
        split = {name: found for name in self._comparisons() if len(found := self._parts(self._inside[name])) > 1}
        self.changed = bool(split)
        nodes: list[ir.Node] = []
        for node in self._cond.nodes:
            if node.name in split:
                nodes.extend(_joined(node, split[node.name]))
            else:
                nodes.append(node)
        return tuple(nodes)

    def _comparisons(self) -> list[str]:
        """Return the names of the comparisons in the conjunction."""
        found: dict[str, None] = {}
        stack = [self._cond.outputs[0]]
        while stack:
            node = producer(stack.pop(), self._inside, _TRANSPARENT)
            if node is None:
                continue
            if node.op == "LogicalAnd":
                stack.extend(node.inputs)
            elif node.op in _COMPARISONS:
                found[node.name] = None
        return list(found)

    def _parts(self, comparison: ir.Node) -> list[ir.TensorRef]:
        """Return the limits of a comparison as tensors of the condition."""
        parts: list[ir.TensorRef] = []
        for limit in _terms(comparison.inputs[_COMPARISONS[comparison.op]], self._inside):
            position = self._positions.get(skip(limit, self._inside, _TRANSPARENT).node)
            terms = []
            if position is not None and position in self._constant:
                terms = _terms(self._loop.inputs[position], self._outside)
            if len(terms) < 2:
                parts.append(limit)
                continue
            for term in terms:
                parts.append(ir.TensorRef(f"limit_{len(self.limits)}/of_loop"))
                self.limits.append(term)
                self.dtypes.append(self._cond.args[position or 0].dtype)
        return parts


def _joined(comparison: ir.Node, limits: list[ir.TensorRef]) -> list[ir.Node]:
    """Return comparisons with each of the limits; the last has the comparison's name."""
    position = _COMPARISONS[comparison.op]
    nodes: list[ir.Node] = []
    before: ir.TensorRef | None = None
    for number, limit in enumerate(limits):
        inputs = list(comparison.inputs)
        inputs[position] = limit
        one = dataclasses.replace(comparison, name=f"{comparison.name}/limit_{number}", inputs=tuple(inputs))
        nodes.append(one)
        if before is not None:
            last = number == len(limits) - 1
            name = comparison.name if last else f"{comparison.name}/and_{number}"
            nodes.append(build.node("LogicalAnd", before, one, name=name))
            before = ir.TensorRef(name)
        else:
            before = ir.TensorRef(one.name)
    return nodes


def _terms(ref: ir.TensorRef, nodes: Mapping[str, ir.Node]) -> list[ir.TensorRef]:
    """Return the operands of nested Minimum nodes; a tensor that is no minimum alone."""
    node = producer(ref, nodes, _TRANSPARENT)
    if node is None or node.op != "Minimum":
        return [ref]
    return [term for operand in node.inputs for term in _terms(operand, nodes)]


# Whether the range of the other operand determines the result.
_CLAMPS: dict[str, Callable[[Interval, int], bool]] = {
    "Minimum": lambda other, limit: other.lower >= limit,
    "Maximum": lambda other, limit: other.upper <= limit,
}
_INT32 = np.dtype(np.int32)


def fold_clamps(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace the runtime-dependent operand of such clamps by the broadcast limit.

    The limit gets the operand's shape.
    """
    del config
    return graph.mapped(_with_folded)


def _with_folded(function: ir.Function) -> ir.Function:
    if function.ops.isdisjoint(_CLAMPS):
        return function
    nodes = {node.name: node for node in function.nodes}
    ranges = IntegerRanges(nodes)
    taken = {*nodes, *(arg.name for arg in function.args)}
    out: list[ir.Node] = []
    for node in function.nodes:
        found = _folded(node, nodes, ranges, taken) if node.op in _CLAMPS else None
        out += found or [node]
    return function if len(out) == len(function.nodes) else dataclasses.replace(function, nodes=tuple(out))


def _folded(
    node: ir.Node, nodes: Mapping[str, ir.Node], ranges: IntegerRanges, taken: set[str]
) -> list[ir.Node] | None:
    """Return the nodes that replace a clamp; None if the ranges do not determine it."""
    for own in range(len(node.inputs)):
        value, other = _constant(node.inputs[own], nodes), ranges.of(node.inputs[1 - own])
        both_constant = _constant(node.inputs[1 - own], nodes) is not None  # tracing folds these
        if value is not None and other is not None and not both_constant and _CLAMPS[node.op](other, int(value)):
            return _with_constant_operand(node, own, value.dtype, taken)
    return None


def _constant(ref: ir.TensorRef, nodes: Mapping[str, ir.Node]) -> np.ndarray | None:
    """Return an integer Const's value, else None: a float's other operand may be NaN."""
    value = constant_value(ref, nodes, through=())
    return value if value is not None and value.ndim == 0 and value.dtype.kind in "iu" else None


def _with_constant_operand(node: ir.Node, own: int, dtype: np.dtype, taken: set[str]) -> list[ir.Node]:
    limit, other = node.inputs[own], node.inputs[1 - own]
    shape = build.node("Shape", other, name=ir.free_name(f"{node.name}/shape", taken), T=dtype, out_type=_INT32)
    fill = build.node("Fill", shape, limit, name=ir.free_name(f"{node.name}/limit", taken), T=dtype, index_type=_INT32)
    inputs = [limit, limit]
    inputs[1 - own] = ir.TensorRef(fill.name)
    return [shape, fill, dataclasses.replace(node, inputs=tuple(inputs))]
