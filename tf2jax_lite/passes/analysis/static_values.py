"""Static-value analysis: values known at conversion.

They are constants, or computed from constants alone.

Two facts follow that decide whether a call may have to trace again because of sizes (`may_compare_sizes`,
`may_have_dynamic_sizes`). False is certain, True is not: arguments may be static in a call, and a loop may be unrolled.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS, CASES, IFS, WHILES, skip
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.traits import Pattern

_BRANCHES = IFS | CASES
_HANDLES = frozenset({ir.RESOURCE, ir.VARIANT})
_MAX_DEPTH = 50  # of visits within visits, which Python's stack bounds


def runtime_dependent(
    graph: ir.Graph, ops: Mapping[str, registry.Op], wanted: Collection[str]
) -> frozenset[tuple[str, str]]:
    """Return nodes of the given ops with an input that is unknown at conversion time.

    Values are static through calls, into branches, and in loops, including values that a loop computes from static
    ones: a loop that JAX cannot express is unrolled. A function with several call sites is analyzed once: an argument
    is static if it is at all of them.

    Args:
      graph: the graph.
      ops: implementations of ops, the wanted ones among them.
      wanted: names of ops.

    Returns:
      Pairs of a function's name and a node's name.
    """
    return StaticValues(graph, ops).runtime_dependent(frozenset(wanted))


class StaticValues:
    """A greatest fixpoint: assume all values static, retract until nothing changes."""

    def __init__(self, graph: ir.Graph, ops: Mapping[str, registry.Op]):
        self._graph = graph
        self._ops = ops
        self._args: dict[str, list[bool]] = {}
        self._outputs: dict[str, list[bool]] = {}
        self._callers: dict[str, set[str]] = collections.defaultdict(set)
        self._pending: collections.deque[str] = collections.deque()
        self._queued: set[str] = set()
        self._active: set[str] = set()

    def runtime_dependent(self, wanted: frozenset[str]) -> frozenset[tuple[str, str]]:
        """Return nodes of the given ops with an input that is not static."""
        self.visit()
        out = set()
        for function, static in self.functions(wanted):
            for node in function.nodes:
                if node.op in wanted and not all(ref in static for ref in node.inputs):
                    out.add((function.name, node.name))
        return frozenset(out)

    def visit(self) -> None:
        """Compute the fixpoint."""
        main = self._graph.main
        values = {c.index for c in self._graph.captures if isinstance(c.value, np.ndarray)}
        self._args[main.name] = [i in values for i in range(len(main.args))]
        self._enqueue(main.name)
        while self._pending:
            name = self._pending.popleft()
            self._queued.remove(name)
            self._visit(self._function(name))

    def functions(self, wanted: frozenset[str] | None = None) -> Iterator[tuple[ir.Function, set[ir.TensorRef]]]:
        """Yield functions in use that have a wanted op, and their static tensors."""
        for name in self._args:
            function = self._function(name)
            if wanted is None or not wanted.isdisjoint(function.ops):
                yield function, self._static(function)

    def _function(self, name: str) -> ir.Function:
        return self._graph.main if name == self._graph.main.name else self._graph.functions[name]

    def _visit(self, function: ir.Function) -> None:
        self._active.add(function.name)
        static = self._static(function)
        self._active.remove(function.name)
        outputs = [ref in static for ref in function.outputs]
        if outputs != self._outputs.get(function.name, [True] * len(outputs)):
            self._outputs[function.name] = outputs
            for caller in self._callers[function.name]:
                self._enqueue(caller)

    def _enqueue(self, name: str) -> None:
        """Have a function visited, once for all changes before that."""
        if name not in self._queued:
            self._queued.add(name)
            self._pending.append(name)

    def _static(self, function: ir.Function) -> set[ir.TensorRef]:
        """Return the static tensors of a function; propagate static arguments to callees."""
        given = zip(function.args, self._args[function.name], strict=True)
        static = {ir.TensorRef(arg.name) for arg, is_static in given if is_static}
        for node in function.nodes:
            inputs = [ref in static for ref in node.inputs]
            results = self._called(function, node, inputs) if node.functions else self._of_op(node, inputs)
            static.update(ir.TensorRef(node.name, i) for i, is_static in enumerate(results) if is_static)
        return static

    def _of_op(self, node: ir.Node, inputs: Sequence[bool]) -> list[bool]:
        entry = self._ops.get(node.op)
        if entry is None or not entry.plain or entry.needs_context or node.stateful:
            is_static = False
        elif inputs:
            is_static = all(inputs)
        else:
            is_static = entry.fold is not None and _HANDLES.isdisjoint(node.output_dtypes)
        return [is_static] * len(node.output_dtypes)

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
        """Return which variables of a loop are static in each iteration."""
        # They are if the body returns them unchanged, or, in a loop with a static trip count, computes them from static
        # values, such as a counter.
        refs = [node.attrs.get(name) for name in ("cond", "body")]
        cond, body = (self._graph.functions.get(r.name) if isinstance(r, ir.FunctionRef) else None for r in refs)
        if cond is None or body is None:
            return []
        invariant = loop_invariants(body)
        computed = self._outputs.get(body.name, [True] * len(body.outputs))
        if not all(self._outputs.get(cond.name, [])):
            computed = [False] * len(computed)
        return [a and (i in invariant or b) for i, (a, b) in enumerate(zip(inputs, computed, strict=False))]

    def _give(self, caller: ir.Function, name: str, given: list[bool]) -> list[bool]:
        """Propagate static arguments to a callee; return which results are static so far."""
        function = self._graph.functions[name]
        given = [*given, *[False] * len(function.args)][: len(function.args)]
        before = self._args.get(name)
        now = given if before is None else [a and b for a, b in zip(before, given, strict=True)]
        self._callers[name].add(caller.name)
        if now != before:
            self._args[name] = now
            # At once: otherwise the caller's later calls would take results that change, and a caller with many calls
            # in a row would be visited once for each.
            if name in self._active or len(self._active) >= _MAX_DEPTH:
                self._enqueue(name)
            else:
                self._visit(function)
        return self._outputs.get(name, [True] * len(function.outputs))


def loop_invariants(body: ir.Function) -> set[int]:
    """Return the positions of the arguments that a loop's body returns unchanged.

    Identity nodes do not change a value.
    """
    nodes = {node.name: node for node in body.nodes}
    pairs = enumerate(zip(body.args, body.outputs, strict=False))
    return {index for index, (arg, ref) in pairs if skip(ref, nodes).node == arg.name}


_VARIABLES = frozenset({"VarHandleOp", "_XlaAotOnlyVarHandleOp"})
_BOOL = np.dtype(bool)


def may_compare_sizes(graph: ir.Graph, ops: Mapping[str, registry.Op]) -> bool:
    """Return whether a node may compare sizes.

    Such a node has a boolean result that NumPy can compute.
    """
    return any(
        _BOOL in node.output_dtypes and (entry := ops.get(node.op)) is not None and entry.fold is not None
        for _, node in graph.walk()
    )


def may_have_dynamic_sizes(graph: ir.Graph, ops: Mapping[str, registry.Op]) -> bool:
    """Return whether the size of a value may depend on data.

    It may if a node sizes its result by a value that is not computed from shapes and constants alone. Branches and
    loops may always: their results may differ in size, and a loop's counter is traced.
    """
    return _SizeAnalysis(graph, ops).may_be_dynamic()


class _SizeAnalysis(StaticValues):
    """Static values of a graph without dynamic sizes, where each shape is static.

    The first dynamic size is of a node whose operands have static shapes. So if no node has one under this assumption,
    there is none.
    """

    def may_be_dynamic(self) -> bool:
        self.visit()
        for function, static in self.functions():
            for node in function.nodes:
                entry = self._ops.get(node.op)
                if node.op in CALLS or node.op in _VARIABLES:
                    continue
                if entry is None or entry.needs_context or node.functions:
                    return True
                if not all(ref in static for ref in _sizing(entry, node)):
                    return True
        return False

    def _of_op(self, node: ir.Node, inputs: Sequence[bool]) -> list[bool]:
        entry = self._ops.get(node.op)
        if entry is not None and entry.pattern is Pattern.SHAPE_ONLY:
            return [True] * len(node.output_dtypes)
        return super()._of_op(node, inputs)


def _sizing(entry: registry.Op, node: ir.Node) -> Iterator[ir.TensorRef]:
    """Yield the inputs whose values may determine the size of a result."""
    # An op with a `Bound` counts all of them, one that may ask the tracker of dynamic shapes all but the first.
    position = 0
    for index, group in enumerate(node.groups):
        count = 1 if group is None else group
        name = entry.inputs[index] if index < len(entry.inputs) else None
        if (
            entry.bound is not None
            or (entry.shapes is not None and index > 0)
            or name in entry.static
            or name in entry.unconverted
        ):
            yield from node.inputs[position : position + count]
        position += count
