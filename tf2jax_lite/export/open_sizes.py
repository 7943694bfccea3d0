"""Unknown sizes of arguments: which of them are one symbolic dimension, so that a function can be traced."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
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

    Each is one on its own, or two are one that an error names (parts of a sparse tensor are as many as each other). If
    that fails, there is one batch dimension. If that fails, too, those of the others are one that do not fit each other
    (a text and its mask are equally long), or else all others are multiples of 2, 4, ...: what halves an image several
    times and doubles it again takes no other sizes.

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
        free = _free_names(together, given)
        if not _named(error, free):
            raise
        found = _with_equal_sizes(together, free, error, run)
        if isinstance(found, Staged):
            return found
        for times in _MULTIPLES:
            multiples = _renamed(found, {name: f"{times}*{name}" for name in free})
            with contextlib.suppress(LoweringError, ExportError):
                return run(multiples)
        raise


def _apart(specs: list[InputSpec], given: Mapping[str, str], run: Callable[[list[InputSpec]], Staged]) -> Staged:
    """Takes sizes to be different, but for pairs that errors name one after the other.

    Raises:
      Exception: what is wrong besides.
    """
    names = list(dict.fromkeys(d for s in specs if s.name not in given for d in s.shape if isinstance(d, str)))
    place: Any = ()
    while True:
        try:
            return run(specs)
        except (LoweringError, ExportError) as error:
            pair = _named(error, names)
            if len(pair) != 2 or _place(error) == place:
                raise
            kept, dropped = sorted(pair, key=names.index)
            specs, place = _renamed(specs, {dropped: kept}), _place(error)
            names.remove(dropped)


def _with_equal_sizes(
    specs: list[InputSpec], free: list[str], failed: Exception, run: Callable[[list[InputSpec]], Staged]
) -> Staged | list[InputSpec]:
    """Takes sizes for equal that an error names, as long as that makes another node fail, or none.

    Returns:
      What `run` returns for the arguments with equal sizes; the arguments, if it fails for other reasons.
    """
    names = list(free)
    while True:
        for one, other in itertools.combinations(_named(failed, names), 2):
            kept, dropped = sorted((one, other), key=names.index)
            equal = _renamed(specs, {dropped: kept})
            try:
                return run(equal)
            except (LoweringError, ExportError) as error:
                if _place(error) != _place(failed):
                    specs, failed = equal, error
                    names.remove(dropped)
                    break
        else:
            return specs


def _named(error: Exception, names: Sequence[str]) -> list[str]:
    """Returns which of some names an error names: those of sizes that do not fit, or have to be known."""
    said = "\n".join([str(error), *getattr(error, "__notes__", ())])
    return [name for name in dict.fromkeys(re.findall(r"\b[a-z][a-z0-9_]*\b", said)) if name in names]


def _place(error: BaseException) -> Any:
    """Returns which node an error is about: where one was met on another try, the node at which that ended."""
    while isinstance(error.__cause__, LoweringError):
        error = error.__cause__
    return getattr(error, "node", None), getattr(error, "path", None)


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
