"""Comparison of shapes whose dimensions may be symbolic.

A dimension is an int where its size is static, and an expression of symbolic dimensions otherwise, whose comparison
with another one may be inconclusive. These helpers compare ints only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

MAX_FOLDED = 1024
"""Elements of the largest array that constant folding makes; larger ones are made in the trace, without a constant."""


def is_int(value: Any) -> bool:
    """Return whether a dimension is static."""
    return isinstance(value, (int, np.integer))


def is_zero(value: Any) -> bool:
    """Return whether a dimension is statically 0."""
    return is_int(value) and value == 0


def is_small(shape: tuple[Any, ...]) -> bool:
    """Return whether a shape is static and has at most `MAX_FOLDED` elements."""
    return all(map(is_int, shape)) and math.prod(shape) <= MAX_FOLDED


def compatible(shape: Any, other: Any, skip: int | None = None) -> bool:
    """Return whether two shapes may be equal.

    That is if the ranks agree, and the dimensions that are static in both.

    Args:
      shape: a sequence of dimensions; None and symbolic dimensions are unknown.
      skip: a dimension that is not compared.
    """
    return len(shape) == len(other) and all(
        i == skip or not (is_int(a) and is_int(b)) or a == b for i, (a, b) in enumerate(zip(shape, other, strict=True))
    )
