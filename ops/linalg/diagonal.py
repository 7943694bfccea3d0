"""Diagonals and bands of matrices."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.jaxprs.compat import max_dim, min_dim
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims, static_value


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _offsets(rows: Any, columns: Any) -> tuple[Any, Any]:
    """Returns the row and the column number of each position of a matrix."""
    shape = (rows, columns)
    return lax.broadcasted_iota(np.int32, shape, 0), lax.broadcasted_iota(np.int32, shape, 1)


def _select(mask: Any, x: Any, y: Any) -> Any:
    """Chooses between arrays; everything is broadcast to the shape of ``x``."""
    return lax.select(jnp.broadcast_to(mask, x.shape), x, jnp.broadcast_to(y, x.shape))


@op("Diag")
def diag(diagonal: Any) -> Any:
    """Returns a tensor of twice the rank with the given diagonal. See tf.raw_ops.Diag."""
    x = jnp.asarray(diagonal)
    if x.ndim == 0:
        raise OpError("input must be at least rank 1, got 0")
    size = math.prod(x.shape)
    out = matrix_diag(lax.reshape(x, (size,)) if x.ndim > 1 else x)
    return lax.reshape(out, (*x.shape, *x.shape)) if x.ndim > 1 else out


@op("DiagPart", moves=True)
def diag_part(input: Any) -> Any:
    """Returns the diagonal of a tensor of even rank. See tf.raw_ops.DiagPart."""
    x = jnp.asarray(input)
    half = x.ndim // 2
    if x.ndim % 2 or x.shape[:half] != x.shape[half:]:
        raise OpError(f"the two halves of the shape must be equal, got {x.shape}")
    if not half:
        return x
    size = math.prod(x.shape[:half])
    return lax.reshape(jnp.diagonal(lax.reshape(x, (size, size))), x.shape[:half])


@op("MatrixBandPart", "BatchMatrixBandPart")
def matrix_band_part(input: Any, num_lower: Any, num_upper: Any) -> Any:
    """Keeps a band around the diagonal; negative widths keep everything. See tf.raw_ops.MatrixBandPart."""
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
            if _is_int(limit) and int(static) > limit:
                raise OpError(f"{name} must be negative or at most {limit}, got {int(static)}")
            inside = lax.le(distance, np.full((), min(int(static), 2**31 - 1), np.int32))
        else:
            width = lax.convert_element_type(as_array(width), np.int32)
            inside = lax.bitwise_or(lax.lt(width, np.int32(0)), lax.le(distance, jnp.broadcast_to(width, row.shape)))
        keep = inside if keep is None else lax.bitwise_and(keep, inside)
    return x if keep is None else _select(keep, x, np.zeros((), x.dtype))


@op("MatrixDiag", "BatchMatrixDiag")
def matrix_diag(diagonal: Any) -> Any:
    """Returns matrices with the given diagonals. See tf.raw_ops.MatrixDiag."""
    x = jnp.asarray(diagonal)
    if x.ndim == 0:
        raise OpError("input must be at least 1-dim")
    size = x.shape[-1]
    row, column = _offsets(size, size)
    wide = lax.broadcast_in_dim(x, (*x.shape, size), tuple(range(x.ndim)))
    return _select(lax.eq(row, column), wide, np.zeros((), x.dtype))


@op("MatrixDiagPart", "BatchMatrixDiagPart", moves=True)
def matrix_diag_part(input: Any) -> Any:
    """Returns the main diagonals of matrices. See tf.raw_ops.MatrixDiagPart."""
    return matrix_diag_part_v3(input, np.int32(0), np.zeros((), input.dtype))


@op("MatrixSetDiag", "BatchMatrixSetDiag")
def matrix_set_diag(input: Any, diagonal: Any) -> Any:
    """Replaces the main diagonals of matrices. See tf.raw_ops.MatrixSetDiag."""
    return matrix_set_diag_v3(input, diagonal, np.int32(0))


def _range(k: Any) -> tuple[int, int]:
    """Returns the lowest and the highest diagonal."""
    bounds = dims(k)
    if np.ndim(k) > 1 or not 1 <= len(bounds) <= 2:
        raise OpError(f"k must be a scalar or a vector of one or two elements, got shape {np.shape(k)}")
    low, high = int(bounds[0]), int(bounds[-1])
    if low > high:
        raise OpError(f"lower_diag_index must not be larger than upper_diag_index: {low} > {high}")
    return low, high


def _check_range(low: int, high: int, rows: Any, columns: Any) -> None:
    for k in (low, high):
        if k != 0 and ((_is_int(rows) and k <= -rows) or (_is_int(columns) and k >= columns)):
            raise OpError(f"diagonal {k} is out of range for a matrix of shape ({rows}, {columns})")


def _longest(low: int, high: int, rows: Any, columns: Any) -> Any:
    """Returns the greatest length of the diagonals."""
    return min_dim(rows + min(high, 0), columns - max(low, 0))


def _margin(k: Any, longest: Any, rows: Any, columns: Any, align: str) -> Any:
    """Returns, for diagonals ``k`` (an array), how many elements of padding stand before each."""
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


def _place(diagonal: Any, low: int, high: int, rows: Any, columns: Any, align: str) -> tuple[Any, Any]:
    """Returns a matrix that holds the diagonals, and a mask of where they are; elsewhere it holds anything."""
    longest = diagonal.shape[-1]
    row, column = _offsets(rows, columns)
    k = lax.sub(column, row)
    inside = lax.eq(k, np.int32(low)) if low == high else lax.ge(k, np.int32(low)) & lax.le(k, np.int32(high))
    batch = diagonal.ndim - (1 if low == high else 2)
    shape = (*diagonal.shape[:batch], rows, columns)
    if low == high and longest == (rows if low >= 0 else columns):
        axis = batch if low >= 0 else batch + 1  # element i stands in row i, or in column i
        return lax.broadcast_in_dim(diagonal, shape, (*range(batch), axis)), inside
    if isinstance(longest, int) and longest == 0:
        return jnp.zeros(shape, diagonal.dtype), inside
    place = lax.min(row, column)
    if low != high:
        number = lax.clamp(np.int32(0), lax.sub(np.int32(high), k), np.int32(high - low))
        at = lax.add(place, _margin(lax.sub(np.int32(high), number), longest, rows, columns, align))
        flat = lax.reshape(diagonal, (*shape[:batch], (high - low + 1) * longest))
        at = lax.add(lax.mul(number, jnp.broadcast_to(jnp.asarray(longest, np.int32), at.shape)), at)
    else:
        flat, at = diagonal, place
    return jnp.take(flat, at, axis=-1, mode="clip"), inside


def _set(base: Any, diagonal: Any, k: Any, align: str) -> Any:
    low, high = _range(k)
    rows, columns = base.shape[-2:]
    if math.prod(d for d in base.shape if _is_int(d)) == 0:
        return base
    placed, inside = _place(diagonal, low, high, rows, columns, align)
    return _select(inside, placed, base)


@op("MatrixSetDiagV3")
def matrix_set_diag_v3(input: Any, diagonal: Any, k: Static, *, align: str = "RIGHT_LEFT") -> Any:
    """Replaces diagonals of matrices. See tf.raw_ops.MatrixSetDiagV3."""
    x, diagonal = jnp.asarray(input), jnp.asarray(diagonal)
    if x.ndim < 2:
        raise OpError(f"input must be at least 2-dim, got {x.shape}")
    low, high = _range(k)
    rows, columns = x.shape[-2:]
    _check_range(low, high, rows, columns)
    count = () if low == high else (high - low + 1,)
    wanted = (*x.shape[:-2], *count, _longest(low, high, rows, columns))
    if diagonal.ndim != len(wanted) or any(
        _is_int(a) and _is_int(b) and a != b for a, b in zip(diagonal.shape, wanted, strict=True)
    ):
        raise OpError(f"diagonal must have shape {wanted}, got {diagonal.shape}")
    return _set(x, diagonal, k, align)


@op("MatrixSetDiagV2")
def matrix_set_diag_v2(input: Any, diagonal: Any, k: Static) -> Any:
    """Replaces diagonals of matrices, aligned left. See tf.raw_ops.MatrixSetDiagV2."""
    return matrix_set_diag_v3(input, diagonal, k, align="LEFT_LEFT")


@op("MatrixDiagV3")
def matrix_diag_v3(
    diagonal: Any,
    k: Static,
    num_rows: Static,
    num_cols: Static,
    padding_value: Any,
    *,
    align: str = "RIGHT_LEFT",
) -> Any:
    """Returns matrices with the given diagonals. The padding takes no gradient. See tf.raw_ops.MatrixDiagV3."""
    x, padding_value = jnp.asarray(diagonal), lax.stop_gradient(jnp.asarray(padding_value))
    low, high = _range(k)
    if x.ndim < (1 if low == high else 2):
        raise OpError(f"diagonal has too few dimensions: {x.shape}")
    if low != high and _is_int(x.shape[-2]) and x.shape[-2] != high - low + 1:
        raise OpError(f"diagonal holds {x.shape[-2]} diagonals, k asks for {high - low + 1}")
    longest = x.shape[-1]
    (rows,), (columns,) = dims(num_rows), dims(num_cols)
    least_rows, least_columns = longest - min(high, 0), longest + max(low, 0)
    open_rows, open_columns = (_is_int(d) and d == -1 for d in (rows, columns))
    if open_rows and open_columns:
        rows = columns = max_dim(least_rows, least_columns)
    elif open_rows:
        rows = least_rows
    elif open_columns:
        columns = least_columns
    if all(map(_is_int, (rows, columns, longest))):
        if rows < least_rows or columns < least_columns:
            raise OpError(f"({rows}, {columns}) is too small for diagonals {low} to {high} of length {longest}")
        if rows != least_rows and columns != least_columns:
            raise OpError(f"({rows}, {columns}) does not fit diagonals {low} to {high} of length {longest}")
    batch = x.shape[: x.ndim - (1 if low == high else 2)]
    return _set(jnp.broadcast_to(padding_value, (*batch, rows, columns)), x, k, align)


@op("MatrixDiagV2")
def matrix_diag_v2(diagonal: Any, k: Static, num_rows: Static, num_cols: Static, padding_value: Any) -> Any:
    """Returns matrices with the given diagonals, aligned left. See tf.raw_ops.MatrixDiagV2."""
    return matrix_diag_v3(diagonal, k, num_rows, num_cols, padding_value, align="LEFT_LEFT")


@op("MatrixDiagPartV3", moves=True)
def matrix_diag_part_v3(input: Any, k: Static, padding_value: Any, *, align: str = "RIGHT_LEFT") -> Any:
    """Returns diagonals of matrices. The padding takes no gradient. See tf.raw_ops.MatrixDiagPartV3."""
    x, padding_value = jnp.asarray(input), lax.stop_gradient(jnp.asarray(padding_value))
    if x.ndim < 2:
        raise OpError(f"input must be at least 2-dim, got {x.shape}")
    low, high = _range(k)
    rows, columns = x.shape[-2:]
    _check_range(low, high, rows, columns)
    longest = _longest(low, high, rows, columns)
    if low == high == 0 and rows == columns and is_data_dependent(rows):
        diagonal = lax.eq(*_offsets(rows, rows))  # JAX reads no place of what may be empty
        return jnp.any(x & diagonal, -1) if x.dtype == bool else jnp.sum(jnp.where(diagonal, x, 0), -1, dtype=x.dtype)
    if low == high:
        return jnp.diagonal(x, low, -2, -1)
    count = high - low + 1
    if math.prod(d for d in (*x.shape, longest) if _is_int(d)) == 0:
        return jnp.broadcast_to(padding_value, (*x.shape[:-2], count, longest))
    zero = np.int32(0)
    number, place = _offsets(count, longest)
    diagonals = lax.sub(np.int32(high), lax.iota(np.int32, count))
    margin = _margin(diagonals, longest, rows, columns, align)
    place = lax.sub(place, lax.broadcast_in_dim(margin, place.shape, (0,)))
    diagonals = lax.sub(np.int32(high), number)
    row = lax.sub(place, lax.min(diagonals, zero))
    column = lax.add(place, lax.max(diagonals, zero))
    height, width = (jnp.broadcast_to(jnp.asarray(d, np.int32), row.shape) for d in (rows, columns))
    inside = lax.ge(place, zero) & lax.lt(row, height) & lax.lt(column, width)
    flat = lax.reshape(x, (*x.shape[:-2], rows * columns))
    out = jnp.take(flat, lax.add(lax.mul(row, width), column), axis=-1, mode="clip")
    return _select(inside, out, padding_value)


@op("MatrixDiagPartV2", moves=True)
def matrix_diag_part_v2(input: Any, k: Static, padding_value: Any) -> Any:
    """Returns diagonals of matrices, aligned left. See tf.raw_ops.MatrixDiagPartV2."""
    return matrix_diag_part_v3(input, k, padding_value, align="LEFT_LEFT")
