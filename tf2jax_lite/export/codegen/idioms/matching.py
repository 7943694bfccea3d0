"""Search for a function's jaxpr in a block.

A candidate is traced at the shapes that the block has, and rewritten by the same rules as the block. Both are then
compared backwards from the result: equal primitives, parameters, types and constants, operands of commutative
primitives in either order. The comparison visits each step of the candidate once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.export.codegen.block_ir import Block, Constant, Equation, Literal, Scope, Value

from .graph import Graph, Item
from .products import relabeled
from .shapes import same

_COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne", "add_any"})
_IGNORED = frozenset({"key", "weak_type", "sharding", "out_sharding"})
_JAXPRS = frozenset(
    {"jaxpr", "cond_jaxpr", "body_jaxpr", "branches", "call_jaxpr", "jvp_jaxpr_fun", "consts", "jaxprs"}
)
"""Params that a step's blocks stand for."""


@dataclasses.dataclass
class Match:
    """Where a candidate was found.

    Attributes:
      arguments: the items in place of the candidate's arguments.
      results: the values in place of its results.
    """

    arguments: list[Item]
    results: list[Value]


def find(graph: Graph, step: Equation, pattern: Block) -> Match | None:
    """Return where a pattern's first result is a step's output, None if it is not.

    Values within the match that are no results must not be used elsewhere, and results not before ``step``.
    """
    comparison = _Comparison(graph, step, pattern)
    first = pattern.results[0]
    if not comparison.equal(first, step.outputs[0]) or not comparison.is_complete():
        return None
    return comparison.match()


def arguments_of(graph: Graph, items: Sequence[Item], pattern: Block) -> list[Item] | None:
    """Return the items in place of a pattern's arguments, None if it has no match.

    Args:
      graph: a block all of whose steps are final.
      items: one for each result.
      pattern: the candidate.
    """
    comparison = _Comparison(graph, None, pattern)
    if not all(comparison.equal(a, b) for a, b in zip(pattern.results, items, strict=True)):
        return None
    return [comparison.bound[id(a)] for a in pattern.args] if comparison.binds_all() else None


class _Comparison:
    """Compare a pattern with a graph, and bind the pattern's values to items."""

    def __init__(self, graph: Graph, step: Equation | None, pattern: Block):
        self.graph = graph
        self.step = step
        self.pattern = pattern
        self.args = {id(a) for a in pattern.args}
        self.makers = {id(v): s for s in pattern.steps for v in s.outputs}
        self.bound: dict[int, Item] = {}
        self.steps: dict[int, Equation] = {}

    def is_complete(self) -> bool:
        """Return whether the match binds all values and hides none that others use."""
        found = [self.bound.get(id(r)) for r in self.pattern.results]
        results = [r for r in found if isinstance(r, Value)]
        if not self.binds_all() or len(results) < len(found):
            return False
        ids = {id(r) for r in results}
        args = {id(self.bound[id(a)]) for a in self.pattern.args}
        for step in self.steps.values():
            for value in step.outputs:
                if id(value) not in ids and id(value) not in args and not self.graph.is_internal(value, self.steps):
                    return False
        return not any(self.graph.is_used_before(r, self.steps) for r in results[1:])

    def binds_all(self) -> bool:
        """Return whether each of the pattern's arguments stands for an item."""
        return all(id(a) in self.bound for a in self.pattern.args)

    def match(self) -> Match:
        results = [self.bound[id(r)] for r in self.pattern.results]
        return Match([self.bound[id(a)] for a in self.pattern.args], [r for r in results if isinstance(r, Value)])

    def equal(self, pattern: Item, item: Item) -> bool:
        if isinstance(pattern, Literal):
            return isinstance(item, Literal) and _equal_literals(pattern, item)
        if id(pattern) in self.bound:
            found = self.bound[id(pattern)]
            both = isinstance(found, Literal) and isinstance(item, Literal)
            return found is item or (both and _equal_literals(found, item))  # type: ignore[arg-type]
        if isinstance(pattern, Constant) or isinstance(item, Scope) or not _equal_types(pattern, item):
            return False
        if id(pattern) in self.args:
            self.bound[id(pattern)] = item
            return True
        ours = self.makers[id(pattern)]
        own = self.step if self.step is not None and any(v is item for v in self.step.outputs) else None
        theirs = own or self.graph.definition(item)
        if theirs is None:
            return False
        operands = theirs.inputs
        if not _equal_steps(ours, theirs):
            if ours.name != "einsum" or theirs.name != "einsum" or not _is_swapped(ours, theirs):
                return False
            operands = operands[::-1]
        self.bound.update(zip(map(id, ours.outputs), theirs.outputs, strict=True))
        if self.bound[id(pattern)] is not item:
            return False
        self.steps[id(theirs)] = theirs
        before = dict(self.bound), dict(self.steps)
        if self._equal_operands(ours.inputs, operands):
            return True
        if ours.name not in _COMMUTATIVE:
            return False
        self.bound, self.steps = before
        return self._equal_operands(ours.inputs, theirs.inputs[::-1])

    def _equal_operands(self, ours: Sequence[Item], theirs: Sequence[Item]) -> bool:
        return all(self.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _is_swapped(a: Equation, b: Equation) -> bool:
    """Return whether two products are equal with the operands of one exchanged."""
    return a.params == relabeled(b.params["operands"][::-1], b.params["result"])


def _equal_types(a: Item, b: Item) -> bool:
    return a.aval.dtype == b.aval.dtype and same(a.aval.shape, b.aval.shape)


def _equal_literals(a: Literal, b: Literal) -> bool:
    return a.array.dtype == b.array.dtype and np.array_equal(a.array, b.array, equal_nan=a.array.dtype.kind in "fc")


def _equal_steps(a: Equation, b: Equation, outer: Mapping[int, Any] | None = None) -> bool:
    """Return whether two steps compute the same from the same operands.

    Args:
      a: a step.
      b: another one.
      outer: numbers of outer values, equal for equal ones; without them loops and branches are not compared.
    """
    counts = len(a.inputs) == len(b.inputs) and len(a.outputs) == len(b.outputs)
    if a.name != b.name or not counts or a.blocks.keys() != b.blocks.keys():
        return False
    if a.blocks and "key" not in a.params and outer is None:
        return False  # none of the candidates has one
    ignored = _IGNORED | _JAXPRS if a.blocks else _IGNORED
    ours, theirs = ({k: v for k, v in s.params.items() if k not in ignored and v is not None} for s in (a, b))
    if ours.keys() != theirs.keys() or not all(_equal_values(v, theirs[k]) for k, v in ours.items()):
        return False
    keys = {id(a.params["key"]): b.params["key"]} if "key" in a.params else {}
    return all(_equal_blocks(a.blocks[k], b.blocks[k], keys, outer or {}) for k in a.blocks)


def _equal_values(a: Any, b: Any) -> bool:
    found = a == b
    return bool(np.all(found))


def equal_blocks(a: Block, b: Block) -> bool:
    """Return whether the results that two blocks both have are computed alike."""
    if len(a.args) != len(b.args):
        return False
    count = itertools.count(len(a.args))
    numbers: dict[int, Any] = {}
    known: dict[Any, list[tuple[Equation, list[Any]]]] = {}

    def number(item: Item) -> Any:
        if isinstance(item, Literal):
            return item.array.dtype.name, item.array.shape, item.array.tobytes()
        if isinstance(item, Scope):
            return item.path
        if isinstance(item, Constant):
            return item.content
        if id(item) not in numbers:  # an argument of one block alone
            numbers[id(item)] = next(count)
        return numbers[id(item)]

    for position, (x, y) in enumerate(zip(a.args, b.args, strict=True)):
        if not _equal_types(x, y):
            return False
        numbers[id(x)] = numbers[id(y)] = position
    for block in (a, b):
        for step in block.steps:
            inputs = [number(v) for v in step.inputs]
            if step.name in _COMMUTATIVE:
                inputs = sorted(inputs, key=repr)
            key = step.name, tuple(inputs), tuple(number(v) for v in _captured(step))
            others = known.setdefault(key, [])
            outputs = next((out for s, out in others if _equal_steps(s, step, numbers)), None)
            if outputs is None:
                outputs = [next(count) for _ in step.outputs]
                others.append((step, outputs))
            numbers.update(zip(map(id, step.outputs), outputs, strict=True))
    return all(number(x) == number(y) for x, y in zip(a.results, b.results, strict=False))


def _captured(step: Equation) -> list[Item]:
    """Return the values of outer functions that a step's inner functions use."""
    found: list[Item] = []
    for block in step.blocks.values():
        inside = {id(v) for v in block.args}
        for inner in block.steps:
            found += [v for v in (*inner.inputs, *_captured(inner)) if isinstance(v, Value) and id(v) not in inside]
            inside |= {id(v) for v in inner.outputs}
        found += [v for v in block.results if isinstance(v, Value) and id(v) not in inside]
    return [v for v in found if not isinstance(v, Constant | Scope)]


def _equal_blocks(a: Block, b: Block, keys: dict[int, Any], outer: Mapping[int, Any]) -> bool:
    """Return whether two blocks are equal up to names.

    Args:
      a: a block.
      b: another one.
      keys: functions of one to those of the other that are assumed to be equal, for recursive calls in their rules.
      outer: numbers of outer values, equal for equal ones.
    """
    if len(a.args) != len(b.args) or len(a.steps) != len(b.steps) or len(a.results) != len(b.results):
        return False
    names: dict[int, Item] = {}

    def equal(x: Item, y: Item) -> bool:
        if isinstance(x, Literal) or isinstance(y, Literal):
            return isinstance(x, Literal) and isinstance(y, Literal) and _equal_literals(x, y)
        if isinstance(x, Scope) or isinstance(y, Scope):
            return isinstance(x, Scope) and isinstance(y, Scope) and x.path == y.path
        if id(x) not in names and id(x) in outer:
            return outer[id(x)] == outer.get(id(y))
        return names.get(id(x)) is y

    for x, y in zip(a.args, b.args, strict=True):
        if not _equal_types(x, y):
            return False
        names[id(x)] = y
    for ours, theirs in zip(a.steps, b.steps, strict=True):
        if "key" in ours.params and keys.get(id(ours.params["key"])) is theirs.params.get("key"):
            if ours.name != theirs.name:
                return False
        elif not _equal_steps(ours, theirs, outer or None):
            return False
        if len(ours.inputs) != len(theirs.inputs) or len(ours.outputs) != len(theirs.outputs):
            return False
        pairs = list(zip(ours.inputs, theirs.inputs, strict=True))
        crossed = list(zip(ours.inputs, theirs.inputs[::-1], strict=True)) if ours.name in _COMMUTATIVE else pairs
        if not all(equal(*p) for p in pairs) and not all(equal(*p) for p in crossed):
            return False
        names.update(zip(map(id, ours.outputs), theirs.outputs, strict=True))
    return all(equal(x, y) for x, y in zip(a.results, b.results, strict=True))
