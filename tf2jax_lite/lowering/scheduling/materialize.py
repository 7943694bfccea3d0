"""Which values of a function are worth computing once, because operations far apart use them.

XLA fuses elementwise operations into what uses them. That is right for a value whose users meet again soon, as those
of ``x`` do in ``x * sigmoid(x)``: they are one loop. It is wrong (`tf2jax_lite.xla_cpu.materialize`)

- for a value whose users go different ways, one of them to a convolution or a product, which reads what is in memory:
  there each way computes the value anew, with all that it is made of;
- for a value that took many steps to compute, and is used in different loops (a reduction is one of its own), or at
  different places (a slice of it beside another): what uses it, and is used likewise, computes it as many times again,
  and so on.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tf2jax_lite.ops.traits import Pattern

from .post_dominators import Sides, Ways, follow

if TYPE_CHECKING:
    from tf2jax_lite.lowering.planning.plan import Step

__all__ = ["Passage", "shared_results"]

# A value that takes more steps than this from what is in memory is written there if it would be computed twice.
_MOST_STEPS = 10
_DEAR = 8  # steps that an exponential counts as
_COUNTLESS = 1 << 20
_ENDS = (Pattern.MATERIALIZED, Pattern.SHAPE_ONLY)


class Passage:
    """What a function does with values that pass through it, for those who call it.

    XLA puts what a function does in the place of its calls, so ways go on in it, and come from it.

    Attributes:
      heavy: what comes of its arguments, as ways end at heavy steps.
      light: for each result whether a step makes it that XLA puts into its users.
      cost: for each result how many steps it takes from what is in memory, arguments among that.
    """

    def __init__(self, function: _Function, light: bytearray, cost: Sequence[int]):
        self._function = function
        self.light = tuple([bool(light[slot]) for slot in function.outputs])
        self.cost = tuple([cost[slot] for slot in function.outputs])

    @functools.cached_property
    def heavy(self) -> Sides:
        """See the class."""
        return self._function.to_heavy.sides(len(self._function.fed))

    @functools.cached_property
    def loops(self) -> Sides:
        """What comes of its arguments, as ways end where another loop begins."""
        return self._function.to_loops.sides(len(self._function.fed))


def shared_results(
    steps: Sequence[Step], outputs: Sequence[int], fed: Sequence[bool], size: int
) -> tuple[dict[int, tuple[int, ...]], Passage]:
    """Finds values to compute once.

    Args:
      steps: a function's steps, in order.
      outputs: the slots of its results.
      fed: for each argument whether it is a number that its caller gives.
      size: how many slots there are.

    Returns:
      Positions of such results by index of their step. Not among them are results of heavy steps, which are in memory
      anyway, and what is made of variables and constants alone. And what the function's callers are to know of it.
    """
    function = _Function(steps, outputs, fed, size)
    light, moves = _light_slots(steps, size), _fed_slots(steps, fed, size)
    once = bytearray(size)
    if any(step.heavy or (step.passage is not None and any(step.passage.heavy.ahead)) for step in steps):
        ways = function.to_heavy
        for slot in range(size):
            once[slot] = ways.apart[slot] and ways.ahead[slot] and moves[slot] and light[slot]
    cost = _steps_taken(steps, moves, once, size, None)
    if max(cost, default=0) > _MOST_STEPS:
        cost = _steps_taken(steps, moves, once, size, function.to_loops.apart)
    found = {}
    for index, step in enumerate(steps):
        positions = tuple([i for i, slot in enumerate(step.outputs) if once[slot]])
        if positions:
            found[index] = positions
    return found, Passage(function, light, cost)


class _Function:
    """A function's steps, and what they come to."""

    def __init__(self, steps: Sequence[Step], outputs: Sequence[int], fed: Sequence[bool], size: int):
        self.steps, self.outputs, self.fed, self.size = steps, outputs, fed, size

    @functools.cached_property
    def to_heavy(self) -> Ways:
        """The ways that end at heavy steps."""
        return follow(
            self.steps,
            self.outputs,
            len(self.fed),
            self.size,
            ends=lambda step: step.heavy,
            within=lambda step: None if step.passage is None else step.passage.heavy,
        )

    @functools.cached_property
    def to_loops(self) -> Ways:
        """The ways that end where another loop begins, or what is read lies elsewhere."""
        return follow(
            self.steps,
            self.outputs,
            len(self.fed),
            self.size,
            ends=lambda step: _is_stored(step) or step.op.pattern is Pattern.INJECTIVE,
            scatters=lambda step: step.op.pattern is Pattern.INJECTIVE,
            within=lambda step: None if step.passage is None else step.passage.loops,
        )


def _is_stored(step: Step) -> bool:
    """Whether a step's results are in memory, whoever uses them."""
    return step.heavy or step.op.pattern is Pattern.MATERIALIZED or (step.op.needs_context and step.passage is None)


def _light_slots(steps: Sequence[Step], size: int) -> bytearray:
    """Returns for each slot whether XLA puts what makes it into its users."""
    light = bytearray(size)
    for step in steps:
        if step.passage is not None:
            for slot, is_light in zip(step.outputs, step.passage.light, strict=False):
                light[slot] = is_light
        elif not step.heavy and step.op.plain:
            for slot in step.outputs:
                light[slot] = 1
    return light


def _steps_taken(
    steps: Sequence[Step], moves: bytearray, once: bytearray, size: int, apart: bytearray | None
) -> list[int]:
    """Returns how many steps each value takes from what is in memory.

    Steps at the same place of a loop count as the longest way through them, those at other places are added up.

    Args:
      steps: the function's steps.
      moves: for each slot whether it depends on a number that the caller gives.
      once: for each slot whether it is in memory; values that take too many steps are added to it.
      size: how many slots there are.
      apart: for each slot whether it would be computed again if it is not in memory; None adds nothing.
    """
    here, elsewhere = [0] * size, [0] * size
    for step in steps:
        op, passage = step.op, step.passage
        if step.heavy or op.pattern in _ENDS or not op.plain or (passage is None and op.needs_context):
            continue
        longest, added, depends = 0, 0, False
        for slot in step.inputs if len(step.inputs) == 1 else {*step.inputs}:
            if moves[slot]:
                depends = True
                added += elsewhere[slot]
                if op.pattern is Pattern.INJECTIVE:
                    added += here[slot]
                elif here[slot] > longest:
                    longest = here[slot]
        if not depends:
            continue
        added = min(added, _COUNTLESS)
        for position, slot in enumerate(step.outputs):
            taken = longest + (_DEAR if op.pattern is Pattern.TRANSCENDENTAL else 1)
            if passage is not None:
                within = passage.cost[position] if position < len(passage.cost) else 0
                taken = within and longest + within
            if apart is not None and apart[slot] and taken + added > _MOST_STEPS:
                once[slot] = 1
            if not once[slot]:
                here[slot], elsewhere[slot] = taken, added
    return [a + b for a, b in zip(here, elsewhere, strict=True)]


def _fed_slots(steps: Sequence[Step], fed: Sequence[bool], size: int) -> bytearray:
    """Returns for each slot whether its value depends on a number that the caller gives."""
    moves = bytearray(size)
    moves[: len(fed)] = bytes(fed)
    for step in steps:
        for slot in step.inputs:
            if moves[slot]:
                for result in step.outputs:
                    moves[result] = 1
                break
    return moves
