"""Integers of users that exceed the dtypes with which JAX computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tf2jax_lite.support.errors import InputError, Tf2JaxError
from tf2jax_lite.values.int64 import exceeds_32_bits


def check_integers(arrays: Mapping[str, Any], where: str, error: type[Tf2JaxError] = InputError) -> None:
    """Refuse integers that JAX would wrap: beyond 32 bits, without 64-bit mode."""
    if jax.config.jax_enable_x64:
        return
    for name, value in arrays.items():
        if exceeds_32_bits(value):
            raise error(
                f"{where}: {name!r} has integers from {value.min()} to {value.max()}, and JAX computes with 32 bits. "
                "Set JAX_ENABLE_X64=1 for 64 bits, or map them to smaller ones, as in ids % table_size."
            )


def fit_integers(
    array: np.ndarray, dtype: Any, name: str, declared: Any = None, error: type[Tf2JaxError] = InputError
) -> np.ndarray:
    """Return integers in another integer dtype, which must hold their values.

    Args:
      declared: the dtype that a program names, if JAX computes with a smaller one.
    """
    found = array.astype(dtype, copy=False)
    if not np.can_cast(array.dtype, found.dtype) and not np.array_equal(found, array):
        cause = f", which {declared} becomes without JAX_ENABLE_X64=1, here and at conversion"
        cause = cause if declared is not None and found.dtype != declared else ""
        raise error(f"{name} has values from {array.min()} to {array.max()}, too large for {found.dtype}{cause}")
    return found
