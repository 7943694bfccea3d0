"""Byte order of arrays that users give."""

from __future__ import annotations

from typing import Any

import numpy as np


def native(value: Any) -> Any:
    """Return an array in native byte order, the only one that JAX takes."""
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value
