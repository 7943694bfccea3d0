"""Find symbolic dimensions by trial traces: which sizes have to be equal."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tf2jax_lite.dynamic_shapes.dim_expr import Constraint, factors_in, linear_terms
from tf2jax_lite.jaxprs.compat import inconclusive_comparison
from tf2jax_lite.pipeline.converted_function import ConvertedFunction
from tf2jax_lite.support.errors import ExportError, LoweringError

from .dimension_syntax import Linear, combined, dimension_names, formatted, linear
from .stage import InputSpec, Staged, given_shapes, input_specs, stage

_MULTIPLES = (2, 4, 8, 16, 32, 64)
_MAX_SPLITS = 100
"""Maximum number of traces that try whether equal sizes may differ."""

_Run = Callable[[list[InputSpec]], Staged]
_Place = tuple[int, int]  # position of an argument, axis


def stage_symbolic(
    converted: ConvertedFunction,
    shapes: Mapping[str, str] | Sequence[str] | None,
    params: Mapping[str, Any],
    dtype: Any = None,
) -> Staged:
    """Trace a function with symbols for its unknown dimensions.

    The first of these attempts that succeeds counts:
      1. Each dimension is a symbol of its own, except where an error tells that sizes are equal, or sums of others:
         the components of a sparse tensor, row splits and a batch, a mask of past and present.
      2. One batch dimension, with the sums of the first attempt.
      3. Other dimensions that errors name are equal (a text and its mask, an adjacency matrix).
      4. All other dimensions are multiples of 2, 4, ..., as an encoder and a decoder of images need.
      5. Some dimensions equal the batch (a square matrix).
    After the second attempt, dimensions of different arguments that need not be equal become different symbols.
    """
    loose = dtype is not None
    specs = input_specs(converted, shapes, dtype)
    together = input_specs(converted, shapes, dtype, one_batch=True)
    given = given_shapes(shapes, [spec.name for spec in together])

    def run(chosen: list[InputSpec]) -> Staged:
        return stage(converted, chosen, params, loose=loose)

    if specs == together:
        return _with_one_batch(together, given, run)
    with contextlib.suppress(Exception):  # raised again below, for one batch
        separate = _separate_dims(specs, given, run)
        if isinstance(separate, Staged):
            return separate
        together = _with_sums(together, separate, given)
    return _with_fewer_equalities(_with_one_batch(together, given, run), given, run)


def with_offset(specs: Sequence[InputSpec], constraint: Constraint | None) -> list[InputSpec] | None:
    """Return arguments of which one size is larger, as an error asks for.

    Row splits have at least two elements, so that there is a row: ``d1`` becomes ``d1+1``.
    """
    difference = 0 if constraint is None else constraint.larger - constraint.smaller
    left = linear_terms(difference)
    if left is None or len(left.keys() - {""}) != 1:
        return None
    (name,) = left.keys() - {""}
    least = -left.get("", 0)
    larger = _renamed(specs, {name: f"{name}+{least - 1}"})
    return larger if left[name] == 1 and 1 < least <= _MAX_OFFSET and larger != list(specs) else None


_MAX_OFFSET = 16


def _with_one_batch(together: list[InputSpec], given: Mapping[str, str], run: _Run) -> Staged:
    try:
        return run(together)
    except (LoweringError, ExportError) as error:
        free, every = _free_names(together, given), _names(together, given)
        if not _named(error, free):
            raise
        found = _with_equal_sizes(together, free, error, run)
        if isinstance(found, Staged):
            return found
        for times in _MULTIPLES:
            multiples = _renamed(found, {name: f"{times}*{name}" for name in free})
            with contextlib.suppress(LoweringError, ExportError):
                return run(multiples)
        found = _with_equal_sizes(together, every, error, run, guessed=0)
        if isinstance(found, Staged):
            return found
        raise


def _separate_dims(specs: list[InputSpec], given: Mapping[str, str], run: _Run) -> Staged | list[InputSpec]:
    """Trace with separate dimensions, except for those that errors tell about."""
    # Returns the traced function, or the arguments with which it fails for other reasons.
    try:
        return run(specs)
    except (LoweringError, ExportError) as error:
        fixed = _given_names(specs, given)
        names = [*fixed, *(name for name in _names(specs, given) if name not in fixed)]
        return _with_equal_sizes(specs, names, error, run, fixed=fixed, guessed=2)


def _with_sums(specs: list[InputSpec], found: list[InputSpec], given: Mapping[str, str]) -> list[InputSpec]:
    """Copy the sums of dimensions from arguments that name dimensions differently."""
    pairs = [(d, e) for s, f in zip(specs, found, strict=True) for d, e in zip(s.shape, f.shape, strict=True)]
    bases: dict[str, str] = {}
    for own, other in pairs:
        if isinstance(own, str) and isinstance(other, str) and other.isidentifier():
            bases.setdefault(other, own)

    def sized(own: int | str, other: int | str) -> int | str:
        is_sum = isinstance(other, str) and not other.isidentifier() and bases.keys() >= set(dimension_names(other))
        return _substituted(str(other), bases) if is_sum else own

    return [
        s if s.name in given else dataclasses.replace(s, shape=tuple(map(sized, s.shape, f.shape)))
        for s, f in zip(specs, found, strict=True)
    ]


def _with_fewer_equalities(staged: Staged, given: Mapping[str, str], run: _Run) -> Staged:
    """Trace with different symbols where sizes of arguments may differ."""
    left = _MAX_SPLITS
    taken = set(_dimension_names(size for spec in staged.inputs for size in spec.shape))
    fresh = (name for name in (f"d{i}" for i in itertools.count(1)) if name not in taken)

    def apart(kept: Sequence[_Place], others: Sequence[_Place], name: str) -> Staged | None:
        """Trace with another name for the others; None if that fails or restricts."""
        nonlocal left
        left -= 1
        if left < 0:
            return None
        specs = [
            dataclasses.replace(s, shape=tuple(name if (i, axis) in others else d for axis, d in enumerate(s.shape)))
            for i, s in enumerate(staged.inputs)
        ]
        with contextlib.suppress(LoweringError, ExportError):
            found = run(specs)
            return found if len(found.restrictions()) <= len(staged.restrictions()) else None
        return None

    for symbol in sorted(taken):
        rest = [
            (i, axis)
            for i, spec in enumerate(staged.inputs)
            for axis, size in enumerate(spec.shape)
            if size == symbol and spec.name not in given
        ]
        name = next(fresh)
        while len({i for i, _ in rest}) > 1:
            first, *others = rest
            for kept in [[first], *([first, other] for other in others)]:
                others = [place for place in rest if place not in kept]
                if others and (found := apart(kept, others, name)) is not None:
                    staged, rest, name = found, others, next(fresh)
                    break
            else:
                rest = rest[1:]  # it equals several: with one of these it is tried again
    return staged


def _with_equal_sizes(
    specs: list[InputSpec],
    free: list[str],
    failed: Exception,
    run: Callable[[list[InputSpec]], Staged],
    fixed: Sequence[str] = (),
    guessed: int = sys.maxsize,
) -> Staged | list[InputSpec]:
    """Equate dimensions that an error names, while traces fail at another node."""
    # guessed: if an error names at most so many dimensions, any of them may be equal; otherwise only those on one axis
    #   of the shapes in the error.
    # Returns the traced function for the arguments with equal dimensions, or the arguments with which it fails
    # otherwise.
    names = list(free)
    while named := _named(failed, names):
        equalities = _equalities(failed, named, guess=len(named) <= guessed)
        equal = [{name: min(group, key=names.index) for group in sets for name in group} for sets in equalities]
        known = _dimension_names(size for spec in specs for size in spec.shape)
        for renaming in [*_solutions(failed, names, known), *equal]:
            if any(renaming.get(name, name) != name for name in fixed):
                continue
            equal_specs = _renamed(specs, renaming)
            try:
                return run(equal_specs)
            except (LoweringError, ExportError) as error:
                if _failed_node(error) != _failed_node(failed):
                    specs, failed = equal_specs, error
                    names = [name for name in names if renaming.get(name, name) == name]
                    break
        else:
            return specs
    return specs


def _solutions(error: Exception, names: Sequence[str], known: Sequence[str]) -> list[dict[str, str]]:
    """Return dimensions as sums of others that make the shapes in an error equal."""
    # The candidates are for one axis, for two, and so on. ``(d1 - 1, 5)`` and ``(b, 5)`` make ``d1`` equal to ``b+1``:
    # row splits beside a batch.
    axes = [
        [size for dim in axis if any(size := linear_terms(dim) or {}) and size.keys() <= {"", *known}]
        for axis in _axes(error)
    ]
    equations = [[(axis[0], size) for size in axis[1:]] for axis in axes if len(axis) > 1]
    found: list[dict[str, str]] = []
    for count in range(1, len(equations) + 1):
        for chosen in itertools.combinations(equations, count):
            solved = _solved(list(itertools.chain(*chosen)), names)
            renaming = {name: formatted(size) for name, size in solved.items()}
            if renaming and renaming not in found:
                found.append(renaming)
    return found


def _solved(equations: Sequence[tuple[Linear, Linear]], names: Sequence[str]) -> dict[str, Linear]:
    """Return dimensions as sums of others that satisfy the solvable equations."""
    solved: dict[str, Linear] = {}
    for left, right in equations:
        difference = combined(left, solved)
        for name, value in combined(right, solved).items():
            difference[name] = difference.get(name, 0) - value
        for name in sorted(difference, key=lambda n: names.index(n) if n in names else -1, reverse=True):
            value = difference[name]
            size = {n: -v * value for n, v in difference.items() if n != name and v}
            if name in names and abs(value) == 1 and any(size) and min(size.values()) > 0:
                solved = {n: combined(s, {name: size}) for n, s in solved.items()} | {name: size}
                break
    return solved


def _equalities(error: Exception, named: Sequence[str], *, guess: bool) -> list[list[set[str]]]:
    """Return candidate partitions of an error's names, fewest equalities first."""
    # The names on one axis of the shapes in the error (aligned at the last axis), the names on all axes, and with
    # ``guess`` all names. Each pair comes before with ``guess``, else last: axes meet that are not aligned.
    axes = [{*_dims(axis)} & {*named} for axis in _axes(error)]
    axes = [axis for axis in axes if len(axis) > 1]
    pairs = [[{*pair}] for pair in itertools.combinations(named, 2)]
    candidates = [*([axis] for axis in axes), _disjoint(axes)]
    candidates = [*pairs, *candidates, [{*named}]] if guess else [*candidates, *pairs]
    return [sets for i, sets in enumerate(candidates) if sets and sets not in candidates[:i]]


def _axes(error: Exception) -> list[list[Any]]:
    """Return the sizes on each axis of the shapes in an error, from the last axis."""
    backwards = [list(reversed(shape)) for shape in _shapes(error)]
    return [
        list(dict.fromkeys(size for size in axis if size is not None)) for axis in itertools.zip_longest(*backwards)
    ]


def _disjoint(sets: Sequence[set[str]]) -> list[set[str]]:
    """Return the sets, with those united that intersect."""
    found: list[set[str]] = []
    for one in sets:
        met = [other for other in found if other & one]
        found = [*(other for other in found if not other & one), one.union(*met)]
    return found


def _named(error: Exception, names: Sequence[str]) -> list[str]:
    """Return the names, of some, that occur in the shapes of an error."""
    return [name for name in _dims(size for shape in _shapes(error) for size in shape) if name in names]


def _dims(sizes: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for size in sizes for name in factors_in(size) if isinstance(name, str)))


def _shapes(error: BaseException | None) -> list[Sequence[Any]]:
    """Return the shapes in an error of ours and in those that caused it."""
    shapes: list[Sequence[Any]] = []
    while error is not None:
        met = inconclusive_comparison(error)
        shapes += getattr(error, "shapes", ()) if met is None else [met[:1], met[1:]]
        error = error.__cause__
    return shapes


def _failed_node(error: BaseException) -> Any:
    """Return the node of an error, or that of the first error in its chain of causes."""
    while isinstance(error.__cause__, LoweringError):
        error = error.__cause__
    return getattr(error, "node", None), getattr(error, "path", None)


def _names(specs: Sequence[InputSpec], given: Mapping[str, str]) -> list[str]:
    """Return the names of unknown dimensions, of arguments without a given shape."""
    return _dimension_names(d for s in specs if s.name not in given for d in s.shape)


def _given_names(specs: Sequence[InputSpec], given: Mapping[str, str]) -> list[str]:
    """Return the names of dimensions in the given shapes."""
    return _dimension_names(d for s in specs if s.name in given for d in s.shape)


def _free_names(specs: Sequence[InputSpec], given: Mapping[str, str]) -> list[str]:
    """Return unknown dimensions but the first, of arguments without given shape."""
    free = _dimension_names(d for spec in specs if spec.name not in given for d in spec.shape[1:])
    first = _dimension_names(spec.shape[0] for spec in specs if spec.shape)
    return [name for name in free if name not in first]


def _dimension_names(sizes: Iterable[int | str]) -> list[str]:
    return list(dict.fromkeys(name for size in sizes if isinstance(size, str) for name in dimension_names(size)))


def _renamed(specs: Sequence[InputSpec], names: Mapping[str, str]) -> list[InputSpec]:
    return [
        dataclasses.replace(s, shape=tuple(_substituted(d, names) if isinstance(d, str) else d for d in s.shape))
        for s in specs
    ]


def _substituted(size: str, names: Mapping[str, str]) -> str:
    return formatted(combined(linear(size) or {}, {name: linear(text) or {} for name, text in names.items()}))
