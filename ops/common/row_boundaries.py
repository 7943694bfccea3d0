"""Run of equal adjacent rows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

MAX_COMPARED_PAIRS = 1 << 22
"""Up to this many pairs of rows are compared pairwise; beyond, equal rows are identified by sorting."""


def starts(rows: Any) -> Any:
    """Return which rows differ from the row before.

    It pads instead of slicing: slices of data-dependent dimensions could not be compared.

    Returns:
      ``[n]``, bools, of which the first is False. NaN differs from NaN.
    """
    rows = jnp.asarray(rows)
    rest = [(0, 0, 0)] * (rows.ndim - 1)
    before = lax.pad(rows, np.zeros((), rows.dtype), [(1, -1, 0), *rest])
    differs = rows != before
    if rest:
        differs = jnp.any(differs, axis=tuple(range(1, rows.ndim)))
    return differs & (lax.iota(np.int32, rows.shape[0]) > 0)


def numbered(rows: Any) -> Any:
    """Return the number of each row's run, int32 from 0."""
    return jnp.cumsum(starts(rows), dtype=np.int32)
