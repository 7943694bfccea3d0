"""Values as branches and loops carry them: data as arrays, symbols beside them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.containers.tensor_list import EmptyListError
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import WordArray
from tf2jax_lite.values.tensor_list import TensorList

from .rank_variants import RankVariants

_MAX_STATIC_NUMBERS = 1 << 16  # of a stack that stays static: it is searched for each index


class _Undefined:
    """A placeholder for a result that a branch lacks, not read if it is taken."""

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED = _Undefined()


class UndefinedValueError(OpError):
    """A value is read that no branch defines, in code that cannot run."""


IMPOSSIBLE = (EmptyListError, UndefinedValueError)
"""The errors of branches and loop bodies that cannot run."""


def is_carried(value: Any) -> bool:
    """Return whether a value is data, rather than a symbol such as a handle."""
    return isinstance(value, (jax.Array, np.ndarray, np.generic)) or is_pytree_handle(value)


def is_variant(value: Any) -> bool:
    """Return whether TensorFlow has a value as variants: list, map, ragged row."""
    return is_pytree_handle(value) and not isinstance(value, WordArray)


def is_pytree_handle(value: Any) -> bool:
    """Return whether branches and loops carry the leaves of a value."""
    return isinstance(value, TensorList) or bool(getattr(value, "is_pytree_handle", False))


def as_traced(value: Any) -> Any:
    """Return data for JAX control flow: canonical, strongly typed arrays."""
    if isinstance(value, TensorList):
        value = value.packed()
    if is_pytree_handle(value):
        return jax.tree.map(as_traced, value)
    if isinstance(value, RankVariants):
        value = value.resolved()
    value = values.as_array(value)
    if isinstance(value, jax.Array) and value.weak_type:
        return lax.convert_element_type(value, value.dtype)
    return jnp.asarray(value)


def as_carried(value: Any) -> Any:
    """Return data for an initial carry: `as_traced` except static integers.

    They may be the indices that the loop reads and writes.
    """
    if isinstance(value, TensorList):
        value = value.packed()
    if is_pytree_handle(value):
        return jax.tree.map(as_carried, value)
    if values.is_static(value) and value.dtype.kind in "iu" and value.size <= _MAX_STATIC_NUMBERS:
        return values.as_array(value)
    return as_traced(value)


def same_static(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two static values are equal."""
    return a.dtype == b.dtype and np.shape(a) == np.shape(b) and bool(np.all(a == b))
