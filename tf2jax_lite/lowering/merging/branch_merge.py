"""Where two traces of values meet: the results of branches, and what a loop carries around."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import Extents
from tf2jax_lite.ops.containers.tensor_list_elements import EmptyListError
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import WordArray
from tf2jax_lite.values.tensor_list import TensorList

from .rank_variants import Alternatives, Choice
from .size_variants import Uneven, UnevenError

__all__ = [
    "IMPOSSIBLE",
    "UNDEFINED",
    "UndefinedValueError",
    "as_carried",
    "as_traced",
    "is_carried",
    "is_variant",
    "merge_branches",
    "same_static",
]

_MOST_NUMBERS = 1 << 16  # of a stack that is kept known: as much as is looked through for each place


class _Undefined:
    """What stands for a result that a branch does not have, and that nothing reads if that branch is taken."""

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED = _Undefined()


class UndefinedValueError(OpError):
    """A value is read that none of the branches that could have given it has: what is being traced cannot run."""


IMPOSSIBLE = (EmptyListError, UndefinedValueError)
"""What is raised in a branch, or a loop's body, that is known not to run."""


def is_carried(value: Any) -> bool:
    """Whether a value is data (arrays, tensor lists), rather than a symbol such as a variable's handle."""
    return isinstance(value, (jax.Array, np.ndarray, np.generic)) or _is_pytree_handle(value)


def is_variant(value: Any) -> bool:
    """Whether a value is data that TensorFlow has in a scalar or vector of variants: a list, a map, a ragged row."""
    return _is_pytree_handle(value) and not isinstance(value, WordArray)


def _is_pytree_handle(value: Any) -> bool:
    return isinstance(value, TensorList) or bool(getattr(value, "is_pytree_handle", False))


def as_traced(value: Any) -> Any:
    """Returns data in the form that JAX control flow takes: every leaf an array of canonical dtype, strongly typed.

    Raises:
      OpError: it is a tensor list whose elements differ in shape.
    """
    if isinstance(value, TensorList):
        value = value.packed()
    if _is_pytree_handle(value):
        return jax.tree.map(as_traced, value)
    if isinstance(value, Choice):
        value = value.settled()
    value = values.as_array(value)
    if isinstance(value, jax.Array) and value.weak_type:
        return lax.convert_element_type(value, value.dtype)
    return jnp.asarray(value)


def as_carried(value: Any) -> Any:
    """Returns data in the form that loops start with: that of `as_traced`, but with known whole numbers known.

    Places that a loop reads and writes may be made of them.

    Raises:
      OpError: it is a tensor list whose elements differ in shape.
    """
    if isinstance(value, TensorList):
        value = value.packed()
    if _is_pytree_handle(value):
        return jax.tree.map(as_carried, value)
    if values.is_static(value) and value.dtype.kind in "iu" and value.size <= _MOST_NUMBERS:
        return values.as_array(value)
    return as_traced(value)


def merge_branches(
    index: Any,
    branches: Sequence[Callable[[], list[Any]]],
    names: Sequence[str],
    refuse: Callable[[str], LoweringError],
    extents: Extents | None = None,
    *,
    factors: tuple[tuple[Any, int], ...] = (),
) -> list[Any]:
    """Runs ``branches[index]`` under ``lax.switch`` and returns its results.

    Results that are the same symbol or the same static value in every branch stay so. Tensor lists are brought to
    one capacity, optionals to one form; a result that a branch does not have (None) becomes zeros. What has other
    sizes in other branches has one that data decides; what has another rank is a `Choice`.

    Args:
      index: an int32 scalar.
      branches: give their results.
      names: what messages call them.
      refuse: makes the error for where the value of a `Choice` is needed, of what is wrong.
      extents: makes symbols of sizes that data decides.
      factors: of a `Choice` that is taken apart: then all that differs in shape is one again, and numbers that are
        known in each branch, so that they stay known.

    Raises:
      OpError: results differ in dtype between branches, or in shape but not in rank, and there are no ``extents``.
    """
    mark = 0 if extents is None else extents.mark
    traced = [_trace_branch(branch) for branch in branches]
    plan: list[tuple[str, Any]] = []
    for position in range(len(traced[0].shapes)):
        column = [branch.shapes[position] for branch in traced]
        static = [branch.statics[position] for branch in traced]
        plan.append(_plan_result(position, column, static, names, extents, mark, bool(factors)))

    def wrap(number: int, branch: _TracedBranch) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            out = []
            for (kind, template), value in zip(plan, branch.evaluate(), strict=True):
                if kind == "data":
                    out.append(as_traced(specs.coerce(value, template)))
                elif kind == "uneven":
                    out += template.padded(None if value is None else as_traced(value))
                elif kind == "choice":
                    out += template.spread(number, as_traced(value))
            return out

        return run

    # With one branch there is nothing to choose.
    wrapped = [wrap(*item) for item in enumerate(traced)]
    results = iter(lax.switch(index, wrapped) if len(traced) > 1 else wrapped[0]())
    out = []
    for kind, template in plan:
        if kind == "uneven":
            out.append(template.cut(results, index, extents, mark))
        elif kind == "choice":
            given = template.collected(results, index, extents)
            out.append(Choice(factors or ((index, len(branches)),), given, refuse(template.problem)))
        else:
            out.append(next(results) if kind == "data" else template)
    return out


@dataclasses.dataclass(frozen=True)
class _TracedBranch:
    """A branch traced once, so that nested branches cost no more than their sum."""

    jaxpr: Any
    tree: Any
    shapes: list[Any]
    statics: list[Any]

    def evaluate(self) -> list[Any]:
        data = iter(jax.tree.unflatten(self.tree, jax.extend.core.jaxpr_as_fun(self.jaxpr)()))
        return [next(data) if is_data else value for is_data, value in zip(self.is_data, self.shapes, strict=True)]

    @property
    def is_data(self) -> list[bool]:
        return [isinstance(v, jax.ShapeDtypeStruct) or _is_pytree_handle(v) for v in self.shapes]


def _trace_branch(branch: Callable[[], list[Any]]) -> _TracedBranch:
    results: list[Any] = []

    def record() -> list[Any]:
        results.extend(v.settled() if isinstance(v, Choice) else v for v in branch())
        return [as_traced(v) for v in results if is_carried(v)]

    jaxpr, avals = jax.make_jaxpr(record, return_shape=True)()
    remaining = iter(avals)
    return _TracedBranch(
        jaxpr=jaxpr,
        tree=jax.tree.structure(avals),
        shapes=[next(remaining) if is_carried(v) else None if v is UNDEFINED else v for v in results],
        statics=[v if values.is_static(v) or v is UNDEFINED else None for v in results],
    )


def _plan_result(
    position: int,
    column: list[Any],
    static: list[Any],
    names: Sequence[str],
    extents: Extents | None,
    mark: int,
    stays: bool,
) -> tuple[str, Any]:
    # Nothing reads what a branch has not defined: what is static in the others stays so.
    known = [v for v in static if v is not UNDEFINED]
    if known and all(v is not None for v in known) and all(same_static(known[0], v) for v in known[1:]):
        return "same", known[0]
    present = [v for v in column if v is not None]
    if not present:
        return "same", UNDEFINED if any(v is UNDEFINED for v in static) else None
    if not isinstance(present[0], jax.ShapeDtypeStruct) and not _is_pytree_handle(present[0]):
        if all(v == present[0] for v in present):
            return "same", present[0]
        raise OpError(f"result {position} is a different variable or resource in different branches ({column})")
    fits = Choice.fits(column)
    if stays and fits and all(isinstance(v, np.ndarray | np.generic) for v in static):
        return "choice", Alternatives.of(column, static, extents, mark, "")
    try:
        return "data", specs.join_specs(column)
    except OpError as error:
        uneven = Uneven.of(column)
        if uneven is not None and extents is not None and not stays:
            return "uneven", uneven
        shown = ", ".join(f"{n!r}: {specs.format_spec(v)}" for n, v in zip(names, column, strict=True) if v is not None)
        problem = (
            f"result {position} differs in shape or dtype between branches ({shown}); JAX needs them equal unless the "
            f"predicate is known while tracing, as it always is outside jax.jit ({error})"
        )
        if fits and (stays or uneven is None):
            return "choice", Alternatives.of(column, static, extents, mark, problem)
        raise (OpError if uneven is None else UnevenError)(problem) from None


def same_static(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two static values are the same."""
    return a.dtype == b.dtype and np.shape(a) == np.shape(b) and bool(np.all(a == b))
