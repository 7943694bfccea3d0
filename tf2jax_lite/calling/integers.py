"""Integers of users that exceed the dtypes with which JAX computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import InputError, Tf2JaxError
from tf2jax_lite.values.int64 import U32Pair, exceeds_32_bits, to_u32_pair

from .params import Variable


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


def fit_integers(array: np.ndarray, dtype: Any, name: str, declared: Any = None) -> np.ndarray:
    """Return integers in another integer dtype, which must hold their values.

    Args:
      declared: the dtype that a program names, if JAX computes with a smaller one.
    """
    found = array.astype(dtype, copy=False)
    if not np.can_cast(array.dtype, found.dtype) and not np.array_equal(found, array):
        cause = f", which {declared} becomes without JAX_ENABLE_X64=1, here and at conversion"
        cause = cause if declared is not None and found.dtype != declared else ""
        raise InputError(f"{name} has values from {array.min()} to {array.max()}, too large for {found.dtype}{cause}")
    return found


_INT64 = np.dtype(np.int64)


def as_param(value: Any, name: str) -> Any:
    """Return a variable's value at conversion in the form of the current mode.

    Args:
      value: int64, an array or a ``jax.ShapeDtypeStruct``.
    """
    if jax.config.jax_enable_x64:
        return value
    if isinstance(value, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((*value.shape, 2), np.uint32)
    return Variable(to_u32_pair(np.asarray(value)), False, name)


def enter(state: dict[str, Any], names: Iterable[str]) -> dict[str, bool]:
    """Convert variables of 64-bit state to the form that ops take, in place.

    Args:
      names: those that hold 64-bit state.

    Returns:
      For each variable with a value, whether it was given as words.
    """
    given: dict[str, bool] = {}
    for name in names:
        if name not in state:
            continue
        value = state[name]
        given[name] = value.dtype == np.uint32 and value.ndim > 0 and value.shape[-1] == 2
        if given[name]:
            words = jnp.asarray(value)
            state[name] = lax.bitcast_convert_type(words, _INT64) if _x64() else U32Pair(words, _INT64)
        elif value.dtype != _INT64:
            raise InputError(
                f"param {name!r} is 64-bit state (of a random generator), but arrives as {value.dtype}, which lost "
                "half of its bits. Pass it as convert() returned it, or as 32-bit words (uint32 of shape "
                f"{[*value.shape, 2]}, low word first), or set jax_enable_x64."
            )
        elif not _x64():
            state[name] = U32Pair(jnp.asarray(to_u32_pair(np.asarray(value))), _INT64)
    return given


def leave(state: dict[str, Any], given: Mapping[str, bool]) -> None:
    """Convert 64-bit state back in place to the form given: words without x64."""
    for name, words in given.items():
        if words or not _x64():
            value = state[name]
            state[name] = value.data if isinstance(value, U32Pair) else jnp.asarray(to_u32_pair(value))


def _x64() -> bool:
    return bool(jax.config.jax_enable_x64)
