"""Effect summaries: which variables a function reads and writes, through every call, branch and loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.removable import REMOVABLE

__all__ = ["Effects", "Summaries", "Target"]

Target = tuple[str, int | str]
"""A variable as its function sees it: ("arg", position) or ("name", the name of a variable the graph made)."""


@dataclasses.dataclass(frozen=True)
class Effects:
    """What running a function does besides returning values."""

    writes: frozenset[Target] = frozenset()
    effect: bool = False
    needs_key: bool = False
    wide: frozenset[Target] = frozenset()
    """Variables that hold 64-bit state (see `Op.int64_state`)."""
    reads: frozenset[Target] = frozenset()
    """Variables whose values are read as numbers that have derivatives, by ops that do not write to them."""
    late: bool = False
    """Whether such a read may come after an assignment to the same variable."""

    def __bool__(self) -> bool:
        return bool(self.writes) or self.effect


@dataclasses.dataclass(frozen=True, slots=True)
class _Uses:
    """What nodes of one form do: positions of inputs that are variables, and more.

    ``only_reads`` says that there is nothing but ``reads``.
    """

    writes: tuple[int, ...]
    wide: tuple[int, ...]
    reads: tuple[int, ...]
    effect: bool
    needs_key: bool
    only_reads: bool


class Summaries:
    """Effect summaries of a graph's functions, each computed once.

    Args:
      functions: the library.
      ops: the ops that are known.
      unknown: whether stateful ops that are not known count as having an effect.
    """

    def __init__(self, functions: Mapping[str, ir.Function], ops: Mapping[str, registry.Op], *, unknown: bool = True):
        self._ops = ops
        self._unknown = unknown
        self._functions = functions
        self._done: dict[str, Effects] = {}
        self._notable: dict[str, tuple[ir.Node, ...]] = {}
        self._uses: dict[ir.Shared, _Uses] = {}
        self._open: set[str] = set()

    def of_function(self, function: ir.Function) -> Effects:
        """Returns the effects of one call of ``function``."""
        if function.name in self._done:
            return self._done[function.name]
        if function.name in self._open:  # a recursive function: what the outer visit finds covers this one
            return Effects()
        self._open.add(function.name)
        result = self._summarize(function)
        self._open.discard(function.name)
        self._done[function.name] = result
        return result

    def of_name(self, name: str) -> Effects:
        """Returns the effects of the library function ``name`` (none if there is no such function)."""
        function = self._functions.get(name)
        return Effects() if function is None else self.of_function(function)

    def notable(self, function: ir.Function) -> tuple[ir.Node, ...]:
        """Returns the nodes of ``function`` that may do more than give results, call functions, or are not known."""
        found = self._notable.get(function.name)
        if found is None:
            plain = {op for op in function.ops if (entry := self._ops.get(op)) is not None and entry.plain}
            found = function.of_forms({form for form in function.forms if form.op not in plain or form.functions})
            self._notable[function.name] = found
        return found

    def effects_in(self, function: ir.Function) -> dict[str, None]:
        """Returns the names of the nodes of ``function`` that change something besides their results, in order."""
        forms = {node.form: node for node in self.notable(function)}
        acting = {form for form, node in forms.items() if self.effectful(node)}
        return {node.name: None for node in function.of_forms(acting)}

    def effectful(self, node: ir.Node) -> bool:
        """Whether running a node changes something besides its results."""
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
        """Whether a node has no implementation and, as far as is known, would change something in TensorFlow.

        What gives nothing is there for what it does, although the first ops of queues and tables are not stateful.
        """
        acts = node.stateful or not node.output_dtypes
        return acts and node.op not in self._ops and node.op not in REMOVABLE

    def _summarize(self, function: ir.Function) -> Effects:
        notable = self.notable(function)
        if not notable:
            return Effects()
        nodes: dict[str, ir.Node] = {}
        positions = {arg.name: index for index, arg in enumerate(function.args)}
        writes: set[Target] = set()
        wide: set[Target] = set()
        reads: set[Target] = set()
        effect = needs_key = late = False

        def resolve(ref: ir.TensorRef) -> Target | None:
            while ref.node not in positions:
                if not nodes:
                    nodes.update({node.name: node for node in function.nodes})
                node = nodes[ref.node]
                if not node.inputs:
                    return ("name", handle_name(node))
                if len(node.inputs) == 1:
                    ref = node.inputs[0]
                elif len(node.inputs) == len(node.output_dtypes):
                    ref = node.inputs[ref.index]
                else:
                    return None
            return ("arg", positions[ref.node])

        for node in notable:
            uses = self._uses.get(node.form) or self._uses_of(node)
            if uses.only_reads:
                for position in uses.reads:
                    target = resolve(node.inputs[position])
                    if target is not None:
                        late = late or target in writes
                        reads.add(target)
                continue
            effect = effect or uses.effect
            needs_key = needs_key or uses.needs_key
            read: set[Target] = set()
            for which, found in ((uses.writes, writes), (uses.wide, wide), (uses.reads, read)):
                for position in which:
                    target = resolve(node.inputs[position])
                    if target is not None:
                        found.add(target)
            late = late or bool(read & writes)
            reads |= read
            before = set(writes)
            inner_reads: set[Target] = set()
            for ref in node.functions:
                inner = self.of_name(ref.name)
                late = late or inner.late
                effect = effect or inner.effect
                needs_key = needs_key or inner.needs_key
                callee = self._functions.get(ref.name)
                # Branches and calls pass their last inputs to the callee: a predicate or index comes first.
                offset = len(node.inputs) - len(callee.args) if callee is not None else 0
                for targets, found in ((inner.writes, writes), (inner.wide, wide), (inner.reads, inner_reads)):
                    for kind, which in targets:
                        target = (kind, which)
                        if kind == "arg":
                            position = int(which) + offset
                            target = resolve(node.inputs[position]) if 0 <= position < len(node.inputs) else None
                        if target is not None:
                            found.add(target)
            # What an iteration reads, the one before may have written; of branches only one runs.
            late = late or bool(inner_reads & (writes if "body" in node.attrs else before))
            reads |= inner_reads
        return Effects(frozenset(writes), effect, needs_key, frozenset(wide), frozenset(reads), late)

    def _uses_of(self, node: ir.Node) -> _Uses:
        entry = self._ops.get(node.op)
        if entry is None:
            uses = _Uses((), (), (), self._unknown and self.changes_unknown(node), False, False)
        else:
            takes = entry.reads if not entry.writes and any(map(_has_derivative, node.output_dtypes)) else ()
            variables = (entry.writes, entry.int64_state, takes)
            writes, wide, reads = (tuple(map(entry.inputs.index, names)) for names in variables)
            draws = entry.draws_random(node.attrs)
            more = writes or wide or entry.side_effect or draws or node.functions
            uses = _Uses(writes, wide, reads, entry.side_effect, draws, not more)
        self._uses[node.form] = uses
        return uses


def _has_derivative(dtype: ir.DType) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind not in "biuOSU"


def handle_name(node: ir.Node) -> str:
    """Returns the name of the variable that a handle-making node stands for."""
    return node.attrs.get("shared_name") or node.name
