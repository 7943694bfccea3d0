"""The gradient of a loop that data ends: what its iterations started with, kept for some and computed anew for others.

How often the loop runs is known only once it has. So its states are kept at equal distances, in room for a fixed number
of them; where there is no more room, every other one is dropped and the distance doubled (an online form of
checkpointing as in Griewank and Walther, "Algorithm 799: revolve", 2000). Going backwards, the states between two that
were kept are computed again, kept in the same way, and each iteration is differentiated where it starts. If there are
no more iterations than the square of the number of places, each runs at most twice before it is differentiated.
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

__all__ = ["pullback"]

Loop = Callable[[Callable[..., Any], Callable[..., Any], Any], Any]
"""`jax.lax.while_loop`, or what does the same."""

# As many states are kept as take this many bytes, but no fewer and no more than these.
_BYTES = 1 << 26
_FEWEST, _MOST = 16, 256


def pullback(
    run: Loop,
    loop: Functions,
    results: Sequence[int],
    linear: Sequence[int],
    most: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
) -> list[Any]:
    """Returns the cotangents of a loop's operands.

    Args:
      run: what loops are run by.
      loop: the functions.
      results: which of the carried arrays have cotangents at the end.
      linear: positions of the operands whose cotangents are wanted.
      most: how many iterations there can be; None if nothing says.
      operands: of the loop.
      cotangents: of the results.

    Returns:
      For each position in ``linear`` an array as the operand.
    """

    def varying(value: Any) -> Any:
        return varying_along(value, axes)

    arrays = list(map(jnp.asarray, operands))  # of numbers, too: JAX hands on literals as they are
    axes = frozenset[str]().union(*map(axes_of, arrays))
    constants, start = arrays[: loop.constants], arrays[loop.constants :]
    moving = loop.moving(linear)
    wanted = [p for p in linear if p < loop.constants]
    slots = _slots(start, most)
    always = most is not None and most <= slots

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
            for place, value in zip(wanted, some, strict=True):
                values[place] = value
            for place, value in zip(moving, others, strict=True):
                now[place] = value
            after = loop.body(values, now)
            return [after[k] for k in moving]

        back = jax.vjp(iterate, [constants[p] for p in wanted], [state[k] for k in moving])[1]
        more, moved = back(moved)
        return moved, [s + m for s, m in zip(sums, more, strict=True)]

    # ---- forwards ----

    room = [lax.broadcast(v, (slots + 1,)) for v in start]  # the last place takes what is not kept

    def keep(kept: list[Any], state: Sequence[Any], index: Any, distance: Any) -> list[Any]:
        at = jnp.where(index % distance == 0, index // distance, slots)
        return [lax.dynamic_update_index_in_dim(b, v, at, 0) for b, v in zip(kept, state, strict=True)]

    def fill(carry: Any) -> Any:
        def step(carry: Any) -> Any:
            index, distance, state, kept = carry
            return index + 1, distance, advance(state), keep(kept, state, index, distance)

        def has_room(carry: Any) -> Any:
            return going(carry[2]) if always else (carry[0] < slots * carry[1]) & going(carry[2])

        return run(has_room, step, carry)

    def fill_and_thin(carry: Any) -> Any:
        index, distance, state, kept = fill(carry)
        more, places = going(state), jnp.arange(slots + 1)
        every_other = jnp.where(more, jnp.minimum(2 * places, slots), places)
        return index, jnp.where(more, 2 * distance, distance), state, [b[every_other] for b in kept]

    first = (number(0), number(1), start, room)
    if always:
        count, distance, _, kept = fill(first)
    else:
        count, distance, _, kept = run(lambda carry: going(carry[2]), fill_and_thin, first)

    # ---- backwards ----

    def at(kept: Sequence[Any], index: Any) -> list[Any]:
        return [lax.dynamic_index_in_dim(b, index, 0, keepdims=False) for b in kept]

    def back_within(begin: list[Any], length: Any, moved: list[Any], sums: list[Any]) -> Any:
        """Goes back through the iterations from one whose state was kept to the next such."""
        apart = (distance + slots - 1) // slots

        def again(carry: Any) -> Any:
            index, state, fine = carry
            return index + 1, advance(state), keep(fine, state, index, apart)

        last, state, fine = run(lambda c: c[0] < length - 1, again, (number(0), begin, room))
        fine = keep(fine, state, last, apart)

        def back(carry: Any) -> Any:
            index, moved, sums = carry
            near = (number(0), at(fine, index // apart))
            state = run(lambda c: c[0] < index % apart, lambda c: (c[0] + 1, advance(c[1])), near)[1]
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


def _slots(start: Sequence[Any], most: int | None) -> int:
    """Returns how many states are kept: an even number."""
    size = 1
    for v in start:
        if all(isinstance(n, int) for n in v.shape):
            size += math.prod(v.shape) * getattr(v.dtype, "itemsize", 8)
    slots = min(max(_BYTES // size, _FEWEST), _MOST)
    if most is not None:
        slots = min(slots, max(most, 2))
    return slots + slots % 2
