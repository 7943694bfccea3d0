"""What nobody reads, dropped through calls, branches and loops: results, arguments, and loop variables.

Where TensorFlow takes a gradient of a function, it makes the loops and branches in it hand on what the gradient may
need: lists that grow in each iteration, intermediate values. They stay in the function, whether or not the gradient is
converted. A node alone shows none of that, as some of its results are read; so it is followed result by result what the
functions that a node runs are wanted for, and what they want of the node's inputs.

Functions keep their arguments and results. A result that nobody reads is ``_Undefined``, as is an input that nobody
reads; a loop variable that at most feeds itself is handed on unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tf2jax_lite import ir
from tf2jax_lite.ir.liveness import live_nodes
from tf2jax_lite.ir.op_kinds import CALLS, CASES, IFS, WHILES
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries

__all__ = ["drop_unread"]

_FOLLOWED = CALLS | IFS | CASES | WHILES
# Functions are looked at again for each set of results that is read. Models need one or two times their nodes.
_MOST_TIMES = 50


class _TooMuch(Exception):
    """Loops within loops ask for ever more sets of results."""


def drop_unread(graph: ir.Graph) -> ir.Graph:
    """Returns the graph without what only values need that nobody reads; effects stay, and what they need.

    Args:
      graph: the graph, without control flow of TensorFlow 1. Its functions do not call each other in a circle.
    """
    if not graph.main.callers:
        return graph
    readers = _Readers(graph)
    try:
        reader = _Reader(readers, graph.main)
        reader.read(_all(graph.main))
    except _TooMuch:
        return graph
    rewriter = _Rewriter(readers, graph)
    rewriter.collect(reader)
    main = rewriter.rewritten(reader, graph.main.name)
    return dataclasses.replace(graph, main=main, functions=rewriter.functions())


def _all(function: ir.Function) -> frozenset[int]:
    return frozenset(range(len(function.outputs)))


def _is_whole(function: ir.Function, results: frozenset[int]) -> bool:
    """Whether a function stays as it is, as most do: all of its results are read, and it runs no functions."""
    return not function.callers and len(results) == len(function.outputs)


class _Use(NamedTuple):
    """What a node is wanted for: which of its inputs, and for each of its functions, which results."""

    inputs: frozenset[int]
    results: Mapping[str, frozenset[int]]


class _Readers:
    """Who reads what: for each function, and each set of its results that is read, found once."""

    def __init__(self, graph: ir.Graph):
        self._functions = graph.functions
        self._found: dict[tuple[str, frozenset[int]], _Reader] = {}
        self._loops: dict[tuple[str, str, frozenset[int]], _Use] = {}
        functions = (graph.main, *graph.functions.values())
        self._budget = _MOST_TIMES * sum([len(function.nodes) for function in functions])
        self.summaries = Summaries(graph.functions, registry.ops_in_force())

    def of(self, function: ir.Function, results: frozenset[int]) -> _Reader:
        """Returns what some results of a function, and its effects, read."""
        key = (function.name, results)
        if key not in self._found:
            reader = _Reader(self, function)
            reader.read(results)
            self._found[key] = reader
        return self._found[key]

    def spend(self, steps: int) -> None:
        """Notes that so many nodes are looked at."""
        self._budget -= steps
        if self._budget < 0:
            raise _TooMuch

    def use(self, node: ir.Node, results: frozenset[int]) -> _Use | None:
        """Returns what a node reads and wants of its functions if some of its results are read; None for everything."""
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
            decides = _all(cond)
            carried = results | self.of(cond, decides).args
            reader = _Reader(self, body)
            reader.read(carried)
            while not reader.args <= carried:
                carried |= reader.args
                reader.read(carried)
            self._found[(body.name, carried)] = reader
            self._loops[key] = _Use(carried, {cond.name: decides, body.name: carried})
        return self._loops[key]


class _Reader:
    """What is read of a function's tensors, for the results that are asked for so far.

    Attributes:
      function: the function.
      results: which of its results are read.
      effects: names of the nodes that change something.
      uses: for each node whose functions are followed, what it is wanted for.
    """

    def __init__(self, readers: _Readers, function: ir.Function):
        self.function = function
        self.results: frozenset[int] = frozenset()
        self.effects = readers.summaries.effects_in(function)
        self.uses: dict[str, _Use | None] = {}
        self._readers = readers
        self._read: dict[str, set[int]] = {}
        self._nodes = {node.name: (place, node) for place, node in enumerate(function.nodes)}
        self._waiting: list[int] = []
        self._queued: set[int] = set()
        readers.spend(len(function.nodes))
        self._settle([ref for name in self.effects for ref in self._reached(name)])

    @property
    def args(self) -> frozenset[int]:
        """Which arguments are read."""
        return frozenset([index for index, arg in enumerate(self.function.args) if arg.name in self._read])

    def keeps(self, node: ir.Node) -> bool:
        """Whether a node has to stay."""
        return node.name in self._read or node.name in self.effects

    def read(self, results: frozenset[int]) -> None:
        """Notes that these results are read, too."""
        self._settle([self.function.outputs[index] for index in results - self.results])
        self.results |= results

    def _settle(self, stack: list[ir.TensorRef]) -> None:
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
            # What reads a node's results comes after it: with the last node first, each is looked at once.
            place = -heapq.heappop(self._waiting)
            self._queued.discard(place)
            self._readers.spend(1)
            node = self.function.nodes[place]
            use = self._readers.use(node, frozenset(self._read.get(node.name, ())))
            self.uses[node.name] = use
            stack += node.inputs if use is None else [node.inputs[index] for index in use.inputs]

    def _reached(self, name: str) -> tuple[ir.TensorRef, ...]:
        """Returns what a node reads, all of it; what one with functions reads is seen later."""
        found = self._nodes.get(name)
        if found is None:  # an argument
            return ()
        place, node = found
        if not node.functions:
            return node.inputs
        if place not in self._queued:
            self._queued.add(place)
            heapq.heappush(self._waiting, -place)
        return ()


class _Version(NamedTuple):
    """A function as some nodes run it: which results they read, and whether it is the body of loops."""

    name: str
    results: frozenset[int]
    is_body: bool


class _Rewriter:
    def __init__(self, readers: _Readers, graph: ir.Graph):
        self._readers = readers
        self._graph = graph
        self._names: dict[_Version, str] = {}
        self._taken = {*graph.functions, graph.main.name}

    def collect(self, reader: _Reader) -> None:
        """Notes which versions of functions are run, and names them: one of each function keeps its name."""
        for _, _, version in self._runs(reader):
            if version not in self._names:
                name, number = version.name, 0
                if any(other.name == version.name for other in self._names):
                    while name in self._taken:
                        number += 1
                        name = f"{version.name}/read_{number}"
                    self._taken.add(name)
                self._names[version] = name
                if not _is_whole(self._graph.functions[version.name], version.results):
                    self.collect(self._reader(version))

    def functions(self) -> dict[str, ir.Function]:
        """Returns the library, with the versions that were collected."""
        found = dict(self._graph.functions)
        for version, name in self._names.items():
            function = self._graph.functions[version.name]
            if not _is_whole(function, version.results):
                function = self.rewritten(self._reader(version), name, is_body=version.is_body)
            found[name] = function if function.name == name else dataclasses.replace(function, name=name)
        return found

    def rewritten(self, reader: _Reader, name: str, *, is_body: bool = False) -> ir.Function:
        """Returns a function as it is read, called ``name``."""
        versions = {(node.name, ref.name): self._names[version] for node, ref, version in self._runs(reader)}
        function = reader.function
        body = _Body(function)
        nodes = [body.node(node, reader.uses.get(node.name), versions) for node in function.nodes if reader.keeps(node)]
        outputs = list(function.outputs)
        for index in _all(function) - reader.results:
            outputs[index] = ir.TensorRef(function.args[index].name) if is_body else body.undefined(outputs[index])
        if not body.changed and tuple(outputs) == function.outputs:
            return function
        # What only such a result led to has its effect still.
        live = [node.name for node in live_nodes(function, reader.effects) if node.name in reader.effects]
        control = tuple(dict.fromkeys([*function.control_outputs, *live]))
        return dataclasses.replace(
            function, name=name, nodes=(*body.made, *nodes), outputs=tuple(outputs), control_outputs=control
        )

    def _reader(self, version: _Version) -> _Reader:
        return self._readers.of(self._graph.functions[version.name], version.results)

    def _runs(self, reader: _Reader) -> Iterator[tuple[ir.Node, ir.FunctionRef, _Version]]:
        """Yields each function that each node of a function runs, and in which version."""
        for node in reader.function.callers:
            for ref in node.functions if reader.keeps(node) else ():
                callee = self._graph.functions.get(ref.name)
                if callee is not None:
                    use = reader.uses[node.name]
                    results = _all(callee) if use is None else use.results[ref.name]
                    is_body = node.op in WHILES and results != _all(callee)
                    yield node, ref, _Version(ref.name, results, is_body)


class _Body:
    """One function as it is rewritten: the nodes that it gets, and whether anything is not as it was."""

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
        """Returns a node with the inputs that are read, and the functions that it is to run, by their names."""
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
        """Returns what stands for a tensor that nobody reads."""
        dtypes = self._dtypes.get(ref.node, ())
        dtype = dtypes[ref.index] if ref.index < len(dtypes) else ir.VARIANT
        found = self._undefined.get(dtype)
        if found is None:
            name = f"unread/{dtype}"
            while name in self._dtypes:
                name += "_"
            self.made.append(ir.Node(name, "_Undefined", (), (), (), {"dtype": dtype}, output_dtypes=(dtype,)))
            found = self._undefined[dtype] = ir.TensorRef(name)
        return found


def _renamed(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, ir.FunctionRef):
        return dataclasses.replace(value, name=names[value.name])
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value
