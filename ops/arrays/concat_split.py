"""Arrays passed on, put together, taken apart and rearranged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import checkify

from tf2jax_lite.dynamic_shapes.bounds import as_size, is_data_dependent, is_size
from tf2jax_lite.dynamic_shapes.provenance import entries
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError, row_capacity, truncate_rows
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.nonzero import places
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError, PreventedGradientError
from tf2jax_lite.values.static import as_array, canonical, dims, normalize_axes, normalize_axis, static_value
from tf2jax_lite.values.variant import Variant

from ._dynamic_split import known_split, open_split
from .gather import take
from .strided_slice import object_or_array

# A numpy twin computes results up to this size; larger ones are made in the trace, where they cost no memory.
SMALL = 1024


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _axis(axis: Any, rank: int) -> int:
    """Returns a static axis (a scalar, or a vector of one) as an int in ``[0, rank)``."""
    if np.size(axis) != 1:
        raise OpError(f"the axis must be one number, got shape {np.shape(axis)}")
    return normalize_axis(np.reshape(axis, ()), rank)


def _select(mask: Any, x: Any, y: Any, shape: tuple[Any, ...]) -> Any:
    return lax.select(jnp.broadcast_to(mask, shape), jnp.broadcast_to(x, shape), jnp.broadcast_to(y, shape))


# --- Values passed on


def _constant(*, value: Any, dtype: Any = None) -> Any:
    value = np.asarray(value)
    # JAX remembers by the array itself what it made of one, whatever the mode was: what 32 bits are made of is an array
    # of its own, as other programs, and this one in the other mode, read the same constant.
    narrowed = value.dtype.kind in "iufc" and canonical(value.dtype) != value.dtype
    return value.view() if narrowed else value


@op("Const", "HostConst", host=_constant)
def const(*, value: Any, dtype: Any = None) -> Any:
    """Returns a constant. See tf.raw_ops.Const."""
    return _constant(value=value, dtype=dtype)


@op("Identity", "Snapshot", "GuaranteeConst", "_EagerConst", words="each", host=lambda input: input, lazy=True)
def identity(input: Any) -> Any:
    """Returns its input. See tf.raw_ops.Identity."""
    return input


@op("DeepCopy", host=lambda x: x)
def deep_copy(x: Any) -> Any:
    """Returns its input. See tf.raw_ops.DeepCopy."""
    return x


@op("IdentityN", "_ListToArray", words="each", host=lambda input: list(input))
def identity_n(input: list[Any]) -> list[Any]:
    """Returns its inputs. See tf.raw_ops.IdentityN."""
    return list(input)


@op("_ArrayToList", host=lambda input, *, out_types=(): list(input))
def array_to_list(input: list[Any], *, out_types: Any = ()) -> list[Any]:
    """Returns its inputs. See tensorflow/core/ops/function_ops.cc."""
    return list(input)


@op("StopGradient", host=lambda input: input)
def stop_gradient(input: Any) -> Any:
    """Returns its input; no gradient flows. See tf.raw_ops.StopGradient."""
    return lax.stop_gradient(input)


@op("PreventGradient", options=("raise_on_prevent_gradient",))
def prevent_gradient(input: Any, *, message: str = "", raise_on_prevent_gradient: bool = True) -> Any:
    """Returns its input; differentiating it is an error, if configured so. See tf.raw_ops.PreventGradient."""
    if not raise_on_prevent_gradient:
        return input

    @jax.custom_jvp
    def node(x: Any) -> Any:
        return x

    @node.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise PreventedGradientError(
            f"gradient explicitly disabled by a PreventGradient node{': ' + message if message else ''}. "
            "Allow it with override_config('raise_on_prevent_gradient', False) at conversion."
        )

    return node(jnp.asarray(input))


def _check_numerics(tensor: Any, *, message: str, enable_checkify_for_asserts: bool = False) -> Any:
    """Returns its input. NaN and infinity, errors in TensorFlow, are checked if configured; else they pass.

    (jax_debug_nans finds them.) See tf.raw_ops.CheckNumerics.
    """
    if enable_checkify_for_asserts:
        text = message.replace("{", "{{").replace("}", "}}")
        checkify.check(~jnp.any(jnp.isnan(tensor)), f"{text} : Found NaN values.")
        checkify.check(~jnp.any(jnp.isinf(tensor)), f"{text} : Found Inf values.")
    return tensor


check_numerics = op("CheckNumerics", "CheckNumericsV2", host=_check_numerics, options=("enable_checkify_for_asserts",))(
    _check_numerics
)


@op("NoOp", "ControlTrigger")
def no_op() -> tuple[()]:
    """Does nothing. See tf.raw_ops.NoOp."""
    return ()


@op("Placeholder", "PlaceholderV2")
def placeholder(*, dtype: Any, shape: Any = None) -> Any:
    """Refuses: a placeholder that is no argument has no value. See tf.raw_ops.Placeholder."""
    raise OpError("the placeholder is not fed; name it among the inputs")


@op("PlaceholderWithDefault", host=lambda input, *, shape=None: input)
def placeholder_with_default(input: Any, *, shape: Any = None) -> Any:
    """Returns its default. See tf.raw_ops.PlaceholderWithDefault."""
    return input


def _host_fake_param(*, dtype: Any, shape: Any = ()) -> Any:
    return np.zeros([d or 0 for d in shape or ()], dtype)


@op("FakeParam", host=_host_fake_param)
def fake_param(*, dtype: Any, shape: Any = ()) -> Any:
    """Returns zeros, for a value that is never used; unknown dimensions are 0. See tf.raw_ops.FakeParam."""
    return _host_fake_param(dtype=dtype, shape=shape)


def _host_device_index(*, device_names: Sequence[str]) -> Any:
    names = list(device_names)
    return np.array(names.index("CPU") if "CPU" in names else len(names), np.int32)


@op("DeviceIndex", host=_host_device_index)
def device_index(*, device_names: Sequence[str]) -> Any:
    """Returns where "CPU" is, whatever JAX runs on: all choices compute the same. See tf.raw_ops.DeviceIndex."""
    return _host_device_index(device_names=device_names)


# --- Put together, taken apart


def _join(parts: list[Any], axis: int) -> Any:
    arrays = [np.asarray(p) for p in parts]
    if any(a.dtype == object for a in arrays):
        arrays = [a.astype(object) for a in arrays]
    return np.concatenate(arrays, axis)


def _concat_axis(values: list[Any], axis: Any) -> int:
    rank = np.ndim(values[0])
    if rank == 0:
        raise OpError("scalars cannot be concatenated")
    axis = _axis(axis, rank)
    first = np.shape(values[0])
    for value in values[1:]:
        other = np.shape(value)
        if len(other) != rank or any(
            i != axis and _is_int(a) and _is_int(b) and a != b
            for i, (a, b) in enumerate(zip(first, other, strict=True))
        ):
            raise OpError(f"shapes {list(first)} and {list(other)} do not match in all dimensions but {axis}")
    return axis


@op("ConcatV2", words="each", host=lambda values, axis: _join(values, _concat_axis(values, axis)), moves=True)
def concat_v2(values: list[Any], axis: Static) -> Any:
    """Concatenates. See tf.raw_ops.ConcatV2."""
    where = _concat_axis(values, axis)
    return lax.concatenate(values, where) if len(values) > 1 else jnp.asarray(values[0])


@op("Concat", host=lambda concat_dim, values: _join(values, _concat_axis(values, concat_dim)), moves=True)
def concat(concat_dim: Static, values: list[Any]) -> Any:
    """Concatenates. See tf.raw_ops.Concat."""
    return concat_v2(values, concat_dim)


@op("ParallelConcat")
def parallel_concat(values: list[Any], *, shape: Any = None) -> Any:
    """Concatenates along the first dimension. See tf.raw_ops.ParallelConcat."""
    return concat_v2(values, np.int32(0))


def _pack_axis(values: list[Any], axis: int) -> int:
    shapes = [np.shape(v) for v in values]
    for other in shapes[1:]:
        if len(other) != len(shapes[0]) or any(
            _is_int(a) and _is_int(b) and a != b for a, b in zip(shapes[0], other, strict=True)
        ):
            raise OpError(f"values of shapes {list(shapes[0])} and {list(other)} cannot be packed")
    return normalize_axis(axis, len(shapes[0]) + 1)


def _host_pack(values: list[Any], *, axis: int = 0) -> Any:
    axis = _pack_axis(values, axis)
    return _join([np.expand_dims(np.asarray(v), axis) for v in values], axis)


@op("Pack", words="each", host=_host_pack, moves=True)
def pack(values: list[Any], *, axis: int = 0) -> Any:
    """Stacks along a new axis. See tf.raw_ops.Pack."""
    if isinstance(values[0], Variant):
        return values[0].stack(values[1:])
    axis = _pack_axis(values, axis)
    # Constants are expanded here, not in the trace: a slice by this vector can then see what is constant in it.
    parts = [np.expand_dims(v, axis) if isinstance(v, np.ndarray) else lax.expand_dims(v, (axis,)) for v in values]
    return lax.concatenate(parts, axis) if len(parts) > 1 else jnp.asarray(parts[0])


def _unpack_axis(value: Any, num: int, axis: int) -> int:
    axis = normalize_axis(axis, np.ndim(value))
    size = np.shape(value)[axis]
    if _is_int(size) and size != num:
        raise OpError(f"dimension {axis} of size {size} cannot be unpacked into {num}")
    return axis


def _host_unpack(value: Any, *, num: int, axis: int = 0) -> Any:
    value = np.asarray(value)
    axis = _unpack_axis(value, num, axis)
    return [object_or_array(value[(slice(None),) * axis + (i,)]) for i in range(num)]


@op("Unpack", words="each", host=_host_unpack, moves=True)
def unpack(value: Any, *, num: int, axis: int = 0) -> list[Any]:
    """Takes slices along an axis apart. See tf.raw_ops.Unpack."""
    if isinstance(value, Variant):
        return value.unstack()
    value = jnp.asarray(value)
    axis = _unpack_axis(value, num, axis)
    if num == 0:
        return []
    return [lax.squeeze(part, (axis,)) for part in _split(value, [1] * num, axis)]


def _split(value: Any, sizes: list[Any], axis: int) -> list[Any]:
    """Splits. One equation where sizes are known, so that the gradient is one concatenation."""
    if len(sizes) == 1:
        return [value]
    if all(map(_is_int, (*sizes, value.shape[axis]))):
        return list(lax.split(value, sizes, axis))
    start: Any = 0
    out = []
    for size in sizes:
        out.append(lax.slice_in_dim(value, start, start + size, axis=axis))
        start = start + size
    return out


def _equal_sizes(shape: tuple[Any, ...], axis: int, num_split: int) -> list[Any]:
    total = shape[axis]
    if num_split < 1:
        raise OpError(f"num_split must be positive, got {num_split}")
    if _is_int(total) and total % num_split:
        raise OpError(f"dimension {axis} of size {total} does not split into {num_split} equal parts")
    return [total // num_split] * num_split


def _host_split(axis: Any, value: Any, *, num_split: int) -> Any:
    axis = _axis(axis, np.ndim(value))
    return _host_parts(value, _equal_sizes(np.shape(value), axis, num_split), axis)


def _host_parts(value: Any, sizes: list[Any], axis: int) -> list[Any]:
    ends = np.cumsum([0, *sizes])
    return [np.asarray(value)[(slice(None),) * axis + (slice(a, b),)] for a, b in itertools.pairwise(ends)]


@op("Split", words="each", host=_host_split, moves=True)
def split(axis: Static, value: Any, *, num_split: int) -> list[Any]:
    """Splits into equal parts. See tf.raw_ops.Split."""
    value = jnp.asarray(value)
    axis = _axis(axis, value.ndim)
    return _split(value, _equal_sizes(value.shape, axis, num_split), axis)


@op("_GatherPieces", words="each", moves=True)
def gather_pieces(value: Any, *, pieces: np.ndarray, count: int, axis: int) -> Any:
    """Splits into ``count`` equal parts and concatenates some of them: ``pieces``, by number, in any order."""
    value = jnp.asarray(value)
    axis = normalize_axis(axis, value.ndim)
    before, size, after = value.shape[:axis], value.shape[axis], value.shape[axis + 1 :]
    if not _is_int(size):
        parts = _split(value, _equal_sizes(value.shape, axis, count), axis)
        return lax.concatenate([parts[piece] for piece in pieces], axis)
    width, times = _equal_sizes(value.shape, axis, count)[0], len(pieces) // count
    if np.array_equal(pieces, np.arange(count)):
        return value
    parted = jnp.reshape(value, (*before, count, width, *after))
    if np.array_equal(pieces, np.repeat(np.arange(count), times)):
        kept = [i for i in range(value.ndim + 2) if i != axis + 1]
        parted = lax.broadcast_in_dim(parted, (*before, count, times, width, *after), kept)
    else:
        parted = take(parted, pieces, axis)
    return jnp.reshape(parted, (*before, len(pieces) * width, *after))


def _split_sizes(size_splits: Any, shape: tuple[Any, ...], axis: int, num_split: int) -> list[Any]:
    total = shape[axis]
    sizes: list[Any] = list(dims(size_splits))
    if len(sizes) != num_split:
        raise OpError(f"{len(sizes)} sizes for {num_split} parts")
    open_ = [i for i, s in enumerate(sizes) if _is_int(s) and s == -1]
    if len(open_) > 1 or any(_is_int(s) and s < -1 for s in sizes):
        raise OpError(f"sizes must be non-negative, with at most one -1, got {sizes}")
    if open_:
        sizes[open_[0]] = total - sum(s for i, s in enumerate(sizes) if i != open_[0])
    if any(_is_int(s) and s < 0 for s in sizes) or (all(map(_is_int, (*sizes, total))) and sum(sizes) != total):
        raise OpError(f"sizes {list(dims(size_splits))} do not add up to dimension {axis} of size {total}")
    return sizes


def _host_split_v(value: Any, size_splits: Any, axis: Any, *, num_split: int) -> Any:
    axis = _axis(axis, np.ndim(value))
    return _host_parts(value, _split_sizes(size_splits, np.shape(value), axis, num_split), axis)


@op("SplitV", words="each", host=_host_split_v, sized=True, moves=True)
def split_v(
    value: Any, size_splits: Any, axis: Static, *, num_split: int, tracker: DynamicShapes | None = None
) -> list[Any]:
    """Splits into parts of given sizes. See tf.raw_ops.SplitV.

    Sizes that are traced need `DynamicShapes`; where they are not as much together as there is, results are NaN.
    """
    value = jnp.asarray(value)
    axis = _axis(axis, value.ndim)
    sizes = entries(size_splits, num_split)
    if all(size.is_known for size in sizes):
        found = np.array([size.offset for size in sizes], None if all(_is_int(s.offset) for s in sizes) else object)
        parts = _split_sizes(found, value.shape, axis, num_split)
        if tracker is None or not is_data_dependent(value.shape[axis]) or all(map(is_size, parts)):
            return _split(value, parts, axis)
        return known_split(value, parts, axis, tracker)
    if tracker is None:
        raise UnboundedError("the sizes of the parts depend on values")
    return open_split(value, size_splits, sizes, axis, tracker)


# --- Rearranged


def _permutation(perm: Any, rank: int) -> tuple[int, ...]:
    axes = normalize_axes(perm, rank)
    if sorted(axes) != list(range(rank)):
        raise OpError(f"{list(dims(perm))} is not a permutation of {rank} dimensions")
    return axes


@op("Transpose", words="each", host=lambda x, perm: np.transpose(x, _permutation(perm, np.ndim(x))), moves=True)
def transpose(x: Any, perm: Static) -> Any:
    """Permutes dimensions. See tf.raw_ops.Transpose."""
    x = jnp.asarray(x)
    axes = _permutation(perm, x.ndim)
    return x if axes == tuple(range(x.ndim)) else lax.transpose(x, axes)


@op("ConjugateTranspose", host=lambda x, perm: np.conj(np.transpose(x, _permutation(perm, np.ndim(x)))), moves=True)
def conjugate_transpose(x: Any, perm: Static) -> Any:
    """Permutes dimensions and conjugates. See tf.raw_ops.ConjugateTranspose."""
    out = transpose(x, perm)
    return lax.conj(out) if jnp.issubdtype(out.dtype, jnp.complexfloating) else out


def _multiples(multiples: Any, rank: int) -> tuple[Any, ...]:
    out = dims(multiples)
    if np.ndim(multiples) != 1 or len(out) != rank:
        raise OpError(f"multiples must be a vector of length {rank}, got {np.asarray(multiples).tolist()}")
    if any(_is_int(m) and m < 0 for m in out):
        raise OpError(f"multiples must be non-negative, got {list(out)}")
    return tuple(map(as_size, out))


def _host_tile(input: Any, multiples: Any) -> Any:
    input = np.asarray(input)
    counts = _multiples(multiples, input.ndim)
    sizes = (*counts, *input.shape)
    if all(map(_is_int, sizes)) and (math.prod(sizes) <= SMALL or input.dtype == object):
        return np.tile(input, counts)
    return tile(as_array(input), multiples)


@op("Tile", host=_host_tile, elements=result_size.repeated, moves=True)
def tile(input: Any, multiples: Static) -> Any:
    """Repeats. See tf.raw_ops.Tile."""
    x = jnp.asarray(input)
    counts = _multiples(multiples, x.ndim)
    wide: list[Any] = []
    place: list[int] = []
    result: list[Any] = []
    for d, m in zip(x.shape, counts, strict=True):
        if _is_int(m) and m == 1:
            place.append(len(wide))
            wide.append(d)
            result.append(d)
        elif _is_int(d) and d == 1:
            place.append(len(wide))
            wide.append(m)
            result.append(m)
        else:
            place.append(len(wide) + 1)
            wide += [m, d]
            result.append(m * d)
    out = lax.broadcast_in_dim(x, wide, place)
    return out if len(wide) == len(result) else lax.reshape(out, result)


def _reverse_axes(axis: Any, rank: int) -> tuple[int, ...]:
    axes = normalize_axes(axis, rank)
    if len(set(axes)) != len(axes):
        raise OpError(f"an axis is named more than once in {list(dims(axis))}")
    return axes


@op("ReverseV2", host=lambda tensor, axis: np.flip(tensor, _reverse_axes(axis, np.ndim(tensor))), moves=True)
def reverse_v2(tensor: Any, axis: Static) -> Any:
    """Reverses along axes. See tf.raw_ops.ReverseV2."""
    x = jnp.asarray(tensor)
    axes = _reverse_axes(axis, x.ndim)
    return lax.rev(x, axes) if axes else x


def _flags(flags: Any, rank: int) -> Any:
    if np.shape(flags) != (rank,):
        raise OpError(f"dims must have shape ({rank},), got {np.shape(flags)}")
    return np.flatnonzero(flags)


@op("Reverse", host=lambda tensor, dims: np.flip(tensor, tuple(_flags(dims, np.ndim(tensor)))), moves=True)
def reverse(tensor: Any, dims: Static) -> Any:
    """Reverses along the dimensions that are flagged. See tf.raw_ops.Reverse."""
    return reverse_v2(tensor, _flags(dims, np.ndim(tensor)))


@op("ReverseSequence", moves=True)
def reverse_sequence(input: Any, seq_lengths: Any, *, seq_dim: int, batch_dim: int = 0) -> Any:
    """Reverses the start of each sequence; lengths are cut to the dimension. See tf.raw_ops.ReverseSequence."""
    x, lengths = jnp.asarray(input), jnp.asarray(seq_lengths)
    for name, axis in (("seq_dim", seq_dim), ("batch_dim", batch_dim)):
        if not 0 <= axis < x.ndim:
            raise OpError(f"{name} {axis} is out of range for a tensor of rank {x.ndim}")
    batch, size = x.shape[batch_dim], x.shape[seq_dim]
    if seq_dim == batch_dim or lengths.ndim != 1:
        raise OpError("batch_dim and seq_dim must differ, and seq_lengths must be a vector")
    if _is_int(batch) and _is_int(lengths.shape[0]) and batch != lengths.shape[0]:
        raise OpError(f"{lengths.shape[0]} lengths for a batch of {batch}")
    given = static_value(seq_lengths)
    if given is not None and _is_int(size) and given.size and not 0 <= given.min() <= given.max() <= size:
        raise OpError(f"sequence lengths must be in [0, {size}], got {given.tolist()}")
    lengths = lax.convert_element_type(lengths, np.int32)
    place = lax.broadcasted_iota(np.int32, (batch, size), 1)
    wide = lax.broadcast_in_dim(lengths, (batch, size), (0,))
    source = lax.select(lax.lt(place, wide), lax.sub(lax.sub(wide, place), jnp.ones_like(place)), place)
    rest = tuple(i for i in range(x.ndim) if i not in (batch_dim, seq_dim))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(2, x.ndim)),
        collapsed_slice_dims=(seq_dim,),
        start_index_map=(seq_dim,),
        operand_batching_dims=(batch_dim,),
        start_indices_batching_dims=(0,),
    )
    if _is_int(size) and size == 0:
        return x
    sizes = tuple(1 if i in (batch_dim, seq_dim) else d for i, d in enumerate(x.shape))
    out = lax.gather(
        x, lax.expand_dims(source, (2,)), numbers, sizes, unique_indices=True, mode=lax.GatherScatterMode.CLIP
    )
    return lax.transpose(out, tuple(int(i) for i in np.argsort((batch_dim, seq_dim, *rest))))


@op("Roll", moves=True)
def roll(input: Any, shift: Any, axis: Static) -> Any:
    """Rolls. See tf.raw_ops.Roll."""
    x = jnp.asarray(input)
    if x.ndim == 0:
        raise OpError("input must be at least 1-dim")
    if np.shape(shift) != np.shape(axis) or np.ndim(shift) > 1:
        raise OpError(f"shift and axis must have the same shape, got {np.shape(shift)} and {np.shape(axis)}")
    axes = normalize_axes(axis, x.ndim)
    given = static_value(shift)
    shifts = dims(given) if given is not None else [jnp.reshape(shift, (-1,))[i] for i in range(len(axes))]
    for s, a in zip(shifts, axes, strict=True):
        x = _roll(x, s, a)
    return x


def _roll(x: Any, shift: Any, axis: int) -> Any:
    size = x.shape[axis]
    if _is_int(size) and size == 0:
        return x
    if _is_int(shift) and _is_int(size):
        start: Any = -shift % size
        if start == 0:
            return x
        ends = lax.slice_in_dim(x, start, size, axis=axis), lax.slice_in_dim(x, 0, start, axis=axis)
        return lax.concatenate(ends, axis)
    size_ = jnp.asarray(size, np.int32)
    start = jnp.remainder(lax.neg(lax.convert_element_type(jnp.asarray(shift), np.int32)), size_)
    return lax.dynamic_slice_in_dim(lax.concatenate([x, x], axis), start, size, axis)


@op("OneHot", elements=result_size.count(1))
def one_hot(indices: Any, depth: Static, on_value: Any, off_value: Any, *, axis: int = -1) -> Any:
    """Returns ``on_value`` where the position is the index, ``off_value`` elsewhere. See tf.raw_ops.OneHot."""
    indices = jnp.asarray(indices)
    rank = indices.ndim + 1
    if not -1 <= axis < rank:
        raise OpError(f"axis {axis} must be -1 or in [0, {rank})")
    axis = axis % rank
    if np.ndim(depth) or np.ndim(on_value) or np.ndim(off_value):
        raise OpError("depth, on_value and off_value must be scalars")
    (count,) = dims(depth)
    if _is_int(count) and count < 0:
        raise OpError(f"depth must be non-negative, got {count}")
    if indices.dtype.itemsize < 4:  # positions beyond the type's range must not wrap around
        indices = lax.convert_element_type(indices, np.int32)
    shape = (*indices.shape[:axis], as_size(count), *indices.shape[axis:])
    wide = lax.broadcast_in_dim(indices, shape, tuple(i for i in range(rank) if i != axis))
    hit = lax.eq(wide, lax.broadcasted_iota(indices.dtype, shape, axis))
    static = isinstance(on_value, np.ndarray) and isinstance(off_value, np.ndarray)
    if static and on_value == 1 and not any(off_value.tobytes()):  # -0.0 has a bit
        # A select takes half as long again on CPU.
        return lax.convert_element_type(hit, canonical(np.asarray(on_value).dtype))
    return _select(hit, on_value, off_value, shape)


# --- Chosen by value


def _host_where(input: Any, *, bound: int | None = None) -> Any:
    x = np.asarray(input)
    if x.ndim == 0:
        raise OpError("the input of Where must be at least 1-dim")
    return np.argwhere(x != 0).astype(np.int64).reshape(-1, x.ndim)


@op("Where", host=_host_where, dynamic_shape="prefix")
def where(input: Any, *, bound: int | DynamicShapes | None = None) -> Any:
    """Returns the coordinates of what is not zero. See tf.raw_ops.Where.

    Padded to a bound, rows after the last are -1 (which gathers as zeros, and scatters nowhere); coordinates beyond
    the bound are dropped.
    """
    if isinstance(input, np.ndarray):
        return _host_where(input)
    if input.ndim == 0:
        raise OpError("the input of Where must be at least 1-dim")
    size = row_capacity(bound, input.size, "the number of results depends on traced values")
    mask = lax.ne(input, lax.full_like(input, 0))
    found = places(lax.reshape(mask, (input.size,)) if input.ndim > 1 else mask, size, -1)
    (found,) = truncate_rows(bound, lambda: jnp.count_nonzero(mask), found, of=(input,))
    return _coordinates(found.astype(canonical(np.int64)), input.shape)


def _coordinates(place: Any, shape: Sequence[Any]) -> Any:
    """Returns coordinates in an array for places in a flat one; -1 has none but -1."""
    columns = []
    rest = place
    for dim in reversed(shape[1:]):
        size = jnp.maximum(jnp.asarray(dim, place.dtype), 1)
        columns.append(jnp.where(place < 0, place, lax.rem(rest, jnp.broadcast_to(size, rest.shape))))
        rest = lax.div(rest, jnp.broadcast_to(size, rest.shape))
    return jnp.stack([jnp.where(place < 0, place, rest), *reversed(columns)], 1)


# --- In place


def _rows(x: Any, i: Any, v: Any) -> tuple[Any, Any, Any]:
    x, i, v = jnp.asarray(x), jnp.asarray(i), jnp.asarray(v)
    if i.ndim != 1 or x.ndim != v.ndim or x.shape[1:] != v.shape[1:] or i.shape[0] != v.shape[0]:
        raise OpError(f"x {x.shape}, i {i.shape} and v {v.shape} do not fit")
    return x, jnp.remainder(i, x.shape[0]), v


@op("InplaceUpdate")
def inplace_update(x: Any, i: Any, v: Any) -> Any:
    """Replaces rows, counted modulo their number. See tf.raw_ops.InplaceUpdate."""
    x, i, v = _rows(x, i, v)
    return x.at[i].set(v, mode="promise_in_bounds")


@op("InplaceAdd")
def inplace_add(x: Any, i: Any, v: Any) -> Any:
    """Adds to rows, counted modulo their number. See tf.raw_ops.InplaceAdd."""
    x, i, v = _rows(x, i, v)
    return x.at[i].add(v, mode="promise_in_bounds")


@op("InplaceSub")
def inplace_sub(x: Any, i: Any, v: Any) -> Any:
    """Subtracts from rows, counted modulo their number. See tf.raw_ops.InplaceSub."""
    x, i, v = _rows(x, i, v)
    return x.at[i].add(lax.neg(v), mode="promise_in_bounds")
