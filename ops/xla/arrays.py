"""Xla* ops on arrays: slice, gather, pad, iota, sort, random bits, precision.

TF: compiler/tf2xla/kernels/dynamic_slice_ops.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.random.philox import bits
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.int64 import U32Pair, from_u32_pair, to_u32_pair
from tf2jax_lite.values.static import canonical, dims

from .computations import last_axis
from .protos import gather_fields

# ---- slicing ----


@op("XlaDynamicSlice", pattern=Pattern.INJECTIVE)
def xla_dynamic_slice(input, start_indices, size_indices: Static):
    """Return a box whose start is clamped so that it fits."""
    sizes = dims(size_indices)
    if start_indices.ndim != 1 or start_indices.shape[0] != input.ndim or len(sizes) != input.ndim:
        raise OpError(f"start and size must be vectors of {input.ndim} numbers")
    starts = jnp.asarray(start_indices)
    offsets = [starts[i] for i in range(input.ndim)]
    return lax.dynamic_slice(jnp.asarray(input), offsets, sizes, allow_negative_indices=False)


@op("XlaDynamicUpdateSlice", pattern=Pattern.INJECTIVE)
def xla_dynamic_update_slice(input, update, indices):
    """Replace a box whose start is clamped so that it fits."""
    if indices.ndim != 1 or indices.shape[0] != input.ndim or update.ndim != input.ndim:
        raise OpError(f"the update must have rank {input.ndim}, and the indices as many numbers")
    starts = jnp.asarray(indices)
    offsets = [starts[i] for i in range(input.ndim)]
    return lax.dynamic_update_slice(jnp.asarray(input), jnp.asarray(update), offsets, allow_negative_indices=False)


@op("XlaGather", pattern=Pattern.INJECTIVE)
def xla_gather(operand, start_indices, slice_sizes: Static, *, dimension_numbers, indices_are_sorted):
    """Gather boxes whose starts are clamped so that they fit.

    TF: compiler/tf2xla/kernels/gather_scatter_ops.cc.
    """
    numbers, axis = gather_fields(dimension_numbers)
    return lax.gather(
        jnp.asarray(operand),
        last_axis(start_indices, axis),
        numbers,
        dims(slice_sizes),
        indices_are_sorted=indices_are_sorted,
        mode=lax.GatherScatterMode.CLIP,
    )


@op("XlaPad", pattern=Pattern.INJECTIVE)
def xla_pad(input, padding_value, padding_low: Static, padding_high: Static, padding_interior: Static):
    """Pad outside and between elements; negative padding truncates.

    TF: compiler/tf2xla/kernels/xla_pad_op.cc.
    """
    if not np.size(padding_low) == np.size(padding_high) == np.size(padding_interior) == input.ndim:
        raise OpError(f"paddings must have {input.ndim} numbers each")
    config = list(zip(dims(padding_low), dims(padding_high), dims(padding_interior), strict=True))
    return lax.pad(jnp.asarray(input), jnp.asarray(padding_value), config)


@op("XlaBroadcastHelper")
def xla_broadcast_helper(lhs, rhs, broadcast_dims: Static):
    """Expand the operand of lower rank to the rank of the other.

    TF: compiler/tf2xla/kernels/xla_broadcast_helper_op.cc.

    Args:
      broadcast_dims: static: the dimension of the larger rank for each of the smaller, increasing.
    """
    axes = dims(broadcast_dims)
    if lhs.ndim == rhs.ndim or not lhs.ndim or not rhs.ndim:
        if axes and lhs.ndim != rhs.ndim:
            raise OpError("broadcast_dims must be empty for a scalar")
        return lhs, rhs
    low, high = (lhs, rhs) if lhs.ndim < rhs.ndim else (rhs, lhs)
    if len(axes) != low.ndim or any(not 0 <= a < high.ndim for a in axes) or list(axes) != sorted(set(axes)):
        raise OpError(f"broadcast_dims {list(axes)} do not map rank {low.ndim} to rank {high.ndim} in order")
    shape: list[Any] = [1] * high.ndim
    for axis, d in zip(axes, low.shape, strict=True):
        shape[axis] = d
    moved = lax.broadcast_in_dim(jnp.asarray(low), shape, axes)
    return (moved, rhs) if low is lhs else (lhs, moved)


def _grid(
    counts: Sequence[int], paddings: Sequence[int], rank: int, number: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pads = tuple(paddings) or (0,) * rank
    if len(counts) != rank or len(pads) != rank or math.prod(counts) != number or min(pads, default=0) < 0:
        raise OpError(f"{number} parts of rank {rank} do not fit a grid of {counts} with paddings {list(pads)}")
    return tuple(counts), pads


@op("XlaConcatND", pattern=Pattern.INJECTIVE)
def xla_concat_nd(inputs, *, num_concats, paddings=()):
    """Concatenate a grid of tensors and remove padding at the end."""
    counts, pads = _grid(num_concats, paddings, inputs[0].ndim, len(inputs))
    parts = [jnp.asarray(v) for v in inputs]
    if any(p.shape != parts[0].shape for p in parts):
        raise OpError("the parts must have one shape")
    for axis in reversed(range(len(counts))):
        step = counts[axis]
        parts = [lax.concatenate(parts[i : i + step], axis) for i in range(0, len(parts), step)]
    (out,) = parts
    if any(p > d for p, d in zip(pads, out.shape, strict=True)):
        raise OpError(f"paddings {list(pads)} are larger than the result {out.shape}")
    return lax.slice(out, (0,) * out.ndim, [d - p for d, p in zip(out.shape, pads, strict=True)])


@op("XlaSplitND", pattern=Pattern.INJECTIVE)
def xla_split_nd(input, *, N, num_splits, paddings=()):
    """Split into a grid of tensors, padded with zeros at the end."""
    counts, pads = _grid(num_splits, paddings, input.ndim, N)
    x = jnp.asarray(input)
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, p, 0) for p in pads])
    if any(d % n for d, n in zip(x.shape, counts, strict=True)):
        raise OpError(f"a tensor of shape {x.shape} (with padding) does not divide into a grid of {list(counts)}")
    parts = [x]
    for axis, n in enumerate(counts):
        size = x.shape[axis] // n
        parts = [lax.slice_in_dim(p, i * size, (i + 1) * size, axis=axis) for p in parts for i in range(n)]
    return parts


# ---- sorting ----


@op("XlaSort", pattern=Pattern.MATERIALIZED)
def xla_sort(input):
    """Sort along the last dimension, -0 before 0 and NaN last."""
    x = jnp.asarray(input)
    return lax.sort(x, dimension=x.ndim - 1) if x.ndim else x


@op("XlaKeyValueSort", pattern=Pattern.MATERIALIZED)
def xla_key_value_sort(keys, values):
    """Sort keys along the last dimension, and values with them."""
    if keys.shape != values.shape:
        raise OpError(f"keys of shape {keys.shape} and values of shape {values.shape}")
    if not keys.ndim:
        return keys, values
    keys, values = lax.sort((jnp.asarray(keys), jnp.asarray(values)), dimension=keys.ndim - 1, num_keys=1)
    return keys, values


# ---- numbers ----


@op("XlaReducePrecision")
def xla_reduce_precision(operand, *, exponent_bits, mantissa_bits):
    """Round to a float of fewer bits."""
    return lax.reduce_precision(jnp.asarray(operand), exponent_bits, mantissa_bits)


@op("XlaDequantize")
def xla_dequantize(input, *, min_range, max_range, mode, transpose_output):
    """Unpack four bytes of each uint32, high byte first, to bfloat16."""
    if mode != "MIN_COMBINED":
        raise UnsupportedAttributeError(f"mode {mode!r}: only MIN_COMBINED exists in XLA")
    if input.ndim == 0:
        raise OpError("the input must have at least one dimension")
    shifts = np.array([24, 16, 8, 0], np.uint32)
    packed = jnp.asarray(input)[..., None]
    parts = (packed >> shifts) & np.uint32(255)
    flat = parts.reshape(*input.shape[:-1], input.shape[-1] * 4).astype(jnp.bfloat16)
    scale = jnp.asarray((max_range - min_range) / 255, jnp.bfloat16)
    out = flat * scale + jnp.asarray(min_range, jnp.bfloat16)
    return jnp.swapaxes(out, -1, -2) if transpose_output else out


_PHILOX, _THREEFRY, _AUTO = 1, 2, 3
_UINT64 = np.dtype(np.uint64)


@op("XlaRngBitGenerator", int64="pair")
def xla_rng_bit_generator(algorithm: Static, initial_state, shape: Static, *, dtype=_UINT64):
    """Return the new state and random bits of XLA's generators.

    Without ``jax_enable_x64`` the state is a `U32Pair`, and 64-bit results have 32 bits.

    Args:
      algorithm: scalar, static: 1 Philox, 2 ThreeFry, 3 default.
    """
    kind = int(np.asarray(algorithm).reshape(()))
    if kind not in (_PHILOX, _THREEFRY, _AUTO):
        raise OpError(f"unknown algorithm {kind}")
    words = jnp.asarray(to_u32_pair(initial_state))
    count = words.shape[0]
    if count not in (2, 3) or (kind == _THREEFRY and count == 3):
        raise OpError(f"a state of {count} numbers does not fit algorithm {kind}")
    out = canonical(dtype)
    unsigned = np.dtype(f"uint{out.itemsize * 8}")
    if count == 2:
        algorithm_ = lax.RandomAlgorithm.RNG_THREE_FRY if kind == _THREEFRY else lax.RandomAlgorithm.RNG_PHILOX
        state, values = _sequential_bits(words.reshape(4), dims(shape), unsigned, algorithm_)
        state = state.reshape(2, 2)
    else:
        state, values = _philox(words, dims(shape), unsigned)
    return _like_state(state, initial_state), lax.bitcast_convert_type(values, out)


def _sequential_bits(state: Any, shape: Any, dtype: Any, algorithm: Any) -> tuple[Any, Any]:
    # Under vmap JAX would draw other bits, in one call for all rows.
    @jax.custom_batching.sequential_vmap
    def draw(state: Any) -> tuple[Any, Any]:
        return lax.rng_bit_generator(state, shape, dtype, algorithm=algorithm)

    return draw(state)


def _like_state(words: Any, given: Any) -> Any:
    if isinstance(given, U32Pair) or given.dtype.itemsize == 8:
        return from_u32_pair(words)
    return words[:, 0]


def _philox(words: Any, shape: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """Return Philox's new state and bits; its key has one int64, the counter two."""
    number = math.prod(shape)
    is_64_bit = dtype.itemsize == 8
    counter = jnp.stack([words[1, 0], words[1, 1], words[2, 0], words[2, 1]])
    total = number * 2 if is_64_bit else number
    found = bits((words[0, 0], words[0, 1]), counter, total).reshape(-1)[:total]
    steps = -(-total // 4)
    low = counter[0] + np.uint32(steps)
    carry = (low < np.uint32(steps)).astype(np.uint32)
    second = counter[1] + carry
    carry = carry & (second == 0).astype(np.uint32)
    third = counter[2] + carry
    fourth = counter[3] + (carry & (third == 0).astype(np.uint32))
    state = jnp.stack([words[0], jnp.stack([low, second]), jnp.stack([third, fourth])])
    values = lax.bitcast_convert_type(found.reshape(-1, 2), np.uint64) if is_64_bit else found.astype(dtype)
    return state, values.reshape(shape)


# ---- hints ----


@op("XlaOptimizationBarrier")
def xla_optimization_barrier(input):
    """Prevent XLA from optimizing across it."""
    return list(lax.optimization_barrier([jnp.asarray(v) for v in input]))


@op("XlaSetBound", fold=lambda input, bound: input)
def xla_set_bound(input, bound: Static):
    """Return the input; the bound is a hint for dynamic shapes."""
    return input


@op("XlaSetDynamicDimensionSize")
def xla_set_dynamic_dimension_size(input, dim_index: Static, size: Static):
    """Truncate a dimension to a static size."""
    axis, (limit,) = int(np.asarray(dim_index).reshape(())), dims(size)
    if not 0 <= axis < input.ndim:
        raise OpError(f"dimension {axis} is out of range for a tensor of rank {input.ndim}")
    return lax.slice_in_dim(jnp.asarray(input), 0, limit, axis=axis)


@op("XlaRemoveDynamicDimensionSize")
def xla_remove_dynamic_dimension_size(input, dim_index: Static):
    """Return the input: dimensions are not dynamic here.

    XLA restores the truncated elements.
    """
    return input
