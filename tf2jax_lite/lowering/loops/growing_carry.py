"""What a loop carries that is longer, or shorter, after an iteration than before: ``ids = tf.concat([ids, more], 1)``.

JAX's loops carry arrays of one shape. Such an array is carried with room for the most there can be, and with its
sizes; in an iteration it has those, as symbols (`dynamic_shapes/tracker.py`). How much room there is to be tells a
trace of the body: by how much a size grows, as often as the loop runs at most. Sizes that start alike and change alike
are one size, as those of tokens and of their mask.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound, is_data_dependent
from tf2jax_lite.dynamic_shapes.dim_expr import names, parsed
from tf2jax_lite.dynamic_shapes.dim_expr import value as value_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim
from tf2jax_lite.support.errors import OpError

__all__ = ["Growing", "Grown", "GrownError"]

# More rows than this are not made room for.
_MOST_ROOM = 1 << 26
# A size that grows by more in each iteration (twice as long) is followed for so many iterations.
_MOST_FOLLOWED = 1024
# So large sizes are tried.
_MOST_TRIED = 1 << 20
# So often room is made anew.
_MOST_RENEWED = 16


class GrownError(UnboundedError):
    """A loop variable changes its size: there is to be room for the largest.

    Attributes:
      shapes: of the loop variables that change as much with each iteration, those in the first two, by their number.
    """

    def __init__(self, problem: str, shapes: Mapping[int, tuple[Any, Any]] | None = None):
        OpError.__init__(self, problem)
        self.shapes = dict(shapes or {})


@functools.partial(jax.tree_util.register_dataclass, data_fields=["buffer", "counts"], meta_fields=["axes", "is_sure"])
@dataclasses.dataclass(frozen=True)
class Grown:
    """An array with room for the most there can be.

    Attributes:
      buffer: that.
      counts: int32 scalars: how many are there, along each of ``axes``. Once they are more than there is room for, they
        stay so.
      axes: the dimensions that change.
      is_sure: whether there is room for all that there can be.
    """

    buffer: Any
    counts: tuple[Any, ...]
    axes: tuple[int, ...]
    is_sure: bool

    is_pytree_handle = True

    @classmethod
    def of(cls, value: Any, rooms: Mapping[int, Any], is_sure: bool) -> Grown:
        """Returns an array with room for so many along some axes."""
        more = [(0, rooms.get(axis, size) - size, 0) for axis, size in enumerate(value.shape)]
        counts = tuple(jnp.asarray(value.shape[axis]).astype(np.int32) for axis in rooms)
        return cls(lax.pad(value, jnp.zeros((), value.dtype), more), counts, tuple(rooms), is_sure)

    @property
    def rooms(self) -> dict[int, Any]:
        """For each dimension that changes how many there is room for."""
        return {axis: self.buffer.shape[axis] for axis in self.axes}

    @property
    def over(self) -> Any:
        """Whether there are more than there is room for: a bool scalar."""
        return functools.reduce(
            jnp.logical_or,
            [n > jnp.asarray(room).astype(np.int32) for n, room in zip(self.counts, self.rooms.values(), strict=True)],
        )

    def following(self, before: Grown) -> Grown:
        """Returns the array with counts that are as many as before where those were too many."""
        if self.is_sure:
            return self
        rooms = [jnp.asarray(room).astype(np.int32) for room in self.rooms.values()]
        kept = [
            jnp.where(old > room, old, new) for old, new, room in zip(before.counts, self.counts, rooms, strict=True)
        ]
        return dataclasses.replace(self, counts=tuple(kept))


class Growing:
    """The loop variables of one loop that change their sizes.

    Args:
      tracker: makes symbols of sizes.
      trips: how often the loop runs at most, None if nothing tells.
      is_exact: whether it runs so often.
      can_unroll: whether it is rather unrolled where all sizes are known then.
    """

    def __init__(self, tracker: DynamicShapes, trips: int | None, is_exact: bool, can_unroll: bool):
        self._tracker = tracker
        self._trips = trips
        self._is_exact = is_exact
        self._can_unroll = can_unroll
        self._starts: dict[int, Any] = {}
        self._rooms: dict[int, dict[int, Any]] = {}
        self._groups: dict[tuple[int, int], int] = {}
        self._before: dict[tuple[int, int], Any] = {}
        self._after: dict[tuple[int, int], Any] = {}
        self._ends: dict[tuple[int, int], Any] = {}
        self._is_sure = True
        self._next = 0
        self._renewed = 0

    def start(self, key: int, value: Any, after: Any) -> Any:
        """Returns what the loop is to start with for a variable that it changes.

        Args:
          key: which loop variable.
          value: what it starts with: an array, or one with the room that was made before.
          after: its form after an iteration, of the same rank and dtype.
        """
        first = self._starts.setdefault(key, value)
        wanted = self._rooms.setdefault(key, {})
        for axis, (size, new) in enumerate(zip(first.shape, after.shape, strict=True)):
            if axis not in wanted and new != size:
                wanted[axis] = self._guess(size, new)
                group = [g for other, g in self._groups.items() if self._size(other) == size]
                self._next += not group
                self._groups[key, axis] = group[0] if group else self._next
        return Grown.of(first, wanted, self._is_sure)

    def _size(self, place: tuple[int, int]) -> Any:
        key, axis = place
        return self._starts[key].shape[axis]

    def _guess(self, size: Any, after: Any) -> Any:
        """Returns room for one size, before it is known by how much it changes."""
        more = after - size
        return size + more * (self._trips or 1) if isinstance(more, int) and more > 0 else size

    def opened(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """Returns loop variables as an iteration sees them."""
        leaders: dict[int, Any] = {}
        out = dict(values)
        self._before = {}
        with _refusing():
            for key, value in values.items():
                if isinstance(value, Grown):
                    out[key] = self._cut(key, value, leaders, None)
        return out

    def _cut(self, key: int, value: Grown, leaders: dict[int, Any], rooms: Any) -> Any:
        """Returns an array that is as long as it says; of one group all are."""
        x = value.buffer
        for axis, count in zip(value.axes, value.counts, strict=True):
            count = leaders.setdefault(self._groups[key, axis], count)
            moved = jnp.moveaxis(x, axis, 0)
            is_sure = rooms is None or value.is_sure
            if rooms is not None and rooms[axis] != moved.shape[0]:
                moved, is_sure = _resized(moved, rooms[axis]), False
            moved = self._tracker.prefix(moved, count, ("grown", id(count)), count, is_sure=is_sure)
            self._before[key, axis] = moved.shape[0]
            x = jnp.moveaxis(moved, 0, axis)
        return x

    def closed(self, key: int, before: Any, after: Any) -> Any:
        """Returns what an iteration gives as the loop carries it; as it is if it does not fit there."""
        if not isinstance(before, Grown) or not isinstance(after, jax.Array) or after.ndim != before.buffer.ndim:
            return after
        fits = all(axis in before.axes or n == before.buffer.shape[axis] for axis, n in enumerate(after.shape))
        if not fits or after.dtype != before.buffer.dtype:
            return after
        for axis in before.axes:
            self._after[key, axis] = after.shape[axis]
        with _refusing():
            return Grown.of(after, before.rooms, before.is_sure).following(before)

    def settles(self, values: Mapping[int, Any]) -> bool:
        """Whether there is the room that there has to be for what `closed` gave; if not, it is made."""
        grown = [key for key, value in values.items() if isinstance(value, Grown)]
        places = [(key, axis) for key in grown for axis in values[key].axes]
        parts: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for place in places:
            parts.setdefault((self._groups[place], str(self._after[place])), []).append(place)
        split = len({group for group, _ in parts}) < len(parts)
        rooms = dict.fromkeys(places) if split else self._needed(list(parts.values()))
        if split:
            for members in parts.values():
                self._next += 1
                self._groups.update(dict.fromkeys(members, self._next))
            return False
        changed = any(rooms[place] != self._rooms[place[0]][place[1]] for place in places)
        changed |= any(values[key].is_sure != self._is_sure for key in grown)
        self._renewed += changed
        if self._renewed > _MOST_RENEWED:
            raise GrownError("nothing tells by how much a loop variable grows in an iteration")
        if self._can_unroll and places and not changed and all(self._ends[place] is not None for place in places):
            raise GrownError("sizes change with each iteration, and are known if it is unrolled")
        for (key, axis), room in rooms.items():
            self._rooms[key][axis] = room
        return not changed

    def again(self, key: int) -> Any:
        """Returns what the loop is to start with after `settles` has made room."""
        return Grown.of(self._starts[key], self._rooms[key], self._is_sure)

    def _needed(self, parts: list[list[tuple[int, int]]]) -> dict[tuple[int, int], Any]:
        rooms: dict[tuple[int, int], Any] = {}
        for members in parts:
            size, before, after = self._size(members[0]), self._before[members[0]], self._after[members[0]]
            change = _change(size, before, after)
            room = self._room(size, before, change)
            rooms.update(dict.fromkeys(members, room))
            is_known = self._is_exact and isinstance(change, int) and not is_data_dependent(size)
            end = size + change * self._trips if is_known and self._trips is not None else None
            self._ends.update(dict.fromkeys(members, end))
        return rooms

    def _shapes(self) -> dict[int, tuple[Any, Any]]:
        """Returns the shapes in the first two iterations of what changes alike in each."""
        found = {}
        for key, rooms in self._rooms.items():
            shape = self._starts[key].shape
            second = list(shape)
            for axis in rooms:
                second[axis] += _change(shape[axis], self._before[key, axis], self._after[key, axis])
            if all(isinstance(n, int) for n in (*shape, *second)):
                found[key] = shape, tuple(second)
        return found

    def _room(self, size: Any, before: Any, change: Any) -> Any:
        """Returns how many there can be where a size that is ``before`` in an iteration changes by so many."""
        change = self._tracker.bound_in_terms_of(change, before)
        more = change if isinstance(change, int) else dim_upper_bound(change)
        if isinstance(more, int) and more <= 0:
            return size
        start = dim_upper_bound(size) if is_data_dependent(size) else size
        if self._trips is None:
            limit = self._tracker.limit
            if limit is None or start is None:
                raise GrownError(
                    "a loop variable grows with each iteration, and nothing tells how many there are; give "
                    "tf.while_loop maximum_iterations, or convert with override_config('dynamic_shape_bound', n)",
                    self._shapes(),
                )
            self._is_sure = False
            return max_dim(start, limit)
        if isinstance(more, int) and not is_data_dependent(change):
            return size + more * self._trips
        if not isinstance(start, int) or self._trips > _MOST_FOLLOWED:
            raise GrownError("nothing tells by how much a loop variable grows in an iteration")
        room = start
        for _ in range(self._trips):
            grown = self._tracker.upper_bound_where(before + change, before, room)
            if grown is None or grown > _MOST_ROOM:
                raise GrownError("nothing tells by how much a loop variable grows in an iteration")
            if grown <= room:
                break
            room = grown
        return room

    def finished(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """Returns what the loop gives: arrays of known sizes where they are, else of sizes that data decides."""
        leaders: dict[int, Any] = {}
        out = dict(values)
        for key, value in values.items():
            if isinstance(value, Grown):
                out[key] = self._finished(key, value, leaders)
        return out

    def _finished(self, key: int, value: Grown, leaders: dict[int, Any]) -> Any:
        ends = {axis: self._ends[key, axis] for axis in value.axes}
        x = value.buffer
        for axis, end in ends.items():
            if end is not None and end != x.shape[axis]:
                x = lax.slice_in_dim(x, 0, end, axis=axis)
        left = [(axis, n) for axis, n in zip(value.axes, value.counts, strict=True) if ends[axis] is None]
        limit = self._tracker.limit
        rest = Grown(x, tuple(n for _, n in left), tuple(axis for axis, _ in left), value.is_sure)
        return self._cut(key, rest, leaders, {axis: x.shape[axis] if limit is None else limit for axis, _ in left})


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Has JAX's errors about shapes be some of ours, so that the loop may be unrolled."""
    try:
        yield
    except (TypeError, ValueError, InconclusiveDimensionOperation) as error:
        problem = f"a loop variable changes its size in a way that it cannot be carried in: {error}"
        raise GrownError(problem.split("\n")[0]) from error


def _change(start: Any, before: Any, after: Any) -> Any:
    """Returns by how much an iteration changes a size: a number if it is that for all sizes that there can be.

    That of ``x[-1:]`` is 1 only if there is one: a size that starts with 1 at least, and never is less, has one.
    """
    change = after - before
    if isinstance(change, int) or not isinstance(start, int):
        return change
    tree = parsed(str(change))
    if names(tree) != names(parsed(str(before))):
        return change
    found = np.unique(value_of(tree, dict.fromkeys(names(tree), np.arange(start + 1, _MOST_TRIED))))
    return int(found[0]) if found.size == 1 and found[0] >= 0 else change


def _resized(x: Any, size: Any) -> Any:
    """Returns an array with another number of rows: its first, and zeros."""
    if isinstance(x.shape[0], int) and x.shape[0] > size:
        return lax.slice_in_dim(x, 0, size)
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, size - x.shape[0], 0), *[(0, 0, 0)] * (x.ndim - 1)])
