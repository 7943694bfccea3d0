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
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tf2jax_lite.ops.traits import Pattern

from . import cost_model
from .post_dominators import ArgumentUses, Uses, analyze_uses

if TYPE_CHECKING:
    from tf2jax_lite.lowering.planning.plan import Plan, Step

__all__ = ["CalleeSummary", "run"]

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
    graph = _FunctionUses(plan.steps, plan.outputs, len(arguments), plan.size)
    fusible, varying = _fusible_slots(plan.steps, plan.size), _varying_slots(plan.steps, arguments, plan.size)
    chosen = bytearray(plan.size)
    if any(map(_reaches_contraction, plan.steps)):
        uses = graph.before_contractions
        for slot in range(plan.size):
            chosen[slot] = uses.diverge[slot] and uses.reach_barrier[slot] and varying[slot] and fusible[slot]
    cost = _costs(plan.steps, varying, chosen, plan.size, None)
    if max(cost, default=0) > cost_model.MAX_FUSED_OPS:
        cost = _costs(plan.steps, varying, chosen, plan.size, graph.before_loops.diverge)
    steps = []
    for step in plan.steps:
        positions = tuple([i for i, slot in enumerate(step.outputs) if chosen[slot]])
        steps.append(dataclasses.replace(step, materialized=positions) if positions else step)
    return dataclasses.replace(plan, steps=tuple(steps), summary=CalleeSummary(graph, fusible, cost))


class _FunctionUses:
    """The uses of a function's values, analyzed on demand."""

    def __init__(self, steps: Sequence[Step], outputs: Sequence[int], arguments: int, size: int):
        self.steps, self.outputs, self.arguments, self.size = steps, outputs, arguments, size

    @functools.cached_property
    def before_contractions(self) -> Uses:
        """Use where barriers are steps that read operands repeatedly."""
        return analyze_uses(
            self.steps,
            self.outputs,
            self.arguments,
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
            self.arguments,
            self.size,
            is_barrier=lambda step: _is_in_memory(step) or step.op.pattern is Pattern.INJECTIVE,
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


def _costs(
    steps: Sequence[Step], varying: bytearray, in_memory: bytearray, size: int, recomputed: bytearray | None
) -> list[int]:
    """Return for each slot the elementwise operations since the last values in memory.

    Operations at the same offset of a loop count as the longest path through them, those at other offsets are added.

    Args:
      steps: the function's steps.
      varying: for each slot whether it depends on a numeric argument.
      in_memory: for each slot whether it is materialized; values of too many operations are added to it.
      size: the number of slots.
      recomputed: for each slot whether it is computed again if it is not in memory; None adds nothing.
    """
    longest, others = [0] * size, [0] * size  # at the same offset, at other offsets
    for step in steps:
        op, callee = step.op, step.callee
        if (
            step.rereads_operands
            or op.pattern is Pattern.MATERIALIZED
            or op.pattern is Pattern.SHAPE_ONLY
            or not op.plain
        ):
            continue
        if callee is None and op.needs_context:
            continue
        same, added, depends = 0, 0, False
        for slot in step.inputs if len(step.inputs) == 1 else {*step.inputs}:
            if varying[slot]:
                depends = True
                added += others[slot]
                if op.pattern is Pattern.INJECTIVE:
                    added += longest[slot]
                elif longest[slot] > same:
                    same = longest[slot]
        if not depends:
            continue
        added = min(added, _MAX_COST)
        for position, slot in enumerate(step.outputs):
            total = same + (cost_model.TRANSCENDENTAL_OPS if op.pattern is Pattern.TRANSCENDENTAL else 1)
            if callee is not None:
                inside = callee.cost[position] if position < len(callee.cost) else 0
                total = inside and same + inside
            if recomputed is not None and recomputed[slot] and total + added > cost_model.MAX_FUSED_OPS:
                in_memory[slot] = 1
            if not in_memory[slot]:
                longest[slot], others[slot] = total, added
    return [a + b for a, b in zip(longest, others, strict=True)]


def _varying_slots(steps: Sequence[Step], arguments: Sequence[bool], size: int) -> bytearray:
    """Return for each slot whether its value depends on a numeric argument."""
    varying = bytearray(size)
    varying[: len(arguments)] = bytes(arguments)
    for step in steps:
        for slot in step.inputs:
            if varying[slot]:
                for result in step.outputs:
                    varying[result] = 1
                break
    return varying
