"""Arrays of one value, ranges, and evenly spaced numbers.

Kernels: constant_op.cc, sequence_ops.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import MAX_FOLDED, is_int, is_small
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, is_symbolic
from tf2jax_lite.values.symbolic_float import FloatDim, is_float_dim, truncate_to_dim

from .shape import INT32, static_sizes


def _fold_fill(dims: Any, value: Any) -> Any:
    wanted = static_sizes(dims)
    value = np.asarray(value)
    if value.ndim:
        raise OpError(f"value must be a scalar, got shape {value.shape}")
    if is_small(wanted) or (value.dtype == object and not is_symbolic(value)):
        return np.full(wanted, value, value.dtype)
    return jnp.full(wanted, as_array(value))


@op("Fill", fold=_fold_fill, result_size=result_size.from_sizes(0))
def fill(dims: Static, value):
    """Return an array of one value."""
    if np.ndim(value):
        raise OpError(f"value must be a scalar, got shape {np.shape(value)}")
    return jnp.broadcast_to(value, static_sizes(dims))


@op(
    "Empty",
    fold=lambda shape, *, dtype: _fold_fill(shape, np.zeros((), dtype)),
    result_size=result_size.from_sizes(0),
)
def empty(shape: Static, *, dtype, init=False):
    """Return zeros: memory is never uninitialized here."""
    return jnp.zeros(static_sizes(shape), canonical(dtype))


def _fold_range(start: Any, limit: Any, delta: Any) -> Any:
    if any(is_symbolic(v) for v in (start, limit, delta)):
        return range_(start, limit, delta)
    start, limit, delta = (np.reshape(v, ()) for v in (start, limit, delta))
    if delta == 0:
        raise OpError("delta must not be 0")
    if (start > limit) if delta > 0 else (start < limit):
        raise OpError(f"start {start} does not reach limit {limit} by steps of {delta}")
    if np.issubdtype(start.dtype, np.integer):
        count = -((int(start) - int(limit)) // int(delta))
        if count > 64 * MAX_FOLDED:
            return _arange(count, int(start), int(delta), start.dtype)
        return np.asarray(np.arange(count) * int(delta) + int(start), start.dtype)
    count = math.ceil(abs(float((limit - start) / delta)))
    # In the dtype itself, as TensorFlow does: beyond 256, bfloat16 numbers repeat.
    return np.asarray(start + np.arange(count).astype(start.dtype) * delta, start.dtype)


def _arange(count: Any, first: Any, step: Any, dtype: Any) -> Any:
    dtype = canonical(dtype)
    out = lax.iota(dtype, count)
    if not (is_int(step) and step == 1):
        out = lax.mul(out, jnp.broadcast_to(jnp.asarray(step, dtype), out.shape))
    if not (is_int(first) and first == 0):
        out = lax.add(out, jnp.broadcast_to(jnp.asarray(first, dtype), out.shape))
    return out


@op("Range", fold=_fold_range, result_size=result_size.range_elements)
def range_(start: Static, limit: Static, delta: Static):
    """Return numbers from ``start`` up to, but not including, ``limit``.

    Args:
      delta: the step, a number other than 0.

    Returns:
      ``[ceil((limit - start) / delta)]``, of the inputs' dtype; floats are rounded in it, as in TensorFlow.
    """
    if not any(is_symbolic(v) for v in (start, limit, delta)):
        return _fold_range(start, limit, delta)
    dtype = next((v.dtype for v in (start, limit, delta) if not is_symbolic(v)), INT32)
    (first,), (last,), (step,) = dims(start), dims(limit), dims(delta)
    if any(map(is_float_dim, (start, limit, delta))):
        return _range_of_floats(first, last, step, dtype if dtype.kind == "f" else np.dtype(np.float32))
    if not is_int(step):
        raise OpError("delta must not be a symbolic dimension")
    if step == 0:
        raise OpError("delta must not be 0")
    count = max_dim(-((first - last) // step) if abs(step) > 1 else (last - first) * step, 0)
    return _arange(count, first, step, dtype)


def _range_of_floats(first: Any, last: Any, step: Any, dtype: np.dtype) -> Any:
    if isinstance(step, FloatDim) or step == 0:
        raise OpError("delta must be a number other than 0")
    count = truncate_to_dim(np.ceil((FloatDim(0) + last - first) / step))
    first = first.traced(canonical(dtype)) if isinstance(first, FloatDim) else first
    return _arange(max_dim(count, 0), first, step, dtype)


@op("LinSpace", result_size=result_size.count(2))
def lin_space(start, stop, num: Static):
    """Return evenly spaced numbers, both ends included."""
    (count,) = dims(num)
    if is_int(count) and count <= 0:
        raise OpError(f"num must be positive, got {count}")
    start, stop = jnp.asarray(start), jnp.asarray(stop)
    if start.ndim or stop.ndim:
        raise OpError("start and stop must be scalars")
    if is_int(count) and count == 1:
        return lax.reshape(start, (1,))
    index = lax.iota(start.dtype, count)
    step = lax.div(lax.sub(stop, start), jnp.asarray(count - 1, start.dtype))
    start, step, stop = (jnp.broadcast_to(v, index.shape) for v in (start, step, stop))
    out = lax.add(start, lax.mul(index, step))
    last = lax.eq(lax.iota(np.int32, count), jnp.broadcast_to(jnp.asarray(count - 1, np.int32), index.shape))
    return lax.select(last, stop, out)
