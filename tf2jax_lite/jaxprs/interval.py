"""Intervals of numbers: the domain of all analyses of bounds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .compat import max_dim


class Interval(NamedTuple):
    """Numbers from ``lower`` to ``upper``; None: unbounded.

    ``upper`` may be a symbolic dimension.
    """

    lower: Any = None
    upper: Any = None


UNKNOWN = Interval()


def _is_number(bound: Any) -> bool:
    return isinstance(bound, int | float)


def _integers(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two upper bounds, rounded up to integers if one is symbolic."""
    # A symbolic dimension and a float would be a traced value instead of a bound.
    if _is_number(a) and _is_number(b):
        return a, b
    return math.ceil(a) if isinstance(a, float) else a, math.ceil(b) if isinstance(b, float) else b


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    a, b = _integers(a, b)
    return a + b


def product_of_bounds(a: Any, b: Any) -> Any:
    """Return the product of two upper bounds of numbers that are not negative."""
    if a is None or b is None:
        return None
    a, b = _integers(a, b)
    return a * b


def larger_bound(a: Any, b: Any) -> Any:
    """Return the larger of two upper bounds."""
    if a is None or b is None:
        return None
    a, b = _integers(a, b)
    if _is_number(a) and _is_number(b):
        return max(a, b)
    return max_dim(a, b) if isinstance(a, int) or isinstance(b, int) or a is not b else a


def _smaller(a: Any, b: Any) -> Any:
    """Return the tighter of two upper bounds that both hold."""
    if a is None or b is None:
        return b if a is None else a
    if _is_number(a) and _is_number(b):
        return min(a, b)
    return a if _is_number(a) else b


def union(*parts: Interval) -> Interval:
    """Return the smallest interval around several."""
    lower = None if any(p.lower is None for p in parts) else min(p.lower for p in parts)
    upper = parts[0].upper
    for part in parts[1:]:
        upper = larger_bound(upper, part.upper)
    return Interval(lower, upper)


def add(a: Interval, b: Interval) -> Interval:
    """Bound a sum."""
    return Interval(_plus(a.lower, b.lower), _plus(a.upper, b.upper))


def neg(a: Interval) -> Interval:
    """Bound a negated number."""
    # Lower bounds are numbers: a symbolic one has no known value.
    return Interval(-a.upper if _is_number(a.upper) else None, None if a.lower is None else -a.lower)


def sub(a: Interval, b: Interval) -> Interval:
    """Bound a difference."""
    return add(a, neg(b))


def mul(a: Interval, b: Interval) -> Interval:
    """Bound a product."""
    if is_nonnegative(a) and is_nonnegative(b):
        return Interval(a.lower * b.lower, product_of_bounds(a.upper, b.upper))
    if all(map(_is_number, (*a, *b))):
        ends = [x * y for x in a for y in b]
        return Interval(min(ends), max(ends))
    return UNKNOWN


def maximum(a: Interval, b: Interval) -> Interval:
    """Bound the larger of two numbers."""
    known = [p.lower for p in (a, b) if p.lower is not None]
    return Interval(max(known, default=None), larger_bound(a.upper, b.upper))


def minimum(a: Interval, b: Interval) -> Interval:
    """Bound the smaller of two numbers."""
    lower = None if a.lower is None or b.lower is None else min(a.lower, b.lower)
    return Interval(lower, _smaller(a.upper, b.upper))


def clip(x: Interval, lower: Interval, upper: Interval) -> Interval:
    """Bound a number that is clipped."""
    return minimum(maximum(x, lower), upper)


def first(a: Interval, *_: Interval) -> Interval:
    """Return the first interval: that of ops that move or select elements."""
    return a


def is_nonnegative(a: Interval) -> bool:
    """Return whether no number in an interval is negative."""
    return a.lower is not None and a.lower >= 0


def of_array(value: np.ndarray) -> Interval:
    """Return the interval of an array's elements, if they are finite numbers."""
    if value.dtype.kind not in "biuf" or not value.size:
        return UNKNOWN
    lower, upper = value.min().item(), value.max().item()
    if value.dtype.kind == "f" and not (math.isfinite(lower) and math.isfinite(upper)):
        return UNKNOWN
    return Interval(int(lower), int(upper)) if value.dtype.kind == "b" else Interval(lower, upper)
