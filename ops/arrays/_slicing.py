"""Slices of arrays whose bounds, or dimensions, may be symbolic or traced."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length, is_data_dependent
from tf2jax_lite.dynamic_shapes.dim_expr import Constraint
from tf2jax_lite.dynamic_shapes.provenance import Entry, value_of
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.ops.common.static_shape import is_int
from tf2jax_lite.support.errors import OpError


def object_or_array(value: Any) -> Any:
    """Return an element that NumPy indexing returned as an array."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (np.generic, bool)):
        return np.asarray(value)
    if is_int(value):
        return np.asarray(value, np.int32)
    out = np.empty((), object)
    out[()] = value
    return out


def as_int32(entry: Entry) -> Any:
    """Return an entry of a vector of bounds as an int32 array."""
    return (jnp.asarray(entry.offset) if entry.is_known else value_of(entry)).astype(np.int32)


def static_slice(input: Any, low: list[Any], high: list[Any]) -> Any:
    """Slice by bounds that are static or symbolic.

    Bounds that JAX cannot compare with the size are assumed to be inside, as in TensorFlow.
    """
    try:
        return lax.slice(input, low, high)
    except InconclusiveDimensionOperation:
        pass
    try:
        padded = input
        for axis, end in enumerate(high):
            padded = ensure_length(padded, axis, end) if is_data_dependent(end) else padded
        return lax.slice(padded, low, high)
    except InconclusiveDimensionOperation:
        pass
    at = [jnp.asarray(start, np.int32) for start in low]
    sizes = [end - start for start, end in zip(low, high, strict=True)]
    try:
        return lax.dynamic_slice(input, at, sizes, allow_negative_indices=False)
    except InconclusiveDimensionOperation as error:
        ends = zip(high, input.shape, strict=True)
        needed = [Constraint(full, end) for end, full in ends if is_int(full) and not is_int(end)]
        if not needed:
            raise
        text = f"a slice may not be longer than its operand: of symbolic dimensions, it has to hold that {needed[0]}"
        problem = OpError(text)
        problem.constraint = needed[0]
        raise problem from error


def dynamic_slice(input: Any, starts: list[Entry], sizes: list[Any], full: tuple[Any, ...]) -> Any:
    """Slice at traced starts; negative ones count from the end.

    Args:
      input: the array, whose dimensions with static starts are already sliced.
      starts: a start for each dimension.
      sizes: the size of the slice in each dimension.
      full: the shape before any slicing.
    """
    at = [np.int32(0) if s.is_known else wrapped(value_of(s), d) for s, d in zip(starts, full, strict=True)]
    wanted = [d if s.is_known else n for s, n, d in zip(starts, sizes, input.shape, strict=True)]
    for axis, (start, size) in enumerate(zip(starts, wanted, strict=True)):
        if not start.is_known and is_int(size):
            input = ensure_length(input, axis, int(size))
    return lax.dynamic_slice(input, one_dtype(at), wanted, allow_negative_indices=False)


def wrapped(index: Any, size: Any) -> Any:
    """Return a traced index, to which the size is added if it is negative."""
    if jnp.issubdtype(index.dtype, jnp.integer) and index.dtype.itemsize < 4:
        index = lax.convert_element_type(index, np.int32)
    zero = jnp.zeros((), index.dtype)
    return lax.select(lax.lt(index, zero), lax.add(index, jnp.asarray(size, index.dtype)), index)


def one_dtype(indices: list[Any]) -> list[Any]:
    """Return indices in their common dtype."""
    dtype = jnp.result_type(*(i.dtype for i in indices))
    return [i.astype(dtype) if isinstance(i, np.generic) else lax.convert_element_type(i, dtype) for i in indices]
