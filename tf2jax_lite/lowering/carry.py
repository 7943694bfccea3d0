"""What a compiled loop carries from one iteration to the next, brought to a form that does not change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.errors import LoweringError, OpError
from tf2jax_lite.ops import forms, values
from tf2jax_lite.ops.manual_axes import axes_of, varying_along
from tf2jax_lite.ops.tensor_list import TensorList, resized
from tf2jax_lite.ops.tensor_list_ops import ListNeedsRoomError
from tf2jax_lite.ops.words import Words, narrow

from .joins import as_carried, as_traced
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
    """The body's results vary between more devices than its arguments. Leaves a trace in order to start it anew."""

    _tf2jax_lite_control = True


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
    """

    names: dict[int | str, str]
    data: dict[int, Any]
    variables: dict[str, Any]
    trips: int | None
    host: HostLoop | None
    bound: int = 0
    _capacities: dict[int | str, Any] = dataclasses.field(default_factory=dict)
    _guessed: set[int | str] = dataclasses.field(default_factory=set)
    _roomy: bool = False
    _axes: dict[int, frozenset[str]] = dataclasses.field(default_factory=dict)  # by position among the leaves
    _condition: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        # Within a trace, an array made of a known number is not known any more.
        self._zeros = {i for i, v in self.data.items() if _is_zero(v)}
        self.data = {i: as_carried(v) for i, v in self.data.items()}
        self.variables = {name: as_carried(v) for name, v in self.variables.items()}
        self._were_roomy = {key for key, v in (*self.data.items(), *self.variables.items()) if _is_roomy(v)}
        if self.host is not None:
            for i in self.host.resizing & self.data.keys():
                self._make_traced(self.data, i, self.host.capacity[i])

    def initial(self) -> Values:
        """Returns the values that the loop starts with."""
        leaves, tree = jax.tree.flatten((list(self.data.values()), dict(self.variables)))
        none = frozenset[str]()
        return jax.tree.unflatten(tree, [varying_along(x, self._axes.get(i, none)) for i, x in enumerate(leaves)])

    def check(self, before: Values, after: Values) -> Values:
        """Returns the body's results, in the form of its arguments.

        Raises:
          _CarryChanged: they have another form; `settle` deals with it.
        """
        data = [as_traced(v) for v in after[0]]
        variables = {name: as_traced(v) for name, v in after[1].items()}
        data = [_like_before(old, new) for old, new in zip(before[0], data, strict=True)]
        variables = {name: _like_before(before[1].get(name), new) for name, new in variables.items()}
        if not forms.same_form(before, (data, variables)):
            raise _CarryChanged(forms.form_of(before), forms.form_of((data, variables)))
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
        return data, {name: self._finished(name, value) for name, value in values[1].items()}

    def _finished(self, key: int | str, value: Any) -> Any:
        if not isinstance(value, TensorList):
            return value
        if key in self._guessed:
            value = value.poisoned()
        elif isinstance(key, int) and self.host is not None and self.host.exact and key in self.host.resizing:
            length = self.host.lists[key].length
            value = _with_capacity(value, length, length)
        return dataclasses.replace(value, roomy=key in self._were_roomy)

    def _make_traced(self, where: dict[Any, Any], key: int | str, capacity: Any) -> None:
        lst = where[key]
        length = (
            as_carried(np.asarray(lst.length, np.int32))
            if isinstance(lst.length, int)
            else jnp.asarray(lst.length, np.int32)
        )
        where[key] = dataclasses.replace(_with_capacity(lst, capacity, length), roomy=True)
        self._capacities[key] = capacity

    def make_room(self) -> bool:
        """Prepares lists for being written at positions that are not known; False if that is done already."""
        if self._roomy:
            return False
        self._roomy = True
        for i, value in self.data.items():
            if isinstance(value, TensorList) and not value.is_traced:
                self._make_traced(self.data, i, self._capacity(i, value, value.capacity, 1))
        return True

    def _capacity(self, key: int | str, lst: TensorList, have: Any, more: Any) -> Any:
        if isinstance(key, int) and self.host is not None and key in self.host.capacity:
            return self.host.capacity[key]
        if isinstance(more, int) and more <= 0:
            return have
        if lst.limit >= 0:
            return max(lst.limit, have)
        if self.trips is not None:
            if self._roomy:
                self._guessed.add(key)
            return have + more * self.trips
        if self.bound:
            self._guessed.add(key)
            return max(self.bound, have)
        raise OpError(
            f"tensor list {self.names.get(key, key)!r} grows in a loop whose number of iterations is not known while "
            "tracing; give tf.while_loop maximum_iterations, or the TensorArray a size, or convert with "
            "override_config('dynamic_shape_bound', n)"
        )

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
                self.variables[name] = forms.fitted(None, after)
                adapted = True
            else:
                adapted |= self._adapt_value(self.variables, name, name, change.before[1][name], after)
        if not adapted:
            raise OpError(f"the form of the loop variables does not settle ({', '.join(names)})")

    def _adapt_value(self, where: dict[Any, Any], key: int | str, name: str, before: Any, after: Any) -> bool:
        """Changes one initial value, if it has to be."""
        if forms.same_form(before, after):
            return False
        if isinstance(after, TensorList) and after.owner and key in self._zeros:
            # TF1's gradients of TensorArrays are added up from the number 0.
            where[key] = forms.fitted(None, after)
            return True
        if type(before) is not type(after) or not hasattr(after, "fitted"):
            raise _changes(name, before, after)
        value = where[key]
        if isinstance(before, TensorList) and before.alike is not None and after.alike is None:
            where[key] = dataclasses.replace(value, alike=None)
            return True
        if not isinstance(before, TensorList):
            where[key] = as_traced(forms.fitted(value, forms.joint_form([before, after])))
        elif before.buffer is None and after.buffer is not None:
            count = self._capacities.get(key, before.capacity)
            rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), after.buffer)
            where[key] = value.with_buffer(forms.fitted(None, rows))
        elif not before.is_traced:
            more = after.capacity - before.capacity
            self._make_traced(where, key, self._capacity(key, before, before.capacity, more))
        elif not _same_elements(before, after):
            # Elements that are lists or optionals: their common form.
            form = before.common_form(after)
            count = before.capacity
            rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), form.buffer)
            where[key] = as_traced(value.fitted(dataclasses.replace(form, buffer=rows, roomy=value.roomy)))
        elif after.capacity != before.capacity:
            more = after.capacity - before.capacity
            self._make_traced(where, key, self._capacity(key, before, before.capacity, more))
        else:
            raise _changes(name, before, after)
        return True


def _changes(name: str, before: Any, after: Any) -> OpError:
    return OpError(
        f"loop variable {name!r} changes its shape or dtype between iterations, from {forms.shown(before)} to "
        f"{forms.shown(after)}; JAX loops carry fixed ones. Loops of few iterations whose condition is known while "
        "tracing (outside jax.jit it always is) are unrolled instead"
    )


def _is_roomy(value: Any) -> bool:
    return isinstance(value, TensorList) and value.roomy


def _like_before(old: Any, new: Any) -> Any:
    """Gives a list the marks of the list that it was: they say nothing of its contents; and a number its one word."""
    if isinstance(new, Words) and not isinstance(old, Words):
        return narrow(new)
    if not isinstance(old, TensorList) or not isinstance(new, TensorList):
        return new
    length = jnp.asarray(new.length, np.int32) if old.is_traced else new.length
    return dataclasses.replace(new, length=length, roomy=old.roomy, alike=None if old.alike is None else new.alike)


def _with_capacity(lst: TensorList, capacity: Any, length: Any) -> TensorList:
    """Returns a packed list with room for so many elements, and its length in another form."""
    return dataclasses.replace(lst.with_buffer(resized(lst, capacity), length), alike=lst.alike)


def _is_zero(value: Any) -> bool:
    found = values.known(value)
    return found is not None and found.shape == () and not found


def _same_elements(a: TensorList, b: TensorList) -> bool:
    def row(lst: TensorList) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), lst.buffer)

    return forms.same_form(row(a), row(b))


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
            attempts -= 1  # the carry knows; one value after the other may be reached, so this may take many
        except LoweringError as error:
            if not isinstance(error.__cause__, ListNeedsRoomError) or not carry.make_room():
                raise
    raise OpError(f"the form of the loop variables does not settle ({', '.join(carry.names.values())})")
