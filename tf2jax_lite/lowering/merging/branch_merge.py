"""Merge of branch results: one rule for each result, under ``lax.switch``.

Branches and loops carry data as arrays, and symbols beside them: `as_traced` and `as_carried`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.jaxprs.compat import jaxpr_as_fun
from tf2jax_lite.ops.containers.tensor_list import EmptyListError
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import WordArray
from tf2jax_lite.values.tensor_list import TensorList

from .branch_variants import RankLayout, RankVariants, SizeVariants, SizeVariantsError

_MAX_STATIC_NUMBERS = 1 << 16  # of a stack that stays static: it is searched for each index


class _Undefined:
    """A placeholder for a result that a branch lacks, not read if it is taken."""

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED = _Undefined()


class UndefinedValueError(OpError):
    """A value is read that no branch defines, in code that cannot run."""


IMPOSSIBLE = (EmptyListError, UndefinedValueError)
"""The errors of branches and loop bodies that cannot run."""


def is_carried(value: Any) -> bool:
    """Return whether a value is data, rather than a symbol such as a handle."""
    return isinstance(value, (jax.Array, np.ndarray, np.generic)) or is_pytree_handle(value)


def is_variant(value: Any) -> bool:
    """Return whether TensorFlow has a value as variants: list, map, ragged row."""
    return is_pytree_handle(value) and not isinstance(value, WordArray)


def is_pytree_handle(value: Any) -> bool:
    """Return whether branches and loops carry the leaves of a value."""
    return isinstance(value, TensorList) or bool(getattr(value, "is_pytree_handle", False))


def as_traced(value: Any) -> Any:
    """Return data for JAX control flow: canonical, strongly typed arrays."""
    if isinstance(value, TensorList):
        value = value.packed()
    if is_pytree_handle(value):
        return jax.tree.map(as_traced, value)
    if isinstance(value, RankVariants):
        value = value.resolved()
    value = values.as_array(value)
    if isinstance(value, jax.Array) and value.weak_type:
        return lax.convert_element_type(value, value.dtype)
    return jnp.asarray(value)


def as_carried(value: Any) -> Any:
    """Return data for an initial carry: `as_traced` except static integers.

    They may be the indices that the loop reads and writes.
    """
    if isinstance(value, TensorList):
        value = value.packed()
    if is_pytree_handle(value):
        return jax.tree.map(as_carried, value)
    if values.is_static(value) and value.dtype.kind in "iu" and value.size <= _MAX_STATIC_NUMBERS:
        return values.as_array(value)
    return as_traced(value)


def same_static(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two static values are equal."""
    return a.dtype == b.dtype and np.shape(a) == np.shape(b) and bool(np.all(a == b))


def merge_branches(
    index: Any,
    branches: Sequence[Callable[[], list[Any]]],
    names: Sequence[str],
    refuse: Callable[[str], LoweringError],
    tracker: DynamicShapes | None = None,
    *,
    factors: tuple[tuple[Any, int], ...] = (),
) -> list[Any]:
    """Run ``branches[index]`` under ``lax.switch`` and return its results.

    A result that is the same symbol or the same static value in every branch stays so. Tensor lists get one capacity,
    optionals one spec; a result that a branch does not have (None) becomes zeros. A result whose sizes differ gets a
    data-dependent size, one whose ranks differ becomes `RankVariants`.

    Args:
      index: an int32 scalar.
      refuse: makes the error for where one value of `RankVariants` is needed, given the problem.
      tracker: makes symbols of data-dependent sizes.
      factors: those of `RankVariants` whose variants the branches are. Then results that differ in shape become
        `RankVariants` again, and so do numbers that are static in each branch, so that they stay static.
    """
    mark = 0 if tracker is None else tracker.mark
    traced = [_trace_branch(branch) for branch in branches]
    rules = []
    for position in range(len(traced[0].specs)):
        column = [branch.specs[position] for branch in traced]
        static = [branch.statics[position] for branch in traced]
        rules.append(_rule(position, column, static, names, tracker, mark, is_variant=bool(factors)))

    def packing(number: int, branch: _TracedBranch) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            pairs = zip(rules, branch.evaluate(), strict=True)
            return [packed for rule, value in pairs for packed in rule.pack(number, value)]

        return run

    # With one branch there is nothing to choose.
    packed = [packing(*item) for item in enumerate(traced)]
    results = iter(lax.switch(index, packed) if len(traced) > 1 else packed[0]())
    call = _Call(index, factors or ((index, len(branches)),), refuse, tracker, mark)
    return [rule.unpack(results, call) for rule in rules]


class _Call(NamedTuple):
    """The arguments of `merge_branches` that rules need."""

    index: Any
    factors: tuple[tuple[Any, int], ...]
    refuse: Callable[[str], LoweringError]
    tracker: DynamicShapes | None
    mark: int


class _Rule(Protocol):
    """Brings a result of several branches to one type, and back."""

    def pack(self, branch: int, value: Any) -> list[Any]:
        """Return the arrays that a branch returns for its result."""
        ...

    def unpack(self, results: Iterator[Any], call: _Call) -> Any:
        """Return the result from arrays of branches, and the arrays after them."""
        ...


@dataclasses.dataclass(frozen=True)
class _Same:
    """A result that is the same symbol or static value in all branches."""

    value: Any

    def pack(self, branch: int, value: Any) -> list[Any]:
        return []

    def unpack(self, results: Iterator[Any], call: _Call) -> Any:
        return self.value


@dataclasses.dataclass(frozen=True)
class _Data:
    """A result of one spec, the join of those of the branches."""

    spec: Any

    def pack(self, branch: int, value: Any) -> list[Any]:
        return [as_traced(specs.coerce(value, self.spec))]

    def unpack(self, results: Iterator[Any], call: _Call) -> Any:
        return next(results)


@dataclasses.dataclass(frozen=True)
class _Sized:
    """A result whose sizes differ between branches."""

    variants: SizeVariants

    def pack(self, branch: int, value: Any) -> list[Any]:
        return self.variants.pack(None if value is None else as_traced(value))

    def unpack(self, results: Iterator[Any], call: _Call) -> Any:
        assert call.tracker is not None
        return self.variants.unpack(results, call.index, call.tracker, call.mark)


@dataclasses.dataclass(frozen=True)
class _RankTagged:
    """A result whose ranks differ between branches."""

    layout: RankLayout

    def pack(self, branch: int, value: Any) -> list[Any]:
        return self.layout.pack(branch, as_traced(value))

    def unpack(self, results: Iterator[Any], call: _Call) -> Any:
        found = self.layout.unpack(results, call.index, call.tracker)
        return RankVariants(call.factors, found, call.refuse(self.layout.problem))


@dataclasses.dataclass(frozen=True)
class _TracedBranch:
    """A branch that is traced once, so that the time for nested branches is their sum."""

    jaxpr: Any
    tree: Any
    specs: list[Any]
    statics: list[Any]

    def evaluate(self) -> list[Any]:
        data = iter(jax.tree.unflatten(self.tree, jaxpr_as_fun(self.jaxpr)()))
        return [next(data) if is_data else value for is_data, value in zip(self.is_data, self.specs, strict=True)]

    @property
    def is_data(self) -> list[bool]:
        return [isinstance(v, jax.ShapeDtypeStruct) or is_pytree_handle(v) for v in self.specs]


def _trace_branch(branch: Callable[[], list[Any]]) -> _TracedBranch:
    results: list[Any] = []

    def record() -> list[Any]:
        results.extend(v.resolved() if isinstance(v, RankVariants) else v for v in branch())
        return [as_traced(v) for v in results if is_carried(v)]

    jaxpr, avals = jax.make_jaxpr(record, return_shape=True)()
    remaining = iter(avals)
    return _TracedBranch(
        jaxpr=jaxpr,
        tree=jax.tree.structure(avals),
        specs=[next(remaining) if is_carried(v) else None if v is UNDEFINED else v for v in results],
        statics=[v if values.is_static(v) or v is UNDEFINED else None for v in results],
    )


def _rule(
    position: int,
    column: list[Any],
    static: list[Any],
    names: Sequence[str],
    tracker: DynamicShapes | None,
    mark: int,
    *,
    is_variant: bool,
) -> _Rule:
    """Return the rule for a result."""
    # column: for each branch its spec, its value if that is a symbol, or None if the branch does not have it.
    # static: for each branch its value if that is static or `UNDEFINED`, else None.
    # An undefined result is never read: a result that is static in the other branches stays so.
    defined = [v for v in static if v is not UNDEFINED]
    if defined and all(v is not None for v in defined) and all(same_static(defined[0], v) for v in defined[1:]):
        return _Same(defined[0])
    present = [v for v in column if v is not None]
    if not present:
        return _Same(UNDEFINED if any(v is UNDEFINED for v in static) else None)
    if not isinstance(present[0], jax.ShapeDtypeStruct) and not is_pytree_handle(present[0]):
        if all(v == present[0] for v in present):
            return _Same(present[0])
        raise OpError(f"result {position} is a different variable or resource in different branches ({column})")
    can_rank = RankVariants.can_hold(column)
    if is_variant and can_rank and all(isinstance(v, np.ndarray | np.generic) for v in static):
        return _RankTagged(RankLayout.of(column, static, tracker, mark, ""))
    try:
        return _Data(specs.join_specs(column))
    except OpError as error:
        sized = SizeVariants.of_results(column)
        if sized is not None and tracker is not None and not is_variant:
            return _Sized(sized)
        given = ", ".join(f"{n!r}: {specs.format_spec(v)}" for n, v in zip(names, column, strict=True) if v is not None)
        problem = (
            f"result {position} differs in shape or dtype between branches ({given}); JAX needs them equal unless the "
            f"predicate is known while tracing, as it always is outside jax.jit ({error})"
        )
        if can_rank and (is_variant or sized is None):
            return _RankTagged(RankLayout.of(column, static, tracker, mark, problem))
        raise (OpError if sized is None else SizeVariantsError)(problem) from None
