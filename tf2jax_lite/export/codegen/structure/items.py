"""Represent a function's statements as items.

Items are printed equations, calls of outlined functions, and loops.

Equal keys mean equal source up to names, params and constants. A value is a number (`templates.Ref`); a position says
which of an item's values it is, equally for equal items.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

from ..idioms.defaults import without_defaults
from ..templates import CLOSE, OPEN, Def, Marks, Part, Printed, Read, Ref, Stmt

Position = Hashable
BODY = "body"
"""The scope of local functions' bodies."""

_WIDTH = 70  # of a statement in one line
_READ = 20  # characters of a param
_MEMBER = re.compile(f"{OPEN}.*?{CLOSE}", re.DOTALL)


class Item:
    """One step of a function.

    Attributes:
      key: number that equal items share.
      inputs: the values that it uses, each once, in order.
      lines: about how many lines it takes.
      reads: the params that it reads, with repetitions.
      depths: number that items share whose params have as many components in their names.
    """

    key: int
    inputs: list[int]
    lines: int
    reads: list[tuple[str, ...]]
    depths: int

    def outputs(self) -> list[tuple[Position, int]]:
        """Return the values that later items may use, with their positions."""
        raise NotImplementedError

    def output_at(self, position: Any, program: Program) -> int:
        """Return the value at a position, a new one if nothing uses it so far."""
        return dict(self.outputs())[position]


class Code(Item):
    """A printed equation."""

    def __init__(self, nodes: list[Any], path: tuple[str, ...], program: Program):
        self.nodes = nodes
        self.path = path
        text: list[str] = []
        local: dict[int, int] = {}
        defined: dict[int, None] = {}
        _encode(nodes, text, local, defined)
        self.key = program.intern("".join(text))
        self.inputs = [v for v in local if v not in defined]
        own = [target for node in nodes if isinstance(node, Stmt) for target in node.targets]
        self._outputs = [(local[v], v) for v in own]
        self.lines = sum(map(_lines, nodes))
        self.reads = list(_reads(nodes))
        self.depths = program.intern(("depths", *map(len, self.reads)))

    def outputs(self) -> list[tuple[Position, int]]:
        """Return the values that it assigns."""
        return list(self._outputs)


def _lines(node: Any) -> int:
    if isinstance(node, Stmt):
        text = without_defaults(_MEMBER.sub("self.member", "".join(map(_stand_in, node.parts))))
        return 1 if len(text) <= _WIDTH else 2 + text.count(", ")
    if isinstance(node, Item):
        return node.lines
    inner = node.nodes if isinstance(node, Printed) else node.body
    return sum(map(_lines, inner), start=isinstance(node, Def))


def _stand_in(part: Part) -> str:
    """Return text about as long as a part will have."""
    if isinstance(part, Read):
        return "x" * _READ
    return part if isinstance(part, str) else getattr(part, "text", "x")


def _reads(nodes: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    for node in nodes:
        if isinstance(node, Item):
            yield from node.reads
        elif isinstance(node, Stmt):
            yield from (p.path for p in node.parts if isinstance(p, Read))
        else:
            yield from _reads(node.nodes if isinstance(node, Printed) else node.body)


def _encode(nodes: Sequence[Any], text: list[str], local: dict[int, int], defined: dict[int, None]) -> None:
    """Append the text of statements, with values numbered by first appearance."""

    def write(parts: Sequence[Any]) -> None:
        for part in parts:
            if isinstance(part, str):
                text.append(part)
            elif isinstance(part, Ref):
                text.append(f"\0v{local.setdefault(part.id, len(local))} ")
            else:
                text.append("\0p" if isinstance(part, Read) else "\0h")

    for node in nodes:
        text.append("\n")
        if isinstance(node, Stmt):
            write(node.parts)
            defined.update(dict.fromkeys(node.targets))
        elif isinstance(node, Printed):
            _encode(node.nodes, text, local, defined)
        elif isinstance(node, Item):
            outputs = node.outputs()
            positions = [position for position, _ in outputs]
            text.append(f"\0k{node.key} {positions}")
            write([Ref(value) for value in (*node.inputs, *(value for _, value in outputs))])
            defined.update(dict.fromkeys(value for _, value in outputs))
        else:
            assert isinstance(node, Def)
            text.append("def ")
            args = [part for arg in node.args for part in arg]
            write([node.name, "(", *args, "):"])
            defined.update(dict.fromkeys(p.id for p in (node.name, *args) if isinstance(p, Ref)))
            _encode(node.body, text, local, defined)
            text.append("\nend")


class Body:
    """The items of one instance of a function.

    Attributes:
      items: they.
      free: the values of others that they use, in order of use.
      where: position of each value that they define.
      key: number that equal bodies share.
    """

    def __init__(self, items: Sequence[Item], program: Program):
        self.items = list(items)
        self.where: dict[int, Position] = {}
        free: dict[int, int] = {}
        code: list[Hashable] = []
        for number, item in enumerate(self.items):
            code.append(item.key)
            for value in item.inputs:
                found = self.where.get(value)
                code.append(free.setdefault(value, len(free)) if found is None else found)
            for position, value in item.outputs():
                self.where[value] = (number, position)
        self.free = list(free)
        self.key = program.intern(tuple(code))
        self.lines = sum(item.lines for item in self.items)
        self.reads = [path for item in self.items for path in item.reads]
        self.depths = program.intern(("depths", *(item.depths for item in self.items)))


@dataclasses.dataclass(eq=False)
class Function:
    """A function of the module: equal bodies.

    Attributes:
      key: of the bodies.
      bodies: one for each call.
      scopes: name scope of each, "" for a repeated part of a scope.
      results: the positions of the values that some caller uses.
      produced: the value of each call with one result, and the call's scope.
      plan: its parameters.
      small: whether it is only written apart if it is called at several places.
      places: how many calls of it there are in the source, 2 for a loop.
    """

    key: int
    bodies: list[Body] = dataclasses.field(default_factory=list)
    scopes: list[str] = dataclasses.field(default_factory=list)
    results: list[Any] = dataclasses.field(default_factory=list)
    produced: dict[int, str] = dataclasses.field(default_factory=dict)
    plan: Any = None
    small: bool = False
    places: int = 0

    @property
    def inline(self) -> bool:
        """Whether its statements stand where it is called."""
        return self.small and self.places < 2


class Call(Item):
    """A call of an outlined function."""

    def __init__(self, function: Function, number: int, used: Sequence[tuple[Position, int]], program: Program):
        self.function = function
        self.number = number
        self.body = function.bodies[number]
        self.key = program.intern(("call", function.key))
        self.inputs = self.body.free
        self._outputs = list(used)
        self.lines = 1
        self.reads = self.body.reads
        self.depths = self.body.depths

    def outputs(self) -> list[tuple[Position, int]]:
        """Return the values that it assigns."""
        return list(self._outputs)

    def output_at(self, position: Any, program: Program) -> int:
        """Return the value at a position of the results, a new one if it has no use yet."""
        found = dict(self._outputs).get(position)
        if found is None:
            number, inner = position
            found = self.body.items[number].output_at(inner, program)
            self._outputs.append((position, found))
        return found


class Loop(Item):
    """Consecutive calls of one function.

    Attributes:
      calls: they.
      pattern: for each argument ``("carry", position)`` of the previous call's result, ``("same",)`` or ``("each",)``.
      collected: positions of results of which all calls' are used.
    """

    def __init__(
        self, calls: list[Call], pattern: tuple[tuple[Any, ...], ...], collected: tuple[Position, ...], program: Program
    ):
        self.calls = calls
        self.pattern = pattern
        self.collected = collected
        count = len(calls) if collected or ("each",) in pattern else None
        self.reads = [path for call in calls for path in call.reads]
        self.depths = calls[0].depths
        self.key = program.intern(("loop", calls[0].function.key, pattern, collected, count, self.depths))
        self.inputs = list(
            dict.fromkeys(
                value
                for i, kind in enumerate(pattern)
                for value in ([c.inputs[i] for c in calls] if kind == ("each",) else [calls[0].inputs[i]])
            )
        )
        self.lines = 2

    def outputs(self) -> list[tuple[Position, int]]:
        """Return the results of the last call, and those of others that are collected."""
        last = len(self.calls) - 1
        return [
            ((number if number < last else -1, position), value)
            for number, call in enumerate(self.calls)
            for position, value in call.outputs()
            if number == last or position in self.collected
        ]

    def output_at(self, position: Any, program: Program) -> int:
        """Return a result of one of the calls.

        Args:
          position: index of the call (-1 for the last), and position in the function's results.
          program: the functions.
        """
        number, inner = position
        return self.calls[number].output_at(inner, program)


def _all_items(nodes: Iterable[Any]) -> Iterator[Item]:
    """Yield items, and those in local functions."""
    for node in nodes:
        if isinstance(node, Item):
            yield node
        if isinstance(node, Code | Printed):
            yield from _all_items(node.nodes)
        elif isinstance(node, Def):
            yield from _all_items(node.body)


class Program:
    """The functions of a module, callees before callers.

    Attributes:
      indexed: whether functions may take all params and an index, where layers have numbers in their names.
      marks: hints and abstract values.
      functions: by key.
      params: abstract values of params by path.
      constants: the same of large constants.
      scan_layers: whether loops over layers of one shape are `jax.lax.scan`.
      stacks: paths of params that such loops stack, inner loops first, each with these loops.
      inlined: scopes of up to so many lines are no functions.
      shared: params that only one function reads, as it holds them for several uses.
    """

    indexed = True
    inlined = 0
    shared: Collection[tuple[str, ...]] = frozenset()

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.params: dict[tuple[str, ...], Any] = {}
        self.constants: dict[tuple[str, ...], Any] = {}
        self.scan_layers = False
        self.stacks: dict[tuple[tuple[str, ...], ...], list[Loop]] = {}
        self._subtrees: dict[tuple[str, ...], dict[tuple[str, ...], Any]] = {}
        self._keys: dict[Hashable, int] = {}
        self.functions: dict[int, Function] = {}

    def intern(self, key: Hashable) -> int:
        """Return a number for a key, equal for equal keys."""
        return self._keys.setdefault(key, len(self._keys))

    def layers(self, equations: Sequence[Printed], results: Collection[int]) -> Sequence[Any]:
        """Return a function's equations, with those of layers replaced by calls.

        Args:
          equations: its equations.
          results: the values that it returns.
        """
        return equations

    def count_places(self, bodies: Iterable[Sequence[Any]]) -> None:
        """Count the calls of each function in the source.

        Args:
          bodies: items of the module's entries.
        """
        for function in self.functions.values():
            function.places = 0
        for items in (*bodies, *(f.bodies[0].items for f in self.functions.values())):
            for item in _all_items(items):
                if isinstance(item, Call):
                    item.function.places += 1
                elif isinstance(item, Loop):
                    item.calls[0].function.places += 2

    def under(self, path: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
        """Return shapes and dtypes of a subtree's params and large constants, by path."""
        if not self._subtrees:
            for full, aval in (*self.params.items(), *self.constants.items()):
                for length in range(len(full) + 1):
                    tree = self._subtrees.setdefault(full[:length], {})
                    tree[full[length:]] = aval.shape, aval.dtype
        return self._subtrees.get(path, {})

    def call(self, items: Sequence[Item], used: Any, scope: str, *, small: bool = False) -> Call:
        """Return a call of the function with these items.

        Args:
          items: its body.
          used: tells of a value whether others use it.
          scope: the name scope.
          small: whether to write them apart only if there are several calls.
        """
        body = Body(items, self)
        function = self.functions.get(body.key)
        if function is None:
            function = self.functions[body.key] = Function(body.key, small=small)
        function.bodies.append(body)
        function.scopes.append(scope)
        outputs = [(position, value) for value, position in body.where.items() if used(value)]
        function.results.extend(p for p, _ in outputs if p not in function.results)
        if scope and len(outputs) == 1 and scope != BODY:
            function.produced[outputs[0][1]] = scope
        return Call(function, len(function.bodies) - 1, outputs, self)
