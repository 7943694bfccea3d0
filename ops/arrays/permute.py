"""Permutations of elements: transpose, reverse, roll; and repetition.

Kernels: transpose_op.cc, reverse_op.cc, reverse_sequence_op.cc, roll_op.cc, tile_ops.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import as_size
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import MAX_FOLDED, is_int
from tf2jax_lite.ops.common.precision import total
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims, normalize_axes, static_value


def _permutation(perm: Any, rank: int) -> tuple[int, ...]:
    axes = normalize_axes(perm, rank)
    if sorted(axes) != list(range(rank)):
        raise OpError(f"{list(dims(perm))} is not a permutation of {rank} dimensions")
    return axes


@op(
    "Transpose",
    int64="per_word",
    fold=lambda x, perm: np.transpose(x, _permutation(perm, np.ndim(x))),
    pattern=Pattern.INJECTIVE,
)
def transpose(x, perm: Static):
    """Permute dimensions.

    Args:
      perm: ``[rank]``, a permutation of ``range(rank)``; negative axes count from the end.
    """
    x = jnp.asarray(x)
    axes = _permutation(perm, x.ndim)
    return x if axes == tuple(range(x.ndim)) else lax.transpose(x, axes)


@op(
    "ConjugateTranspose",
    fold=lambda x, perm: np.conj(np.transpose(x, _permutation(perm, np.ndim(x)))),
    pattern=Pattern.INJECTIVE,
)
def conjugate_transpose(x, perm: Static):
    """Permute dimensions and conjugate."""
    out = transpose(x, perm)
    return lax.conj(out) if jnp.issubdtype(out.dtype, jnp.complexfloating) else out


def _multiples(multiples: Any, rank: int) -> tuple[Any, ...]:
    out = dims(multiples)
    if np.ndim(multiples) != 1 or len(out) != rank:
        raise OpError(f"multiples must be a vector of length {rank}, got {np.asarray(multiples).tolist()}")
    if any(is_int(m) and m < 0 for m in out):
        raise OpError(f"multiples must be non-negative, got {list(out)}")
    return tuple(map(as_size, out))


def _fold_tile(input: Any, multiples: Any) -> Any:
    input = np.asarray(input)
    counts = _multiples(multiples, input.ndim)
    sizes = (*counts, *input.shape)
    if all(map(is_int, sizes)) and (math.prod(sizes) <= MAX_FOLDED or input.dtype == object):
        return np.tile(input, counts)
    return tile(as_array(input), multiples)


@op("Tile", fold=_fold_tile, result_size=result_size.repeated, pattern=Pattern.INJECTIVE)
def tile(input, multiples: Static):
    """Repeat along each dimension."""
    x = jnp.asarray(input)
    counts = _multiples(multiples, x.ndim)
    expanded: list[Any] = []  # each dimension with its multiple before it
    axes: list[int] = []  # of x, in that shape
    result: list[Any] = []
    for d, m in zip(x.shape, counts, strict=True):
        if is_int(m) and m == 1:
            axes.append(len(expanded))
            expanded.append(d)
            result.append(d)
        elif is_int(d) and d == 1:
            axes.append(len(expanded))
            expanded.append(m)
            result.append(m)
        else:
            axes.append(len(expanded) + 1)
            expanded += [m, d]
            result.append(m * d)
    out = lax.broadcast_in_dim(x, expanded, axes)
    return out if len(expanded) == len(result) else lax.reshape(out, result)


def _reverse_axes(axis: Any, rank: int) -> tuple[int, ...]:
    axes = normalize_axes(axis, rank)
    if len(set(axes)) != len(axes):
        raise OpError(f"an axis is named more than once in {list(dims(axis))}")
    return axes


@op(
    "ReverseV2",
    fold=lambda tensor, axis: np.flip(tensor, _reverse_axes(axis, np.ndim(tensor))),
    pattern=Pattern.INJECTIVE,
)
def reverse_v2(tensor, axis: Static):
    """Reverse along axes."""
    x = jnp.asarray(tensor)
    axes = _reverse_axes(axis, x.ndim)
    return lax.rev(x, axes) if axes else x


def _flags(flags: Any, rank: int) -> Any:
    if np.shape(flags) != (rank,):
        raise OpError(f"dims must have shape ({rank},), got {np.shape(flags)}")
    return np.flatnonzero(flags)


@op(
    "Reverse",
    fold=lambda tensor, dims: np.flip(tensor, tuple(_flags(dims, np.ndim(tensor)))),
    pattern=Pattern.INJECTIVE,
)
def reverse(tensor, dims: Static):
    """Reverse along the dimensions that are flagged."""
    return reverse_v2(tensor, _flags(dims, np.ndim(tensor)))


@op("ReverseSequence", pattern=Pattern.INJECTIVE)
def reverse_sequence(input, seq_lengths, *, seq_dim, batch_dim=0):
    """Reverse the first elements of each sequence.

    Args:
      seq_lengths: ``[size of batch_dim]``, ints; the number of elements that are reversed. If traced, it is clamped to
        the sequence, where TensorFlow raises.
    """
    x, lengths = jnp.asarray(input), jnp.asarray(seq_lengths)
    for name, axis in (("seq_dim", seq_dim), ("batch_dim", batch_dim)):
        if not 0 <= axis < x.ndim:
            raise OpError(f"{name} {axis} is out of range for a tensor of rank {x.ndim}")
    batch, size = x.shape[batch_dim], x.shape[seq_dim]
    if seq_dim == batch_dim or lengths.ndim != 1:
        raise OpError("batch_dim and seq_dim must differ, and seq_lengths must be a vector")
    if is_int(batch) and is_int(lengths.shape[0]) and batch != lengths.shape[0]:
        raise OpError(f"{lengths.shape[0]} lengths for a batch of {batch}")
    static = static_value(seq_lengths)
    if static is not None and is_int(size) and static.size and not 0 <= static.min() <= static.max() <= size:
        raise OpError(f"sequence lengths must be in [0, {size}], got {static.tolist()}")
    lengths = lax.convert_element_type(lengths, np.int32)
    index = lax.broadcasted_iota(np.int32, (batch, size), 1)
    lengths = lax.broadcast_in_dim(lengths, (batch, size), (0,))
    source = lax.select(lax.lt(index, lengths), lax.sub(lax.sub(lengths, index), jnp.ones_like(index)), index)
    rest = tuple(i for i in range(x.ndim) if i not in (batch_dim, seq_dim))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(2, x.ndim)),
        collapsed_slice_dims=(seq_dim,),
        start_index_map=(seq_dim,),
        operand_batching_dims=(batch_dim,),
        start_indices_batching_dims=(0,),
    )
    if is_int(size) and size == 0:
        return x
    sizes = tuple(1 if i in (batch_dim, seq_dim) else d for i, d in enumerate(x.shape))
    out = lax.gather(
        x, lax.expand_dims(source, (2,)), numbers, sizes, unique_indices=True, mode=lax.GatherScatterMode.CLIP
    )
    return lax.transpose(out, tuple(int(i) for i in np.argsort((batch_dim, seq_dim, *rest))))


@op("Roll", pattern=Pattern.INJECTIVE)
def roll(input, shift, axis: Static):
    """Roll elements along axes.

    Args:
      shift: a scalar or vector of ints, static or traced.
      axis: ints in ``[-rank, rank)``, of the shape of ``shift``. Shifts along a repeated axis add up.
    """
    x = jnp.asarray(input)
    if x.ndim == 0:
        raise OpError("input must be at least 1-dim")
    if np.shape(shift) != np.shape(axis) or np.ndim(shift) > 1:
        raise OpError(f"shift and axis must have the same shape, got {np.shape(shift)} and {np.shape(axis)}")
    axes = normalize_axes(axis, x.ndim)
    static = static_value(shift)
    shifts = dims(static) if static is not None else [jnp.reshape(shift, (-1,))[i] for i in range(len(axes))]
    for s, a in zip(shifts, axes, strict=True):
        x = _roll(x, s, a)
    return x


def _roll(x: Any, shift: Any, axis: int) -> Any:
    size = x.shape[axis]
    if is_int(size) and size == 0:
        return x
    if is_int(shift) and is_int(size):
        start: Any = -shift % size
        if start == 0:
            return x
        ends = lax.slice_in_dim(x, start, size, axis=axis), lax.slice_in_dim(x, 0, start, axis=axis)
        return lax.concatenate(ends, axis)
    start = lax.neg(lax.convert_element_type(jnp.asarray(shift), np.int32))
    start = jnp.remainder(start, jnp.asarray(size, np.int32))
    return lax.dynamic_slice_in_dim(lax.concatenate([x, x], axis), start, size, axis)


@op("TileGrad")
def tile_grad(input, multiples: Static):
    """Sum tiles."""
    input, counts = jnp.asarray(input), dims(multiples)
    if len(counts) != input.ndim or any(n < 1 or d % n != 0 for n, d in zip(counts, input.shape, strict=False)):
        raise OpError(f"a tensor of shape {tuple(input.shape)} is not made of {list(counts)} tiles")
    parts = [size for n, d in zip(counts, input.shape, strict=True) for size in (n, d // n)]
    return total(input.reshape(parts), tuple(range(0, 2 * input.ndim, 2)))
