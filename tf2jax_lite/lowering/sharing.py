"""Which values of a function are worth computing once, because operations far apart use them.

XLA fuses elementwise operations into what uses them. That is right for a value whose users meet again soon, as those
of ``x`` do in ``x * sigmoid(x)``: they are one loop. It is wrong for a value whose users go different ways, one of them
to a convolution or a product, which reads what is in memory: there each way computes the value anew, with all that it
is made of (`tf2jax_lite.ops.once`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Step

__all__ = ["shared_results"]

_END = -1  # where all ways end
_FARTHEST = 256  # meeting places to look through for where two ways come together


def shared_results(
    steps: Sequence[Step], outputs: Sequence[int], fed: Sequence[bool], size: int
) -> dict[int, tuple[int, ...]]:
    """Finds values to compute once: their users meet nowhere before a heavy step or the function's end.

    Args:
      steps: a function's steps, in order.
      outputs: the slots of its results.
      fed: for each argument whether it is a number that its caller gives.
      size: how many slots there are.

    Returns:
      Positions of such results by index of their step. Not among them are results of heavy steps, which are in memory
      anyway, and what is made of variables and constants alone.
    """
    if not any(step.heavy for step in steps):
        return {}
    moves = _fed_slots(steps, fed, size)
    readers: list[list[int]] = [[] for _ in range(size)]
    for slot in set(outputs):
        readers[slot].append(_END)
    # For each step: where all ways from it meet first, how many meeting places follow, and if a heavy step is ahead or
    # the step is one. The last entry is that of the end.
    meeting, depth, ahead = [_END] * len(steps), [1] * len(steps), bytearray(len(steps) + 1)
    found = {}
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if step.heavy:
            ahead[index] = 1
        else:
            place: int | None = None
            for position, slot in enumerate(step.outputs):
                using = readers[slot]
                if not using:
                    continue
                own = using[0]
                heavy = ahead[own]
                for other in using[1:]:
                    heavy |= ahead[other]
                    if own != _END:
                        own = _common(own, other, meeting, depth)
                if own == _END and heavy and len(using) > 1 and moves[slot] and step.op.plain:
                    found[index] = (*found.get(index, ()), position)
                ahead[index] |= heavy
                place = own if place is None else _common(place, own, meeting, depth)
            if place is None:
                continue  # what is only written somewhere is no user
            if place != _END:
                meeting[index], depth[index] = place, depth[place] + 1
        if not step.op.shape_only:
            for slot in step.inputs:
                using = readers[slot]
                if not using or using[-1] != index:
                    using.append(index)
    return found


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
