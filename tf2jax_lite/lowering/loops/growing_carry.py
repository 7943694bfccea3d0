"""Loop variables that change their sizes: ``ids = tf.concat([ids, more], 1)``.

JAX's loops carry arrays of fixed shape. Such an array is carried padded to a capacity, with its actual sizes; within an
iteration these are symbols of data-dependent dimensions (`tf2jax_lite.dynamic_shapes.tracker`). A trace of the body
tells the capacity: the growth per iteration times the upper bound of the trip count. Sizes with equal starts and equal
growth are one symbol, such as those of tokens and of their mask.
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
from tf2jax_lite.dynamic_shapes.dim_expr import names_in
from tf2jax_lite.dynamic_shapes.dim_expr import value as value_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim
from tf2jax_lite.support.errors import OpError

# Upper bound of capacities.
_MAX_CAPACITY = 1 << 26
# Iterations for which a size is followed whose growth depends on it (it doubles, say).
_MAX_FOLLOWED_TRIPS = 1024
# Sizes for which an expression is evaluated to see whether it is constant.
_MAX_SAMPLED_SIZE = 1 << 20
# Traces of a loop in which capacities change.
_MAX_RESIZES = 16


class GrowthError(UnboundedError):
    """A loop variable changes its size, and its capacity is unknown.

    Attributes:
      shapes: by index, of the loop variables that change by a constant, the shapes in the first two iterations.
    """

    def __init__(self, problem: str, shapes: Mapping[int, tuple[Any, Any]] | None = None):
        OpError.__init__(self, problem)
        self.shapes = dict(shapes or {})


@functools.partial(jax.tree_util.register_dataclass, data_fields=["buffer", "counts"], meta_fields=["axes", "is_sure"])
@dataclasses.dataclass(frozen=True)
class PaddedArray:
    """An array that is padded to a capacity.

    Attributes:
      counts: int32 scalars, the actual sizes along ``axes``. Once one has exceeded its capacity, it stays so.
      is_sure: whether no size can exceed its capacity.
    """

    buffer: Any
    counts: tuple[Any, ...]
    axes: tuple[int, ...]
    is_sure: bool

    is_pytree_handle = True

    @classmethod
    def of(cls, value: Any, capacities: Mapping[int, Any], is_sure: bool) -> PaddedArray:
        """Return an array padded to capacities, given by axis."""
        padding = [(0, capacities.get(axis, size) - size, 0) for axis, size in enumerate(value.shape)]
        counts = tuple(jnp.asarray(value.shape[axis]).astype(np.int32) for axis in capacities)
        return cls(lax.pad(value, jnp.zeros((), value.dtype), padding), counts, tuple(capacities), is_sure)

    @property
    def capacities(self) -> dict[int, Any]:
        """The capacity of each dimension that changes."""
        return {axis: self.buffer.shape[axis] for axis in self.axes}

    @property
    def exceeded(self) -> Any:
        """A bool scalar: whether a size has exceeded its capacity."""
        pairs = zip(self.counts, self.capacities.values(), strict=True)
        return functools.reduce(jnp.logical_or, [n > jnp.asarray(limit).astype(np.int32) for n, limit in pairs])

    def stay_exceeded(self, before: PaddedArray) -> PaddedArray:
        """Return the array with sizes of ``before`` that exceeded their capacities."""
        if self.is_sure:
            return self
        capacities = [jnp.asarray(capacity).astype(np.int32) for capacity in self.capacities.values()]
        kept = [
            jnp.where(old > limit, old, new)
            for old, new, limit in zip(before.counts, self.counts, capacities, strict=True)
        ]
        return dataclasses.replace(self, counts=tuple(kept))


class GrowingCarry:
    """The loop variables of a loop that change their sizes.

    Args:
      trips: an upper bound of the trip count; None if unknown.
      can_unroll: whether the loop is to be unrolled instead if all sizes are static then.
    """

    def __init__(self, tracker: DynamicShapes, trips: int | None, is_exact: bool, can_unroll: bool):
        self._tracker = tracker
        self._trips = trips
        self._is_exact = is_exact
        self._can_unroll = can_unroll
        self._starts: dict[int, Any] = {}
        self._capacities: dict[int, dict[int, Any]] = {}
        self._groups: dict[tuple[int, int], int] = {}
        self._before: dict[tuple[int, int], Any] = {}
        self._after: dict[tuple[int, int], Any] = {}
        self._ends: dict[tuple[int, int], Any] = {}
        self._is_sure = True
        self._next = 0
        self._resizes = 0

    def start(self, key: int, value: Any, after: Any) -> Any:
        """Return the initial value of a loop variable that the loop changes.

        Args:
          after: its spec after an iteration, of the same rank and dtype.
        """
        first = self._starts.setdefault(key, value)
        wanted = self._capacities.setdefault(key, {})
        for axis, (size, new) in enumerate(zip(first.shape, after.shape, strict=True)):
            if axis not in wanted and new != size:
                wanted[axis] = self._guess(size, new)
                group = [g for other, g in self._groups.items() if self._size(other) == size]
                self._next += not group
                self._groups[key, axis] = group[0] if group else self._next
        return PaddedArray.of(first, wanted, self._is_sure)

    def _size(self, dim: tuple[int, int]) -> Any:
        key, axis = dim
        return self._starts[key].shape[axis]

    def _guess(self, size: Any, after: Any) -> Any:
        """Return a first capacity, before the growth is known."""
        more = after - size
        return size + more * (self._trips or 1) if isinstance(more, int) and more > 0 else size

    def unpack(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """Return loop variables as an iteration reads them, with data-dependent sizes."""
        leaders: dict[int, Any] = {}
        out = dict(values)
        self._before = {}
        with _shape_errors_as_ours():
            for key, value in values.items():
                if isinstance(value, PaddedArray):
                    out[key] = self._truncated(key, value, leaders, None)
        return out

    def _truncated(self, key: int, value: PaddedArray, leaders: dict[int, Any], capacities: Any) -> Any:
        """Return an array truncated to its actual sizes; those of one group are equal."""
        x = value.buffer
        for axis, count in zip(value.axes, value.counts, strict=True):
            count = leaders.setdefault(self._groups[key, axis], count)
            moved = jnp.moveaxis(x, axis, 0)
            is_sure = capacities is None or value.is_sure
            if capacities is not None and capacities[axis] != moved.shape[0]:
                moved, is_sure = _resized(moved, capacities[axis]), False
            moved = self._tracker.prefix(moved, count, ("padded", id(count)), count, is_sure=is_sure)
            self._before[key, axis] = moved.shape[0]
            x = jnp.moveaxis(moved, 0, axis)
        return x

    def pack(self, key: int, before: Any, after: Any) -> Any:
        """Return a result, padded as before; unchanged if other properties differ."""
        if not isinstance(before, PaddedArray) or not isinstance(after, jax.Array) or after.ndim != before.buffer.ndim:
            return after
        fits = all(axis in before.axes or n == before.buffer.shape[axis] for axis, n in enumerate(after.shape))
        if not fits or after.dtype != before.buffer.dtype:
            return after
        for axis in before.axes:
            self._after[key, axis] = after.shape[axis]
        with _shape_errors_as_ours():
            return PaddedArray.of(after, before.capacities, before.is_sure).stay_exceeded(before)

    def is_stable(self, values: Mapping[int, Any]) -> bool:
        """Return whether `pack` fits the capacities; if not, change them."""
        padded = [key for key, value in values.items() if isinstance(value, PaddedArray)]
        dims = [(key, axis) for key in padded for axis in values[key].axes]
        parts: dict[tuple[int, Any], list[tuple[int, int]]] = {}
        for dim in dims:
            parts.setdefault((self._groups[dim], self._after[dim]), []).append(dim)
        split = len({group for group, _ in parts}) < len(parts)
        capacities = dict.fromkeys(dims) if split else self._needed(list(parts.values()))
        if split:
            for members in parts.values():
                self._next += 1
                self._groups.update(dict.fromkeys(members, self._next))
            return False
        changed = any(capacities[dim] != self._capacities[dim[0]][dim[1]] for dim in dims)
        changed |= any(values[key].is_sure != self._is_sure for key in padded)
        self._resizes += changed
        if self._resizes > _MAX_RESIZES:
            raise GrowthError("nothing tells by how much a loop variable grows in an iteration")
        if self._can_unroll and dims and not changed and all(self._ends[dim] is not None for dim in dims):
            raise GrowthError("sizes change with each iteration, and are known if it is unrolled")
        for (key, axis), capacity in capacities.items():
            self._capacities[key][axis] = capacity
        return not changed

    def restart(self, key: int) -> Any:
        """Return a loop variable's initial value after a change of its capacity."""
        return PaddedArray.of(self._starts[key], self._capacities[key], self._is_sure)

    def _needed(self, parts: list[list[tuple[int, int]]]) -> dict[tuple[int, int], Any]:
        capacities: dict[tuple[int, int], Any] = {}
        for members in parts:
            size, before, after = self._size(members[0]), self._before[members[0]], self._after[members[0]]
            change = _change(size, before, after)
            capacity = self._capacity(size, before, change)
            capacities.update(dict.fromkeys(members, capacity))
            is_known = self._is_exact and isinstance(change, int) and not is_data_dependent(size)
            end = size + change * self._trips if is_known and self._trips is not None else None
            self._ends.update(dict.fromkeys(members, end))
        return capacities

    def _shapes(self) -> dict[int, tuple[Any, Any]]:
        """Return two iterations' shapes of loop variables that change constantly."""
        found = {}
        for key, capacities in self._capacities.items():
            shape = self._starts[key].shape
            second = list(shape)
            for axis in capacities:
                second[axis] += _change(shape[axis], self._before[key, axis], self._after[key, axis])
            if all(isinstance(n, int) for n in (*shape, *second)):
                found[key] = shape, tuple(second)
        return found

    def _capacity(self, size: Any, before: Any, change: Any) -> Any:
        """Return the capacity of a size that starts at ``before`` plus ``change``."""
        change = self._tracker.bound_in_terms_of(change, before)
        more = change if isinstance(change, int) else dim_upper_bound(change)
        if isinstance(more, int) and more <= 0:
            return size
        start = dim_upper_bound(size) if is_data_dependent(size) else size
        if self._trips is None:
            limit = self._tracker.limit
            if limit is None or start is None:
                raise GrowthError(
                    "a loop variable grows with each iteration, and nothing tells how many there are; give "
                    "tf.while_loop maximum_iterations, or convert with override_config('dynamic_shape_bound', n)",
                    self._shapes(),
                )
            self._is_sure = False
            return max_dim(start, limit)
        if isinstance(more, int) and not is_data_dependent(change):
            return size + more * self._trips
        if not isinstance(start, int) or self._trips > _MAX_FOLLOWED_TRIPS:
            raise GrowthError("nothing tells by how much a loop variable grows in an iteration")
        capacity = start
        for _ in range(self._trips):
            needed = self._tracker.upper_bound_where(before + change, before, capacity)
            if needed is None or needed > _MAX_CAPACITY:
                raise GrowthError("nothing tells by how much a loop variable grows in an iteration")
            if needed <= capacity:
                break
            capacity = needed
        return capacity

    def results(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """Return results as arrays of static sizes where known, else dynamic."""
        leaders: dict[int, Any] = {}
        out = dict(values)
        for key, value in values.items():
            if isinstance(value, PaddedArray):
                out[key] = self._result(key, value, leaders)
        return out

    def _result(self, key: int, value: PaddedArray, leaders: dict[int, Any]) -> Any:
        ends = {axis: self._ends[key, axis] for axis in value.axes}
        x = value.buffer
        for axis, end in ends.items():
            if end is not None and end != x.shape[axis]:
                x = lax.slice_in_dim(x, 0, end, axis=axis)
        left = [(axis, n) for axis, n in zip(value.axes, value.counts, strict=True) if ends[axis] is None]
        limit = self._tracker.limit
        rest = PaddedArray(x, tuple(n for _, n in left), tuple(axis for axis, _ in left), value.is_sure)
        return self._truncated(
            key, rest, leaders, {axis: x.shape[axis] if limit is None else limit for axis, _ in left}
        )


@contextlib.contextmanager
def _shape_errors_as_ours() -> Iterator[None]:
    """Raise `GrowthError` for JAX's shape errors, so that the loop may unroll."""
    try:
        yield
    except (TypeError, ValueError, InconclusiveDimensionOperation) as error:
        problem = f"a loop variable changes its size in a way that it cannot be carried in: {error}"
        raise GrowthError(problem.split("\n")[0]) from error


def _change(start: Any, before: Any, after: Any) -> Any:
    """Return the change of a size in an iteration, a number if it is constant."""
    # That of ``x[-1:]`` is 1 only if there is one: a size that starts with 1 at least, and never is less, has one.
    change = after - before
    if isinstance(change, int) or not isinstance(start, int):
        return change
    names = names_in(change)
    if names != names_in(before):
        return change
    found = np.unique(value_of(change, dict.fromkeys(names, np.arange(start + 1, _MAX_SAMPLED_SIZE))))
    return int(found[0]) if found.size == 1 and found[0] >= 0 else change


def _resized(x: Any, size: Any) -> Any:
    """Return an array truncated, or padded with zeros, to a number of rows."""
    if isinstance(x.shape[0], int) and x.shape[0] > size:
        return lax.slice_in_dim(x, 0, size)
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, size - x.shape[0], 0), *[(0, 0, 0)] * (x.ndim - 1)])
