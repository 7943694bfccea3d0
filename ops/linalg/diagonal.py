"""Diagonals and bands of matrices.

Kernels: diag_op.cc in tensorflow/core/kernels, matrix_band_part_op.cc, matrix_diag_op.cc, matrix_set_diag_op.cc in
tensorflow/core/kernels/linalg.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.jaxprs.compat import max_dim, min_dim
from tf2jax_lite.ops.common.broadcasting import compatible, is_int
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims, static_value


def _offsets(rows: Any, columns: Any) -> tuple[Any, Any]:
    """Return the row and the column number of each element of a matrix."""
    shape = (rows, columns)
    return lax.broadcasted_iota(np.int32, shape, 0), lax.broadcasted_iota(np.int32, shape, 1)


def _select(mask: Any, x: Any, y: Any) -> Any:
    """Select elements of two arrays, broadcast to the shape of ``x``."""
    return lax.select(jnp.broadcast_to(mask, x.shape), x, jnp.broadcast_to(y, x.shape))


@op("Diag")
def diag(diagonal):
    """Return a tensor of twice the rank with the given diagonal."""
    x = jnp.asarray(diagonal)
    if x.ndim == 0:
        raise OpError("input must be at least rank 1, got 0")
    size = math.prod(x.shape)
    out = matrix_diag(lax.reshape(x, (size,)) if x.ndim > 1 else x)
    return lax.reshape(out, (*x.shape, *x.shape)) if x.ndim > 1 else out


@op("DiagPart", pattern=Pattern.INJECTIVE)
def diag_part(input):
    """Return the diagonal of a tensor of even rank."""
    x = jnp.asarray(input)
    half = x.ndim // 2
    if x.ndim % 2 or x.shape[:half] != x.shape[half:]:
        raise OpError(f"the two halves of the shape must be equal, got {x.shape}")
    if not half:
        return x
    size = math.prod(x.shape[:half])
    return lax.reshape(jnp.diagonal(lax.reshape(x, (size, size))), x.shape[:half])


@op("MatrixBandPart", "BatchMatrixBandPart")
def matrix_band_part(input, num_lower, num_upper):
    """Keep a band around the diagonal, zeros elsewhere.

    Args:
      num_lower: scalar int, number of subdiagonals; negative: all.
      num_upper: scalar int, number of superdiagonals; negative: all.
    """
    x = jnp.asarray(input)
    if x.ndim < 2:
        raise OpError(f"input must be at least 2-dim, got {x.shape}")
    rows, columns = x.shape[-2:]
    row, column = _offsets(rows, columns)
    keep = None
    for width, name, distance, limit in (
        (num_lower, "num_lower", lax.sub(row, column), rows),
        (num_upper, "num_upper", lax.sub(column, row), columns),
    ):
        static = static_value(width)
        if static is not None and static.dtype != object:
            if int(static) < 0:
                continue
            if is_int(limit) and int(static) > limit:
                raise OpError(f"{name} must be negative or at most {limit}, got {int(static)}")
            inside = lax.le(distance, np.full((), min(int(static), 2**31 - 1), np.int32))
        else:
            width = lax.convert_element_type(as_array(width), np.int32)
            inside = lax.bitwise_or(lax.lt(width, np.int32(0)), lax.le(distance, jnp.broadcast_to(width, row.shape)))
        keep = inside if keep is None else lax.bitwise_and(keep, inside)
    return x if keep is None else _select(keep, x, np.zeros((), x.dtype))


@op("MatrixDiag", "BatchMatrixDiag")
def matrix_diag(diagonal):
    """Return matrices ``[..., n, n]`` with diagonals ``[..., n]``."""
    x = jnp.asarray(diagonal)
    if x.ndim == 0:
        raise OpError("input must be at least 1-dim")
    size = x.shape[-1]
    row, column = _offsets(size, size)
    rows = lax.broadcast_in_dim(x, (*x.shape, size), tuple(range(x.ndim)))
    return _select(lax.eq(row, column), rows, np.zeros((), x.dtype))


@op("MatrixDiagPart", "BatchMatrixDiagPart", pattern=Pattern.INJECTIVE)
def matrix_diag_part(input):
    """Return the main diagonals of matrices."""
    return matrix_diag_part_v3(input, np.int32(0), np.zeros((), input.dtype))


@op("MatrixSetDiag", "BatchMatrixSetDiag")
def matrix_set_diag(input, diagonal):
    """Replace the main diagonals of matrices."""
    return matrix_set_diag_v3(input, diagonal, np.int32(0))


def _range(k: Any) -> tuple[int, int]:
    """Return the lowest and the highest diagonal."""
    bounds = dims(k)
    if np.ndim(k) > 1 or not 1 <= len(bounds) <= 2:
        raise OpError(f"k must be a scalar or a vector of one or two elements, got shape {np.shape(k)}")
    low, high = int(bounds[0]), int(bounds[-1])
    if low > high:
        raise OpError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    return low, high


def _check_range(low: int, high: int, rows: Any, columns: Any) -> None:
    for k in (low, high):
        if k != 0 and ((is_int(rows) and k <= -rows) or (is_int(columns) and k >= columns)):
            raise OpError(f"diagonal {k} is out of range for a matrix of shape ({rows}, {columns})")


def _longest(low: int, high: int, rows: Any, columns: Any) -> Any:
    """Return the maximal length of the diagonals."""
    return min_dim(rows + min(high, 0), columns - max(low, 0))


def _margin(k: Any, longest: Any, rows: Any, columns: Any, align: str) -> Any:
    """Return the number of padding elements before each of the diagonals ``k``."""
    upper, lower = align.split("_")
    zero = np.int32(0)
    rows, columns, longest = (jnp.asarray(d, np.int32) for d in (rows, columns, longest))
    length = lax.min(
        lax.add(jnp.broadcast_to(rows, k.shape), lax.min(k, zero)),
        lax.sub(jnp.broadcast_to(columns, k.shape), lax.max(k, zero)),
    )
    margin = lax.sub(jnp.broadcast_to(longest, k.shape), length)
    # The main diagonal goes to the left if either side does.
    left = (lax.ge(k, zero) if upper == "LEFT" else np.False_) | (lax.le(k, zero) if lower == "LEFT" else np.False_)
    return _select(left, jnp.zeros_like(margin), margin)


def _embed(diagonal: Any, low: int, high: int, rows: Any, columns: Any, align: str) -> tuple[Any, Any]:
    """Return a matrix that holds the diagonals, and the mask of their elements."""
    longest = diagonal.shape[-1]
    row, column = _offsets(rows, columns)
    k = lax.sub(column, row)
    inside = lax.eq(k, np.int32(low)) if low == high else lax.ge(k, np.int32(low)) & lax.le(k, np.int32(high))
    batch = diagonal.ndim - (1 if low == high else 2)
    shape = (*diagonal.shape[:batch], rows, columns)
    if low == high and longest == (rows if low >= 0 else columns):
        axis = batch if low >= 0 else batch + 1  # element i is in row i, or in column i
        return lax.broadcast_in_dim(diagonal, shape, (*range(batch), axis)), inside
    if isinstance(longest, int) and longest == 0:
        return jnp.zeros(shape, diagonal.dtype), inside
    element = lax.min(row, column)
    if low != high:
        number = lax.clamp(np.int32(0), lax.sub(np.int32(high), k), np.int32(high - low))
        at = lax.add(element, _margin(lax.sub(np.int32(high), number), longest, rows, columns, align))
        flat = lax.reshape(diagonal, (*shape[:batch], (high - low + 1) * longest))
        at = lax.add(lax.mul(number, jnp.broadcast_to(jnp.asarray(longest, np.int32), at.shape)), at)
    else:
        flat, at = diagonal, element
    return jnp.take(flat, at, axis=-1, mode="clip"), inside


def _set(base: Any, diagonal: Any, k: Any, align: str) -> Any:
    low, high = _range(k)
    rows, columns = base.shape[-2:]
    if math.prod(d for d in base.shape if is_int(d)) == 0:
        return base
    placed, inside = _embed(diagonal, low, high, rows, columns, align)
    return _select(inside, placed, base)


@op("MatrixSetDiagV3")
def matrix_set_diag_v3(input, diagonal, k: Static, *, align="RIGHT_LEFT"):
    """Replace diagonals of matrices.

    Args:
      diagonal: ``[..., length]`` of one diagonal, ``[..., count, length]`` of several, the highest first, padded to the
        longest.
      k: the diagonal, or the lowest and the highest one; 0 is the main diagonal, positive ones are above it.
    """
    x, diagonal = jnp.asarray(input), jnp.asarray(diagonal)
    if x.ndim < 2:
        raise OpError(f"input must be at least 2-dim, got {x.shape}")
    low, high = _range(k)
    rows, columns = x.shape[-2:]
    _check_range(low, high, rows, columns)
    count = () if low == high else (high - low + 1,)
    wanted = (*x.shape[:-2], *count, _longest(low, high, rows, columns))
    if not compatible(diagonal.shape, wanted):
        raise OpError(f"diagonal must have shape {wanted}, got {diagonal.shape}")
    return _set(x, diagonal, k, align)


@op("MatrixSetDiagV2")
def matrix_set_diag_v2(input, diagonal, k: Static):
    """Replace diagonals of matrices, aligned left.

    See `matrix_set_diag_v3`.
    """
    return matrix_set_diag_v3(input, diagonal, k, align="LEFT_LEFT")


@op("MatrixDiagV3")
def matrix_diag_v3(diagonal, k: Static, num_rows: Static, num_cols: Static, padding_value, *, align="RIGHT_LEFT"):
    """Return matrices with the given diagonals.

    Args:
      num_rows: scalar int; -1: the fewest that hold the diagonals.
      num_cols: scalar int; -1: the fewest that hold the diagonals.
      padding_value: scalar, the other elements; it gets no gradient.
    """
    x, padding_value = jnp.asarray(diagonal), lax.stop_gradient(jnp.asarray(padding_value))
    low, high = _range(k)
    if x.ndim < (1 if low == high else 2):
        raise OpError(f"diagonal has too few dimensions: {x.shape}")
    if low != high and is_int(x.shape[-2]) and x.shape[-2] != high - low + 1:
        raise OpError(f"diagonal holds {x.shape[-2]} diagonals, k asks for {high - low + 1}")
    longest = x.shape[-1]
    (rows,), (columns,) = dims(num_rows), dims(num_cols)
    min_rows, min_columns = longest - min(high, 0), longest + max(low, 0)
    infer_rows, infer_columns = (is_int(d) and d == -1 for d in (rows, columns))
    if infer_rows and infer_columns:
        rows = columns = max_dim(min_rows, min_columns)
    elif infer_rows:
        rows = min_rows
    elif infer_columns:
        columns = min_columns
    if all(map(is_int, (rows, columns, longest))):
        if rows < min_rows or columns < min_columns:
            raise OpError(f"({rows}, {columns}) is too small for diagonals {low} to {high} of length {longest}")
        if rows != min_rows and columns != min_columns:
            raise OpError(f"({rows}, {columns}) does not fit diagonals {low} to {high} of length {longest}")
    batch = x.shape[: x.ndim - (1 if low == high else 2)]
    return _set(jnp.broadcast_to(padding_value, (*batch, rows, columns)), x, k, align)


@op("MatrixDiagV2")
def matrix_diag_v2(diagonal, k: Static, num_rows: Static, num_cols: Static, padding_value):
    """Return matrices with the given diagonals, aligned left.

    See `matrix_diag_v3`.
    """
    return matrix_diag_v3(diagonal, k, num_rows, num_cols, padding_value, align="LEFT_LEFT")


@op("MatrixDiagPartV3", pattern=Pattern.INJECTIVE)
def matrix_diag_part_v3(input, k: Static, padding_value, *, align="RIGHT_LEFT"):
    """Return diagonals of matrices.

    Args:
      padding_value: scalar, the padding of shorter diagonals; it gets no gradient.

    Returns:
      ``[..., length]`` of one diagonal, ``[..., count, length]`` of several, the highest first.
    """
    x, padding_value = jnp.asarray(input), lax.stop_gradient(jnp.asarray(padding_value))
    if x.ndim < 2:
        raise OpError(f"input must be at least 2-dim, got {x.shape}")
    low, high = _range(k)
    rows, columns = x.shape[-2:]
    _check_range(low, high, rows, columns)
    longest = _longest(low, high, rows, columns)
    if low == high == 0 and rows == columns and is_data_dependent(rows):
        diagonal = lax.eq(*_offsets(rows, rows))  # JAX does not index a matrix that may be empty
        return jnp.any(x & diagonal, -1) if x.dtype == bool else jnp.sum(jnp.where(diagonal, x, 0), -1, dtype=x.dtype)
    if low == high:
        return jnp.diagonal(x, low, -2, -1)
    count = high - low + 1
    if math.prod(d for d in (*x.shape, longest) if is_int(d)) == 0:
        return jnp.broadcast_to(padding_value, (*x.shape[:-2], count, longest))
    zero = np.int32(0)
    number, element = _offsets(count, longest)
    diagonals = lax.sub(np.int32(high), lax.iota(np.int32, count))
    margin = _margin(diagonals, longest, rows, columns, align)
    element = lax.sub(element, lax.broadcast_in_dim(margin, element.shape, (0,)))
    diagonals = lax.sub(np.int32(high), number)
    row = lax.sub(element, lax.min(diagonals, zero))
    column = lax.add(element, lax.max(diagonals, zero))
    height, width = (jnp.broadcast_to(jnp.asarray(d, np.int32), row.shape) for d in (rows, columns))
    inside = lax.ge(element, zero) & lax.lt(row, height) & lax.lt(column, width)
    flat = lax.reshape(x, (*x.shape[:-2], rows * columns))
    out = jnp.take(flat, lax.add(lax.mul(row, width), column), axis=-1, mode="clip")
    return _select(inside, out, padding_value)


@op("MatrixDiagPartV2", pattern=Pattern.INJECTIVE)
def matrix_diag_part_v2(input, k: Static, padding_value):
    """Return diagonals of matrices, aligned left.

    See `matrix_diag_part_v3`.
    """
    return matrix_diag_part_v3(input, k, padding_value, align="LEFT_LEFT")
