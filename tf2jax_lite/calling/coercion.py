"""Coercion of argument values to arrays, and of numbers to a dtype's kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.values import static as values

SCALARS = (bool, int, float, complex, str, bytes)
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


def is_key(value: Any) -> bool:
    """Whether a value is a typed PRNG key, or an array of them."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def scalar_array(value: Any, dtype: np.dtype | None) -> np.ndarray:
    """Return a Python scalar as an array, of ``dtype`` if that is exact.

    Raises:
      ValueError, OverflowError: the value is out of range.
    """
    if dtype is None or isinstance(value, (str, bytes)):
        return np.asarray(value)
    if not isinstance(value, complex) and kind_of(np.result_type(type(value))) > kind_of(dtype):
        exact = np.asarray(value, dtype)
        # A value that the dtype cannot represent becomes an array of another dtype, which is checked as such.
        return exact if exact == value else np.asarray(value)
    return np.asarray(value, None if isinstance(value, complex) else dtype)


def sequence_array(items: Sequence[Any], dtype: np.dtype | None) -> Any:
    """Return nested sequences as one array; numbers as ``dtype`` if it is exact.

    Raises:
      ValueError, TypeError, OverflowError: the sequences are not rectangular, or a number is out of range.
    """
    leaves = jax.tree.leaves(items)
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        return jnp.asarray(items)
    array = np.asarray(items)
    if array.dtype.kind not in "biufc" or dtype is None or not all(isinstance(leaf, SCALARS) for leaf in leaves):
        return array
    if leaves and kind_of(array.dtype) > kind_of(dtype):
        exact = array.astype(dtype)
        return exact if np.array_equal(exact, array) else array
    return np.asarray(items, dtype)


def kind_of(dtype: Any) -> int:
    """Return the rank of a dtype's kind: bool, integer, float, complex.

    Each kind can represent those before it.
    """
    return next(rank for rank, kind in enumerate(_KINDS) if jnp.issubdtype(dtype, kind))


def in_kind(array: Any, dtype: np.dtype) -> Any:
    """Return an array as ``dtype`` if that is bool or of a higher kind.

    Ops depend on the kind: quotients of integers are integers. Returns None if both have the same kind, or if ``dtype``
    cannot represent the array's values; ops then compute with the array's own dtype.
    """
    if kind_of(array.dtype) < kind_of(dtype) or kind_of(dtype) == 0:
        return array.astype(values.canonical(dtype))
    return None


def has_jax_dtype(dtype: np.dtype) -> bool:
    """Whether JAX has a NumPy dtype: bool and numbers.

    It has neither timedelta64 nor longdouble and clongdouble.
    """
    return dtype.kind == "b" or (jnp.issubdtype(dtype, jnp.number) and dtype.char not in "gGm")


def as_strings(array: np.ndarray) -> np.ndarray:
    """Return text as an object array of UTF-8 bytes; any other array unchanged."""
    if array.dtype.kind not in "SUO":
        return array
    out = np.empty(array.shape, object)
    out[...] = array
    flat = [item.encode() if isinstance(item, str) else item for item in out.reshape(-1)]
    out = np.empty(len(flat), object)
    out[:] = flat
    return out.reshape(array.shape)
