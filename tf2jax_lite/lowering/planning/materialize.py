"""Values computed once, as XLA would compute them again for distant uses.

XLA fuses elementwise operations into their users. That is right for a value whose uses re-converge soon, as those of
``x`` do in ``x * sigmoid(x)``: they are one loop. It is wrong (`tf2jax_lite.jaxprs.materialize`)

- for a value whose uses diverge, one of them into a convolution or a matmul, whose operands are in memory: the value,
  and all that it is made of, is computed again for each use;
- for a value of many operations that is used in several loops (a reduction is a loop of its own), or at several offsets
  (a slice beside another): its users compute it again, and so do users of its operands: the cost multiplies.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.xla_cpu import cost_model

from .post_dominators import ArgumentUses, Uses, analyze_uses

if TYPE_CHECKING:
    from tf2jax_lite.lowering.planning.plan import Plan, Step

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
    """Return for each slot the elementwise operations since the last values in memory.

    Operations at the same offset of a loop count as the longest path through them, those at other offsets are added.

    Args:
      steps: the function's steps that vary; the results of others cost nothing.
      in_memory: for each slot whether it is materialized; values of too many operations are added to it.
      size: the number of slots.
      recomputed: for each slot whether it is computed again if it is not in memory; None adds nothing.
    """
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
    """Return the steps that depend on a numeric argument.

    And for each slot whether its value does.
    """
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
