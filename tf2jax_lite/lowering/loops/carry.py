"""What a compiled loop carries from one iteration to the next, brought to a form that does not change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along
from tf2jax_lite.lowering.merging.branch_merge import as_carried, as_traced
from tf2jax_lite.ops.containers.tensor_list_elements import ListGrowthError
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import U32Pair, to_32_bits
from tf2jax_lite.values.tensor_list import ListCapacityError, TensorList

from .growing_carry import Growing, Grown, GrownError
from .trip_count import HostLoop

__all__ = ["Carry", "settle"]

# How often a carry is adapted (lists that grow, lists within lists) before we give up.
_MAX_ATTEMPTS = 8

Values = tuple[list[Any], dict[str, Any]]
"""The carried loop variables in order, and the carried variables by name."""


class _CarryChanged(Exception):
    """The body's results do not have the form of its arguments. Leaves a trace in order to start it anew."""

    _tf2jax_lite_control = True

    def __init__(self, before: Values, after: Values):
        super().__init__("carry changed")
        self.before = before
        self.after = after


class _VariesMore(Exception):
    """The body's results vary between more devices than its arguments, or arrays need more room: the carry knows.

    Leaves a trace in order to start it anew.
    """

    _tf2jax_lite_control = True


class _Room(NamedTuple):
    """How a list is carried; see `TensorList` for what the last two say of the start of an iteration."""

    capacity: Any
    free_slots: int | None
    has_capacity: bool = False


class _Growth(NamedTuple):
    """How long a list gets: the most elements before the loop, how many more after each iteration, and within one."""

    start: Any
    more: Any = 0
    peak: Any = 0

    def at(self, trip: int) -> Any:
        """Returns the most elements at the start of an iteration."""
        return self.start + self.more * trip


@dataclasses.dataclass
class Carry:
    """The initial values of what a loop carries.

    Attributes:
      names: for each carried loop variable its index, and its name in messages.
      data: for each carried loop variable its value.
      variables: the values of the variables that the loop assigns to.
      trips: number of iterations at most, if known.
      host: what is known of the loop's lists, if anything.
      bound: capacity for lists of which nothing tells how long they grow; 0 refuses them.
      pops: whether the loop may take elements away from lists.
      growing: carries arrays that change their sizes; None refuses them.
    """

    names: dict[int | str, str]
    data: dict[int, Any]
    variables: dict[str, Any]
    trips: int | None
    host: HostLoop | None
    bound: int = 0
    pops: bool = False
    growing: Growing | None = None
    _rooms: dict[int | str, _Room] = dataclasses.field(default_factory=dict)
    _growths: dict[int | str, _Growth] = dataclasses.field(default_factory=dict)
    _guessed: set[int | str] = dataclasses.field(default_factory=set)
    _roomy: bool = False
    _careful: bool = False
    _axes: dict[int, frozenset[str]] = dataclasses.field(default_factory=dict)  # by position among the leaves
    _condition: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        # Within a trace, an array made of a known number is not known any more.
        self._zeros = {i for i, v in self.data.items() if _is_zero(v)}
        self.data = {i: as_carried(v) for i, v in self.data.items()}
        self.variables = {name: as_carried(v) for name, v in self.variables.items()}
        lists = {key: v for key, v in (*self.data.items(), *self.variables.items()) if isinstance(v, TensorList)}
        self._were_roomy = {key for key, v in lists.items() if v.has_capacity}
        self._were_traced = {key for key, v in lists.items() if v.is_traced}
        if self.host is not None:
            for i in self.host.resizing & self.data.keys():
                self._make_traced(self.data, i, self._counted(i))

    def initial(self) -> Values:
        """Returns the values that the loop starts with."""
        leaves, tree = jax.tree.flatten((list(self.data.values()), dict(self.variables)))
        none = frozenset[str]()
        return jax.tree.unflatten(tree, [varying_along(x, self._axes.get(i, none)) for i, x in enumerate(leaves)])

    def opened(self, data: list[Any]) -> dict[int, Any]:
        """Returns the carried loop variables as an iteration sees them, by index."""
        found = dict(zip(self.data, data, strict=True))
        return found if self.growing is None else self.growing.opened(found)

    def goes_on(self, condition: Any, data: list[Any]) -> Any:
        """Returns whether the loop goes on: not where an array has outgrown the room that was made for it."""
        for value in data:
            if isinstance(value, Grown) and not value.is_sure:
                condition = jnp.logical_and(condition, jnp.logical_not(value.over))
        return condition

    def check(self, before: Values, after: Values) -> Values:
        """Returns the body's results, in the form of its arguments.

        Raises:
          _CarryChanged: they have another form; `settle` deals with it.
        """
        data = [as_traced(v) for v in after[0]]
        variables = {name: as_traced(v) for name, v in after[1].items()}
        data = [self._like_before(i, old, new) for i, old, new in zip(self.data, before[0], data, strict=True)]
        variables = {name: self._like_before(name, before[1].get(name), new) for name, new in variables.items()}
        if not specs.same_spec(before, (data, variables)):
            raise _CarryChanged(specs.spec_of(before), specs.spec_of((data, variables)))
        if self.growing is not None and not self.growing.settles(dict(zip(self.data, data, strict=True))):
            raise _VariesMore
        return self._as_varied(before, (data, variables))

    def flag(self, value: Any) -> Any:
        """Returns a number that a loop starts with besides, and that varies as its condition does."""
        return varying_along(value, self._condition)

    def check_condition(self, condition: Any) -> Any:
        """Returns whether the loop goes on.

        Raises:
          _VariesMore: it varies between more devices than was known; `settle` deals with it.
        """
        if axes_of(condition) - self._condition:
            self._condition |= axes_of(condition)
            raise _VariesMore
        return self.flag(condition)

    def _as_varied(self, before: Values, after: Values) -> Values:
        """Returns the body's results, varying between devices as its arguments do."""
        (old, _), (new, tree) = jax.tree.flatten(before), jax.tree.flatten(after)
        axes = {i: axes_of(x) | axes_of(y) for i, (x, y) in enumerate(zip(old, new, strict=True))}
        if any(axes[i] != axes_of(x) for i, x in enumerate(old)):
            self._axes = axes
            raise _VariesMore
        return jax.tree.unflatten(tree, [varying_along(x, axes[i]) for i, x in enumerate(new)])

    def finished(self, values: Values) -> tuple[dict[int, Any], Mapping[str, Any]]:
        """Returns the loop's results by index, and its variables; lists of known length have it again."""
        data = {i: self._finished(i, value) for i, value in zip(self.data, values[0], strict=True)}
        if self.growing is not None:
            data = self.growing.finished(data)
        return data, {name: self._finished(name, value) for name, value in values[1].items()}

    def _finished(self, key: int | str, value: Any) -> Any:
        if not isinstance(value, TensorList):
            return value
        if key in self._guessed:
            # A loop around that takes it up anew does not have to make more room each time.
            value = value.invalidated().with_free_slots(None if key in self._were_traced else 0)
        elif self._is_counted(key):
            assert isinstance(key, int) and self.host is not None
            if self.host.exact and (key in self.host.resizing or value.is_traced):
                length = self.host.lists[key].length
                value = dataclasses.replace(_with_room(value, _Room(length, 0), length), has_capacity=False)
            elif value.is_traced:
                value = value.with_free_slots(0)
        elif value.free_slots is not None and key in self._growths:
            free_slots = value.free_slots - self._growths[key].more
            value = value.with_free_slots(free_slots if value.has_capacity else max(free_slots, 0))
        return dataclasses.replace(value, has_capacity=key in self._were_roomy)

    def _like_before(self, key: int | str, old: Any, new: Any) -> Any:
        """Gives a list the marks of the list that it was, if they hold; and a number its one word."""
        if isinstance(new, U32Pair) and not isinstance(old, U32Pair):
            return to_32_bits(new)
        if isinstance(old, Grown) and self.growing is not None and isinstance(key, int):
            return self.growing.closed(key, old, new)
        if not isinstance(old, TensorList) or not isinstance(new, TensorList):
            return _as_spare_as(old, new)
        uniform_element = None if old.uniform_element is None else new.uniform_element
        if not old.is_traced:
            return dataclasses.replace(
                new,
                buffer=_as_spare_as(old.buffer, new.buffer),
                has_capacity=old.has_capacity,
                uniform_element=uniform_element,
            )
        if old.buffer is not None and new.buffer is None:
            new = _with_rows(new, old.buffer, _Room(new.required_capacity, new.free_slots_at(new.required_capacity)))
        if old.buffer is not None and new.buffer is not None and self._has_room(key, old, new):
            # With a count of the elements that are handed on, there are none in what is cut off.
            marks = new if uniform_element is None else dataclasses.replace(new, uniform_element=uniform_element)
            new = _with_room(marks, _Room(old.capacity, old.free_slots, old.has_capacity), new.length)
        length = jnp.asarray(new.length, np.int32)
        buffer = _as_spare_as(old.buffer, new.buffer)
        return dataclasses.replace(
            new,
            buffer=buffer,
            length=length,
            uninitialized_tail=old.uninitialized_tail or new.uninitialized_tail,
            uniform_element=uniform_element,
        )

    def _has_room(self, key: int | str, old: TensorList, new: TensorList) -> bool:
        """Whether a list that an iteration hands on fits the form that the loop carries it in."""
        if self._is_counted(key):
            return True
        if old.free_slots is None or new.free_slots is None:
            return old.free_slots is None and _fits(new.capacity, old.capacity)
        if new.free_slots < 0 and not old.has_capacity:
            raise ListCapacityError("a tensor list takes the place of another whose room the loop around has counted")
        longest = old.length_bound + (self._growths[key].more if key in self._growths else 0)
        return _fits(new.capacity, old.capacity) and (old.limit >= 0 or _fits(new.length_bound, longest))

    def _make_traced(self, where: dict[Any, Any], key: int | str, room: _Room) -> None:
        lst = where[key]
        length = (
            as_carried(np.asarray(lst.length, np.int32))
            if isinstance(lst.length, int)
            else jnp.asarray(lst.length, np.int32)
        )
        where[key] = dataclasses.replace(
            _with_room(lst, room, length), uninitialized_tail=lst.uninitialized_tail or self.pops
        )
        self._rooms[key] = room

    def make_room(self) -> bool:
        """Prepares lists for being written at positions that are not known; False if that is done already."""
        if self._roomy:
            return False
        self._roomy = True
        for i, value in self.data.items():
            if isinstance(value, TensorList) and not value.is_traced:
                room = self._counted(i) if self._is_counted(i) else self._guess(i, value, value.capacity, 1)
                self._make_traced(self.data, i, room)
        return True

    def make_careful(self) -> bool:
        """Prepares lists for being longer within an iteration than what is handed on of them; False if they are."""
        if self._careful:
            return False
        self._careful = True
        counted = [i for i, value in self.data.items() if self._is_counted(i) and value.has_capacity]
        for i in counted:
            self.data[i] = dataclasses.replace(self.data[i], has_capacity=False)
        return bool(counted)

    def _is_counted(self, key: int | str) -> bool:
        return isinstance(key, int) and self.host is not None and key in self.host.capacity

    def _counted(self, key: int | str) -> _Room:
        """Returns the room for a list whose lengths counting the loop has told."""
        assert isinstance(key, int) and self.host is not None
        capacity = self.host.capacity[key]
        return _Room(capacity, capacity - self.host.longest[key], not self._careful)

    def _room(self, key: int | str, before: TensorList, after: TensorList) -> _Room:
        """Returns the room for a list that an iteration changes from one form to another."""
        if self._is_counted(key):
            return self._counted(key)
        growth = self._growths.get(key)
        capacity = _larger(before.capacity, after.capacity)
        if before.has_capacity:  # the loop around has seen to it
            if growth is None or after.free_slots is None or (growth.more and self.trips is None):
                return _Room(capacity, None, True)
            return _Room(capacity, capacity - growth.at(max((self.trips or 1) - 1, 0)), True)
        if before.free_slots is None:
            return _Room(capacity, None)
        if growth is None or after.free_slots is None:
            return self._guess(key, before, before.capacity, after.capacity - before.capacity)
        if _fits(growth.more, 0):
            return _Room(capacity, before.free_slots_at(capacity))
        if before.limit >= 0:
            return _Room(max(before.limit, capacity), 0)
        if self.trips is None:
            return self._guess(key, before, before.capacity, growth.more)
        longest = growth.at(max(self.trips - 1, 0))
        capacity = _larger(before.capacity, longest + growth.peak)
        free_slots = capacity - longest
        return _Room(capacity, free_slots if isinstance(free_slots, int) else 0)

    def _guess(self, key: int | str, lst: TensorList, have: Any, more: Any) -> _Room:
        """Returns the room for a list of which nothing tells for certain how long it grows."""
        if lst.limit >= 0:
            return _Room(max(lst.limit, have + more), None)
        self._guessed.add(key)
        if _fits(more, 0):
            return _Room(have, None)
        if self.trips is not None:
            return _Room(have + more * self.trips, None)
        if self.bound:
            return _Room(max(self.bound, have), None)
        raise OpError(
            f"tensor list {self.names.get(key, key)!r} grows in a loop whose number of iterations is not known while "
            "tracing; give tf.while_loop maximum_iterations, or the TensorArray a size, or convert with "
            "override_config('dynamic_shape_bound', n)"
        )

    def _measure(self, key: int | str, before: TensorList, after: TensorList) -> None:
        """Takes note of how much longer an iteration makes a list."""
        if self._is_counted(key) or before.free_slots is None or after.free_slots is None:
            return
        old = self._growths.get(key, _Growth(before.length_bound))
        more = _larger(old.more, after.length_bound - before.length_bound)
        peak = _larger(old.peak, more)
        if not _fits(after.capacity, before.capacity):  # it has grown within the iteration
            peak = _larger(peak, after.capacity - before.length_bound)
        self._growths[key] = _Growth(old.start, more, peak)

    def renew(self) -> None:
        """Makes the room that arrays which change their sizes turned out to need."""
        if self.growing is not None:
            self.data = {i: self.growing.again(i) if isinstance(v, Grown) else v for i, v in self.data.items()}

    def adapt(self, change: _CarryChanged) -> None:
        """Gives the initial values the form that the body asks for.

        Raises:
          OpError: there is no form that stays.
        """
        adapted = False
        self._axes = {}  # there may be other leaves now
        names = self.names.values()
        pairs = zip(self.data, names, change.before[0], change.after[0], strict=True)
        for key, name, before, after in pairs:
            adapted |= self._adapt_value(self.data, key, name, before, after)
        for name, after in change.after[1].items():
            if name not in change.before[1]:  # the first assignment is inside the loop
                self.variables[name] = specs.coerce(None, after)
                adapted = True
            else:
                adapted |= self._adapt_value(self.variables, name, name, change.before[1][name], after)
        if not adapted:
            raise OpError(f"the form of the loop variables does not settle ({', '.join(names)})")

    def _with_room(self, key: int | str, name: str, before: Any, after: Any, value: Any) -> Any:
        """Returns what an array starts as that an iteration gives another size."""
        if self.growing is None or not isinstance(key, int):
            raise _changes(name, before, after, GrownError)
        return self.growing.start(key, value, after)

    def _adapt_value(self, where: dict[Any, Any], key: int | str, name: str, before: Any, after: Any) -> bool:
        """Changes one initial value, if it has to be."""
        if isinstance(before, TensorList) and isinstance(after, TensorList):
            self._measure(key, before, after)
        if specs.same_spec(before, after):
            return False
        if isinstance(after, TensorList) and after.owner and key in self._zeros:
            # TF1's gradients of TensorArrays are added up from the number 0.
            where[key] = specs.coerce(None, after)
            return True
        if _is_resized(before, after):
            where[key] = self._with_room(key, name, before, after, where[key])
            return True
        if type(before) is not type(after) or not hasattr(after, "coerce"):
            raise _changes(name, before, after)
        value = where[key]
        if isinstance(before, TensorList) and before.uniform_element is not None and after.uniform_element is None:
            where[key] = dataclasses.replace(value, uniform_element=None)
            return True
        if not isinstance(before, TensorList):
            where[key] = as_traced(specs.coerce(value, specs.join_specs([before, after])))
        elif before.buffer is None and after.buffer is not None:
            room = self._rooms.get(key, _Room(before.required_capacity, before.free_slots_at(before.required_capacity)))
            where[key] = _with_rows(value, after.buffer, room)
        elif not before.is_traced:
            self._make_traced(where, key, self._room(key, before, after))
        elif not _same_elements(before, after):
            # Elements that are lists or optionals: their common form.
            form = before.common_spec(after)
            count = before.capacity
            rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), form.buffer)
            marks = {
                "has_capacity": value.has_capacity,
                "free_slots": value.free_slots,
                "uninitialized_tail": value.uninitialized_tail,
            }
            where[key] = as_traced(value.coerce(dataclasses.replace(form, buffer=rows, **marks)))
        elif after.capacity != before.capacity or after.free_slots != before.free_slots:
            self._make_traced(where, key, self._room(key, before, after))
        elif after.uninitialized_tail and not before.uninitialized_tail:
            where[key] = dataclasses.replace(value, uninitialized_tail=True)
        else:
            raise _changes(name, before, after)
        return True


def _is_resized(before: Any, after: Any) -> bool:
    """Whether nothing but the sizes of an array is another after an iteration."""
    was = before.buffer if isinstance(before, Grown) else before
    if not isinstance(was, jax.ShapeDtypeStruct) or not isinstance(after, jax.ShapeDtypeStruct):
        return False
    return was.ndim == after.ndim and was.dtype == after.dtype


def _changes(name: str, before: Any, after: Any, error: type[OpError] = OpError) -> OpError:
    text = (
        f"loop variable {name!r} changes its shape or dtype between iterations, from {specs.format_spec(before)} to "
        f"{specs.format_spec(after)}; JAX loops carry fixed ones. Loops of few iterations whose condition is known "
        "while tracing (outside jax.jit it always is) are unrolled instead"
    )
    if issubclass(error, GrownError):
        text += "; for others convert with override_config('dynamic_shape_bound', n), the upper bound of its sizes"
    return error(text)


def _as_spare_as(old: Any, new: Any) -> Any:
    """Gives the lists within a value the marks of those that they were, where they hold."""
    if isinstance(old, TensorList) and isinstance(new, TensorList) and old.is_traced and new.is_traced:
        holds = old.free_slots is None or (new.free_slots is not None and new.free_slots >= old.free_slots)
        free_slots = old.free_slots if holds and new.capacity == old.capacity else new.free_slots
        return dataclasses.replace(
            new,
            has_capacity=old.has_capacity,
            free_slots=free_slots,
            uninitialized_tail=old.uninitialized_tail or new.uninitialized_tail,
        )
    (mine, tree), (others, other) = jax.tree.flatten(old, is_leaf=_is_list), jax.tree.flatten(new, is_leaf=_is_list)
    if tree != other or not any(map(_is_list, others)) or (len(others) == 1 and others[0] is new):
        return new
    return jax.tree.unflatten(tree, [_as_spare_as(a, b) for a, b in zip(mine, others, strict=True)])


def _is_list(value: Any) -> bool:
    return isinstance(value, TensorList)


def _fits(a: Any, b: Any) -> bool:
    """Whether one count is known to be no more than another."""
    more = b - a
    return isinstance(more, int) and more >= 0


def _larger(a: Any, b: Any) -> Any:
    return a if _fits(b, a) else b


def _with_rows(lst: TensorList, like: Any, room: _Room) -> TensorList:
    """Returns a list whose elements are not known with a buffer of zeros, like another buffer."""
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((room.capacity, *leaf.shape[1:]), leaf.dtype), like)
    return lst.with_buffer(specs.coerce(None, rows)).with_free_slots(room.free_slots)


def _with_room(lst: TensorList, room: _Room, length: Any) -> TensorList:
    """Returns a packed list with room for so many elements, and its length in another form."""
    resized = lst.with_capacity(room.capacity)
    resized = dataclasses.replace(
        resized.with_buffer(resized.buffer, length), uniform_element=lst.uniform_element, has_capacity=room.has_capacity
    )
    free_slots = room.free_slots
    if resized.buffer is None and free_slots is not None and resized.is_traced:
        free_slots -= room.capacity  # it has no places yet
    return resized.with_free_slots(free_slots)


def _is_zero(value: Any) -> bool:
    found = values.static_value(value)
    return found is not None and found.shape == () and not found


def _same_elements(a: TensorList, b: TensorList) -> bool:
    def row(lst: TensorList) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), lst.buffer)

    return specs.same_spec(row(a), row(b))


def settle(carry: Carry, attempt: Callable[[], Values]) -> tuple[dict[int, Any], Mapping[str, Any]]:
    """Traces a loop until its carry has a form that stays, and returns results by index, and variables.

    Args:
      carry: the initial values; they are adapted in place.
      attempt: traces the loop and returns what it carries at the end; it checks its body's results with `Carry.check`.

    Raises:
      OpError: there is no form that stays.
    """
    attempts = 0
    while attempts < _MAX_ATTEMPTS:
        attempts += 1
        try:
            return carry.finished(attempt())
        except _CarryChanged as change:
            carry.adapt(change)
        except _VariesMore:
            carry.renew()
            attempts -= 1  # the carry knows; one value after the other may be reached, so this may take many
        except LoweringError as error:
            needed = isinstance(error.__cause__, ListGrowthError) and carry.make_room()
            if not needed and not (isinstance(error.__cause__, ListCapacityError) and carry.make_careful()):
                raise
    raise OpError(f"the form of the loop variables does not settle ({', '.join(carry.names.values())})")
