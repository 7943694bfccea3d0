"""Unknown sizes of arguments: which of them are one symbolic dimension, so that a function can be traced."""

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
    """Traces a function for its unknown dimensions.

    Each is one on its own, or two or three are one that an error names (parts of a sparse tensor are as many as each
    other), or one is another with an offset (row splits beside a batch). If that fails, there is one batch dimension,
    and the offsets stay. If that fails, too, those of the others are one that do not fit each other (a text and its
    mask are equally long, a graph's adjacency matrix is square), or else all others are multiples of 2, 4, ...: an
    encoder that halves an image several times and a decoder that doubles it again need such; or else some are one with
    the batch (a square matrix).

    Raises:
      Tf2JaxError: nothing of this works.
    """
    loose = dtype is not None
    specs = input_specs(converted, shapes, dtype)
    together = input_specs(converted, shapes, dtype, one_batch=True)
    given = given_shapes(shapes, [spec.name for spec in together])

    def run(chosen: list[InputSpec]) -> Staged:
        return stage(converted, chosen, params, loose=loose)

    if specs != together:
        with contextlib.suppress(Exception):  # raised again below, for one batch
            apart = _apart(specs, given, run)
            if isinstance(apart, Staged):
                return apart
            together = _with_offsets(together, apart, given)
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


def _apart(
    specs: list[InputSpec], given: Mapping[str, str], run: Callable[[list[InputSpec]], Staged]
) -> Staged | list[InputSpec]:
    """Takes sizes to be different, but for two or three that errors name one after the other.

    Returns:
      The traced function, or the arguments with which it fails for other reasons.
    """
    try:
        return run(specs)
    except (LoweringError, ExportError) as error:
        fixed = _given_names(specs, given)
        names = [*fixed, *(name for name in _names(specs, given) if name not in fixed)]
        return _with_equal_sizes(specs, names, error, run, fixed=fixed, guessed=2, most=3)


def _with_offsets(specs: list[InputSpec], found: list[InputSpec], given: Mapping[str, str]) -> list[InputSpec]:
    """Give dimensions of arguments the offsets that they have in others, which name dimensions differently."""
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
    most: int = sys.maxsize,
) -> Staged | list[InputSpec]:
    """Takes sizes for equal that an error names, as long as that makes another node fail, or none.

    Args:
      specs: arguments.
      free: names of sizes that may be equal; of those that are, the first is kept.
      failed: why the arguments do not do as they are.
      run: traces for arguments.
      fixed: the first of those names, which stay.
      guessed: of up to how many sizes that an error names any may be equal; of more, those at one place of shapes.
      most: how many sizes an error may name, that anything is tried.

    Returns:
      The traced function for the arguments with equal sizes; the arguments, if it fails for other reasons.
    """
    names = list(free)
    while len(named := _named(failed, names)) <= most:
        equalities = _equalities(failed, named, guess=len(named) <= guessed)
        ways = [{name: min(equal, key=names.index) for equal in sets for name in equal} for sets in equalities]
        for kept in [*_offsets(failed, names), *ways]:
            if any(kept.get(name, name) != name for name in fixed):
                continue
            equal_specs = _renamed(specs, kept)
            try:
                return run(equal_specs)
            except (LoweringError, ExportError) as error:
                if _place(error) != _place(failed):
                    specs, failed = equal_specs, error
                    names = [name for name in names if kept.get(name, name) == name]
                    break
        else:
            return specs
    return specs


def _offsets(error: Exception, names: Sequence[str]) -> list[dict[str, str]]:
    """Returns sizes that are another one and some more, of shapes that an error tells.

    Row splits beside a batch are such: ``(d1 - 1, 5)`` beside ``(b, 5)``, so that ``d1`` is ``b+1``.
    """
    found: list[dict[str, str]] = []
    for place in _places(error):
        terms = [match for part in place if (match := _TERM.fullmatch(part))]
        sizes = [(match["name"], int((match["more"] or "0").replace(" ", ""))) for match in terms]
        for (name, more), (other, other_more) in itertools.permutations(sizes, 2):
            way = {name: f"{other}+{other_more - more}"}
            if name in names and name != other and other_more > more and way not in found:
                found.append(way)
    return found


_TERM = re.compile(r"(?P<name>[a-z][a-z0-9_]*)(?P<more> [+-] \d+)?")


def _equalities(error: Exception, named: Sequence[str], *, guess: bool) -> list[list[set[str]]]:
    """Returns what may be equal of the names that an error names: disjoint sets, ways that take least for equal first.

    Those are any two, for a guess; those at one place of the shapes that it tells, which count from the last as in
    broadcasting; those at each place; all, for a guess.
    """
    places = [place & set(named) for place in _places(error)]
    places = [place for place in places if len(place) > 1]
    ways = [[{*pair}] for pair in itertools.combinations(named, 2)] if guess else []
    ways += [*([place] for place in places), _disjoint(places)]
    if guess and len(named) > 1:
        ways.append([{*named}])
    return [way for i, way in enumerate(ways) if way and way not in ways[:i]]


def _places(error: Exception) -> list[set[str]]:
    """Returns the sizes at each place of the shapes that an error tells, which count from the last."""
    shapes = [[part.strip() for part in inner.split(",")] for inner in re.findall(r"\(([^()]*)\)", _said(error))]
    backwards = [[part for part in reversed(shape) if part] for shape in shapes]
    return [{part for part in place if part} for place in itertools.zip_longest(*backwards)]


def _disjoint(sets: Sequence[set[str]]) -> list[set[str]]:
    """Returns sets with those united that have something in common."""
    found: list[set[str]] = []
    for one in sets:
        met = [other for other in found if other & one]
        found = [*(other for other in found if not other & one), one.union(*met)]
    return found


def _named(error: Exception, names: Sequence[str]) -> list[str]:
    """Returns which of some names an error names: those of sizes that do not fit, or have to be known."""
    return [name for name in dict.fromkeys(re.findall(r"\b[a-z][a-z0-9_]*\b", _said(error))) if name in names]


def _said(error: Exception) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def _place(error: BaseException) -> Any:
    """Returns which node an error is about: where one was met on another try, the node at which that ended."""
    while isinstance(error.__cause__, LoweringError):
        error = error.__cause__
    return getattr(error, "node", None), getattr(error, "path", None)


def _names(specs: Sequence[InputSpec], given: Mapping[str, str]) -> list[str]:
    """Returns the names of unknown dimensions, of arguments whose shapes are not given."""
    return _dimension_names(d for s in specs if s.name not in given for d in s.shape)


def _given_names(specs: Sequence[InputSpec], given: Mapping[str, str]) -> list[str]:
    """Returns the names of dimensions in the shapes that are given."""
    return _dimension_names(d for s in specs if s.name in given for d in s.shape)


def _free_names(specs: Sequence[InputSpec], given: Mapping[str, str]) -> list[str]:
    """Returns the names of unknown dimensions but the batch's, of arguments whose shapes are not given."""
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
