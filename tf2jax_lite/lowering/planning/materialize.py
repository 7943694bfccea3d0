"""Values computed once, as XLA would compute them again for distant uses.

XLA fuses elementwise operations into their users. That is right for a value whose uses re-converge soon, as those of
``x`` do in ``x * sigmoid(x)``: they are one loop. It is wrong (`tf2jax_lite.xla_cpu.materialize`)

- for a value whose uses diverge, one of them into a convolution or a matmul, whose operands are in memory: the value,
  and all that it is made of, is computed again for each use;
- for a value of many operations that is used in several loops (a reduction is a loop of its own), or at several offsets
  (a slice beside another): its users compute it again, and so do users of its operands: the cost multiplies.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.xla_cpu import cost_model

if TYPE_CHECKING:
    from .plan import Plan, Step


_MAX_COST = 1 << 20  # costs are cut off here: they grow exponentially


class CalleeSummary:
    """The uses of a function's arguments and the cost of its results, for its callers.

    XLA inlines calls, so values are fused across their boundaries.

    Attributes:
      fusible: for each result whether XLA fuses the step that computes it into its users.
      cost: for each result the elementwise operations since the last values in memory, which arguments count as.
    """

    def __init__(self, graph: _FunctionUses, fusible: bytearray, cost: Sequence[int]):
        self._graph = graph
        self.fusible = tuple([bool(fusible[slot]) for slot in graph.outputs])
        self.cost = tuple([cost[slot] for slot in graph.outputs])

    @functools.cached_property
    def before_contractions(self) -> ArgumentUses:
        """The uses of its arguments, with contraction operands as barriers."""
        return self._graph.before_contractions.of_arguments(self._graph.arguments)

    @functools.cached_property
    def before_loops(self) -> ArgumentUses:
        """The uses of its arguments, where barriers are the ends of fused loops."""
        return self._graph.before_loops.of_arguments(self._graph.arguments)


def run(plan: Plan) -> Plan:
    """Choose step results to materialize, and summarize the function.

    Results of barriers are in memory anyway, and values that depend on variables and constants alone are not chosen.
    """
    arguments = [isinstance(arg.dtype, np.dtype) for arg in plan.function.args]
    steps, varying = _varying(plan.steps, arguments, plan.size)
    graph = _FunctionUses(steps, plan.outputs, len(arguments), plan.size)
    fusible = _fusible_slots(plan.steps, plan.size)
    chosen = bytearray(plan.size)
    if any(map(_reaches_contraction, steps)):
        uses = graph.before_contractions
        found = zip(uses.diverge, uses.reach_barrier, varying, fusible, strict=True)
        chosen = bytearray([diverges and reaches and varies and fuses for diverges, reaches, varies, fuses in found])
    cost = _costs(steps, chosen, plan.size, None)
    if max(cost, default=0) > cost_model.MAX_FUSED_OPS:
        cost = _costs(steps, chosen, plan.size, graph.before_loops.diverge)
    kept = {slot for slot, is_chosen in enumerate(chosen) if is_chosen}
    changed = {
        index: {"materialized": tuple([i for i, slot in enumerate(step.outputs) if slot in kept])}
        for index, step in enumerate(plan.steps if kept else ())
        if not kept.isdisjoint(step.outputs)
    }
    return dataclasses.replace(plan.with_steps(changed), summary=CalleeSummary(graph, fusible, cost))


class _FunctionUses:
    """The uses of a function's values, analyzed on demand, given its steps that vary."""

    def __init__(self, steps: Sequence[Step], outputs: Sequence[int], arguments: int, size: int):
        self.steps, self.outputs, self.arguments, self.size = steps, outputs, arguments, size

    @functools.cached_property
    def before_contractions(self) -> Uses:
        """Use where barriers are steps that read operands repeatedly."""
        return analyze_uses(
            self.steps,
            self.outputs,
            self.size,
            is_barrier=lambda step: step.rereads_operands,
            callee=lambda step: None if step.callee is None else step.callee.before_contractions,
        )

    @functools.cached_property
    def before_loops(self) -> Uses:
        """Return uses with fused loops' ends as barriers: stores, offset reads."""
        return analyze_uses(
            self.steps,
            self.outputs,
            self.size,
            is_barrier=lambda step: step.op.pattern is Pattern.INJECTIVE or _is_in_memory(step),
            separates=lambda step: step.op.pattern is Pattern.INJECTIVE,
            callee=lambda step: None if step.callee is None else step.callee.before_loops,
        )


def _reaches_contraction(step: Step) -> bool:
    return step.rereads_operands or (step.callee is not None and any(step.callee.before_contractions.reach_barrier))


def _is_in_memory(step: Step) -> bool:
    """Return whether a step's results are in memory, whatever uses them."""
    return (
        step.rereads_operands
        or step.op.pattern is Pattern.MATERIALIZED
        or (step.op.needs_context and step.callee is None)
    )


def _fusible_slots(steps: Sequence[Step], size: int) -> bytearray:
    """Return for each slot whether XLA fuses the step that computes it into its users."""
    fusible = bytearray(size)
    for step in steps:
        if step.callee is not None:
            for slot, is_fusible in zip(step.outputs, step.callee.fusible, strict=False):
                fusible[slot] = is_fusible
        elif not step.rereads_operands and step.op.plain:
            for slot in step.outputs:
                fusible[slot] = 1
    return fusible


def _costs(steps: Sequence[Step], in_memory: bytearray, size: int, recomputed: bytearray | None) -> list[int]:
    """Return for each slot the elementwise operations since the last values in memory."""
    # Operations at the same offset of a loop count as the longest path through them, those at other offsets are added.
    # steps: the function's steps that vary; the results of others cost nothing.
    # in_memory: for each slot whether it is materialized; values of too many operations are added to it.
    # recomputed: for each slot whether it is computed again if it is not in memory; None adds nothing.
    longest, others = [0] * size, [0] * size  # at the same offset, at other offsets
    for step in steps:
        op, callee = step.op, step.callee
        pattern = op.pattern
        if step.rereads_operands or pattern is Pattern.MATERIALIZED or pattern is Pattern.SHAPE_ONLY or not op.plain:
            continue
        if callee is None and op.needs_context:
            continue
        same, added = 0, 0
        for slot in step.inputs if len(step.inputs) == 1 else {*step.inputs}:
            added += others[slot]
            if pattern is Pattern.INJECTIVE:
                added += longest[slot]
            elif longest[slot] > same:
                same = longest[slot]
        if added > _MAX_COST:
            added = _MAX_COST
        for position, slot in enumerate(step.outputs):
            total = same + (cost_model.TRANSCENDENTAL_OPS if pattern is Pattern.TRANSCENDENTAL else 1)
            if callee is not None:
                inside = callee.cost[position] if position < len(callee.cost) else 0
                total = inside and same + inside
            if recomputed is not None and recomputed[slot] and total + added > cost_model.MAX_FUSED_OPS:
                in_memory[slot] = 1
            if not in_memory[slot]:
                longest[slot], others[slot] = total, added
    return list(map(operator.add, longest, others))


def _varying(steps: Sequence[Step], arguments: Sequence[bool], size: int) -> tuple[list[Step], bytearray]:
    """Return the steps that depend on a numeric argument."""
    # And for each slot whether its value does.
    found, varying = [], bytearray(size)
    varying[: len(arguments)] = bytes(arguments)
    for step in steps:
        for slot in step.inputs:
            if varying[slot]:
                found.append(step)
                for result in step.outputs:
                    varying[result] = 1
                break
    return found, varying


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
