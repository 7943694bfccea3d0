"""How much ranges of rows can hold together, where they begin and end as rows of a ragged tensor do.

A row is no longer than all values, and so many rows no longer than the rows' number times all values. But rows that
lie side by side have no more than all values together, and neither has what is cut of them: that is seen here, by what
their starts and limits are computed of (see provenance.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .provenance import constant_behind, equation_of, name_of
from .tracker import natural

__all__ = ["most_between", "most_together"]

_MAX_DEPTH = 16
_SAME = ("convert_element_type", "copy", "copy_p")


def most_together(lengths: Any) -> Any:
    """Returns the most that lengths of rows (a vector) can be together, None if nothing tells."""
    name, operands, _ = equation_of(lengths)
    while name in _SAME:
        name, operands, _ = equation_of(operands[0])
    found = _side_by_side(operands[1], operands[0]) if name == "sub" else None
    if found is not None:
        return found
    greatest = natural(lengths)
    return None if greatest is None else greatest * lengths.shape[0]


def most_between(starts: Any, limits: Any) -> Any:
    """Returns how many whole numbers there can be from starts to limits (vectors) together, None if nothing tells."""
    found = _side_by_side(starts, limits)
    if found is not None:
        return found
    greatest = natural(limits - starts)
    return None if greatest is None else greatest * limits.shape[0]


def _side_by_side(starts: Any, limits: Any) -> Any:
    """Returns the most between starts and limits that lie within neighbouring elements of one vector; else None."""
    lower, upper = _within(starts, 0, _MAX_DEPTH), _within(limits, 1, _MAX_DEPTH)
    if lower is None or upper is None or name_of(lower[0]) != name_of(upper[0]):
        return None
    whole = natural(lower[0])
    return None if whole is None else whole + max(0, upper[1] - lower[1]) * starts.shape[0]


def _within(vector: Any, end: int, depth: int) -> tuple[Any, int] | None:
    """Returns a vector v and a number c, so that elements are no more than those of v but the first, plus c.

    Args:
      vector: what is looked at.
      end: 1 for that, 0 for what is no less than v's elements but the last, plus c.
      depth: how many equations to walk back at most.
    """
    name, operands, params = equation_of(vector)
    if name == "slice" and operands[0].ndim == 1 and params["strides"] in (None, (1,)):
        count = operands[0].shape[0]
        first, last = params["start_indices"][0], params["limit_indices"][0]
        if isinstance(count, int) and (first, last) == ((1, count) if end else (0, count - 1)):
            return operands[0], 0
        return None
    if not depth:
        return None
    if name in _SAME:
        return _within(operands[0], end, depth - 1)
    if name == ("min" if end else "max"):
        found = (_within(operand, end, depth - 1) for operand in operands)
        return next((v for v in found if v is not None), None)
    if name in ("add", "sub"):
        number = constant_behind(operands[1])
        if number is None or not number.size or not np.issubdtype(number.dtype, np.integer):
            return None
        inner = _within(operands[0], end, depth - 1)
        number = -number if name == "sub" else number
        return None if inner is None else (inner[0], inner[1] + int(number.max() if end else number.min()))
    return None
