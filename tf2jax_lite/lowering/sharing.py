"""Which values of a function are worth computing once, because operations far apart use them.

XLA fuses elementwise operations into what uses them. That is right for a value whose users meet again soon, as those
of ``x`` do in ``x * sigmoid(x)``: they are one loop. It is wrong for a value whose users go different ways, one of them
to a convolution or a product, which reads what is in memory: there each way computes the value anew, with all that it
is made of (`tf2jax_lite.ops.once`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Step

__all__ = ["Passage", "shared_results"]

_END = -1  # where all ways end
_FARTHEST = 256  # meeting places to look through for where two ways come together


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
    """What a function does with values that pass through it, for those who call it.

    XLA puts what a function does in the place of its calls, so ways go on in it, and come from it.

    Attributes:
      apart: for each argument whether its users go ways that meet nowhere.
      heavy: for each argument whether a heavy step is ahead of it.
      light: for each result whether a step makes it that XLA puts into its users.
    """

    apart: tuple[bool, ...]
    heavy: tuple[bool, ...]
    light: tuple[bool, ...]


def shared_results(
    steps: Sequence[Step], outputs: Sequence[int], fed: Sequence[bool], size: int, *, inner: bool = True
) -> tuple[dict[int, tuple[int, ...]], Passage | None]:
    """Finds values to compute once: their users meet nowhere before a heavy step or the function's end.

    Args:
      steps: a function's steps, in order.
      outputs: the slots of its results.
      fed: for each argument whether it is a number that its caller gives.
      size: how many slots there are.
      inner: whether others call the function.

    Returns:
      Positions of such results by index of their step. Not among them are results of heavy steps, which are in memory
      anyway, and what is made of variables and constants alone. And what callers are to know of the function, if there
      are any.
    """
    if not inner and not any(step.heavy or step.passage is not None for step in steps):
        return {}, None
    light = bytearray(size)
    for step in steps:
        for position, slot in enumerate(step.outputs):
            light[slot] = _is_light(step, position)
    moves = _fed_slots(steps, fed, size)
    readers: list[list[int]] = [[] for _ in range(size)]
    for slot in set(outputs):
        readers[slot].append(_END)
    # For each step: where all ways from it meet first, how many meeting places follow, and if a heavy step is ahead or
    # the step is one. A call has a second entry, for what comes to a heavy step within it. The last entry is that of
    # the end.
    count = len(steps)
    meeting, depth, ahead = [_END] * (2 * count), [1] * (2 * count), bytearray(2 * count + 1)
    parted = bytearray(size)  # the ways from which part within a call, and do not meet again

    def ways(slot: int) -> tuple[int, bool, bool]:
        """Returns where the ways from a value meet, whether to a heavy step, and whether they part for good."""
        using = readers[slot]
        own, heavy = using[0], ahead[using[0]]
        for other in using[1:]:
            heavy |= ahead[other]
            if own != _END:
                own = _common(own, other, meeting, depth)
        return own, bool(heavy), bool(parted[slot] or (own == _END and len(using) > 1))

    found: dict[int, tuple[int, ...]] = {}
    for index in range(count - 1, -1, -1):
        step, passage = steps[index], steps[index].passage
        if step.heavy:
            ahead[index] = 1
        else:
            place: int | None = None
            for position, slot in enumerate(step.outputs):
                if not readers[slot]:
                    continue
                own, heavy, apart = ways(slot)
                if heavy and apart and moves[slot] and light[slot]:
                    found[index] = (*found.get(index, ()), position)
                ahead[index] |= heavy
                place = own if place is None else _common(place, own, meeting, depth)
            if place is None:
                continue  # what is only written somewhere is no user
            if place != _END:
                meeting[index], depth[index] = place, depth[place] + 1
        if step.op.shape_only:
            continue
        ahead[count + index] = 1
        for position, slot in enumerate(step.inputs):
            at = index
            if passage is not None and position < len(passage.heavy):
                at = count + index if passage.heavy[position] else index
                parted[slot] |= passage.apart[position] and meeting[at] == _END
            using = readers[slot]
            if not using or using[-1] != at:
                using.append(at)
    if not inner:
        return found, None
    arguments = [ways(slot) if readers[slot] else (_END, False, False) for slot in range(len(fed))]
    passage = Passage(
        apart=tuple([apart for _, _, apart in arguments]),
        heavy=tuple([heavy for _, heavy, _ in arguments]),
        light=tuple([bool(light[slot]) for slot in outputs]),
    )
    return found, passage


def _is_light(step: Step, position: int) -> bool:
    """Whether XLA puts what makes a result of a step into the result's users."""
    if step.passage is None:
        return not step.heavy and step.op.plain
    return position < len(step.passage.light) and step.passage.light[position]


def _common(a: int, b: int, meeting: Sequence[int], depth: Sequence[int]) -> int:
    """Returns where the ways from two steps meet first."""
    for _ in range(_FARTHEST):
        if a == b:
            return a
        if _END in (a, b):
            return _END
        if depth[a] >= depth[b]:
            a = meeting[a]
        else:
            b = meeting[b]
    return _END


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
