"""Post-dominators of a plan: whether a value's uses meet before a barrier.

A barrier is a step whose operands or results are in memory, so that XLA does not fuse across it. The uses of a value
diverge if no step before the function's end lies on all paths from them (their lowest common post-dominator is the
end): then XLA computes the value again for each. The analysis visits steps from the last to the first. A step's
immediate post-dominator is the lowest common ancestor, in the tree built so far, of the users of its results.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.xla_cpu import cost_model

if TYPE_CHECKING:
    from tf2jax_lite.lowering.planning.plan import Step

_EXIT = 0  # the function's end, the root of the tree
_UNUSED = -1  # no node


@dataclasses.dataclass(frozen=True, slots=True)
class ArgumentUses:
    """The uses of a function's arguments within it."""

    diverge: tuple[bool, ...]
    reach_barrier: tuple[bool, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Uses:
    """The uses of a function's values.

    Attributes:
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
    size: int,
    *,
    is_barrier: Callable[[Step], bool],
    separates: Callable[[Step], bool] = lambda step: False,
    callee: Callable[[Step], ArgumentUses | None],
) -> Uses:
    """Analyze the uses of each value of a function.

    Args:
      outputs: the slots of its results, whose last use is the function's end.
      separates: whether a barrier is one between each two of its operands and results.
      callee: the uses of the arguments of the function that a step calls; None if it calls none.
    """
    tree = PostDominatorTree()
    reaches_barrier = bytearray(1)  # for each node of the tree
    uses = Uses(bytearray(size), bytearray(size))
    last_user, post_dominator = [_UNUSED] * size, [_UNUSED] * size  # of the users of each slot that are known
    for slot in outputs:
        last_user[slot] = post_dominator[slot] = _EXIT

    def add(parent: int, reaches: int) -> int:
        reaches_barrier.append(reaches)
        return tree.add(parent)

    for step in reversed(steps):
        barrier = is_barrier(step)
        parent, reaches, used = _UNUSED, 0, 0
        for slot in step.outputs:  # all of whose users are known
            found = post_dominator[slot]
            if found != _UNUSED:
                parent = tree.lca(parent, found) if used else found
                reaches |= uses.reach_barrier[slot]
                used += 1
        if not (used or barrier) or step.op.pattern is Pattern.SHAPE_ONLY:
            continue  # nothing depends on the step, or the step does not depend on its operands' elements
        node = add(_EXIT, 1) if barrier else add(parent, reaches)
        users: Iterable[int] = itertools.repeat(node)
        inside = callee(step)
        if inside is not None:
            users = _users_inside(step, inside, node, tree, uses, lambda: add(_EXIT, 1))
        elif barrier and separates(step):
            users = [add(_EXIT, 1) for _ in step.inputs]
            if used > 1:
                for slot in step.inputs:
                    uses.diverge[slot] = 1
        for slot, user in zip(step.inputs, users, strict=False):
            last = last_user[slot]
            if last == user:
                continue
            last_user[slot] = user
            uses.reach_barrier[slot] |= reaches_barrier[user]
            if last == _UNUSED:
                post_dominator[slot] = user
            else:
                found = post_dominator[slot] = tree.lca(post_dominator[slot], user)
                if found == _EXIT:
                    uses.diverge[slot] = 1
    return uses


def _users_inside(
    step: Step, inside: ArgumentUses, node: int, tree: PostDominatorTree, uses: Uses, barrier: Callable[[], int]
) -> list[int]:
    """Return the user of each operand of a call."""
    # It is a barrier within the function, or the call's node.
    users, within = [], _UNUSED
    for position, slot in enumerate(step.inputs):
        user = node
        if position < len(inside.reach_barrier):
            if inside.reach_barrier[position]:
                user = within = barrier() if within == _UNUSED else within
            uses.diverge[slot] |= inside.diverge[position] and tree.parent[user] == _EXIT
        users.append(user)
    return users
