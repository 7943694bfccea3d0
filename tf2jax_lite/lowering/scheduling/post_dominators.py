"""Where the ways from a function's values lead, and whether they meet again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tf2jax_lite.ops.traits import Pattern

if TYPE_CHECKING:
    from tf2jax_lite.lowering.planning.plan import Step

__all__ = ["Sides", "Ways", "follow"]

_END = 0  # where all ways end
_FARTHEST = 256  # meeting places to look through for where two ways come together


@dataclasses.dataclass(frozen=True, slots=True)
class Sides:
    """What comes of values within a function that is called.

    Attributes:
      apart: for each argument whether the ways from it meet nowhere.
      ahead: for each argument whether a step at which ways end is ahead of it.
    """

    apart: tuple[bool, ...]
    ahead: tuple[bool, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Ways:
    """What comes of a function's values.

    Attributes:
      apart: for each slot whether the ways from it part, and do not meet before they end.
      ahead: for each slot whether a step at which ways end is ahead of it.
    """

    apart: bytearray
    ahead: bytearray

    def sides(self, count: int) -> Sides:
        """Returns what comes of the function's arguments, given how many there are."""
        return Sides(tuple(map(bool, self.apart[:count])), tuple(map(bool, self.ahead[:count])))


def follow(
    steps: Sequence[Step],
    outputs: Sequence[int],
    arguments: int,
    size: int,
    *,
    ends: Callable[[Step], bool],
    scatters: Callable[[Step], bool] = lambda step: False,
    within: Callable[[Step], Sides | None],
) -> Ways:
    """Follows the ways from each value through its users, from the last step to the first.

    Args:
      steps: a function's steps, in order.
      outputs: the slots of its results, where ways end, too.
      arguments: how many slots are arguments.
      size: how many slots there are.
      ends: whether ways end at a step.
      scatters: whether those that end at a step do so apart: those from different operands, to different results.
      within: what comes of the arguments of the function that a step calls; None if it calls none.
    """
    readers: list[list[int]] = [[] for _ in range(size)]
    for slot in set(outputs):
        readers[slot].append(_END)
    # For the function's end and each step: where all ways from it meet first, how many meeting places follow, and if an
    # end is ahead or the step is one. Then for what ends apart from the rest: within a call, at an operand.
    count = len(steps)
    meeting, depth, closed = [_END] * (1 + count), [1] * (1 + count), bytearray(1 + count)

    def end_apart() -> int:
        meeting.append(_END)
        depth.append(1)
        closed.append(1)
        return len(meeting) - 1

    apart, ahead = bytearray(size), bytearray(size)

    def arrive(slot: int) -> int:
        """Notes what comes of a value, all of whose users are known; returns where its ways meet."""
        using = readers[slot]
        own, end = using[0], closed[using[0]]
        for other in using[1:]:
            end |= closed[other]
            if own != _END:
                own = _common(own, other, meeting, depth)
        ahead[slot] = end
        apart[slot] |= own == _END and len(using) > 1
        return own

    for index in range(count, 0, -1):
        step = steps[index - 1]
        used = 0
        place: int | None = None
        for slot in step.outputs:
            if not readers[slot]:
                continue
            used += 1
            own = arrive(slot)
            closed[index] |= ahead[slot]
            place = own if place is None else _common(place, own, meeting, depth)
        if ends(step):
            closed[index] = 1
        elif place is None:
            continue  # what is only written somewhere is no user
        elif place != _END:
            meeting[index], depth[index] = place, depth[place] + 1
        if step.op.pattern is Pattern.SHAPE_ONLY:
            continue
        sides, scattered = within(step), scatters(step)
        inner = _END  # of a call
        for position, slot in enumerate(step.inputs):
            at = index
            if sides is not None and position < len(sides.ahead):
                if sides.ahead[position]:
                    at = inner = inner or end_apart()
                apart[slot] |= sides.apart[position] and meeting[at] == _END
            elif scattered:
                at = end_apart()
                apart[slot] |= used > 1
            using = readers[slot]
            if not using or using[-1] != at:
                using.append(at)
    for slot in range(arguments):
        if readers[slot]:
            arrive(slot)
    return Ways(apart, ahead)


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
