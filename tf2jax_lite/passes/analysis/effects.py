"""Effect analysis: the variables that a function and its callees read and write.

It follows every call, branch and loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import argument_offset
from tf2jax_lite.ops import registry
from tf2jax_lite.support.op_traits import REMOVABLE

Target = tuple[str, int | str]
"""A variable in the scope of a function: ("arg", index of the argument), or ("name", name) if a node makes it."""


@dataclasses.dataclass(frozen=True)
class Effects:
    """The effects of one call of a function.

    Attributes:
      effect: whether it has another side effect, such as printing.
      needs_key: whether it draws random numbers.
      int64_state: variables that hold 64-bit state, such as that of a random generator (see `Op.wide`).
      reads: differentiable variables that it reads with ops that do not assign them.
      reads_after_assign: whether such a read may come after an assignment to the same variable.
    """

    writes: frozenset[Target] = frozenset()
    effect: bool = False
    needs_key: bool = False
    int64_state: frozenset[Target] = frozenset()
    reads: frozenset[Target] = frozenset()
    reads_after_assign: bool = False

    def __bool__(self) -> bool:
        return bool(self.writes) or self.effect


@dataclasses.dataclass(frozen=True, slots=True)
class _Uses:
    """Effects of a node itself, without its functions: variable inputs, and flags."""

    writes: tuple[int, ...]
    int64_state: tuple[int, ...]
    reads: tuple[int, ...]
    effect: bool
    needs_key: bool


class Summaries:
    """Effect summaries of a graph's functions, each computed once.

    Args:
      functions: the library.
      ops: the registered ops.
      unknown: whether stateful ops without an implementation count as having an effect.
    """

    def __init__(self, functions: Mapping[str, ir.Function], ops: Mapping[str, registry.Op], *, unknown: bool = True):
        self._ops = ops
        self._unknown = unknown
        self._functions = functions
        self._done: dict[str, Effects] = {}
        self._notable: dict[str, tuple[ir.Node, ...]] = {}
        self._uses: dict[ir.NodeSpec, _Uses] = {}
        self._open: set[str] = set()

    def of_function(self, function: ir.Function) -> Effects:
        """Return the effects of one call of ``function``."""
        if function.name in self._done:
            return self._done[function.name]
        if function.name in self._open:  # a recursive function: the outer visit covers its effects
            return Effects()
        self._open.add(function.name)
        result = self._summarize(function)
        self._open.discard(function.name)
        self._done[function.name] = result
        return result

    def of_name(self, name: str) -> Effects:
        """Return the effects of the library function ``name``; none if it is missing."""
        function = self._functions.get(name)
        return Effects() if function is None else self.of_function(function)

    def notable(self, function: ir.Function) -> tuple[ir.Node, ...]:
        """Return nodes that may have effects, call functions, or are not implemented."""
        found = self._notable.get(function.name)
        if found is None:
            plain = {op for op in function.ops if (entry := self._ops.get(op)) is not None and entry.plain}
            found = function.with_specs({spec for spec in function.specs if spec.op not in plain or spec.functions})
            self._notable[function.name] = found
        return found

    def effects_in(self, function: ir.Function) -> dict[str, None]:
        """Return the names of the nodes of ``function`` that have a side effect, in order."""
        specs = {node.spec: node for node in self.notable(function)}
        effectful = {spec for spec, node in specs.items() if self.effectful(node)}
        return {node.name: None for node in function.with_specs(effectful)}

    def effectful(self, node: ir.Node) -> bool:
        """Return whether a node has a side effect."""
        entry = self._ops.get(node.op)
        if entry is not None:
            if entry.plain and not node.functions:
                return False
            if entry.effectful:
                return True
        if self._unknown and self.changes_unknown(node):
            return True
        return any(self.of_name(ref.name) for ref in node.functions)

    def changes_unknown(self, node: ir.Node) -> bool:
        """Return whether a node has a side effect in TensorFlow and no implementation.

        The OpDef determines whether there is a side effect. An op without results has one, although the first versions
        of queue and table ops are not marked stateful.
        """
        has_effect = node.stateful or not node.output_dtypes
        return has_effect and node.op not in self._ops and node.op not in REMOVABLE

    def _summarize(self, function: ir.Function) -> Effects:
        notable = self.notable(function)
        if not notable:
            return Effects()
        builder = _EffectBuilder(self, function)
        for node in notable:
            builder.visit(node)
        return builder.effects()

    def argument_offset(self, node: ir.Node, callee: str) -> int:
        """Return how many inputs (predicate, index) precede the arguments of a callee."""
        function = self._functions.get(callee)
        return 0 if function is None else argument_offset(node, function)

    def uses_of(self, node: ir.Node) -> _Uses:
        """Return the effects of a node itself."""
        found = self._uses.get(node.spec)
        if found is not None:
            return found
        entry = self._ops.get(node.op)
        if entry is None:
            uses = _Uses((), (), (), self._unknown and self.changes_unknown(node), False)
        else:
            takes = entry.reads if not entry.writes and any(map(_has_derivative, node.output_dtypes)) else ()
            writes, wide, reads = (
                tuple(map(entry.inputs.index, names)) for names in (entry.writes, entry.int64_state, takes)
            )
            uses = _Uses(writes, wide, reads, entry.side_effect, entry.draws_random(node.attrs))
        self._uses[node.spec] = uses
        return uses


class _EffectBuilder:
    """The effects of one function, accumulated over its nodes in execution order."""

    def __init__(self, summaries: Summaries, function: ir.Function):
        self._summaries = summaries
        self._function = function
        self._positions = {arg.name: index for index, arg in enumerate(function.args)}
        self._nodes: dict[str, ir.Node] = {}
        self._writes: set[Target] = set()
        self._int64_state: set[Target] = set()
        self._reads: set[Target] = set()
        self._effect = self._needs_key = self._reads_after_assign = False

    def effects(self) -> Effects:
        """Return the effects of the nodes visited so far."""
        return Effects(
            frozenset(self._writes),
            self._effect,
            self._needs_key,
            frozenset(self._int64_state),
            frozenset(self._reads),
            self._reads_after_assign,
        )

    def visit(self, node: ir.Node) -> None:
        """Add the effects of a node."""
        uses = self._summaries.uses_of(node)
        self._effect = self._effect or uses.effect
        self._needs_key = self._needs_key or uses.needs_key
        for indices, targets in ((uses.writes, self._writes), (uses.int64_state, self._int64_state)):
            for index in indices:
                target = self._target(node.inputs[index])
                if target is not None:
                    targets.add(target)
        for index in uses.reads:
            target = self._target(node.inputs[index])
            if target is not None:
                self._reads_after_assign = self._reads_after_assign or target in self._writes
                self._reads.add(target)
        if node.functions:
            self._visit_callees(node)

    def _visit_callees(self, node: ir.Node) -> None:
        before = set(self._writes)
        reads: set[Target] = set()
        for ref in node.functions:
            inner = self._summaries.of_name(ref.name)
            self._effect = self._effect or inner.effect
            self._needs_key = self._needs_key or inner.needs_key
            self._reads_after_assign = self._reads_after_assign or inner.reads_after_assign
            offset = self._summaries.argument_offset(node, ref.name)
            self._writes |= self._translated(inner.writes, node, offset)
            self._int64_state |= self._translated(inner.int64_state, node, offset)
            reads |= self._translated(inner.reads, node, offset)
        # An iteration reads variables that the one before may have assigned; only one of several branches runs.
        assigned = self._writes if "body" in node.attrs else before
        self._reads_after_assign = self._reads_after_assign or bool(reads & assigned)
        self._reads |= reads

    def _translated(self, targets: frozenset[Target], node: ir.Node, offset: int) -> set[Target]:
        """Return a callee's variables as seen by the caller."""
        # ``offset`` inputs come before the arguments.
        found: set[Target] = set()
        for kind, which in targets:
            if kind != "arg":
                found.add((kind, which))
                continue
            index = int(which) + offset
            target = self._target(node.inputs[index]) if 0 <= index < len(node.inputs) else None
            if target is not None:
                found.add(target)
        return found

    def _target(self, ref: ir.TensorRef) -> Target | None:
        """Return the variable of a handle, through forwarding nodes; None if unknown."""
        while ref.node not in self._positions:
            if not self._nodes:
                self._nodes = {node.name: node for node in self._function.nodes}
            node = self._nodes[ref.node]
            if not node.inputs:
                return ("name", handle_name(node))
            if len(node.inputs) == 1:
                ref = node.inputs[0]
            elif len(node.inputs) == len(node.output_dtypes):
                ref = node.inputs[ref.index]
            else:
                return None
        return ("arg", self._positions[ref.node])


def _has_derivative(dtype: ir.DType) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind not in "biuOSU"


def handle_name(node: ir.Node) -> str:
    """Return the name of the variable whose handle a node makes."""
    return node.attrs.get("shared_name") or node.name
