"""Ranges of integer arguments, from the tables that they index."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS


@dataclasses.dataclass(frozen=True)
class Range:
    """Integers in ``[0, limit)``, and the node that asks for them."""

    limit: int
    node: str


@dataclasses.dataclass(frozen=True)
class _Fact:
    """A tensor's facts: arguments whose integers it holds, shape, constant value."""

    arguments: frozenset[int] = frozenset()
    shape: ir.Shape = None
    value: Any = None


_NOTHING = _Fact()

# Ops whose results are their inputs' integers, permuted or shifted.
_PASSING = frozenset(
    [
        "Identity",
        "Cast",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "Transpose",
        "Slice",
        "StridedSlice",
        "Pack",
        "Unpack",
        "Concat",
        "ConcatV2",
        "Split",
        "SplitV",
        "Tile",
        "BroadcastTo",
        "Pad",
        "PadV2",
        "Select",
        "SelectV2",
        "Add",
        "AddV2",
        "Sub",
        "Reverse",
        "ReverseV2",
        "StopGradient",
        "PreventGradient",
        "IdentityN",
        "_CustomGradient",
        "PlaceholderWithDefault",
        "Snapshot",
        "EnsureShape",
    ]
)
# For each lookup op: the positions of the table, the indices, and the axis if there is one.
_LOOKUPS = {"Gather": (0, 1, None), "GatherV2": (0, 1, 2), "ResourceGather": (0, 1, None)}
_KEEPING = frozenset({"Identity", "Cast", "ReadVariableOp", "StopGradient", "Snapshot", "EnsureShape"})


def index_ranges(graph: ir.Graph) -> dict[int, Range]:
    """Return integer arguments' ranges, by position: the narrowest lookup's."""
    captured = {capture.index: capture.value for capture in graph.captures}
    facts = []
    for index, argument in enumerate(graph.main.args):
        value = captured.get(index)
        if isinstance(value, ir.Variable):
            facts.append(_Fact(shape=value.shape))
        elif isinstance(value, np.ndarray):
            facts.append(_Fact(shape=value.shape, value=value))
        else:
            facts.append(_Fact(frozenset({index}), argument.shape))
    propagation = _Propagation(graph.functions)
    propagation.function(graph.main, facts)
    return propagation.found


class _Propagation:
    def __init__(self, functions: Mapping[str, ir.Function]):
        self._functions = functions
        self._open: list[str] = []
        self.found: dict[int, Range] = {}

    def function(self, function: ir.Function, args: list[_Fact]) -> list[_Fact]:
        env: dict[ir.TensorRef, _Fact] = {
            ir.TensorRef(a.name): fact for a, fact in zip(function.args, args, strict=False)
        }
        for node in function.nodes:
            inputs = [env.get(ref, _NOTHING) for ref in node.inputs]
            for index, fact in enumerate(self._node(node, inputs)):
                env[ir.TensorRef(node.name, index)] = fact
        return [env.get(ref, _NOTHING) for ref in function.outputs]

    def _node(self, node: ir.Node, inputs: list[_Fact]) -> list[_Fact]:
        if node.op in _LOOKUPS:
            self._lookup(node, inputs)
        elif node.op == "OneHot" and inputs[1].value is not None:
            self._limit(inputs[0], int(inputs[1].value), node)
        elif refs := node.functions:
            return self._call(node, refs, inputs)
        if node.op == "Const":
            value = node.attrs.get("value")
            return [_Fact(shape=np.asarray(value).shape, value=value)]
        shapes = node.output_shapes or ()
        count = len(node.output_dtypes)
        passed = frozenset().union(*(f.arguments for f in inputs)) if node.op in _PASSING else frozenset()
        facts = []
        for index in range(count):
            shape = shapes[index] if index < len(shapes) else None
            value = None
            if node.op in _KEEPING and inputs:
                shape, value = inputs[0].shape if shape is None else shape, inputs[0].value
            facts.append(_Fact(passed, shape, value))
        return facts

    def _call(self, node: ir.Node, refs: Sequence[ir.FunctionRef], inputs: list[_Fact]) -> list[_Fact]:
        results: list[_Fact] = []
        for ref in refs:
            function = self._functions.get(ref.name)
            if function is None or ref.name in self._open:
                continue
            # Branches and calls pass their last inputs to the callee: a predicate or index comes first.
            offset = max(len(inputs) - len(function.args), 0)
            self._open.append(ref.name)
            results = self.function(function, inputs[offset:])
            self._open.pop()
        return results if node.op in CALLS else [_NOTHING] * len(node.output_dtypes)

    def _lookup(self, node: ir.Node, inputs: list[_Fact]) -> None:
        table, indices, axis_at = _LOOKUPS[node.op]
        axis = 0
        if axis_at is not None:
            if inputs[axis_at].value is None:
                return
            axis = int(np.asarray(inputs[axis_at].value))
        shape = inputs[table].shape
        if shape is not None and -len(shape) <= axis < len(shape) and shape[axis] is not None:
            self._limit(inputs[indices], int(shape[axis] or 0), node)

    def _limit(self, fact: _Fact, limit: int, node: ir.Node) -> None:
        for argument in fact.arguments:
            known = self.found.get(argument)
            if limit > 0 and (known is None or limit < known.limit):
                self.found[argument] = Range(limit, node.name)
