"""Shape queries, reshapes, broadcasting, and arithmetic of shapes.

Shapes are static vectors: results that depend on shapes alone are static, symbolic dimensions included. Kernels:
shape_ops.cc, reshape_op.cc, broadcast_to_op.cc, bcast_ops.cc, data_format_ops.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import as_size, is_data_dependent
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import MAX_FOLDED, array, compatible, is_int, is_small, is_zero
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims, dims_array, is_symbolic, normalize_axis

INT32 = np.dtype(np.int32)


def vector(shape: Any, what: str = "shape") -> tuple[Any, ...]:
    """Return a static vector of dimensions (a scalar counts as one) as a tuple."""
    if np.ndim(shape) > 1:
        raise OpError(f"{what} must be a vector, got shape {np.shape(shape)}")
    return dims(shape)


def static_sizes(shape: Any) -> tuple[Any, ...]:
    """Return the shape of a new array, checked."""
    out = vector(shape)
    for d in out:
        if is_int(d) and d < 0:
            raise OpError(f"dimension {d} must be >= 0")
    return tuple(map(as_size, out))


@op("Shape", fold=lambda input, *, out_type: dims_array(np.shape(input), out_type), pattern=Pattern.SHAPE_ONLY)
def shape(input, *, out_type=INT32):
    """Return the shape, a static vector."""
    return dims_array(np.shape(input), out_type)


def _shape_n(input: list[Any], *, out_type: Any) -> list[Any]:
    return [dims_array(np.shape(x), out_type) for x in input]


@op("ShapeN", fold=_shape_n, pattern=Pattern.SHAPE_ONLY)
def shape_n(input, *, out_type=INT32):
    """Return the shapes, static vectors."""
    return _shape_n(input, out_type=out_type)


def _size(input: Any, *, out_type: Any) -> Any:
    return dims_array((math.prod(np.shape(input)),), out_type).reshape(())


@op("Size", fold=_size, pattern=Pattern.SHAPE_ONLY)
def size(input, *, out_type=INT32):
    """Return the number of elements, a static scalar."""
    return _size(input, out_type=out_type)


@op("Rank", fold=lambda input: np.array(np.ndim(input), np.int32), pattern=Pattern.SHAPE_ONLY)
def rank(input):
    """Return the rank, a static scalar."""
    return np.array(np.ndim(input), np.int32)


def resolve_shape(shape: Any, current: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the dimensions of a Reshape to ``shape``, with -1 resolved."""
    target = vector(shape)
    is_complete = isinstance(shape, np.ndarray) and shape.dtype.kind == "i" and min(target, default=0) >= 0
    if is_complete and all(map(is_int, current)) and math.prod(current) == math.prod(target):
        return target
    wanted = list(target)
    unknown = [i for i, d in enumerate(wanted) if is_int(d) and d == -1]
    if len(unknown) > 1:
        raise OpError(f"only one dimension of the new shape may be -1, got {wanted}")
    if any(is_int(d) and d < -1 for d in wanted):
        raise OpError(f"dimensions of the new shape must be non-negative, got {wanted}")
    if not unknown:
        total, new = math.prod(current), math.prod(wanted)
        if is_int(total) and is_int(new) and new != total:
            raise OpError(f"cannot reshape {list(current)} ({total} elements) to {wanted}")
        return tuple(wanted)
    others = [d for i, d in enumerate(wanted) if i != unknown[0]]
    factors = list(current)
    if any(map(is_zero, others)):
        # The unknown dimension is the quotient of the nonzero ones, as in TensorFlow's kernel (reshape_op.h).
        if all(map(is_int, factors)) and math.prod(factors):
            raise OpError(f"cannot reshape {list(current)} to {wanted}, which holds no element")
        factors = [d for d in factors if not is_zero(d)]
        wanted[unknown[0]] = math.prod(factors) // math.prod(d for d in others if not is_zero(d))
        return tuple(wanted)
    # Symbolic dimensions that occur on both sides cancel.
    for d in list(others):
        if not is_int(d) and any(d is k or (not is_int(k) and d == k) for k in factors):
            factors.remove(next(k for k in factors if d is k or (not is_int(k) and d == k)))
            others.remove(d)
    total, divisor = math.prod(factors), math.prod(others)
    if is_int(total) and is_int(divisor) and total % divisor:
        raise OpError(f"cannot reshape {list(current)} to {wanted}: {total} elements do not divide by {divisor}")
    wanted[unknown[0]] = total // divisor
    return tuple(wanted)


def _fold_reshape(tensor: Any, shape: Any) -> Any:
    return np.reshape(tensor, resolve_shape(shape, np.shape(tensor)))


@op("Reshape", int64="per_word", fold=_fold_reshape)
def reshape(tensor, shape: Static, *, tracker: DynamicShapes | None = None):
    """Reshape."""
    tensor = array(tensor)
    wanted = resolve_shape(shape, tensor.shape if tracker is None else tracker.expand_products(tensor.shape))
    if tracker is not None and any(is_data_dependent(d) for d in (*tensor.shape, *wanted)):
        return tracker.reshape(tensor, wanted)
    return lax.reshape(tensor, wanted)


def _new_axis(input: Any, dim: Any) -> int:
    if np.size(dim) != 1:
        raise OpError(f"dim must be one number, got shape {np.shape(dim)}")
    return normalize_axis(np.reshape(dim, ()), np.ndim(input) + 1)


@op("ExpandDims", int64="per_word", fold=lambda input, dim: np.expand_dims(input, _new_axis(input, dim)))
def expand_dims(input, dim: Static):
    """Insert a dimension of size 1."""
    return lax.expand_dims(jnp.asarray(input), (_new_axis(input, dim),))


def _squeeze_axes(current: tuple[Any, ...], squeeze_dims: Any) -> tuple[int, ...]:
    if not squeeze_dims:
        return tuple(i for i, d in enumerate(current) if is_int(d) and d == 1)
    axes = tuple(sorted({normalize_axis(a, len(current)) for a in squeeze_dims}))
    for a in axes:
        if is_int(current[a]) and current[a] != 1:
            raise OpError(f"cannot squeeze dimension {a} of {list(current)}: it is not 1")
    return axes


@op(
    "Squeeze",
    int64="per_word",
    fold=lambda input, *, squeeze_dims: np.squeeze(input, _squeeze_axes(np.shape(input), squeeze_dims)),
)
def squeeze(input, *, squeeze_dims=()):
    """Drop dimensions of size 1.

    Args:
      squeeze_dims: the dimensions, ints in ``[-rank, rank)``; none: all that are statically 1.
    """
    return lax.squeeze(jnp.asarray(input), _squeeze_axes(np.shape(input), squeeze_dims))


def _fold_broadcast_to(input: Any, shape: Any) -> Any:
    wanted = static_sizes(shape)
    if is_small(wanted) or (np.asarray(input).dtype == object and not is_symbolic(input)):
        try:
            return np.broadcast_to(input, wanted)
        except ValueError as error:
            raise OpError(str(error)) from error
    return broadcast_to(as_array(np.asarray(input)), shape)


@op("BroadcastTo", fold=_fold_broadcast_to, result_size=result_size.from_sizes(1))
def broadcast_to(input, shape: Static):
    """Broadcast to a shape."""
    wanted = static_sizes(shape)
    try:
        return jnp.broadcast_to(input, wanted)
    except ValueError as error:
        raise OpError(str(error)) from error


def _shape_dtype(*vectors: Any) -> Any:
    return next((v.dtype for v in vectors if v.dtype != object), INT32)


def _fold_broadcast_args(s0: Any, s1: Any) -> Any:
    try:
        out = jnp.broadcast_shapes(vector(s0), vector(s1))
    except ValueError as error:
        raise OpError(f"incompatible shapes: {list(dims(s0))} and {list(dims(s1))}") from error
    return dims_array(out, _shape_dtype(s0, s1))


@op("BroadcastArgs", fold=_fold_broadcast_args)
def broadcast_args(s0: Static, s1: Static):
    """Return the shape that two shapes broadcast to."""
    return _fold_broadcast_args(s0, s1)


def _fold_broadcast_gradient_args(s0: Any, s1: Any) -> Any:
    a, b = vector(s0), vector(s1)
    dtype = _shape_dtype(s0, s1)
    if len(a) == len(b) and all(x == y for x, y in zip(a, b, strict=True)):
        return np.zeros(0, dtype), np.zeros(0, dtype)
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for x, y in zip(left, right, strict=True):
        if is_int(x) and is_int(y) and x != y and 1 not in (x, y):
            raise OpError(f"incompatible shapes: {list(a)} and {list(b)}")
    # An axis that is 1 in both is in both results, as in TensorFlow.
    r0 = [i for i in range(rank) if is_int(left[i]) and left[i] == 1]
    r1 = [i for i in range(rank) if is_int(right[i]) and right[i] == 1]
    return np.array(r0, dtype), np.array(r1, dtype)


@op("BroadcastGradientArgs", fold=_fold_broadcast_gradient_args)
def broadcast_gradient_args(s0: Static, s1: Static):
    """Return the axes over which gradients of broadcast operands are summed."""
    return _fold_broadcast_gradient_args(s0, s1)


def _fold_concat_offset(concat_dim: Any, shape: list[Any]) -> Any:
    axis = normalize_axis(np.reshape(concat_dim, ()), len(shape[0]))
    offset: Any = 0
    out = []
    for s in shape:
        if len(s) != len(shape[0]):
            raise OpError(f"shapes of ranks {len(shape[0])} and {len(s)}")
        if not compatible(dims(shape[0]), dims(s), skip=axis):
            raise OpError(f"all dimensions except {axis} must match, got {list(shape[0])} and {list(s)}")
        out.append(dims_array([offset if i == axis else 0 for i in range(len(s))], _shape_dtype(*shape)))
        offset = offset + dims(s)[axis]
    return out


@op("ConcatOffset", fold=_fold_concat_offset)
def concat_offset(concat_dim: Static, shape: Static):
    """Return the start of each part of a concatenation.

    Args:
      shape: shapes of the parts, static vectors of one length.
    """
    return _fold_concat_offset(concat_dim, shape)


def _fold_invert_permutation(x: Any) -> Any:
    x = np.asarray(x)
    if x.ndim != 1 or not np.array_equal(np.sort(x), np.arange(len(x))):
        raise OpError(f"not a permutation: {x.tolist()}")
    out = np.zeros_like(x)
    out[x.astype(np.int64)] = np.arange(len(x), dtype=x.dtype)
    return out


@op("InvertPermutation", fold=_fold_invert_permutation)
def invert_permutation(x):
    """Invert a permutation."""
    x = jnp.asarray(x)
    if x.ndim != 1:
        raise OpError(f"a permutation must be a vector, got shape {x.shape}")
    return jnp.zeros_like(x).at[x].set(lax.iota(x.dtype, x.shape[0]), unique_indices=True)


def _fold_unravel_index(indices: Any, dims: Any) -> Any:
    indices, dims = np.asarray(indices), np.asarray(dims)
    if dims.ndim != 1:
        raise OpError(f"dims must be a vector, got shape {dims.shape}")
    if dims.dtype == object or np.size(indices) > MAX_FOLDED:
        return unravel_index(as_array(indices), dims)
    if indices.size and indices.max() >= math.prod(dims.tolist()):
        raise OpError(f"index {indices.max()} is out of bounds for {dims.tolist()}")
    out = np.zeros((len(dims), *indices.shape), indices.dtype)
    for i in reversed(range(len(dims))):
        # C++ division rounds towards zero.
        out[i] = np.fmod(indices, dims[i])
        indices = (indices - out[i]) // dims[i]
    return out


@op("UnravelIndex", fold=_fold_unravel_index)
def unravel_index(indices, dims: Static):
    """Return the coordinates of flat indices.

    Returns:
      ``[len(dims), *indices.shape]``.
    """
    if np.ndim(dims) != 1:
        raise OpError(f"dims must be a vector, got shape {np.shape(dims)}")
    rest = jnp.asarray(indices)
    out = []
    for d in reversed(vector(dims)):
        size = jnp.broadcast_to(jnp.asarray(d, rest.dtype), rest.shape)
        out.append(lax.expand_dims(lax.rem(rest, size), (0,)))
        rest = lax.div(rest, size)
    return lax.concatenate(out[::-1], 0) if out else jnp.zeros((0, *rest.shape), rest.dtype)


def _formats(src_format: str, dst_format: str) -> list[int]:
    """Return for each letter of the destination its position in the source."""
    if sorted(src_format) != sorted(dst_format) or len(set(src_format)) != len(src_format):
        raise OpError(f"formats {src_format!r} and {dst_format!r} are not the same letters in another order")
    return [src_format.index(letter) for letter in dst_format]


def _fold_dim_map(x: Any, *, src_format: str, dst_format: str) -> Any:
    table = np.argsort(_formats(src_format, dst_format))
    return np.asarray(table[np.asarray(x) % len(table)], x.dtype)


@op("DataFormatDimMap", fold=_fold_dim_map)
def data_format_dim_map(x, *, src_format="NHWC", dst_format="NCHW"):
    """Map axes of one data format to those of another."""
    x = jnp.asarray(x)
    table = np.argsort(_formats(src_format, dst_format)).astype(x.dtype)
    return jnp.take(jnp.asarray(table), jnp.remainder(x, len(table)), mode="clip")


def _vec_order(count: int, src_format: str, dst_format: str) -> np.ndarray:
    _formats(src_format, dst_format)
    if count == len(src_format) - 2:  # only the spatial dimensions
        src_format, dst_format = ("".join(c for c in f if c not in "NC") for f in (src_format, dst_format))
    if count != len(src_format):
        raise OpError(f"{count} entries for the format {src_format!r}")
    return np.array(_formats(src_format, dst_format))


def _fold_vec_permute(x: Any, *, src_format: str, dst_format: str) -> Any:
    x = np.asarray(x)
    if x.ndim not in (1, 2):
        raise OpError(f"x must be a vector or a matrix, got shape {x.shape}")
    return x[_vec_order(len(x), src_format, dst_format)]


@op("DataFormatVecPermute", fold=_fold_vec_permute)
def data_format_vec_permute(x, *, src_format="NHWC", dst_format="NCHW"):
    """Reorder a vector of one data format for another."""
    x = jnp.asarray(x)
    if x.ndim not in (1, 2):
        raise OpError(f"x must be a vector or a matrix, got shape {x.shape}")
    order = _vec_order(x.shape[0], src_format, dst_format)
    return lax.concatenate([lax.slice_in_dim(x, int(i), int(i) + 1) for i in order], 0)


@op("EnsureShape", fold=lambda input, *, shape: _check_shape(input, shape))
def ensure_shape(input, *, shape):
    """Return the input if its static dimensions match.

    Args:
      shape: expected dimensions, None for any; None: a shape of any rank.
    """
    return _check_shape(input, shape)


def _check_shape(input: Any, shape: Any) -> Any:
    actual = np.shape(input)
    if shape is not None and not compatible(actual, shape):
        raise OpError(f"Expected shape={list(shape)}, got {list(actual)}")
    return input
