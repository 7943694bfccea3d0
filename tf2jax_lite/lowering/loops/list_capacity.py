"""Capacities of the tensor lists that a loop carries.

A carried list has a buffer of fixed size: its capacity. Where the loop was folded, the lengths of lists in all
iterations are known (`trip_count.FoldedLoop`). Elsewhere a trace of the body tells by how much an iteration extends a
list, and the capacity is that times the trip count; where neither is known, it is the bound that was configured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.lowering.merging.branch_merge import as_carried, as_traced
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.tensor_list import ListCapacityError, TensorList

from .trip_count import FoldedLoop

Key = int | str
"""The index of a loop variable, or the name of a variable."""


class _Capacity(NamedTuple):
    """A list's capacity in a carry, and `TensorList`'s flags before iterations.

    Attributes:
      slots: the number of elements that the buffer has.
      free: the number of them that are free for sure; None if unknown.
      suffices: whether the loop never needs more.
    """

    slots: Any
    free: int | None
    suffices: bool = False


class _Growth(NamedTuple):
    """The length of a list over iterations: upper bounds.

    Attributes:
      start: elements before the loop.
      peak: elements that it adds before it removes some.
    """

    start: Any
    more: Any = 0
    peak: Any = 0

    def at(self, trip: int) -> Any:
        """Return the upper bound at the start of an iteration."""
        return self.start + self.more * trip


class ListCapacities:
    """The capacities of the lists that a loop carries.

    Args:
      names: for each carried loop variable its name in messages.
      trips: an upper bound of the trip count; None if unknown.
      bound: the capacity of lists whose growth is unknown; 0 raises an error for them.
      pops: whether the loop may remove elements from lists.
    """

    def __init__(
        self,
        names: Mapping[Key, str],
        lists: Mapping[Key, TensorList],
        trips: int | None,
        folded: FoldedLoop | None,
        bound: int,
        pops: bool,
    ):
        self._names = names
        self._trips = trips
        self._folded = folded
        self._bound = bound
        self._pops = pops
        self._sufficed = {key for key, v in lists.items() if v.has_capacity}
        self._were_traced = {key for key, v in lists.items() if v.is_traced}
        self._chosen: dict[Key, _Capacity] = {}
        self._growths: dict[Key, _Growth] = {}
        self._guessed: set[Key] = set()
        self._writes_anywhere = False
        self._exceeds_inside = False

    def start(self, data: Mapping[int, Any]) -> dict[int, Any]:
        """Return initial loop variables; lists of changing length are traced."""
        resizing = set() if self._folded is None else self._folded.resizing
        return {i: self._traced(i, v, self._counted(i)) if i in resizing else v for i, v in data.items()}

    def allow_writes_anywhere(self, data: Mapping[int, Any]) -> dict[int, Any] | None:
        """Return loop variables for writes at traced positions; None if they are."""
        if self._writes_anywhere:
            return None
        self._writes_anywhere = True
        out = dict(data)
        for i, value in data.items():
            if isinstance(value, TensorList) and not value.is_traced:
                capacity = self._counted(i) if self._is_counted(i) else self._guess(i, value, value.capacity, 1)
                out[i] = self._traced(i, value, capacity)
        return out

    def allow_longer_inside(self, data: Mapping[int, Any]) -> dict[int, Any] | None:
        """Return loop variables for lists longer inside; None if none can be."""
        if self._exceeds_inside:
            return None
        self._exceeds_inside = True
        counted = [i for i, value in data.items() if self._is_counted(i) and value.has_capacity]
        return {**data, **{i: dataclasses.replace(data[i], has_capacity=False) for i in counted}} if counted else None

    def result(self, key: Key, value: TensorList) -> TensorList:
        """Return a list after the loop; a list of static length has it again."""
        if key in self._guessed:
            # An enclosing loop that carries it need not extend it in each iteration.
            value = value.invalidated().with_free_slots(None if key in self._were_traced else 0)
        elif self._is_counted(key):
            assert isinstance(key, int) and self._folded is not None
            if self._folded.exact and (key in self._folded.resizing or value.is_traced):
                length = self._folded.lists[key].length
                value = dataclasses.replace(_with_capacity(value, _Capacity(length, 0), length), has_capacity=False)
            elif value.is_traced:
                value = value.with_free_slots(0)
        elif value.free_slots is not None and key in self._growths:
            free = value.free_slots - self._growths[key].more
            value = value.with_free_slots(free if value.has_capacity else max(free, 0))
        return dataclasses.replace(value, has_capacity=key in self._sufficed)

    def like_before(self, key: Key, old: TensorList, new: TensorList) -> TensorList:
        """Return an iteration's list with flags and capacity before it, if they hold."""
        uniform = None if old.uniform_element is None else new.uniform_element
        if not old.is_traced:
            return dataclasses.replace(
                new,
                buffer=with_flags_of(old.buffer, new.buffer),
                has_capacity=old.has_capacity,
                uniform_element=uniform,
            )
        if old.buffer is not None and new.buffer is None:
            new = _with_rows(
                new, old.buffer, _Capacity(new.required_capacity, new.free_slots_at(new.required_capacity))
            )
        if old.buffer is not None and new.buffer is not None and self._fits(key, old, new):
            # With a count of the elements after an iteration, none is cut off.
            flagged = new if uniform is None else dataclasses.replace(new, uniform_element=uniform)
            new = _with_capacity(flagged, _Capacity(old.capacity, old.free_slots, old.has_capacity), new.length)
        length = jnp.asarray(new.length, np.int32)
        buffer = with_flags_of(old.buffer, new.buffer)
        return dataclasses.replace(
            new,
            buffer=buffer,
            length=length,
            uninitialized_tail=old.uninitialized_tail or new.uninitialized_tail,
            uniform_element=uniform,
        )

    def _fits(self, key: Key, old: TensorList, new: TensorList) -> bool:
        """Return whether a list after an iteration fits the carried capacity."""
        if self._is_counted(key):
            return True
        if old.free_slots is None or new.free_slots is None:
            return old.free_slots is None and _is_at_most(new.capacity, old.capacity)
        if new.free_slots < 0 and not old.has_capacity:
            raise ListCapacityError("a tensor list replaces another whose capacity the enclosing loop has counted")
        longest = old.length_bound + (self._growths[key].more if key in self._growths else 0)
        return _is_at_most(new.capacity, old.capacity) and (old.limit >= 0 or _is_at_most(new.length_bound, longest))

    def measure(self, key: Key, before: TensorList, after: TensorList) -> None:
        """Note by how much an iteration extends a list."""
        if self._is_counted(key) or before.free_slots is None or after.free_slots is None:
            return
        old = self._growths.get(key, _Growth(before.length_bound))
        more = _larger(old.more, after.length_bound - before.length_bound)
        peak = _larger(old.peak, more)
        if not _is_at_most(after.capacity, before.capacity):  # it was extended within the iteration
            peak = _larger(peak, after.capacity - before.length_bound)
        self._growths[key] = _Growth(old.start, more, peak)

    def widened(self, key: Key, value: TensorList, before: TensorList, after: TensorList) -> TensorList | None:
        """Return the initial list for a body that changes it; None if none fits."""
        if before.uniform_element is not None and after.uniform_element is None:
            return dataclasses.replace(value, uniform_element=None)
        if before.buffer is None and after.buffer is not None:
            chosen = self._chosen.get(
                key, _Capacity(before.required_capacity, before.free_slots_at(before.required_capacity))
            )
            return _with_rows(value, after.buffer, chosen)
        if not before.is_traced:
            return self._traced(key, value, self._changed(key, before, after))
        if not _same_elements(before, after):
            # Elements that are lists or optionals: the join of their specs.
            spec, slots = before.common_spec(after), before.capacity
            rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((slots, *leaf.shape[1:]), leaf.dtype), spec.buffer)
            flags = {
                "has_capacity": value.has_capacity,
                "free_slots": value.free_slots,
                "uninitialized_tail": value.uninitialized_tail,
            }
            return as_traced(value.coerce(dataclasses.replace(spec, buffer=rows, **flags)))
        if after.capacity != before.capacity or after.free_slots != before.free_slots:
            return self._traced(key, value, self._changed(key, before, after))
        return (
            dataclasses.replace(value, uninitialized_tail=True)
            if after.uninitialized_tail and not before.uninitialized_tail
            else None
        )

    def _traced(self, key: Key, value: TensorList, capacity: _Capacity) -> TensorList:
        """Return a list of traced length."""
        self._chosen[key] = capacity
        is_static = isinstance(value.length, int)
        length = as_carried(np.asarray(value.length, np.int32)) if is_static else jnp.asarray(value.length, np.int32)
        return dataclasses.replace(
            _with_capacity(value, capacity, length), uninitialized_tail=value.uninitialized_tail or self._pops
        )

    def _is_counted(self, key: Key) -> bool:
        return isinstance(key, int) and self._folded is not None and key in self._folded.capacity

    def _counted(self, key: Key) -> _Capacity:
        """Return the capacity of a list whose lengths are known from folding the loop."""
        assert isinstance(key, int) and self._folded is not None
        slots = self._folded.capacity[key]
        return _Capacity(slots, slots - self._folded.longest[key], not self._exceeds_inside)

    def _changed(self, key: Key, before: TensorList, after: TensorList) -> _Capacity:
        """Return the capacity of a list that an iteration changes."""
        if self._is_counted(key):
            return self._counted(key)
        growth = self._growths.get(key)
        slots = _larger(before.capacity, after.capacity)
        if before.has_capacity:  # the enclosing loop has counted
            if growth is None or after.free_slots is None or (growth.more and self._trips is None):
                return _Capacity(slots, None, True)
            return _Capacity(slots, slots - growth.at(max((self._trips or 1) - 1, 0)), True)
        if before.free_slots is None:
            return _Capacity(slots, None)
        if growth is None or after.free_slots is None:
            return self._guess(key, before, before.capacity, after.capacity - before.capacity)
        if _is_at_most(growth.more, 0):
            return _Capacity(slots, before.free_slots_at(slots))
        if before.limit >= 0:
            return _Capacity(max(before.limit, slots), 0)
        if self._trips is None:
            return self._guess(key, before, before.capacity, growth.more)
        longest = growth.at(max(self._trips - 1, 0))
        slots = _larger(before.capacity, longest + growth.peak)
        free = slots - longest
        return _Capacity(slots, free if isinstance(free, int) else 0)

    def _guess(self, key: Key, lst: TensorList, slots: Any, more: Any) -> _Capacity:
        """Return the capacity of a list whose growth is not known for sure."""
        if lst.limit >= 0:
            return _Capacity(max(lst.limit, slots + more), None)
        self._guessed.add(key)
        if _is_at_most(more, 0):
            return _Capacity(slots, None)
        if self._trips is not None:
            return _Capacity(slots + more * self._trips, None)
        if self._bound:
            return _Capacity(max(self._bound, slots), None)
        raise OpError(
            f"tensor list {self._names.get(key, key)!r} grows in a loop whose number of iterations is not known while "
            "tracing; give tf.while_loop maximum_iterations, or the TensorArray a size, or convert with "
            "override_config('dynamic_shape_bound', n)"
        )


def with_flags_of(old: Any, new: Any) -> Any:
    """Return a value whose lists have the flags of those before, where they hold."""
    if isinstance(old, TensorList) and isinstance(new, TensorList) and old.is_traced and new.is_traced:
        holds = old.free_slots is None or (new.free_slots is not None and new.free_slots >= old.free_slots)
        free = old.free_slots if holds and new.capacity == old.capacity else new.free_slots
        return dataclasses.replace(
            new,
            has_capacity=old.has_capacity,
            free_slots=free,
            uninitialized_tail=old.uninitialized_tail or new.uninitialized_tail,
        )
    (mine, tree), (others, other) = jax.tree.flatten(old, is_leaf=_is_list), jax.tree.flatten(new, is_leaf=_is_list)
    if tree != other or not any(map(_is_list, others)) or (len(others) == 1 and others[0] is new):
        return new
    return jax.tree.unflatten(tree, [with_flags_of(a, b) for a, b in zip(mine, others, strict=True)])


def _is_list(value: Any) -> bool:
    return isinstance(value, TensorList)


def _is_at_most(a: Any, b: Any) -> bool:
    """Return whether one count is at most another, for sure."""
    difference = b - a
    return isinstance(difference, int) and difference >= 0


def _larger(a: Any, b: Any) -> Any:
    return a if _is_at_most(b, a) else b


def _with_rows(lst: TensorList, like: Any, capacity: _Capacity) -> TensorList:
    """Return a list without a buffer with one of zeros, like another buffer."""
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((capacity.slots, *leaf.shape[1:]), leaf.dtype), like)
    return lst.with_buffer(specs.coerce(None, rows)).with_free_slots(capacity.free)


def _with_capacity(lst: TensorList, capacity: _Capacity, length: Any) -> TensorList:
    """Return a packed list with another capacity, and its length as given."""
    resized = lst.with_capacity(capacity.slots)
    resized = dataclasses.replace(
        resized.with_buffer(resized.buffer, length), uniform_element=lst.uniform_element, has_capacity=capacity.suffices
    )
    free = capacity.free
    if resized.buffer is None and free is not None and resized.is_traced:
        free -= capacity.slots  # it has no slots yet
    return resized.with_free_slots(free)


def _same_elements(a: TensorList, b: TensorList) -> bool:
    def row(lst: TensorList) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), lst.buffer)

    return specs.same_spec(row(a), row(b))
