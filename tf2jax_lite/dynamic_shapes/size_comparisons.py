"""Comparisons of symbolic dimensions that JAX cannot decide.

Functions exported for all sizes at once have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.support.errors import LoweringError
from tf2jax_lite.support.retrace import retrace
from tf2jax_lite.values import static

_log = logging.getLogger("tf2jax_lite")
_T = TypeVar("_T")


def is_inconclusive(inputs: list[Any], results: list[Any]) -> bool:
    """Return whether "different" was the result only as a size is symbolic."""
    if not any(v.dtype == bool for v in results if isinstance(v, np.ndarray)) or not any(
        map(static.is_symbolic, inputs)
    ):
        return False
    return len(inputs) != 2 or any(_may_be_equal(a, b) for a, b in np.broadcast(*inputs))


def _may_be_equal(a: Any, b: Any) -> bool:
    """Return whether two different dimensions may have one value."""
    return not (a == b or _is_less(a, b) or _is_less(b, a))


def _is_less(a: Any, b: Any) -> bool:
    try:
        return bool(a < b)
    except InconclusiveDimensionOperation:
        return False


def with_deferred_comparisons(run: Callable[[list[str] | None], _T]) -> _T:
    """Trace a program with inconclusive comparisons of sizes deferred.

    They are evaluated at run time, or else decided while tracing. A branch or a shape may need the result of a
    comparison while tracing. Then the program is traced again with sizes that differ, as JAX decides (``b == 3`` is
    False for a symbolic dimension), and the logger ``tf2jax_lite`` warns.

    Args:
      run: takes a list to which it adds the node of each comparison that it defers, or None to decide them.
    """
    deferred: list[str] = []
    reasons: list[Exception] = []

    def learn(error: Exception) -> bool:
        if reasons:
            error.add_note(f"With comparisons of sizes deferred to run time: {reasons[0]}")
        elif deferred:
            reasons.append(error)
            return True
        return False

    results = retrace(lambda: run(None if reasons else deferred), learn, LoweringError)
    if reasons:
        _log.warning(
            "Sizes that node %r compares are symbolic and assumed to differ; "
            "results are wrong where they are equal: %s",
            deferred[0],
            reasons[0],
        )
    return results
