"""Index the definitions and uses of a block's values, and rewrite its steps.

Rewriting is one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf2jax_lite.export.codegen.block_ir import Block, Equation, Literal, Value

Item = Value | Literal
_NEAR = 12  # steps before a value that are looked at

Replacement = Item | Sequence[Equation]
"""A value that replaces a step's only output; or steps in its place, of which the last has the step's outputs."""


class Graph:
    """A block while it is rewritten: the steps before the present one are final."""

    def __init__(self, block: Block):
        self._definitions: dict[int, Equation] = {}
        self._aliases: dict[int, Item] = {}
        self._users: dict[int, dict[int, Equation]] = {}
        self._results = {id(r) for r in block.results}
        self._final: set[int] = set()
        self._replaced: list[Equation] = []  # keeps identities of their values unique
        for step in block.steps:
            self._add_uses(step)

    def definition(self, item: Item) -> Equation | None:
        """Return the earlier step that computes a value, None for arguments and constants."""
        return self._definitions.get(id(item))

    def use(self, item: Item, name: str) -> Equation | None:
        """Return an earlier step of a primitive that uses a value."""
        users = self._users.get(id(item), {}).items()
        return next((step for key, step in users if key in self._final and step.name == name), None)

    def is_used_once(self, item: Item) -> bool:
        """Return whether one step uses a value, and the block does not return it."""
        return id(item) not in self._results and len(self._users.get(id(item), ())) == 1

    def is_internal(self, item: Item, steps: Mapping[int, Equation]) -> bool:
        """Return whether only some steps, given by their identity, use a value."""
        return id(item) not in self._results and self._users.get(id(item), {}).keys() <= steps.keys()

    def is_used_before(self, item: Item, steps: Mapping[int, Equation]) -> bool:
        """Return whether an earlier step, other than the given ones, uses a value."""
        users = self._users.get(id(item), {}).keys() - steps.keys()
        return not users.isdisjoint(self._final)

    def before(self, item: Item) -> Iterator[Equation]:
        """Yield a few of the steps that an item is computed by, nearest first."""
        pending, count = [item], 0
        while pending and count < _NEAR:
            step = self.definition(pending.pop(0))
            if step is not None:
                count += 1
                yield step
                pending.extend(step.inputs)

    def nearest(self, item: Item, name: str) -> Equation | None:
        """Return the nearest step before an item with a primitive or function name."""
        return next((s for s in self.before(item) if s.params.get("function", s.name) == name), None)

    def resolve(self, item: Item) -> Item:
        """Return the value that replaces an item, or the item itself."""
        while id(item) in self._aliases:
            item = self._aliases[id(item)]
        return item

    def finish(self, step: Equation) -> None:
        """Make a step final."""
        self._final.add(id(step))
        self._definitions.update((id(v), step) for v in step.outputs)

    def replace(self, step: Equation, new: Replacement) -> None:
        """Account for the uses of a replaced step and of its replacement."""
        self._replaced.append(step)
        if isinstance(new, (Value, Literal)):
            self.redirect(step.outputs[0], new)
        else:
            for made in new:
                self._add_uses(made)
        self._remove_uses(step)

    def redirect(self, old: Value, new: Item) -> None:
        """Let the present and later steps use another item instead of a value."""
        self._aliases[id(old)] = new
        self._users.setdefault(id(new), {}).update(self._users.pop(id(old), {}))
        if id(old) in self._results:
            self._results.discard(id(old))
            self._results.add(id(new))

    def _add_uses(self, step: Equation) -> None:
        for item in step.inputs:
            self._users.setdefault(id(item), {})[id(step)] = step

    def _remove_uses(self, step: Equation) -> None:
        for item in {id(v): v for v in step.inputs}.values():
            item = self.resolve(item)
            users = self._users.get(id(item), {})
            users.pop(id(step), None)
            maker = self._definitions.get(id(item))
            if maker is not None and not any(self._is_used(v) for v in maker.outputs):
                self._remove_uses(maker)
                self._definitions.pop(id(item), None)

    def _is_used(self, value: Value) -> bool:
        return id(value) in self._results or bool(self._users.get(id(value)))


Rule = Callable[[Graph, Equation], Replacement | None]


def rewrite_steps(block: Block, rules: Mapping[str, Sequence[Rule]]) -> None:
    """Apply rules to a block's steps, in order and in place.

    The steps that a rule returns are rewritten, too.

    Args:
      block: its inner functions stay as they are.
      rules: by primitive, those that are tried first in front. A rule reads earlier steps only and returns None where
        it does not apply.
    """
    graph = Graph(block)
    steps: list[Equation] = []
    for step in block.steps:
        step.inputs = [graph.resolve(v) for v in step.inputs]
        pending = [step]
        while pending:
            current = pending.pop(0)
            current.inputs = [graph.resolve(v) for v in current.inputs]
            new = _first(rules.get(current.name, ()), graph, current)
            if new is None:
                steps.append(current)
                graph.finish(current)
                continue
            graph.replace(current, new)
            if not isinstance(new, (Value, Literal)):
                pending = [*new, *pending]
    block.steps = steps
    block.results = [graph.resolve(r) for r in block.results]
    block.prune()


def _first(rules: Sequence[Rule], graph: Graph, step: Equation) -> Any:
    for rule in rules:
        new = rule(graph, step)
        if new is not None:
            return new
    return None
