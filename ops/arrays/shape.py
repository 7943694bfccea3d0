"""Shapes: asking for them, changing them, and arithmetic that makes them."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import as_size, is_data_dependent
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import array
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, dims_array, is_symbolic, normalize_axis
from tf2jax_lite.values.symbolic_float import FloatDim, is_float_dim, truncate_to_dim

INT32 = np.dtype(np.int32)
# A numpy twin computes results up to this size; larger ones are made in the trace, where they cost no memory.
SMALL = 1024


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def is_small(shape: tuple[Any, ...]) -> bool:
    """Whether a shape is known, and so small that an array of it may be a number that is known while tracing."""
    return all(map(_is_int, shape)) and math.prod(shape) <= SMALL


def vector(shape: Any, what: str = "shape") -> tuple[Any, ...]:
    """Returns a static vector of dimensions (a scalar counts as one) as a tuple.

    Raises:
      OpError: it is no vector.
    """
    if np.ndim(shape) > 1:
        raise OpError(f"{what} must be a vector, got shape {np.shape(shape)}")
    return dims(shape)


def _sizes(shape: Any) -> tuple[Any, ...]:
    out = vector(shape)
    for d in out:
        if _is_int(d) and d < 0:
            raise OpError(f"dimension {d} must be >= 0")
    return tuple(map(as_size, out))


@op("Shape", host=lambda input, *, out_type=INT32: dims_array(np.shape(input), out_type), shape_only=True)
def shape(input: Any, *, out_type: Any = INT32) -> Any:
    """Returns the shape, known while tracing. See tf.raw_ops.Shape."""
    return dims_array(np.shape(input), out_type)


def _shape_n(input: list[Any], *, out_type: Any = INT32) -> list[Any]:
    return [dims_array(np.shape(x), out_type) for x in input]


@op("ShapeN", host=_shape_n, shape_only=True)
def shape_n(input: list[Any], *, out_type: Any = INT32) -> list[Any]:
    """Returns the shapes, known while tracing. See tf.raw_ops.ShapeN."""
    return _shape_n(input, out_type=out_type)


def _size(input: Any, *, out_type: Any = INT32) -> Any:
    return dims_array((math.prod(np.shape(input)),), out_type).reshape(())


@op("Size", host=_size, shape_only=True)
def size(input: Any, *, out_type: Any = INT32) -> Any:
    """Returns the number of elements, known while tracing. See tf.raw_ops.Size."""
    return _size(input, out_type=out_type)


@op("Rank", host=lambda input: np.array(np.ndim(input), np.int32), shape_only=True)
def rank(input: Any) -> Any:
    """Returns the rank, known while tracing. See tf.raw_ops.Rank."""
    return np.array(np.ndim(input), np.int32)


def resolve_shape(shape: Any, current: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the dimensions that a Reshape to ``shape`` gives, with -1 worked out.

    Raises:
      OpError: the number of elements does not fit.
    """
    given = vector(shape)
    plain = isinstance(shape, np.ndarray) and shape.dtype.kind == "i" and min(given, default=0) >= 0
    if plain and all(map(_is_int, current)) and math.prod(current) == math.prod(given):
        return given
    wanted = list(given)
    unknown = [i for i, d in enumerate(wanted) if _is_int(d) and d == -1]
    if len(unknown) > 1:
        raise OpError(f"only one dimension of the new shape may be -1, got {wanted}")
    if any(_is_int(d) and d < -1 for d in wanted):
        raise OpError(f"dimensions of the new shape must be non-negative, got {wanted}")
    if not unknown:
        total, new = math.prod(current), math.prod(wanted)
        if _is_int(total) and _is_int(new) and new != total:
            raise OpError(f"cannot reshape {list(current)} ({total} elements) to {wanted}")
        return tuple(wanted)
    others = [d for i, d in enumerate(wanted) if i != unknown[0]]
    known = list(current)
    if any(_is_int(d) and d == 0 for d in others):
        # What is left is what the other dimensions make of it, as in TensorFlow's kernel (reshape_op.h).
        if all(map(_is_int, known)) and math.prod(known):
            raise OpError(f"cannot reshape {list(current)} to {wanted}, which holds no element")
        known = [d for d in known if not (_is_int(d) and d == 0)]
        wanted[unknown[0]] = math.prod(known) // math.prod(d for d in others if not (_is_int(d) and d == 0))
        return tuple(wanted)
    # Symbolic dimensions that are kept need not be divided by.
    for d in list(others):
        if not _is_int(d) and any(d is k or (not _is_int(k) and d == k) for k in known):
            known.remove(next(k for k in known if d is k or (not _is_int(k) and d == k)))
            others.remove(d)
    total, divisor = math.prod(known), math.prod(others)
    if _is_int(total) and _is_int(divisor) and total % divisor:
        raise OpError(f"cannot reshape {list(current)} to {wanted}: {total} elements do not divide by {divisor}")
    wanted[unknown[0]] = total // divisor
    return tuple(wanted)


def _host_reshape(tensor: Any, shape: Any) -> Any:
    return np.reshape(tensor, resolve_shape(shape, np.shape(tensor)))


@op("Reshape", words="each", host=_host_reshape, sized=True)
def reshape(tensor: Any, shape: Static, *, tracker: DynamicShapes | None = None) -> Any:
    """Reshapes. See tf.raw_ops.Reshape."""
    tensor = array(tensor)
    wanted = resolve_shape(shape, tensor.shape if tracker is None else tracker.expand_products(tensor.shape))
    if tracker is not None and any(is_data_dependent(d) for d in (*tensor.shape, *wanted)):
        return tracker.reshape(tensor, wanted)
    return lax.reshape(tensor, wanted)


def _new_axis(input: Any, dim: Any) -> int:
    if np.size(dim) != 1:
        raise OpError(f"dim must be one number, got shape {np.shape(dim)}")
    return normalize_axis(np.reshape(dim, ()), np.ndim(input) + 1)


@op("ExpandDims", words="each", host=lambda input, dim: np.expand_dims(input, _new_axis(input, dim)))
def expand_dims(input: Any, dim: Static) -> Any:
    """Inserts a dimension of size 1. See tf.raw_ops.ExpandDims."""
    return lax.expand_dims(jnp.asarray(input), (_new_axis(input, dim),))


def _squeeze_axes(current: tuple[Any, ...], squeeze_dims: Any) -> tuple[int, ...]:
    if not squeeze_dims:
        return tuple(i for i, d in enumerate(current) if _is_int(d) and d == 1)
    axes = tuple(sorted({normalize_axis(a, len(current)) for a in squeeze_dims}))
    for a in axes:
        if _is_int(current[a]) and current[a] != 1:
            raise OpError(f"cannot squeeze dimension {a} of {list(current)}: it is not 1")
    return axes


@op(
    "Squeeze",
    words="each",
    host=lambda input, *, squeeze_dims=(): np.squeeze(input, _squeeze_axes(np.shape(input), squeeze_dims)),
)
def squeeze(input: Any, *, squeeze_dims: Any = ()) -> Any:
    """Drops dimensions of size 1. See tf.raw_ops.Squeeze."""
    return lax.squeeze(jnp.asarray(input), _squeeze_axes(np.shape(input), squeeze_dims))


def _host_broadcast_to(input: Any, shape: Any) -> Any:
    wanted = _sizes(shape)
    if is_small(wanted) or (np.asarray(input).dtype == object and not is_symbolic(input)):
        try:
            return np.broadcast_to(input, wanted)
        except ValueError as error:
            raise OpError(str(error)) from error
    return broadcast_to(as_array(np.asarray(input)), shape)


@op("BroadcastTo", host=_host_broadcast_to, elements=result_size.from_sizes(1))
def broadcast_to(input: Any, shape: Static) -> Any:
    """Broadcasts to a shape. See tf.raw_ops.BroadcastTo."""
    wanted = _sizes(shape)
    try:
        return jnp.broadcast_to(input, wanted)
    except ValueError as error:
        raise OpError(str(error)) from error


def _host_fill(dims: Any, value: Any) -> Any:
    wanted = _sizes(dims)
    value = np.asarray(value)
    if value.ndim:
        raise OpError(f"value must be a scalar, got shape {value.shape}")
    if is_small(wanted) or (value.dtype == object and not is_symbolic(value)):
        return np.full(wanted, value, value.dtype)
    return jnp.full(wanted, as_array(value))


@op("Fill", host=_host_fill, elements=result_size.from_sizes(0))
def fill(dims: Static, value: Any) -> Any:
    """Returns a tensor of one value. See tf.raw_ops.Fill."""
    if np.ndim(value):
        raise OpError(f"value must be a scalar, got shape {np.shape(value)}")
    return jnp.broadcast_to(value, _sizes(dims))


@op(
    "Empty",
    host=lambda shape, *, dtype, init=False: _host_fill(shape, np.zeros((), dtype)),
    elements=result_size.from_sizes(0),
)
def empty(shape: Static, *, dtype: Any, init: bool = False) -> Any:
    """Returns zeros, also where TensorFlow leaves the contents open. See tf.raw_ops.Empty."""
    return jnp.zeros(_sizes(shape), canonical(dtype))


def _host_range(start: Any, limit: Any, delta: Any) -> Any:
    if any(is_symbolic(v) for v in (start, limit, delta)):
        return range_(start, limit, delta)
    start, limit, delta = (np.reshape(v, ()) for v in (start, limit, delta))
    if delta == 0:
        raise OpError("delta must not be 0")
    if (start > limit) if delta > 0 else (start < limit):
        raise OpError(f"start {start} does not reach limit {limit} by steps of {delta}")
    if np.issubdtype(start.dtype, np.integer):
        count = -((int(start) - int(limit)) // int(delta))
        if count > 64 * SMALL:
            return _arange(count, int(start), int(delta), start.dtype)
        return np.asarray(np.arange(count) * int(delta) + int(start), start.dtype)
    count = math.ceil(abs(float((limit - start) / delta)))
    # In the type itself, as TensorFlow does: beyond 256, bfloat16 numbers repeat.
    return np.asarray(start + np.arange(count).astype(start.dtype) * delta, start.dtype)


def _arange(count: Any, first: Any, step: Any, dtype: Any) -> Any:
    dtype = canonical(dtype)
    out = lax.iota(dtype, count)
    if not (_is_int(step) and step == 1):
        out = lax.mul(out, jnp.broadcast_to(jnp.asarray(step, dtype), out.shape))
    if not (_is_int(first) and first == 0):
        out = lax.add(out, jnp.broadcast_to(jnp.asarray(first, dtype), out.shape))
    return out


@op("Range", host=_host_range, elements=result_size.range_elements)
def range_(start: Static, limit: Static, delta: Static) -> Any:
    """Returns numbers from ``start`` below ``limit``, which may be dimension expressions. See tf.raw_ops.Range."""
    if not any(is_symbolic(v) for v in (start, limit, delta)):
        return _host_range(start, limit, delta)
    dtype = next((v.dtype for v in (start, limit, delta) if not is_symbolic(v)), INT32)
    (first,), (last,), (step,) = dims(start), dims(limit), dims(delta)
    if any(map(is_float_dim, (start, limit, delta))):
        return _range_of_reals(first, last, step, dtype if dtype.kind == "f" else np.dtype(np.float32))
    if not _is_int(step):
        raise OpError("delta must not be a symbolic dimension")
    if step == 0:
        raise OpError("delta must not be 0")
    count = max_dim(-((first - last) // step) if abs(step) > 1 else (last - first) * step, 0)
    return _arange(count, first, step, dtype)


def _range_of_reals(first: Any, last: Any, step: Any, dtype: np.dtype) -> Any:
    if isinstance(step, FloatDim) or step == 0:
        raise OpError("delta must be a number other than 0")
    count = truncate_to_dim(np.ceil((FloatDim(0) + last - first) / step))
    first = first.traced(canonical(dtype)) if isinstance(first, FloatDim) else first
    return _arange(max_dim(count, 0), first, step, dtype)


@op("LinSpace", elements=result_size.count(2))
def lin_space(start: Any, stop: Any, num: Static) -> Any:
    """Returns evenly spaced numbers, both ends included. See tf.raw_ops.LinSpace."""
    (count,) = dims(num)
    if _is_int(count) and count <= 0:
        raise OpError(f"num must be positive, got {count}")
    start, stop = jnp.asarray(start), jnp.asarray(stop)
    if start.ndim or stop.ndim:
        raise OpError("start and stop must be scalars")
    if _is_int(count) and count == 1:
        return lax.reshape(start, (1,))
    number = lax.iota(start.dtype, count)
    step = lax.div(lax.sub(stop, start), jnp.asarray(count - 1, start.dtype))
    wide = [jnp.broadcast_to(v, number.shape) for v in (start, step, stop)]
    out = lax.add(wide[0], lax.mul(number, wide[1]))
    last = lax.eq(lax.iota(np.int32, count), jnp.broadcast_to(jnp.asarray(count - 1, np.int32), number.shape))
    return lax.select(last, wide[2], out)


def _shape_dtype(*vectors: Any) -> Any:
    return next((v.dtype for v in vectors if v.dtype != object), INT32)


def _is_one(d: Any) -> bool:
    return _is_int(d) and d == 1


def _host_broadcast_args(s0: Any, s1: Any) -> Any:
    try:
        out = jnp.broadcast_shapes(vector(s0), vector(s1))
    except ValueError as error:
        raise OpError(f"incompatible shapes: {list(dims(s0))} and {list(dims(s1))}") from error
    return dims_array(out, _shape_dtype(s0, s1))


@op("BroadcastArgs", host=_host_broadcast_args)
def broadcast_args(s0: Static, s1: Static) -> Any:
    """Returns the shape that two shapes broadcast to. See tf.raw_ops.BroadcastArgs."""
    return _host_broadcast_args(s0, s1)


def _host_broadcast_gradient_args(s0: Any, s1: Any) -> Any:
    a, b = vector(s0), vector(s1)
    dtype = _shape_dtype(s0, s1)
    if len(a) == len(b) and all(x == y for x, y in zip(a, b, strict=True)):
        return np.zeros(0, dtype), np.zeros(0, dtype)
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for x, y in zip(left, right, strict=True):
        if _is_int(x) and _is_int(y) and x != y and 1 not in (x, y):
            raise OpError(f"incompatible shapes: {list(a)} and {list(b)}")
    # Where both are 1, TensorFlow names the axis for both.
    r0 = [i for i in range(rank) if _is_one(left[i])]
    r1 = [i for i in range(rank) if _is_one(right[i])]
    return np.array(r0, dtype), np.array(r1, dtype)


@op("BroadcastGradientArgs", host=_host_broadcast_gradient_args)
def broadcast_gradient_args(s0: Static, s1: Static) -> Any:
    """Returns the axes to sum gradients over. See tf.raw_ops.BroadcastGradientArgs."""
    return _host_broadcast_gradient_args(s0, s1)


def _host_concat_offset(concat_dim: Any, shape: list[Any]) -> Any:
    axis = normalize_axis(np.reshape(concat_dim, ()), len(shape[0]))
    offset: Any = 0
    out = []
    for s in shape:
        if len(s) != len(shape[0]):
            raise OpError(f"shapes of ranks {len(shape[0])} and {len(s)}")
        for i, (x, y) in enumerate(zip(dims(shape[0]), dims(s), strict=True)):
            if i != axis and _is_int(x) and _is_int(y) and x != y:
                raise OpError(f"all dimensions except {axis} must match, got {list(shape[0])} and {list(s)}")
        out.append(dims_array([offset if i == axis else 0 for i in range(len(s))], _shape_dtype(*shape)))
        offset = offset + dims(s)[axis]
    return out


@op("ConcatOffset", host=_host_concat_offset)
def concat_offset(concat_dim: Static, shape: Static) -> Any:
    """Returns where each part of a concatenation starts. See tf.raw_ops.ConcatOffset."""
    return _host_concat_offset(concat_dim, shape)


def _host_invert_permutation(x: Any) -> Any:
    x = np.asarray(x)
    if x.ndim != 1 or not np.array_equal(np.sort(x), np.arange(len(x))):
        raise OpError(f"not a permutation: {x.tolist()}")
    out = np.zeros_like(x)
    out[x.astype(np.int64)] = np.arange(len(x), dtype=x.dtype)
    return out


@op("InvertPermutation", host=_host_invert_permutation)
def invert_permutation(x: Any) -> Any:
    """Inverts a permutation; what is none gives anything. See tf.raw_ops.InvertPermutation."""
    x = jnp.asarray(x)
    if x.ndim != 1:
        raise OpError(f"a permutation must be a vector, got shape {x.shape}")
    return jnp.zeros_like(x).at[x].set(lax.iota(x.dtype, x.shape[0]), unique_indices=True)


def _host_unravel_index(indices: Any, dims: Any) -> Any:
    indices, dims = np.asarray(indices), np.asarray(dims)
    if dims.ndim != 1:
        raise OpError(f"dims must be a vector, got shape {dims.shape}")
    if dims.dtype == object or np.size(indices) > SMALL:
        return unravel_index(as_array(indices), dims)
    if indices.size and indices.max() >= math.prod(dims.tolist()):
        raise OpError(f"index {indices.max()} is out of bounds for {dims.tolist()}")
    out = np.zeros((len(dims), *indices.shape), indices.dtype)
    for i in reversed(range(len(dims))):
        # C++ division rounds towards zero.
        out[i] = np.fmod(indices, dims[i])
        indices = (indices - out[i]) // dims[i]
    return out


@op("UnravelIndex", host=_host_unravel_index)
def unravel_index(indices: Any, dims: Static) -> Any:
    """Returns coordinates of flat indices; traced ones out of range wrap around. See tf.raw_ops.UnravelIndex."""
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
    """Returns where each letter of the destination is in the source."""
    if sorted(src_format) != sorted(dst_format) or len(set(src_format)) != len(src_format):
        raise OpError(f"formats {src_format!r} and {dst_format!r} are not the same letters in another order")
    return [src_format.index(letter) for letter in dst_format]


def _host_dim_map(x: Any, *, src_format: str = "NHWC", dst_format: str = "NCHW") -> Any:
    table = np.argsort(_formats(src_format, dst_format))
    return np.asarray(table[np.asarray(x) % len(table)], x.dtype)


@op("DataFormatDimMap", host=_host_dim_map)
def data_format_dim_map(x: Any, *, src_format: str = "NHWC", dst_format: str = "NCHW") -> Any:
    """Maps axes of one data format to those of another. See tf.raw_ops.DataFormatDimMap."""
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


def _host_vec_permute(x: Any, *, src_format: str = "NHWC", dst_format: str = "NCHW") -> Any:
    x = np.asarray(x)
    if x.ndim not in (1, 2):
        raise OpError(f"x must be a vector or a matrix, got shape {x.shape}")
    return x[_vec_order(len(x), src_format, dst_format)]


@op("DataFormatVecPermute", host=_host_vec_permute)
def data_format_vec_permute(x: Any, *, src_format: str = "NHWC", dst_format: str = "NCHW") -> Any:
    """Reorders entries of one data format for another. See tf.raw_ops.DataFormatVecPermute."""
    x = jnp.asarray(x)
    if x.ndim not in (1, 2):
        raise OpError(f"x must be a vector or a matrix, got shape {x.shape}")
    order = _vec_order(x.shape[0], src_format, dst_format)
    return lax.concatenate([lax.slice_in_dim(x, int(i), int(i) + 1) for i in order], 0)


@op("EnsureShape", host=lambda input, *, shape: _ensured(input, shape))
def ensure_shape(input: Any, *, shape: Any) -> Any:
    """Checks what is known of the shape. See tf.raw_ops.EnsureShape."""
    return _ensured(input, shape)


def _ensured(input: Any, shape: Any) -> Any:
    actual = np.shape(input)
    if shape is not None and (
        len(actual) != len(shape)
        or any(w is not None and _is_int(a) and a != w for a, w in zip(actual, shape, strict=True))
    ):
        raise OpError(f"Expected shape={list(shape)}, got {list(actual)}")
    return input
