"""Runs of equal rows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["MOST_COMPARED", "numbered", "starts"]

MOST_COMPARED = 1 << 22
"""How many pairs of rows are compared each with each; of more, equal ones are found by sorting."""


def starts(rows: Any) -> Any:
    """Returns which rows differ from the one before.

    Written without slices, which sizes that data decides would make too short for comparing.

    Args:
      rows: of any rank but 0.

    Returns:
      Bools, one for each row; the first is False. NaN differs from NaN.
    """
    rows = jnp.asarray(rows)
    rest = [(0, 0, 0)] * (rows.ndim - 1)
    before = lax.pad(rows, np.zeros((), rows.dtype), [(1, -1, 0), *rest])
    differs = rows != before
    if rest:
        differs = jnp.any(differs, axis=tuple(range(1, rows.ndim)))
    return differs & (lax.iota(np.int32, rows.shape[0]) > 0)


def numbered(rows: Any) -> Any:
    """Returns for each row the number of its run, from 0 on (int32)."""
    return jnp.cumsum(starts(rows), dtype=np.int32)
