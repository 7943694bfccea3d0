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

    def varying(value: Any) -> Any:
        return varying_along(value, axes)

    arrays = list(map(jnp.asarray, operands))  # JAX passes literals as Python numbers
    axes = frozenset[str]().union(*map(axes_of, arrays))
    constants, start = arrays[: loop.constants], arrays[loop.constants :]
    moving = loop.moving(linear)
    wanted = [p for p in linear if p < loop.constants]
    slots = _slots(start, max_trips)
    always = max_trips is not None and max_trips <= slots

    def going(state: Sequence[Any]) -> Any:
        return loop.cond(constants, state)

    def advance(state: Sequence[Any]) -> list[Any]:
        return loop.body(constants, state)

    def number(value: int) -> Any:
        return varying(jnp.asarray(value, np.int32))

    def zeros(like: Any) -> Any:
        return varying(jnp.zeros(like.shape, like.dtype))

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

    # ---- forwards ----

    buffers = [lax.broadcast(v, (slots + 1,)) for v in start]  # the last slot takes carries that are not saved

    def keep(kept: list[Any], state: Sequence[Any], index: Any, distance: Any) -> list[Any]:
        at = jnp.where(index % distance == 0, index // distance, slots)
        return [lax.dynamic_update_index_in_dim(b, v, at, 0) for b, v in zip(kept, state, strict=True)]

    def fill(carry: Any) -> Any:
        def step(carry: Any) -> Any:
            index, distance, state, kept = carry
            return index + 1, distance, advance(state), keep(kept, state, index, distance)

        def has_slots(carry: Any) -> Any:
            return going(carry[2]) if always else (carry[0] < slots * carry[1]) & going(carry[2])

        return run(has_slots, step, carry)

    def fill_and_thin(carry: Any) -> Any:
        index, distance, state, kept = fill(carry)
        more, indices = going(state), jnp.arange(slots + 1)
        every_other = jnp.where(more, jnp.minimum(2 * indices, slots), indices)
        return index, jnp.where(more, 2 * distance, distance), state, [b[every_other] for b in kept]

    first = (number(0), number(1), start, buffers)
    if always:
        count, distance, _, kept = fill(first)
    else:
        count, distance, _, kept = run(lambda carry: going(carry[2]), fill_and_thin, first)

    # ---- backwards ----

    def at(kept: Sequence[Any], index: Any) -> list[Any]:
        return [lax.dynamic_index_in_dim(b, index, 0, keepdims=False) for b in kept]

    def back_within(begin: list[Any], length: Any, moved: list[Any], sums: list[Any]) -> Any:
        """Go back through the iterations from one checkpoint to the next."""
        spacing = (distance + slots - 1) // slots

        def again(carry: Any) -> Any:
            index, state, inner = carry
            return index + 1, advance(state), keep(inner, state, index, spacing)

        last, state, inner = run(lambda c: c[0] < length - 1, again, (number(0), begin, buffers))
        inner = keep(inner, state, last, spacing)

        def back(carry: Any) -> Any:
            index, moved, sums = carry
            near = (number(0), at(inner, index // spacing))
            state = run(lambda c: c[0] < index % spacing, lambda c: (c[0] + 1, advance(c[1])), near)[1]
            return index - 1, *pull(state, moved, sums)

        return run(lambda c: c[0] >= 0, back, (length - 1, moved, sums))[1:]

    def back(carry: Any) -> Any:
        index, moved, sums = carry
        state = at(kept, index)
        if always:
            return index - 1, *pull(state, moved, sums)
        return index - 1, *back_within(state, jnp.minimum(distance, count - index * distance), moved, sums)

    given = dict(zip(results, cotangents, strict=True))
    moved = [varying(given[k]) if k in given else zeros(start[k]) for k in moving]
    begin = ((count - 1) // distance, moved, [zeros(constants[p]) for p in wanted])
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
