"""Interprocedural dead-value elimination, through calls, branches and loops.

Where TensorFlow takes a gradient of a function, loops and branches in it return the values that the gradient may need:
lists that grow in each iteration, and intermediate values. They stay in the function, whether or not the gradient is
converted. Liveness of nodes does not find them, as some results of the loop are live; this pass tracks liveness per
result: which results of a callee a node needs, and which of the node's inputs they need.

Functions keep their arity. A dead result or input becomes ``_Undefined``; a loop variable that only its own next value
reads becomes loop-invariant.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import CALLS, CASES, IFS, WHILES, live_nodes
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.support.config import Config

_FOLLOWED = CALLS | IFS | CASES | WHILES
# Functions are visited once for each set of live results. Models need one or two visits per node.
_MAX_VISITS_PER_NODE = 50


class _BudgetExceeded(Exception):
    """Nested loops need too many sets of live results."""


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Remove dead values; effects, and the values that they need, stay.

    Args:
      graph: a verified graph without control flow v1.
    """
    del config
    if not graph.main.callers:
        return graph
    liveness = _Liveness(graph)
    try:
        live = _LiveValues(liveness, graph.main)
        live.read(_all(graph.main))
    except _BudgetExceeded:
        return graph
    rewriter = _Rewriter(liveness, graph)
    rewriter.collect(live)
    main = rewriter.rewritten(live, graph.main.name)
    return dataclasses.replace(graph, main=main, functions=rewriter.functions())


def _all(function: ir.Function) -> frozenset[int]:
    return frozenset(range(len(function.outputs)))


def _is_whole(function: ir.Function, results: frozenset[int]) -> bool:
    """Return whether a function stays unchanged, as most do."""
    # All of its results are live, and it calls no functions.
    return not function.callers and len(results) == len(function.outputs)


class _Use(NamedTuple):
    """The live inputs of a node, and the live results of each of its functions."""

    inputs: frozenset[int]
    results: Mapping[str, frozenset[int]]


class _Liveness:
    """Live values of each function for each set of its live results, computed once."""

    def __init__(self, graph: ir.Graph):
        self._functions = graph.functions
        self._found: dict[tuple[str, frozenset[int]], _LiveValues] = {}
        self._loops: dict[tuple[str, str, frozenset[int]], _Use] = {}
        functions = (graph.main, *graph.functions.values())
        self._budget = _MAX_VISITS_PER_NODE * sum([len(function.nodes) for function in functions])
        self.summaries = Summaries(graph.functions, registry.ops_in_force())

    def of(self, function: ir.Function, results: frozenset[int]) -> _LiveValues:
        """Return the live values of a function, given its live results."""
        key = (function.name, results)
        if key not in self._found:
            live = _LiveValues(self, function)
            live.read(results)
            self._found[key] = live
        return self._found[key]

    def spend(self, steps: int) -> None:
        """Count visited nodes."""
        self._budget -= steps
        if self._budget < 0:
            raise _BudgetExceeded

    def use(self, node: ir.Node, results: frozenset[int]) -> _Use | None:
        """Return the live inputs and callee results of a node; None if all are live."""
        callees = {ref.name: self._functions.get(ref.name) for ref in node.functions}
        if node.op not in _FOLLOWED or None in callees.values() or any(i >= len(node.output_dtypes) for i in results):
            return None
        functions = [function for function in callees.values() if function is not None]
        if node.op in WHILES:
            return self._loop(node, results)
        offset = 0 if node.op in CALLS else 1
        inputs = set(range(offset))
        for function in functions:
            if offset + len(function.args) != len(node.inputs) or len(function.outputs) != len(node.output_dtypes):
                return None
            whole = _is_whole(function, results)
            args = range(len(function.args)) if whole else self.of(function, results).args
            inputs.update([offset + position for position in args])
        return _Use(frozenset(inputs), dict.fromkeys(callees, results))

    def _loop(self, node: ir.Node, results: frozenset[int]) -> _Use | None:
        roles = [node.attrs.get(role) for role in ("cond", "body")]
        names = [role.name for role in roles if isinstance(role, ir.FunctionRef)]
        if len(set(names)) < 2 or len(node.functions) > 2:
            return None
        cond, body = (self._functions[name] for name in names)
        sizes = {len(node.inputs), len(node.output_dtypes), len(cond.args), len(body.args), len(body.outputs)}
        if len(sizes) > 1:
            return None
        key = (cond.name, body.name, results)
        if key not in self._loops:
            test = _all(cond)
            carried = results | self.of(cond, test).args
            live = _LiveValues(self, body)
            live.read(carried)
            while not live.args <= carried:
                carried |= live.args
                live.read(carried)
            self._found[(body.name, carried)] = live
            self._loops[key] = _Use(carried, {cond.name: test, body.name: carried})
        return self._loops[key]


class _LiveValues:
    """The live values of one function, for the results that are live so far."""

    def __init__(self, liveness: _Liveness, function: ir.Function):
        self.function = function
        self.results: frozenset[int] = frozenset()
        self.effects = liveness.summaries.effects_in(function)
        self.uses: dict[str, _Use | None] = {}
        self._liveness = liveness
        self._read: dict[str, set[int]] = {}
        self._nodes = {node.name: (index, node) for index, node in enumerate(function.nodes)}
        self._waiting: list[int] = []
        self._queued: set[int] = set()
        liveness.spend(len(function.nodes))
        self._propagate([ref for name in self.effects for ref in self._reached(name)])

    @property
    def args(self) -> frozenset[int]:
        """Indices of the live arguments."""
        return frozenset([index for index, arg in enumerate(self.function.args) if arg.name in self._read])

    def keeps(self, node: ir.Node) -> bool:
        """Return whether a node is live."""
        return node.name in self._read or node.name in self.effects

    def read(self, results: frozenset[int]) -> None:
        """Mark further results as live."""
        self._propagate([self.function.outputs[index] for index in results - self.results])
        self.results |= results

    def _propagate(self, stack: list[ir.TensorRef]) -> None:
        while stack or self._waiting:
            if stack:
                ref = stack.pop()
                read = self._read.setdefault(ref.node, set())
                if not read:
                    stack += self._reached(ref.node)
                elif ref.index not in read:
                    self._reached(ref.node)
                read.add(ref.index)
                continue
            # Users of a node come after it: with the last node first, each is visited once.
            index = -heapq.heappop(self._waiting)
            self._queued.discard(index)
            self._liveness.spend(1)
            node = self.function.nodes[index]
            use = self._liveness.use(node, frozenset(self._read.get(node.name, ())))
            self.uses[node.name] = use
            stack += node.inputs if use is None else [node.inputs[i] for i in use.inputs]

    def _reached(self, name: str) -> tuple[ir.TensorRef, ...]:
        """Return all inputs of a node; none for a node with functions."""
        # The live inputs of such a node are found later.
        found = self._nodes.get(name)
        if found is None:  # an argument
            return ()
        index, node = found
        if not node.functions:
            return node.inputs
        if index not in self._queued:
            self._queued.add(index)
            heapq.heappush(self._waiting, -index)
        return ()


class _Version(NamedTuple):
    """A function specialized to its live results, as the body of loops or not."""

    name: str
    results: frozenset[int]
    is_body: bool


class _Rewriter:
    def __init__(self, liveness: _Liveness, graph: ir.Graph):
        self._liveness = liveness
        self._graph = graph
        self._names: dict[_Version, str] = {}
        self._taken = {*graph.functions, graph.main.name}

    def collect(self, live: _LiveValues) -> None:
        """Collect and name the versions of called functions.

        The first version keeps the function's name.
        """
        for _, _, version in self._runs(live):
            if version not in self._names:
                is_first = all(other.name != version.name for other in self._names)
                name = version.name if is_first else ir.free_name(f"{version.name}/live", self._taken)
                self._names[version] = name
                if not _is_whole(self._graph.functions[version.name], version.results):
                    self.collect(self._live_values(version))

    def functions(self) -> dict[str, ir.Function]:
        """Return the library, with the versions that were collected."""
        found = dict(self._graph.functions)
        for version, name in self._names.items():
            function = self._graph.functions[version.name]
            if not _is_whole(function, version.results):
                function = self.rewritten(self._live_values(version), name, is_body=version.is_body)
            found[name] = function if function.name == name else dataclasses.replace(function, name=name)
        return found

    def rewritten(self, live: _LiveValues, name: str, *, is_body: bool = False) -> ir.Function:
        """Return a function without its dead values, called ``name``."""
        versions = {(node.name, ref.name): self._names[version] for node, ref, version in self._runs(live)}
        function = live.function
        body = _Body(function)
        nodes = [body.node(node, live.uses.get(node.name), versions) for node in function.nodes if live.keeps(node)]
        outputs = list(function.outputs)
        for index in _all(function) - live.results:
            outputs[index] = ir.TensorRef(function.args[index].name) if is_body else body.undefined(outputs[index])
        if not body.changed and tuple(outputs) == function.outputs:
            return function
        # Nodes with an effect that only a dead result reached remain live.
        effects = [node.name for node in live_nodes(function, live.effects) if node.name in live.effects]
        control = tuple(dict.fromkeys([*function.control_outputs, *effects]))
        return dataclasses.replace(
            function, name=name, nodes=(*body.made, *nodes), outputs=tuple(outputs), control_outputs=control
        )

    def _live_values(self, version: _Version) -> _LiveValues:
        return self._liveness.of(self._graph.functions[version.name], version.results)

    def _runs(self, live: _LiveValues) -> Iterator[tuple[ir.Node, ir.FunctionRef, _Version]]:
        """Yield each function that each node of a function calls, and its version."""
        for node in live.function.callers:
            for ref in node.functions if live.keeps(node) else ():
                callee = self._graph.functions.get(ref.name)
                if callee is not None:
                    use = live.uses[node.name]
                    results = _all(callee) if use is None else use.results[ref.name]
                    is_body = node.op in WHILES and results != _all(callee)
                    yield node, ref, _Version(ref.name, results, is_body)


class _Body:
    """Rewrites one function: its new nodes, and whether it differs."""

    def __init__(self, function: ir.Function):
        self.made: list[ir.Node] = []
        self.changed = False
        self._function = function
        self._undefined: dict[ir.DType, ir.TensorRef] = {}

    @functools.cached_property
    def _dtypes(self) -> dict[str, tuple[ir.DType, ...]]:
        found: dict[str, tuple[ir.DType, ...]] = {arg.name: (arg.dtype,) for arg in self._function.args}
        found.update((node.name, node.output_dtypes) for node in self._function.nodes)
        return found

    def node(self, node: ir.Node, use: _Use | None, names: Mapping[tuple[str, str], str]) -> ir.Node:
        """Return a node with its live inputs and the names of the versions that it calls."""
        if not node.functions:
            return node
        inputs = list(node.inputs)
        for index in () if use is None else set(range(len(inputs))) - use.inputs:
            inputs[index] = self.undefined(inputs[index])
        renamed = {ref.name: names.get((node.name, ref.name), ref.name) for ref in node.functions}
        if tuple(inputs) == node.inputs and all(old == new for old, new in renamed.items()):
            return node
        self.changed = True
        attrs = {k: v if k.startswith("_") else _renamed(v, renamed) for k, v in node.attrs.items()}
        return dataclasses.replace(node, inputs=tuple(inputs), attrs=attrs)

    def undefined(self, ref: ir.TensorRef) -> ir.TensorRef:
        """Return an ``_Undefined`` tensor of the dtype of a dead tensor."""
        dtypes = self._dtypes.get(ref.node, ())
        dtype = dtypes[ref.index] if ref.index < len(dtypes) else ir.VARIANT
        found = self._undefined.get(dtype)
        if found is None:
            node = build.node("_Undefined", name=ir.free_name(f"dead/{dtype}", set(self._dtypes)), dtype=dtype)
            self.made.append(node)
            found = self._undefined[dtype] = ir.TensorRef(node.name)
        return found


def _renamed(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, ir.FunctionRef):
        return dataclasses.replace(value, name=names[value.name])
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value
