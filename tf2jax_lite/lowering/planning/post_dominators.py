"""Post-dominators of a plan: whether a value's uses meet before a barrier.

A barrier is a step whose operands or results are in memory, so that XLA does not fuse across it. The uses of a value
diverge if no step before the function's end lies on all paths from them (their lowest common post-dominator is the
end): then XLA computes the value again for each. The analysis visits steps from the last to the first. A step's
immediate post-dominator is the lowest common ancestor, in the tree built so far, of the users of its results.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.xla_cpu import cost_model

if TYPE_CHECKING:
    from tf2jax_lite.lowering.planning.plan import Step

__all__ = ["ArgumentUses", "PostDominatorTree", "Uses", "analyze_uses"]

_EXIT = 0  # the function's end, the root of the tree


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentUses:
    """The uses of a function's arguments within it.

    Attributes:
      diverge: for each argument whether its uses diverge.
      reach_barrier: for each argument whether a barrier depends on it.
    """

    diverge: tuple[bool, ...]
    reach_barrier: tuple[bool, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Uses:
    """The uses of a function's values.

    Attributes:
      diverge: for each slot whether its uses diverge.
      reach_barrier: for each slot whether a barrier depends on it.
    """

    diverge: bytearray
    reach_barrier: bytearray

    def of_arguments(self, count: int) -> ArgumentUses:
        """Return the uses of the first slots, given how many arguments the function has."""
        return ArgumentUses(tuple(map(bool, self.diverge[:count])), tuple(map(bool, self.reach_barrier[:count])))


class PostDominatorTree:
    """The tree of immediate post-dominators. Node 0 is the root, the function's end."""

    def __init__(self) -> None:
        self.parent = [_EXIT]
        self._depth = [0]

    def add(self, parent: int = _EXIT) -> int:
        """Add a node below a parent, and return it."""
        self.parent.append(parent)
        self._depth.append(self._depth[parent] + 1)
        return len(self.parent) - 1

    def lca(self, a: int, b: int) -> int:
        """Return the lowest common ancestor of two nodes; the root if it is far up."""
        for _ in range(cost_model.MAX_POST_DOMINATOR_STEPS):
            if a == b:
                return a
            if _EXIT in (a, b):
                return _EXIT
            if self._depth[a] >= self._depth[b]:
                a = self.parent[a]
            else:
                b = self.parent[b]
        return _EXIT


def analyze_uses(
    steps: Sequence[Step],
    outputs: Sequence[int],
    arguments: int,
    size: int,
    *,
    is_barrier: Callable[[Step], bool],
    separates: Callable[[Step], bool] = lambda step: False,
    callee: Callable[[Step], ArgumentUses | None],
) -> Uses:
    """Analyze the uses of each value of a function.

    Args:
      steps: the function's steps, in order.
      outputs: the slots of its results, whose last use is the function's end.
      arguments: the number of slots that are arguments.
      size: the number of slots.
      is_barrier: whether a step is a barrier.
      separates: whether a step is a barrier between each two of its operands and results.
      callee: the uses of the arguments of the function that a step calls; None if it calls none.
    """
    graph = _UseGraph(outputs, size)
    for step in reversed(steps):
        graph.add(step, is_barrier(step), separates(step), callee(step))
    for slot in range(arguments):
        if graph.users[slot]:
            graph.join(slot)
    return graph.uses


class _UseGraph:
    """Users of each slot, as post-dominator tree, from some step to the last."""

    def __init__(self, outputs: Sequence[int], size: int):
        self.tree = PostDominatorTree()
        self.users: list[list[int]] = [[] for _ in range(size)]
        self.uses = Uses(bytearray(size), bytearray(size))
        self._reaches_barrier = bytearray(1)  # for each node of the tree
        for slot in set(outputs):
            self.users[slot].append(_EXIT)

    def join(self, slot: int) -> int:
        """Record a value's uses; return their lowest common post-dominator."""
        users = self.users[slot]
        if len(users) == 1:
            (node,) = users
            self.uses.reach_barrier[slot] = self._reaches_barrier[node]
            return node
        node = functools.reduce(self.tree.lca, users)
        self.uses.reach_barrier[slot] = any(self._reaches_barrier[user] for user in users)
        self.uses.diverge[slot] |= node == _EXIT
        return node

    def add(self, step: Step, is_barrier: bool, separates: bool, callee: ArgumentUses | None) -> None:
        """Add a step, all of whose results' users are known."""
        used = [slot for slot in step.outputs if self.users[slot]]
        parents = list(map(self.join, used))
        if not (parents or is_barrier) or step.op.pattern is Pattern.SHAPE_ONLY:
            return  # nothing depends on the step, or the step does not depend on its operands' elements
        parent = _EXIT if is_barrier else functools.reduce(self.tree.lca, parents)
        node = self._node(parent, is_barrier or any(self.uses.reach_barrier[slot] for slot in used))
        inside = None
        for position, slot in enumerate(step.inputs):
            user = node
            if callee is not None and position < len(callee.reach_barrier):
                if callee.reach_barrier[position]:
                    user = inside = self._node(_EXIT, True) if inside is None else inside
                self.uses.diverge[slot] |= callee.diverge[position] and self.tree.parent[user] == _EXIT
            elif separates:
                user = self._node(_EXIT, True)
                self.uses.diverge[slot] |= len(used) > 1
            if not self.users[slot] or self.users[slot][-1] != user:
                self.users[slot].append(user)

    def _node(self, parent: int, reaches_barrier: bool) -> int:
        self._reaches_barrier.append(reaches_barrier)
        return self.tree.add(parent)
