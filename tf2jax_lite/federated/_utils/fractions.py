"""Round fractions of a count to integers, exactly.

In floating point 0.07 * 100 is just above 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ROUNDING = 1e-4  # closer values are rounded to the integer


def share_up(fraction: float, number: Any) -> Any:
    """Return ``fraction * number`` rounded up, int64; ``number`` is an int or array."""
    return np.ceil(np.asarray(number) * float(fraction) - _ROUNDING).astype(np.int64)


def share_down(fraction: float, number: Any) -> Any:
    """Return ``fraction * number`` rounded down, int64; ``number`` is an int or array."""
    return np.floor(np.asarray(number) * float(fraction) + _ROUNDING).astype(np.int64)
