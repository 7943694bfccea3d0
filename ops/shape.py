"""Shapes: asking for them, changing them, and arithmetic that makes them."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import core, lax

from tf2jax_lite.errors import OpError

from .registry import Static, op
from .values import as_array, canonical, dims, dims_array, is_symbolic, normalize_axis

INT32 = np.dtype(np.int32)
# A numpy twin computes results up to this size; larger ones are made in the trace, where they cost no memory.
SMALL = 1024


@op("Shape", host=lambda input, *, out_type=INT32: dims_array(np.shape(input), out_type))
def shape(input: Any, *, out_type: Any = INT32) -> Any:
    """Returns the shape, known while tracing. See tf.raw_ops.Shape."""
    return dims_array(jnp.shape(input), out_type)


def _shape_n(input: list[Any], *, out_type: Any = INT32) -> list[Any]:
    return [dims_array(jnp.shape(x), out_type) for x in input]


@op("ShapeN", host=_shape_n)
def shape_n(input: list[Any], *, out_type: Any = INT32) -> list[Any]:
    """Returns the shapes, known while tracing. See tf.raw_ops.ShapeN."""
    return _shape_n(input, out_type=out_type)


def _size(input: Any, *, out_type: Any = INT32) -> Any:
    return dims_array((math.prod(jnp.shape(input)),), out_type).reshape(())


@op("Size", host=_size)
def size(input: Any, *, out_type: Any = INT32) -> Any:
    """Returns the number of elements, known while tracing. See tf.raw_ops.Size."""
    return _size(input, out_type=out_type)


@op("Rank", host=lambda input: np.array(np.ndim(input), np.int32))
def rank(input: Any) -> Any:
    """Returns the rank, known while tracing. See tf.raw_ops.Rank."""
    return np.array(jnp.ndim(input), np.int32)


def resolve_shape(shape: Any, current: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the dimensions that a Reshape to ``shape`` gives, with -1 worked out.

    Raises:
      OpError: the number of elements does not fit.
    """
    wanted = list(dims(shape))
    unknown = [i for i, d in enumerate(wanted) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise OpError(f"only one dimension of the new shape may be -1, got {wanted}")
    total = math.prod(current)
    if unknown:
        others = math.prod(d for i, d in enumerate(wanted) if i != unknown[0])
        if isinstance(others, int) and others == 0:
            raise OpError(f"cannot infer the -1 in {wanted}: the other dimensions hold no element")
        if isinstance(total, int) and isinstance(others, int) and total % others:
            raise OpError(f"cannot reshape {list(current)} to {wanted}: {total} elements do not divide by {others}")
        wanted[unknown[0]] = total // others
    elif isinstance(total, int) and all(isinstance(d, int) for d in wanted) and math.prod(wanted) != total:
        raise OpError(f"cannot reshape {list(current)} ({total} elements) to {wanted}")
    return tuple(wanted)


def _host_reshape(tensor: Any, shape: Any) -> Any:
    return np.reshape(tensor, resolve_shape(shape, np.shape(tensor)))


@op("Reshape", host=_host_reshape)
def reshape(tensor: Any, shape: Static) -> Any:
    """Reshapes. See tf.raw_ops.Reshape."""
    return lax.reshape(jnp.asarray(tensor), resolve_shape(shape, jnp.shape(tensor)))


def _expand(input: Any, dim: Any) -> tuple[Any, ...]:
    axis = normalize_axis(np.asarray(dim).reshape(()), np.ndim(input) + 1)
    current = jnp.shape(input)
    return (*current[:axis], 1, *current[axis:])


@op("ExpandDims", host=lambda input, dim: np.reshape(input, _expand(input, dim)))
def expand_dims(input: Any, dim: Static) -> Any:
    """Inserts a dimension of size 1. See tf.raw_ops.ExpandDims."""
    axis = normalize_axis(np.asarray(dim).reshape(()), np.ndim(input) + 1)
    return lax.expand_dims(jnp.asarray(input), (axis,))


def _squeeze_axes(current: tuple[Any, ...], squeeze_dims: Any) -> tuple[int, ...]:
    if not squeeze_dims:
        return tuple(i for i, d in enumerate(current) if isinstance(d, int) and d == 1)
    axes = tuple(normalize_axis(a, len(current)) for a in squeeze_dims)
    for a in axes:
        if isinstance(current[a], int) and current[a] != 1:
            raise OpError(f"cannot squeeze dimension {a} of {list(current)}: it is not 1")
    return axes


@op("Squeeze", host=lambda input, *, squeeze_dims=(): np.squeeze(input, _squeeze_axes(np.shape(input), squeeze_dims)))
def squeeze(input: Any, *, squeeze_dims: Any = ()) -> Any:
    """Drops dimensions of size 1. See tf.raw_ops.Squeeze."""
    return lax.squeeze(jnp.asarray(input), _squeeze_axes(jnp.shape(input), squeeze_dims))


def _host_broadcast_to(input: Any, shape: Any) -> Any:
    wanted = dims(shape)
    if all(isinstance(d, int) for d in wanted) and math.prod(wanted) <= SMALL:
        return np.broadcast_to(input, wanted)
    return jnp.broadcast_to(as_array(input), wanted)


@op("BroadcastTo", host=_host_broadcast_to)
def broadcast_to(input: Any, shape: Static) -> Any:
    """Broadcasts to a shape. See tf.raw_ops.BroadcastTo."""
    return jnp.broadcast_to(input, dims(shape))


def _host_fill(dims_: Any, value: Any, *, index_type: Any = None) -> Any:
    wanted = dims(dims_)
    if all(isinstance(d, int) for d in wanted) and math.prod(wanted) <= SMALL:
        return np.full(wanted, value, np.asarray(value).dtype)
    return jnp.full(wanted, as_array(np.asarray(value)))


@op("Fill", host=_host_fill)
def fill(dims_: Static, value: Any, *, index_type: Any = None) -> Any:
    """Returns a tensor of one value. See tf.raw_ops.Fill."""
    return jnp.broadcast_to(value, dims(dims_))


def _host_range(start: Any, limit: Any, delta: Any) -> Any:
    if any(is_symbolic(v) for v in (start, limit, delta)):
        return range_(start, limit, delta)
    if delta == 0:
        raise OpError("Range with a step of 0")
    if np.issubdtype(start.dtype, np.integer):
        return np.arange(int(start), int(limit), int(delta), dtype=start.dtype)
    count = max(0, math.ceil(abs((float(limit) - float(start)) / float(delta))))
    if (float(limit) - float(start)) * float(delta) < 0:
        count = 0
    # TensorFlow adds the step again and again; so the rounding is that of a running sum.
    steps: Any = np.full(count, delta, start.dtype)
    steps[:1] = start
    return np.add.accumulate(steps, dtype=start.dtype) if count else steps


@op("Range", host=_host_range)
def range_(start: Static, limit: Static, delta: Static) -> Any:
    """Returns numbers from ``start`` below ``limit``; symbolic dimensions are taken. See tf.raw_ops.Range."""
    first, last, step = (dims(v)[0] if is_symbolic(v) or v.dtype.kind in "iu" else v for v in (start, limit, delta))
    count = (
        core.max_dim(0, -((first - last) // step)) if isinstance(step, int) and step > 0 else -((first - last) // step)
    )
    dtype = canonical(next((v.dtype for v in (start, limit, delta) if not is_symbolic(v)), np.int32))
    out = lax.iota(dtype, count)
    if not (isinstance(step, int) and step == 1):
        out = out * jnp.asarray(step, dtype)
    if not (isinstance(first, int) and first == 0):
        out = out + jnp.asarray(first, dtype)
    return out


def _host_broadcast_args(s0: Any, s1: Any) -> Any:
    dtype = s0.dtype if s0.dtype.kind != "O" else s1.dtype
    return dims_array(jnp.broadcast_shapes(dims(s0), dims(s1)), dtype if dtype.kind != "O" else np.int32)


@op("BroadcastArgs", host=_host_broadcast_args)
def broadcast_args(s0: Static, s1: Static) -> Any:
    """Returns the shape that two shapes broadcast to. See tf.raw_ops.BroadcastArgs."""
    return _host_broadcast_args(s0, s1)


def _host_broadcast_gradient_args(s0: Any, s1: Any) -> Any:
    a, b = dims(s0), dims(s1)
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b

    def is_one(d: Any) -> bool:
        return isinstance(d, int) and d == 1

    r0 = [i for i in range(rank) if is_one(left[i]) and (not is_one(right[i]) or i < rank - len(a))]
    r1 = [i for i in range(rank) if is_one(right[i]) and (not is_one(left[i]) or i < rank - len(b))]
    both = [i for i in range(rank) if is_one(left[i]) and is_one(right[i])]
    if a != b:
        # TensorFlow reduces over dimensions where both are 1 too; that changes no value.
        r0, r1 = sorted({*r0, *both}), sorted({*r1, *both})
    dtype = np.int32 if is_symbolic(s0) or is_symbolic(s1) else s0.dtype
    return np.array(r0, dtype), np.array(r1, dtype)


@op("BroadcastGradientArgs", host=_host_broadcast_gradient_args)
def broadcast_gradient_args(s0: Static, s1: Static) -> Any:
    """Returns the axes to sum gradients over. See tf.raw_ops.BroadcastGradientArgs."""
    return _host_broadcast_gradient_args(s0, s1)


def _host_concat_offset(concat_dim: Any, shape: list[Any]) -> Any:
    axis = normalize_axis(np.asarray(concat_dim).reshape(()), len(shape[0]))
    offset: Any = 0
    out = []
    for s in shape:
        row = np.zeros(len(s), s.dtype)
        row[axis] = offset
        out.append(row)
        offset = offset + s[axis]
    return out


@op("ConcatOffset", host=_host_concat_offset)
def concat_offset(concat_dim: Static, shape: Static) -> Any:
    """Returns where each part of a concatenation starts. See tf.raw_ops.ConcatOffset."""
    return _host_concat_offset(concat_dim, shape)


def _host_invert_permutation(x: Any) -> Any:
    out = np.zeros_like(x)
    out[x] = np.arange(len(x), dtype=x.dtype)
    return out


@op("InvertPermutation", host=_host_invert_permutation)
def invert_permutation(x: Any) -> Any:
    """Inverts a permutation. See tf.raw_ops.InvertPermutation."""
    return jnp.zeros_like(x).at[x].set(lax.iota(x.dtype, x.shape[0]))


@op("EnsureShape", host=lambda input, *, shape: input)
def ensure_shape(input: Any, *, shape: Any) -> Any:
    """Checks the shape. See tf.raw_ops.EnsureShape."""
    if shape is not None:
        actual = jnp.shape(input)
        wrong = len(actual) != len(shape) or any(
            w is not None and isinstance(a, int) and a != w for a, w in zip(actual, shape, strict=True)
        )
        if wrong:
            raise OpError(f"shape {actual} does not fit the ensured {shape}")
    return input
