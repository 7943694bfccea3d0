"""Comparisons of sizes that are not known while tracing, as in a function that is exported for all sizes at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.support.errors import LoweringError
from tf2jax_lite.values import static

_log = logging.getLogger("tf2jax_lite")
_T = TypeVar("_T")


def decides(inputs: list[Any], results: list[Any]) -> bool:
    """Whether a comparison took two sizes for different because they are not known."""
    if not any(v.dtype == bool for v in results if isinstance(v, np.ndarray)) or not any(
        map(static.is_symbolic, inputs)
    ):
        return False
    return len(inputs) != 2 or any(_is_open(a, b) for a, b in np.broadcast(*inputs))


def _is_open(a: Any, b: Any) -> bool:
    """Whether two sizes may or may not be equal."""
    return not (a == b or _is_less(a, b) or _is_less(b, a))


def _is_less(a: Any, b: Any) -> bool:
    try:
        return bool(a < b)
    except InconclusiveDimensionOperation:
        return False


def decided(run: Callable[[list[str] | None], _T]) -> _T:
    """Runs a program so that what compares sizes is computed when they are known.

    A branch that they choose, or a shape that is made of what they say, may have to be known while tracing. Then sizes
    are taken to differ, as JAX takes them (``b == 3`` is False for a symbolic dimension), and a warning of the logger
    ``tf2jax_lite`` says so.

    Args:
      run: takes a list that it adds to for each such comparison that it leaves open (which node it is), or None to have
        them decided.

    Returns:
      What ``run`` returns.

    Raises:
      LoweringError: what ``run`` raises, of both times the last.
    """
    met: list[str] = []
    try:
        return run(met)
    except LoweringError as error:
        if not met:
            raise
        reason = error
    try:
        results = run(None)
    except LoweringError as error:
        error.add_note(f"Where sizes are compared when they are known: {reason}")
        raise
    _log.warning(
        "Sizes that node %r compares are not known while tracing and taken to differ; results are wrong where they do "
        "not: %s",
        met[0],
        reason,
    )
    return results
