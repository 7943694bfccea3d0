"""Find symbolic dimensions by trial traces: which sizes have to be equal."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tf2jax_lite.pipeline.converted_function import ConvertedFunction
from tf2jax_lite.support.errors import ExportError, LoweringError

from .dimension_syntax import dimension_name, substituted
from .stage import InputSpec, Staged, given_shapes, input_specs, stage

__all__ = ["stage_symbolic"]

_MULTIPLES = (2, 4, 8, 16, 32, 64)


def stage_symbolic(
    converted: ConvertedFunction,
    shapes: Mapping[str, str] | Sequence[str] | None,
    params: Mapping[str, Any],
    dtype: Any = None,
) -> Staged:
    """Trace a function with symbols for its unknown dimensions.

    The first of these attempts that succeeds counts:
      1. Each dimension is a symbol of its own, except for two or three that an error names (the components of a sparse
         tensor have equal lengths), or for offsets from each other (row splits and a batch).
      2. One batch dimension, with the offsets of the first attempt.
      3. Other dimensions that errors name are equal (a text and its mask, an adjacency matrix).
      4. All other dimensions are multiples of 2, 4, ..., as an encoder and a decoder of images need.
      5. Some dimensions equal the batch (a square matrix).

    Raises:
      Tf2JaxError: all attempts failed.
    """
    loose = dtype is not None
    specs = input_specs(converted, shapes, dtype)
    together = input_specs(converted, shapes, dtype, one_batch=True)
    given = given_shapes(shapes, [spec.name for spec in together])

    def run(chosen: list[InputSpec]) -> Staged:
        return stage(converted, chosen, params, loose=loose)

    if specs != together:
        with contextlib.suppress(Exception):  # raised again below, for one batch
            separate = _separate_dims(specs, given, run)
            if isinstance(separate, Staged):
                return separate
            together = _with_offsets(together, separate, given)
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


def _separate_dims(
    specs: list[InputSpec], given: Mapping[str, str], run: Callable[[list[InputSpec]], Staged]
) -> Staged | list[InputSpec]:
    """Trace with separate dimensions, except for two or three that an error names.

    Returns:
      The traced function, or the arguments with which it fails for other reasons.
    """
    try:
        return run(specs)
    except (LoweringError, ExportError) as error:
        fixed = _given_names(specs, given)
        names = [*fixed, *(name for name in _names(specs, given) if name not in fixed)]
        return _with_equal_sizes(specs, names, error, run, fixed=fixed, guessed=2, max_named=3)


def _with_offsets(specs: list[InputSpec], found: list[InputSpec], given: Mapping[str, str]) -> list[InputSpec]:
    """Copy the offsets of dimensions from arguments that name dimensions differently."""
    pairs = [(d, e) for s, f in zip(specs, found, strict=True) for d, e in zip(s.shape, f.shape, strict=True)]
    bases: dict[str, str] = {}
    for own, other in pairs:
        if isinstance(own, str) and isinstance(other, str) and "+" not in other:
            bases.setdefault(other, own)

    def sized(own: int | str, other: int | str) -> int | str:
        has_base = isinstance(other, str) and "+" in other and dimension_name(other) in bases
        return substituted(str(other), bases) if has_base else own

    return [
        s if s.name in given else dataclasses.replace(s, shape=tuple(map(sized, s.shape, f.shape)))
        for s, f in zip(specs, found, strict=True)
    ]


def _with_equal_sizes(
    specs: list[InputSpec],
    free: list[str],
    failed: Exception,
    run: Callable[[list[InputSpec]], Staged],
    fixed: Sequence[str] = (),
    guessed: int = sys.maxsize,
    max_named: int = sys.maxsize,
) -> Staged | list[InputSpec]:
    """Equate dimensions that an error names, while traces fail at another node.

    Args:
      specs: arguments.
      free: names of dimensions that may be equal; the first of equal ones is kept.
      failed: the error for ``specs``.
      run: traces for arguments.
      fixed: those of the names, at their start, that must stay.
      guessed: if an error names at most so many dimensions, any of them may be equal; otherwise only those on one axis
        of the shapes in the error.
      max_named: give up if an error names more dimensions.

    Returns:
      The traced function for the arguments with equal dimensions, or the arguments with which it fails otherwise.
    """
    names = list(free)
    while len(named := _named(failed, names)) <= max_named:
        equalities = _equalities(failed, named, guess=len(named) <= guessed)
        equal = [{name: min(group, key=names.index) for group in sets for name in group} for sets in equalities]
        for renaming in [*_offsets(failed, names), *equal]:
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


def _offsets(error: Exception, names: Sequence[str]) -> list[dict[str, str]]:
    """Return dimensions that are others plus offsets, by the shapes in an error.

    Row splits and a batch are such: ``(d1 - 1, 5)`` and ``(b, 5)`` make ``d1`` equal to ``b+1``.
    """
    found: list[dict[str, str]] = []
    for axis in _axes(error):
        terms = [match for part in axis if (match := _TERM.fullmatch(part))]
        sizes = [(match["name"], int((match["more"] or "0").replace(" ", ""))) for match in terms]
        for (name, more), (other, other_more) in itertools.permutations(sizes, 2):
            renaming = {name: f"{other}+{other_more - more}"}
            if name in names and name != other and other_more > more and renaming not in found:
                found.append(renaming)
    return found


_TERM = re.compile(r"(?P<name>[a-z][a-z0-9_]*)(?P<more> [+-] \d+)?")


def _equalities(error: Exception, named: Sequence[str], *, guess: bool) -> list[list[set[str]]]:
    """Return candidate partitions of an error's names, fewest equalities first.

    With ``guess``: each pair. Then the names on one axis of the shapes in the error (aligned at the last axis), the
    names on all axes, and with ``guess`` all names.
    """
    axes = [axis & set(named) for axis in _axes(error)]
    axes = [axis for axis in axes if len(axis) > 1]
    candidates = [[{*pair}] for pair in itertools.combinations(named, 2)] if guess else []
    candidates += [*([axis] for axis in axes), _disjoint(axes)]
    if guess and len(named) > 1:
        candidates.append([{*named}])
    return [sets for i, sets in enumerate(candidates) if sets and sets not in candidates[:i]]


def _axes(error: Exception) -> list[set[str]]:
    """Return the sizes on each axis of the shapes in an error, from the last axis."""
    shapes = [[part.strip() for part in inner.split(",")] for inner in re.findall(r"\(([^()]*)\)", _text(error))]
    backwards = [[part for part in reversed(shape) if part] for shape in shapes]
    return [{part for part in axis if part} for axis in itertools.zip_longest(*backwards)]


def _disjoint(sets: Sequence[set[str]]) -> list[set[str]]:
    """Return the sets, with those united that intersect."""
    found: list[set[str]] = []
    for one in sets:
        met = [other for other in found if other & one]
        found = [*(other for other in found if not other & one), one.union(*met)]
    return found


def _named(error: Exception, names: Sequence[str]) -> list[str]:
    """Return the names, of some, that occur in an error."""
    return [name for name in dict.fromkeys(re.findall(r"\b[a-z][a-z0-9_]*\b", _text(error))) if name in names]


def _text(error: Exception) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


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
    return list(dict.fromkeys(dimension_name(size) for size in sizes if isinstance(size, str)))


def _renamed(specs: Sequence[InputSpec], names: Mapping[str, str]) -> list[InputSpec]:
    return [
        dataclasses.replace(s, shape=tuple(substituted(d, names) if isinstance(d, str) else d for d in s.shape))
        for s in specs
    ]
