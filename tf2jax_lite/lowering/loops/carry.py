"""The carry of a compiled loop, with types that no iteration changes.

The loop is traced until the body's results have the types of its arguments (`find_fixpoint`): what an iteration changes
widens the initial values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along
from tf2jax_lite.lowering.merging.branch_merge import as_carried, as_traced
from tf2jax_lite.ops.containers.tensor_list import ListGrowthError
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.support.retrace import retrace
from tf2jax_lite.values import specs
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import U32Pair, to_32_bits
from tf2jax_lite.values.tensor_list import ListCapacityError, TensorList

from .growing_carry import GrowingCarry, GrowthError, PaddedArray
from .list_capacity import ListCapacities, with_flags_of
from .trip_count import FoldedLoop

# Traces of a loop in which its carry is widened (lists that grow, lists within lists).
_MAX_ATTEMPTS = 8

Values = tuple[list[Any], dict[str, Any]]
"""The carried loop variables in order, and the carried variables by name."""


class _CarryChanged(Exception):
    """The body's results have other types than its arguments.

    Leaves a trace in order to start again.
    """

    _tf2jax_lite_control = True

    def __init__(self, before: Values, after: Values):
        super().__init__("carry changed")
        self.before = before
        self.after = after


class _Resized(Exception):
    """The carry needs more mesh axes or capacity, which it has recorded.

    Leaves a trace in order to start again.
    """

    _tf2jax_lite_control = True


class Carry:
    """The initial values of a loop's carry.

    Args:
      names: for each carried loop variable its index, and its name in messages.
      trips: an upper bound of the trip count; None if unknown.
      bound: the capacity of lists whose growth is unknown; 0 raises an error for them.
      pops: whether the loop may remove elements from lists.
      growing: carries arrays that change their sizes; None raises an error for them.
    """

    def __init__(
        self,
        names: dict[int | str, str],
        data: dict[int, Any],
        variables: dict[str, Any],
        trips: int | None,
        folded: FoldedLoop | None,
        *,
        bound: int = 0,
        pops: bool = False,
        growing: GrowingCarry | None = None,
    ):
        self.names = names
        # Within a trace, an array that is made of a static number is not static any more.
        self._zeros = {i for i, v in data.items() if _is_zero(v)}
        self.variables = {name: as_carried(v) for name, v in variables.items()}
        data = {i: as_carried(v) for i, v in data.items()}
        lists = {key: v for key, v in (*data.items(), *self.variables.items()) if isinstance(v, TensorList)}
        self.lists = ListCapacities(names, lists, trips, folded, bound, pops)
        self.data = self.lists.start(data)
        self.growing = growing
        self._axes: dict[int, frozenset[str]] = {}  # mesh axes by position among the leaves
        self._condition = frozenset[str]()

    def initial(self) -> Values:
        """Return the values that the loop starts with."""
        leaves, tree = jax.tree.flatten((list(self.data.values()), dict(self.variables)))
        none = frozenset[str]()
        return jax.tree.unflatten(tree, [varying_along(x, self._axes.get(i, none)) for i, x in enumerate(leaves)])

    def unpack(self, data: list[Any]) -> dict[int, Any]:
        """Return the carried loop variables as an iteration reads them, by index."""
        found = dict(zip(self.data, data, strict=True))
        return found if self.growing is None else self.growing.unpack(found)

    def keep_running(self, condition: Any, data: list[Any]) -> Any:
        """Return whether the loop continues; not if an array exceeds its capacity."""
        for value in data:
            if isinstance(value, PaddedArray) and not value.is_sure:
                condition = jnp.logical_and(condition, jnp.logical_not(value.exceeded))
        return condition

    def check(self, before: Values, after: Values) -> Values:
        """Return the body's results with the types of its arguments.

        Raises:
          _CarryChanged: they have other types; see `find_fixpoint`.
          _Resized: they vary along more axes, or need a larger capacity.
        """
        data = [as_traced(v) for v in after[0]]
        variables = {name: as_traced(v) for name, v in after[1].items()}
        data = [self._like_before(i, old, new) for i, old, new in zip(self.data, before[0], data, strict=True)]
        variables = {name: self._like_before(name, before[1].get(name), new) for name, new in variables.items()}
        if not specs.same_spec(before, (data, variables)):
            raise _CarryChanged(specs.spec_of(before), specs.spec_of((data, variables)))
        if self.growing is not None and not self.growing.is_stable(dict(zip(self.data, data, strict=True))):
            raise _Resized
        return self._with_axes(before, (data, variables))

    def flag(self, value: Any) -> Any:
        """Return a scalar that the loop carries besides, varying as its condition does."""
        return varying_along(value, self._condition)

    def check_condition(self, condition: Any) -> Any:
        """Return the condition, varying as the flags do.

        Raises:
          _Resized: it varies along more axes than was known; see `find_fixpoint`.
        """
        if axes_of(condition) - self._condition:
            self._condition |= axes_of(condition)
            raise _Resized
        return self.flag(condition)

    def _with_axes(self, before: Values, after: Values) -> Values:
        """Return the body's results, varying along the axes of its arguments."""
        (old, _), (new, tree) = jax.tree.flatten(before), jax.tree.flatten(after)
        axes = {i: axes_of(x) | axes_of(y) for i, (x, y) in enumerate(zip(old, new, strict=True))}
        if any(axes[i] != axes_of(x) for i, x in enumerate(old)):
            self._axes = axes
            raise _Resized
        return jax.tree.unflatten(tree, [varying_along(x, axes[i]) for i, x in enumerate(new)])

    def results(self, values: Values) -> tuple[dict[int, Any], Mapping[str, Any]]:
        """Return the loop's results by index, and its variables, given the last carry."""

        def result(key: int | str, value: Any) -> Any:
            return self.lists.result(key, value) if isinstance(value, TensorList) else value

        data = {i: result(i, value) for i, value in zip(self.data, values[0], strict=True)}
        if self.growing is not None:
            data = self.growing.results(data)
        return data, {name: result(name, value) for name, value in values[1].items()}

    def _like_before(self, key: int | str, old: Any, new: Any) -> Any:
        """Return an iteration's value in its representation before, if it holds."""
        # Lists keep flags and capacity, 64-bit integers that were one word become one word again.
        if isinstance(new, U32Pair) and not isinstance(old, U32Pair):
            return to_32_bits(new)
        if isinstance(old, PaddedArray) and self.growing is not None and isinstance(key, int):
            return self.growing.pack(key, old, new)
        if isinstance(old, TensorList) and isinstance(new, TensorList):
            return self.lists.like_before(key, old, new)
        return with_flags_of(old, new)

    def allow_writes_anywhere(self) -> bool:
        """Prepare lists for writes at traced positions; False if they are already."""
        found = self.lists.allow_writes_anywhere(self.data)
        self.data = self.data if found is None else found
        return found is not None

    def allow_longer_inside(self) -> bool:
        """Prepare lists for being longer inside an iteration; False if they are."""
        found = self.lists.allow_longer_inside(self.data)
        self.data = self.data if found is None else found
        return found is not None

    def resize(self) -> None:
        """Give resizing arrays the capacities that the last trace needs."""
        if self.growing is not None:
            self.data = {i: self.growing.restart(i) if isinstance(v, PaddedArray) else v for i, v in self.data.items()}

    def widen(self, change: _CarryChanged) -> None:
        """Give the initial values the types that the body's results have."""
        changed = False
        self._axes = {}  # there may be other leaves now
        names = self.names.values()
        pairs = zip(self.data, names, change.before[0], change.after[0], strict=True)
        for key, name, before, after in list(pairs):
            changed |= self._widen_value(self.data, key, name, before, after)
        for name, after in change.after[1].items():
            if name not in change.before[1]:  # the first assignment is inside the loop
                self.variables[name] = specs.coerce(None, after)
                changed = True
            else:
                changed |= self._widen_value(self.variables, name, name, change.before[1][name], after)
        if not changed:
            raise OpError(f"the types of the loop variables have no fixpoint ({', '.join(names)})")

    def _widen_value(self, where: dict[Any, Any], key: int | str, name: str, before: Any, after: Any) -> bool:
        """Widen an initial value if an iteration changes its type; return if so."""
        is_list = isinstance(before, TensorList) and isinstance(after, TensorList)
        if is_list:
            self.lists.measure(key, before, after)
        if specs.same_spec(before, after):
            return False
        value = where[key]
        if isinstance(after, TensorList) and after.owner and key in self._zeros:
            # TF1 sums up gradients of TensorArrays from the number 0.
            where[key] = specs.coerce(None, after)
        elif _is_resized(before, after):
            if self.growing is None or not isinstance(key, int):
                raise _type_error(name, before, after, GrowthError)
            where[key] = self.growing.start(key, value, after)
        elif type(before) is not type(after) or not hasattr(after, "coerce"):
            raise _type_error(name, before, after)
        elif is_list:
            widened = self.lists.widened(key, value, before, after)
            if widened is None:
                raise _type_error(name, before, after)
            where[key] = widened
        else:
            where[key] = as_traced(specs.coerce(value, specs.join_specs([before, after])))
        return True


def _is_resized(before: Any, after: Any) -> bool:
    """Return whether an iteration changes nothing but the sizes of an array."""
    old = before.buffer if isinstance(before, PaddedArray) else before
    if not isinstance(old, jax.ShapeDtypeStruct) or not isinstance(after, jax.ShapeDtypeStruct):
        return False
    return old.ndim == after.ndim and old.dtype == after.dtype


def _type_error(name: str, before: Any, after: Any, error: type[OpError] = OpError) -> OpError:
    text = (
        f"loop variable {name!r} changes its shape or dtype between iterations, from {specs.format_spec(before)} to "
        f"{specs.format_spec(after)}; JAX loops carry fixed ones. Loops of few iterations whose condition is known "
        "while tracing (outside jax.jit it always is) are unrolled instead"
    )
    if issubclass(error, GrowthError):
        text += "; for others convert with override_config('dynamic_shape_bound', n), the upper bound of its sizes"
    return error(text)


def _is_zero(value: Any) -> bool:
    found = values.static_value(value)
    return found is not None and found.shape == () and not found


def find_fixpoint(carry: Carry, attempt: Callable[[], Values]) -> tuple[dict[int, Any], Mapping[str, Any]]:
    """Trace a loop until no iteration changes the types of its carry.

    Args:
      carry: the initial values; they are widened in place.
      attempt: traces the loop and returns its last carry; it checks the body's results with `Carry.check`.

    Returns:
      Results by index, and variables.
    """
    attempts = 0

    def learn(error: Exception) -> bool:
        nonlocal attempts
        if isinstance(error, _Resized):
            carry.resize()
            return True  # bounded: axes and capacities only grow, one value after the other
        if isinstance(error, _CarryChanged):
            carry.widen(error)
        else:
            written = isinstance(error.__cause__, ListGrowthError) and carry.allow_writes_anywhere()
            if not written and not (isinstance(error.__cause__, ListCapacityError) and carry.allow_longer_inside()):
                return False
        attempts += 1
        if attempts == _MAX_ATTEMPTS:
            names = ", ".join(carry.names.values())
            raise OpError(f"the types of the loop variables have no fixpoint ({names})") from None
        return True

    return retrace(lambda: carry.results(attempt()), learn, _CarryChanged, _Resized, LoweringError)
