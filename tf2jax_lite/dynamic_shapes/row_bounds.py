"""Upper bounds for the total length of the rows of a ragged tensor.

Each row is at most as long as the flat values, so n rows have at most n times as many elements. Rows delimited by
neighboring row splits do not overlap: together they are at most as long as the flat values, and so are parts of them.
The equations that computed the rows' starts and limits (see provenance.py) tell whether that is the case.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tf2jax_lite.jaxprs.compat import equation_of

from .provenance import name_of, source_constant
from .tracker import inferred_bound

_MAX_DEPTH = 16
_SAME = ("convert_element_type", "copy", "copy_p")


def total_length_bound(lengths: Any) -> Any:
    """Return an upper bound for the sum of row lengths (a vector), or None."""
    name, operands, _ = equation_of(lengths)
    while name in _SAME:
        name, operands, _ = equation_of(operands[0])
    found = _disjoint_bound(operands[1], operands[0]) if name == "sub" else None
    if found is not None:
        return found
    bound = inferred_bound(lengths)
    return None if bound is None else bound * lengths.shape[0]


def range_length_bound(starts: Any, limits: Any) -> Any:
    """Return an upper bound for the total length of ranges (vectors), or None."""
    found = _disjoint_bound(starts, limits)
    if found is not None:
        return found
    bound = inferred_bound(limits - starts)
    return None if bound is None else bound * limits.shape[0]


def _disjoint_bound(starts: Any, limits: Any) -> Any:
    """Return the length of ranges within neighboring elements of a vector, or None."""
    lower, upper = _within(starts, 0, _MAX_DEPTH), _within(limits, 1, _MAX_DEPTH)
    if lower is None or upper is None or name_of(lower[0]) != name_of(upper[0]):
        return None
    total = inferred_bound(lower[0])
    return None if total is None else total + max(0, upper[1] - lower[1]) * starts.shape[0]


def _within(vector: Any, end: int, depth: int) -> tuple[Any, int] | None:
    """Return v, c with ``vector <= v[1:] + c``; with ``end=0``, ``>= v[:-1] + c``."""
    # end: 1 for limits of ranges, 0 for their starts.
    # depth: the maximum number of equations to look through.
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
        number = source_constant(operands[1])
        if number is None or not number.size or not np.issubdtype(number.dtype, np.integer):
            return None
        inner = _within(operands[0], end, depth - 1)
        number = -number if name == "sub" else number
        return None if inner is None else (inner[0], inner[1] + int(number.max() if end else number.min()))
    return None
