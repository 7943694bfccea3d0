"""Coordinates of nonzero elements, one-hot encoding, in-place row updates.

Kernels: where_op.cc, one_hot_op.cc, inplace_ops.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import as_size, keep_rows, row_capacity
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import is_int
from tf2jax_lite.ops.common.rows import nonzero
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims


def _select(mask: Any, x: Any, y: Any, shape: tuple[Any, ...]) -> Any:
    return lax.select(jnp.broadcast_to(mask, shape), jnp.broadcast_to(x, shape), jnp.broadcast_to(y, shape))


@op("OneHot", result_size=result_size.count(1))
def one_hot(indices, depth: Static, on_value, off_value, *, axis=-1):
    """Return one-hot vectors along a new axis.

    Args:
      indices: integers; those outside ``[0, depth)`` select no position.
      axis: the new axis, -1 or in ``[0, rank]``.
    """
    indices = jnp.asarray(indices)
    rank = indices.ndim + 1
    if not -1 <= axis < rank:
        raise OpError(f"axis {axis} must be -1 or in [0, {rank})")
    axis = axis % rank
    if np.ndim(depth) or np.ndim(on_value) or np.ndim(off_value):
        raise OpError("depth, on_value and off_value must be scalars")
    (count,) = dims(depth)
    if is_int(count) and count < 0:
        raise OpError(f"depth must be non-negative, got {count}")
    if indices.dtype.itemsize < 4:  # positions beyond the dtype's range must not wrap around
        indices = lax.convert_element_type(indices, np.int32)
    shape = (*indices.shape[:axis], as_size(count), *indices.shape[axis:])
    indices = lax.broadcast_in_dim(indices, shape, tuple(i for i in range(rank) if i != axis))
    hit = lax.eq(indices, lax.broadcasted_iota(indices.dtype, shape, axis))
    static = isinstance(on_value, np.ndarray) and isinstance(off_value, np.ndarray)
    if static and on_value == 1 and not any(off_value.tobytes()):  # -0.0 has a bit
        # A select takes 1.5 times as long on CPU.
        return lax.convert_element_type(hit, canonical(np.asarray(on_value).dtype))
    return _select(hit, on_value, off_value, shape)


def _fold_where(input: Any) -> Any:
    x = np.asarray(input)
    if x.ndim == 0:
        raise OpError("the input of Where must be at least 1-dim")
    return np.argwhere(x != 0).astype(np.int64).reshape(-1, x.ndim)


@op("Where", fold=_fold_where)
def where(input, *, bound: Bound = None):
    """Return the coordinates of nonzero elements.

    Returns:
      ``[n, rank]``, int64, in row-major order. With an int ``bound`` it has that many rows: rows after the last are -1
      (which gathers zeros and scatters nothing), further coordinates are dropped.
    """
    if isinstance(input, np.ndarray):
        return _fold_where(input)
    if input.ndim == 0:
        raise OpError("the input of Where must be at least 1-dim")
    size = row_capacity(bound, input.size, "the number of results depends on traced values")
    mask = lax.ne(input, lax.full_like(input, 0))
    index = nonzero(lax.reshape(mask, (input.size,)) if input.ndim > 1 else mask, size, -1)
    (index,) = keep_rows(bound, mask, index, of=(input,))
    return _coordinates(index.astype(canonical(np.int64)), input.shape)


def _coordinates(index: Any, shape: Sequence[Any]) -> Any:
    """Return the coordinates of flat indices in a shape; those of -1 are -1."""
    columns = []
    rest = index
    for dim in reversed(shape[1:]):
        size = jnp.maximum(jnp.asarray(dim, index.dtype), 1)
        columns.append(jnp.where(index < 0, index, lax.rem(rest, jnp.broadcast_to(size, rest.shape))))
        rest = lax.div(rest, jnp.broadcast_to(size, rest.shape))
    return jnp.stack([jnp.where(index < 0, index, rest), *reversed(columns)], 1)


def _rows(x: Any, i: Any, v: Any) -> tuple[Any, Any, Any]:
    x, i, v = jnp.asarray(x), jnp.asarray(i), jnp.asarray(v)
    if i.ndim != 1 or x.ndim != v.ndim or x.shape[1:] != v.shape[1:] or i.shape[0] != v.shape[0]:
        raise OpError(f"x {x.shape}, i {i.shape} and v {v.shape} do not fit")
    return x, jnp.remainder(i, x.shape[0]), v


@op("InplaceUpdate")
def inplace_update(x, i, v):
    """Replace rows.

    Args:
      i: ``[m]``, ints, taken modulo ``n``.
    """
    x, i, v = _rows(x, i, v)
    return x.at[i].set(v, mode="promise_in_bounds")


@op("InplaceAdd")
def inplace_add(x, i, v):
    """Add to rows. Arguments are those of `inplace_update`."""
    x, i, v = _rows(x, i, v)
    return x.at[i].add(v, mode="promise_in_bounds")


@op("InplaceSub")
def inplace_sub(x, i, v):
    """Subtract from rows.

    Arguments are those of `inplace_update`.
    """
    x, i, v = _rows(x, i, v)
    return x.at[i].add(lax.neg(v), mode="promise_in_bounds")
