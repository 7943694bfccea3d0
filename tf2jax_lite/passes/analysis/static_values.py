"""Which nodes take nothing but what is known at conversion: constants, and what is computed of constants alone."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.op_kinds import CALLS, CASES, IFS, WHILES
from tf2jax_lite.ops import registry

__all__ = ["taking_data"]

_BRANCHES = IFS | CASES
_HELD_BY_NAME = (ir.RESOURCE, ir.VARIANT)


def taking_data(graph: ir.Graph, ops: Mapping[str, registry.Op], wanted: Collection[str]) -> frozenset[tuple[str, str]]:
    """Returns the nodes of some ops that take what only a call of the converted function tells.

    Constants are known through calls, into branches, and in loops, as is what a loop computes of them: loops that have
    no other way are unrolled. A function that is called from several places is looked at once: what it is given is
    known if it is known in all of them.

    Args:
      graph: the graph.
      ops: implementations of ops, the wanted ones among them.
      wanted: names of ops.

    Returns:
      Pairs of a function's name and a node's.
    """
    return _Search(graph, ops).found(frozenset(wanted))


class _Search:
    """Takes all to be known at first, and takes that back until nothing changes."""

    def __init__(self, graph: ir.Graph, ops: Mapping[str, registry.Op]):
        self._graph = graph
        self._ops = ops
        self._args: dict[str, list[bool]] = {}
        self._outputs: dict[str, list[bool]] = {}
        self._callers: dict[str, set[str]] = collections.defaultdict(set)
        self._pending: collections.deque[str] = collections.deque()

    def found(self, wanted: frozenset[str]) -> frozenset[tuple[str, str]]:
        main = self._graph.main
        values = {c.index for c in self._graph.captures if isinstance(c.value, np.ndarray)}
        self._args[main.name] = [i in values for i in range(len(main.args))]
        self._pending.append(main.name)
        while self._pending:
            self._visit(self._function(self._pending.popleft()))
        out = set()
        for name in self._args:
            function = self._function(name)
            if wanted.isdisjoint(function.ops):
                continue
            known = self._known(function)
            for node in function.nodes:
                if node.op in wanted and not all(ref in known for ref in node.inputs):
                    out.add((name, node.name))
        return frozenset(out)

    def _function(self, name: str) -> ir.Function:
        return self._graph.main if name == self._graph.main.name else self._graph.functions[name]

    def _visit(self, function: ir.Function) -> None:
        known = self._known(function)
        outputs = [ref in known for ref in function.outputs]
        if outputs != self._outputs.get(function.name):
            self._outputs[function.name] = outputs
            self._pending.extend(self._callers[function.name])

    def _known(self, function: ir.Function) -> set[ir.TensorRef]:
        """Returns what is known in a function, and tells the functions that it calls what they are given."""
        given = zip(function.args, self._args[function.name], strict=True)
        known = {ir.TensorRef(arg.name) for arg, is_known in given if is_known}
        for node in function.nodes:
            inputs = [ref in known for ref in node.inputs]
            results = self._called(function, node, inputs) if node.functions else self._of_op(node, inputs)
            known.update(ir.TensorRef(node.name, i) for i, is_known in enumerate(results) if is_known)
        return known

    def _of_op(self, node: ir.Node, inputs: Sequence[bool]) -> list[bool]:
        entry = self._ops.get(node.op)
        if entry is None or not entry.plain or entry.needs_context or node.stateful:
            is_known = False
        elif inputs:
            is_known = all(inputs)
        else:
            is_known = entry.fold is not None and not any(d in _HELD_BY_NAME for d in node.output_dtypes)
        return [is_known] * len(node.output_dtypes)

    def _called(self, caller: ir.Function, node: ir.Node, inputs: list[bool]) -> list[bool]:
        nothing = [False] * len(node.output_dtypes)
        names = [ref.name for ref in node.functions if ref.name in self._graph.functions]
        if node.op in CALLS:
            given = inputs
        elif node.op in _BRANCHES:
            given = inputs[1:]
        elif node.op in WHILES:
            given = self._of_loop(node, inputs)
        else:
            given = []
        results = [self._give(caller, name, given) for name in names]
        if node.op in WHILES:
            return [*given, *nothing][: len(nothing)]
        if not results or not (node.op in CALLS or (node.op in _BRANCHES and inputs[:1] == [True])):
            return nothing
        return [all(r[i] for r in results if i < len(r)) for i in range(len(nothing))]

    def _of_loop(self, node: ir.Node, inputs: list[bool]) -> list[bool]:
        """Returns which variables of a loop are known in each iteration.

        They are if the body hands them on, or computes them of what is known, as it does a counter; but not those of a
        loop that data ends.
        """
        refs = [node.attrs.get(name) for name in ("cond", "body")]
        cond, body = (self._graph.functions.get(r.name) if isinstance(r, ir.FunctionRef) else None for r in refs)
        if cond is None or body is None:
            return []
        handed_on = _handed_on(body)
        computed = self._outputs.get(body.name, [True] * len(body.outputs))
        if not all(self._outputs.get(cond.name, [])):
            computed = [False] * len(computed)
        return [a and (b or c) for a, b, c in zip(inputs, handed_on, computed, strict=False)]

    def _give(self, caller: ir.Function, name: str, given: list[bool]) -> list[bool]:
        """Returns which results of a function are known, as far as that has been found."""
        function = self._graph.functions[name]
        given = [*given, *[False] * len(function.args)][: len(function.args)]
        before = self._args.get(name)
        now = given if before is None else [a and b for a, b in zip(before, given, strict=True)]
        self._callers[name].add(caller.name)
        if now != before:
            self._args[name] = now
            self._pending.append(name)
        return self._outputs.get(name, [True] * len(function.outputs))


def _handed_on(body: ir.Function) -> list[bool]:
    """Returns which arguments of a loop's body are its results as they are."""
    sources = {ir.TensorRef(arg.name): arg.name for arg in body.args}
    for node in body.nodes:
        if node.op == "Identity" and node.inputs and node.inputs[0] in sources:
            sources[ir.TensorRef(node.name)] = sources[node.inputs[0]]
    return [sources.get(ref) == arg.name for arg, ref in zip(body.args, body.outputs, strict=False)]
