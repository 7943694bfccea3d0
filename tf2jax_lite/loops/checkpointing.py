"""Reverse pass of a while loop, from checkpoints of its carry.

The trip count is unknown until the loop has run. So the carry is saved at equal distances in a fixed number of slots;
when they are full, every other checkpoint is dropped and the distance doubled (an online form of checkpointing as in
Griewank and Walther, "Algorithm 799: revolve", 2000). Backwards, the carries between two checkpoints are recomputed and
saved in the same way, and each iteration is differentiated at its own carry. If there are no more iterations than the
square of the number of slots, each runs at most twice before it is differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along

from .functions import Functions

Loop = Callable[[Callable[..., Any], Callable[..., Any], Any], Any]
"""`jax.lax.while_loop`, or a function with its interface."""

# Bytes of all checkpoints, and the least and greatest number of them.
_MAX_BYTES = 1 << 26
_MIN_SLOTS, _MAX_SLOTS = 16, 256


class _Forwards:
    """The iterations of a loop, whose carries are saved in slots.

    Attributes:
      slots: number of saved carries.
      all_fit: whether each iteration's carry is saved.
      buffers: of slots, and of one more, which takes carries that are not saved.
    """

    def __init__(self, run: Loop, loop: Functions, arrays: Sequence[Any], max_trips: int | None):
        self._run, self._loop = run, loop
        self._axes = frozenset[str]().union(*map(axes_of, arrays))
        self.constants, self.start = arrays[: loop.constants], arrays[loop.constants :]
        self.slots = _slots(self.start, max_trips)
        self.all_fit = max_trips is not None and max_trips <= self.slots
        self.buffers = [lax.broadcast(v, (self.slots + 1,)) for v in self.start]

    def varying(self, value: Any) -> Any:
        """Return a value that varies along the axes of the loop's arrays."""
        return varying_along(value, self._axes)

    def number(self, value: int) -> Any:
        """Return an int32 scalar to carry."""
        return self.varying(jnp.asarray(value, np.int32))

    def zeros(self, like: Any) -> Any:
        """Return zeros to carry."""
        return self.varying(jnp.zeros(like.shape, like.dtype))

    def advance(self, state: Sequence[Any]) -> list[Any]:
        """Return the carry after an iteration."""
        return self._loop.body(self.constants, state)

    def keep(self, kept: list[Any], state: Sequence[Any], index: Any, distance: Any) -> list[Any]:
        """Return the buffers with the carry before iteration ``index``, if saved."""
        at = jnp.where(index % distance == 0, index // distance, self.slots)
        return [lax.dynamic_update_index_in_dim(b, v, at, 0) for b, v in zip(kept, state, strict=True)]

    def run(self) -> tuple[Any, Any, list[Any]]:
        """Return the trip count, the distance of saved carries, and their buffers."""
        first = (self.number(0), self.number(1), self.start, self.buffers)
        if self.all_fit:
            count, distance, _, kept = self._fill(first)
        else:
            count, distance, _, kept = self._run(lambda carry: self._going(carry[2]), self._fill_and_thin, first)
        return count, distance, kept

    def _going(self, state: Sequence[Any]) -> Any:
        return self._loop.cond(self.constants, state)

    def _fill(self, carry: Any) -> Any:
        def step(carry: Any) -> Any:
            index, distance, state, kept = carry
            return index + 1, distance, self.advance(state), self.keep(kept, state, index, distance)

        def has_slots(carry: Any) -> Any:
            if self.all_fit:
                return self._going(carry[2])
            return (carry[0] < self.slots * carry[1]) & self._going(carry[2])

        return self._run(has_slots, step, carry)

    def _fill_and_thin(self, carry: Any) -> Any:
        """Run until no slot is free; then drop every other carry, and double the distance."""
        index, distance, state, kept = self._fill(carry)
        more, indices = self._going(state), jnp.arange(self.slots + 1)
        every_other = jnp.where(more, jnp.minimum(2 * indices, self.slots), indices)
        return index, jnp.where(more, 2 * distance, distance), state, [b[every_other] for b in kept]


def pullback(
    run: Loop,
    loop: Functions,
    results: Sequence[int],
    linear: Sequence[int],
    max_trips: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
) -> list[Any]:
    """Return the cotangents of a loop's operands.

    Args:
      results: the indices of the carried arrays that have cotangents at the end.
      max_trips: an upper bound of the trip count; None if unknown.

    Returns:
      For each position in ``linear`` an array of the operand's shape and dtype.
    """
    # JAX passes literals as Python numbers.
    forwards = _Forwards(run, loop, list(map(jnp.asarray, operands)), max_trips)
    constants, start, number = forwards.constants, forwards.start, forwards.number
    moving = loop.moving(linear)
    wanted = [p for p in linear if p < loop.constants]
    count, distance, kept = forwards.run()

    def pull(state: list[Any], moved: list[Any], sums: list[Any]) -> tuple[list[Any], list[Any]]:
        def iterate(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
            values, now = list(constants), list(state)
            for position, value in zip(wanted, some, strict=True):
                values[position] = value
            for position, value in zip(moving, others, strict=True):
                now[position] = value
            after = loop.body(values, now)
            return [after[k] for k in moving]

        back = jax.vjp(iterate, [constants[p] for p in wanted], [state[k] for k in moving])[1]
        more, moved = back(moved)
        return moved, [s + m for s, m in zip(sums, more, strict=True)]

    def at(kept: Sequence[Any], index: Any) -> list[Any]:
        return [lax.dynamic_index_in_dim(b, index, 0, keepdims=False) for b in kept]

    def back_within(begin: list[Any], length: Any, moved: list[Any], sums: list[Any]) -> Any:
        """Go back through the iterations from one checkpoint to the next."""
        spacing = (distance + forwards.slots - 1) // forwards.slots

        def again(carry: Any) -> Any:
            index, state, inner = carry
            return index + 1, forwards.advance(state), forwards.keep(inner, state, index, spacing)

        last, state, inner = run(lambda c: c[0] < length - 1, again, (number(0), begin, forwards.buffers))
        inner = forwards.keep(inner, state, last, spacing)

        def back(carry: Any) -> Any:
            index, moved, sums = carry
            near = (number(0), at(inner, index // spacing))
            state = run(lambda c: c[0] < index % spacing, lambda c: (c[0] + 1, forwards.advance(c[1])), near)[1]
            return index - 1, *pull(state, moved, sums)

        return run(lambda c: c[0] >= 0, back, (length - 1, moved, sums))[1:]

    def back(carry: Any) -> Any:
        index, moved, sums = carry
        state = at(kept, index)
        if forwards.all_fit:
            return index - 1, *pull(state, moved, sums)
        return index - 1, *back_within(state, jnp.minimum(distance, count - index * distance), moved, sums)

    given = dict(zip(results, cotangents, strict=True))
    moved = [forwards.varying(given[k]) if k in given else forwards.zeros(start[k]) for k in moving]
    begin = ((count - 1) // distance, moved, [forwards.zeros(constants[p]) for p in wanted])
    _, moved, sums = run(lambda c: c[0] >= 0, back, begin)
    found = dict(zip(wanted, sums, strict=True))
    found.update({loop.constants + k: v for k, v in zip(moving, moved, strict=True)})
    return [found[p] for p in linear]


def _slots(start: Sequence[Any], max_trips: int | None) -> int:
    """Return the number of checkpoints, an even number."""
    size = 1
    for v in start:
        if all(isinstance(n, int) for n in v.shape):
            size += math.prod(v.shape) * getattr(v.dtype, "itemsize", 8)
    slots = min(max(_MAX_BYTES // size, _MIN_SLOTS), _MAX_SLOTS)
    if max_trips is not None:
        slots = min(slots, max(max_trips, 2))
    return slots + slots % 2
