"""Equations of a jaxpr, taken by themselves."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["bind", "size"]


def bind(eqn: Any, *args: Any) -> list[Any]:
    """Evaluates an equation.

    Args:
      eqn: of a jaxpr.
      *args: a value for each of its operands.

    Returns:
      Its results.
    """
    found = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # JAX before 0.10: a pair
    results = eqn.primitive.bind(*functions, *args, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def size(var: Any, trips: int = 1) -> float:
    """Returns how many values a variable has in so many iterations; infinity where its shape is symbolic."""
    shape = var.aval.shape
    return trips * math.prod(shape) if all(isinstance(n, int) for n in shape) else math.inf
