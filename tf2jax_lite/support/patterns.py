"""Patterns of operations, matched against any graph.

A pattern is the tree of the operations that compute a value:

    op("Maximum", 0, op("Max", "counts", ...), commutes=True, name="largest")

matches ``maximum(0, max(counts))`` in both orders of operands. A string is any value, the same wherever the pattern has
the name, an integer that constant, ``...`` anything. A graph is anything with the methods of `Graph`: functions of the
IR (`tf2jax_lite.ir.traversal.Nodes`), and plans.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import EllipsisType
from typing import Any, Protocol


class Graph(Protocol):
    """The view of a graph that `match` needs."""

    def producer(self, value: Any, through: Collection[Any] = ()) -> Any:
        """Return the operation that computes a value, behind others; None for an input."""

    def kind(self, operation: Any) -> Any:
        """Return the kind of an operation, as patterns name it."""

    def operands(self, operation: Any) -> Sequence[Any]:
        """Return the values that an operation reads."""
        ...

    def number(self, value: Any) -> int | None:
        """Return the integer of a constant of one element; None for other values."""


@dataclasses.dataclass(frozen=True)
class Pattern:
    """An operation and its operands, made by `op`."""

    kinds: frozenset[Any]
    operands: tuple[Any, ...]
    where: Callable[[Any], bool] | None
    through: frozenset[Any]
    commutes: bool
    name: str | None


def op(
    kinds: Any,
    *operands: Pattern | str | int | EllipsisType,
    where: Callable[[Any], bool] | None = None,
    through: Collection[Any] = (),
    commutes: bool = False,
    name: str | None = None,
) -> Pattern:
    """Return a pattern.

    Args:
      kinds: the operation's kind, or a collection of those that it may have.
      *operands: patterns of the first operands, those that follow may be anything.
      through: kinds of operations that forward their first operand, which may stand between this one and its user.
      commutes: whether the first two operands may be swapped.
      name: the name of the operation in results; as an operand elsewhere it stands for its value.
    """
    several = isinstance(kinds, Collection) and not isinstance(kinds, str)
    return Pattern(frozenset(kinds if several else [kinds]), operands, where, frozenset(through), commutes, name)


@dataclasses.dataclass(frozen=True)
class Match:
    """The values and operations of a pattern in a graph, by the names in the pattern."""

    values: Mapping[str, Any]
    operations: Mapping[str, Any]


def match(pattern: Pattern, operation: Any, graph: Graph) -> Match | None:
    """Return the match of a pattern that ends in this operation; None if none."""
    found = _operation(pattern, operation, graph, Match({}, {}))
    if found is None or pattern.name is None:
        return found
    return Match(found.values, {**found.operations, pattern.name: operation})


def _operation(pattern: Pattern, operation: Any, graph: Graph, found: Match) -> Match | None:
    if operation is None or graph.kind(operation) not in pattern.kinds:
        return None
    if pattern.where is not None and not pattern.where(operation):
        return None
    wanted, operands = pattern.operands, graph.operands(operation)
    if len(operands) < len(wanted):
        return None
    result = _operands(wanted, operands, graph, found)
    if result is None and pattern.commutes:
        result = _operands((wanted[1], wanted[0], *wanted[2:]), operands, graph, found)
    return result


def _operands(wanted: Sequence[Any], operands: Sequence[Any], graph: Graph, found: Match) -> Match | None:
    result: Match | None = found
    for one, value in zip(wanted, operands, strict=False):
        result = _value(one, value, graph, result)
        if result is None:
            return None
    return result


def _value(pattern: Any, value: Any, graph: Graph, found: Match) -> Match | None:
    if pattern is ...:
        return found
    if isinstance(pattern, int):
        return found if graph.number(value) == pattern else None
    if isinstance(pattern, str):
        return _named(pattern, value, found)
    operation = graph.producer(value, pattern.through)
    result = _operation(pattern, operation, graph, found)
    if result is None or pattern.name is None:
        return result
    result = Match(result.values, {**result.operations, pattern.name: operation})
    return _named(pattern.name, value, result)


def _named(name: str, value: Any, found: Match) -> Match | None:
    if name in found.values:
        return found if found.values[name] == value else None
    return Match({**found.values, name: value}, found.operations)
