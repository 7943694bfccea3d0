"""Unknown sizes of arguments: which of them are one symbolic dimension, so that a function can be traced."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tf2jax_lite.errors import ExportError, LoweringError
from tf2jax_lite.function import ConvertedFunction

from .staging import InputSpec, Staged, given_shapes, input_specs, stage

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
    other). If that fails, there is one batch dimension. If that fails, too, those of the others are one that do not fit
    each other (a text and its mask are equally long, a graph's adjacency matrix is square), or else all others are
    multiples of 2, 4, ...: what halves an image several times and doubles it again takes no other sizes; or else some
    are one with the batch (a square matrix).

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
        with contextlib.suppress(Exception):  # whatever goes wrong, it is said below
            return _apart(specs, given, run)
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


def _apart(specs: list[InputSpec], given: Mapping[str, str], run: Callable[[list[InputSpec]], Staged]) -> Staged:
    """Takes sizes to be different, but for two or three that errors name one after the other.

    Raises:
      Exception: what is wrong besides.
    """
    try:
        return run(specs)
    except (LoweringError, ExportError) as error:
        names = _names(specs, given)
        if offset := _offset(error, names):
            with contextlib.suppress(LoweringError, ExportError):
                return _apart(_renamed(specs, offset), given, run)
        found = _with_equal_sizes(specs, names, error, run, guessed=2, most=3)
        if isinstance(found, Staged):
            return found
        raise


def _offset(error: Exception, names: Sequence[str]) -> dict[str, str]:
    """Returns the size that is another one and some more, if an error says that less so many it does not fit that.

    Row splits beside a batch are such: ``(d1 - 1, 5)`` beside ``(b, 5)``.
    """
    named = _named(error, names)
    for name, more in re.findall(r"\b([a-z][a-z0-9_]*) - ([1-9]\d*)\b", _said(error)):
        others = [other for other in named if other != name]
        if name in named and len(others) == 1:
            return {name: f"{others[0]}+{more}"}
    return {}


def _with_equal_sizes(
    specs: list[InputSpec],
    free: list[str],
    failed: Exception,
    run: Callable[[list[InputSpec]], Staged],
    guessed: int = sys.maxsize,
    most: int = sys.maxsize,
) -> Staged | list[InputSpec]:
    """Takes sizes for equal that an error names, as long as that makes another node fail, or none.

    Args:
      specs: arguments.
      free: names of sizes that may be equal; of those that are, the first is kept.
      failed: why the arguments do not do as they are.
      run: traces for arguments.
      guessed: of up to how many sizes that an error names any may be equal; of more, those at one place of shapes.
      most: how many sizes an error may name, that anything is tried.

    Returns:
      What `run` returns for the arguments with equal sizes; the arguments, if it fails for other reasons.
    """
    names = list(free)
    while len(named := _named(failed, names)) <= most:
        for sets in _equalities(failed, named, guess=len(named) <= guessed):
            kept = {name: min(equal, key=names.index) for equal in sets for name in equal}
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


def _equalities(error: Exception, named: Sequence[str], *, guess: bool) -> list[list[set[str]]]:
    """Returns what may be equal of the names that an error names: disjoint sets, ways that take least for equal first.

    Those are any two, for a guess; those at one place of the shapes that it tells, which count from the last as in
    broadcasting; those at each place; all, for a guess.
    """
    shapes = [[part.strip() for part in inner.split(",")] for inner in re.findall(r"\(([^()]*)\)", _said(error))]
    backwards = [[part for part in reversed(shape) if part] for shape in shapes]
    places = [set(place) & set(named) for place in itertools.zip_longest(*backwards)]
    places = [place for place in places if len(place) > 1]
    ways = [[{*pair}] for pair in itertools.combinations(named, 2)] if guess else []
    ways += [*([place] for place in places), _disjoint(places)]
    if guess and len(named) > 1:
        ways.append([{*named}])
    return [way for i, way in enumerate(ways) if way and way not in ways[:i]]


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
    return list(dict.fromkeys(d for s in specs if s.name not in given for d in s.shape if isinstance(d, str)))


def _free_names(specs: Sequence[InputSpec], given: Mapping[str, str]) -> list[str]:
    """Returns the names of unknown dimensions but the batch's, of arguments whose shapes are not given."""
    free = {d: None for spec in specs if spec.name not in given for d in spec.shape[1:] if isinstance(d, str)}
    first = {spec.shape[0] for spec in specs if spec.shape}
    return [name for name in free if name not in first]


def _renamed(specs: Sequence[InputSpec], names: Mapping[str, str]) -> list[InputSpec]:
    return [
        dataclasses.replace(s, shape=tuple(names.get(d, d) if isinstance(d, str) else d for d in s.shape))
        for s in specs
    ]
