"""Xla* ops: what tf.function code (jax2tf's, above all) writes for operations of XLA itself."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.linalg._decomposition_jvps import eigh, svd
from tf2jax_lite.ops.random.philox import bits
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.int64 import Words, from_words, to_words
from tf2jax_lite.values.static import canonical, dims

from .computations import last_axis
from .protos import conv_numbers, dot_numbers, fields, gather_fields, precision

# ---- products ----


def _conv(
    lhs: Any, rhs: Any, strides: Any, padding: Any, base: Any, inner: Any, groups: Any, numbers: str, **options: Any
) -> Any:
    lhs, spec, holes = jnp.asarray(lhs), conv_numbers(numbers), dims(base)
    pads = [(int(a), int(b)) for a, b in np.asarray(padding).reshape(-1, 2)]
    if any(p < 0 for pair in pads for p in pair):
        # XLA's CPU backend reads outside of the array for negative padding; so cut beforehand.
        config = [(0, 0, 0)] * lhs.ndim
        for axis, (low, high), b in zip(spec.lhs_spec[2:], pads, holes, strict=True):
            config[axis] = (min(low, 0), min(high, 0), b - 1)
        lhs = lax.pad(lhs, jnp.zeros((), lhs.dtype), config)
        pads = [(max(low, 0), max(high, 0)) for low, high in pads]
        holes = (1,) * len(holes)
    return lax.conv_general_dilated(
        lhs,
        jnp.asarray(rhs),
        window_strides=dims(strides),
        padding=pads,
        lhs_dilation=holes,
        rhs_dilation=dims(inner),
        dimension_numbers=spec,
        feature_group_count=int(np.asarray(groups).reshape(())),
        **options,
    )


@op("XlaConv", heavy=True)
def xla_conv(
    lhs: Any,
    rhs: Any,
    window_strides: Static,
    padding: Static,
    lhs_dilation: Static,
    rhs_dilation: Static,
    feature_group_count: Static,
    *,
    dimension_numbers: str,
    precision_config: str,
) -> Any:
    """Convolves. See tf.raw_ops.XlaConv."""
    parts = (window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count)
    return _conv(lhs, rhs, *parts, dimension_numbers, precision=precision(precision_config))


@op("XlaConvV2", heavy=True)
def xla_conv_v2(
    lhs: Any,
    rhs: Any,
    window_strides: Static,
    padding: Static,
    lhs_dilation: Static,
    rhs_dilation: Static,
    feature_group_count: Static,
    *,
    dimension_numbers: str,
    precision_config: str,
    preferred_element_type: Any,
    batch_group_count: int = 1,
) -> Any:
    """Convolves. See tf.raw_ops.XlaConvV2."""
    parts = (window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count)
    return _conv(
        *_common(lhs, rhs, preferred_element_type),
        *parts,
        dimension_numbers,
        precision=precision(precision_config),
        preferred_element_type=canonical(preferred_element_type),
        batch_group_count=batch_group_count,
    )


def _common(lhs: Any, rhs: Any, dtype: Any) -> tuple[Any, Any]:
    """Brings operands of different dtypes to that of the result."""
    if lhs.dtype == rhs.dtype:
        return lhs, rhs
    return lhs.astype(canonical(dtype)), rhs.astype(canonical(dtype))


@op("XlaDot", heavy=True)
def xla_dot(lhs: Any, rhs: Any, *, dimension_numbers: str, precision_config: str) -> Any:
    """Multiplies and sums over chosen dimensions. See tf.raw_ops.XlaDot."""
    return lax.dot_general(
        jnp.asarray(lhs), jnp.asarray(rhs), dot_numbers(dimension_numbers), precision=precision(precision_config)
    )


@op("XlaDotV2", heavy=True)
def xla_dot_v2(
    lhs: Any, rhs: Any, *, dimension_numbers: str, precision_config: str, preferred_element_type: Any
) -> Any:
    """Multiplies and sums over chosen dimensions. See tf.raw_ops.XlaDotV2."""
    lhs, rhs = _common(lhs, rhs, preferred_element_type)
    return lax.dot_general(
        jnp.asarray(lhs),
        jnp.asarray(rhs),
        dot_numbers(dimension_numbers),
        precision=precision(precision_config),
        preferred_element_type=canonical(preferred_element_type),
    )


@op("XlaEinsum", heavy=True)
def xla_einsum(a: Any, b: Any, *, equation: str) -> Any:
    """Einstein sum of two tensors. See tf.raw_ops.XlaEinsum."""
    return jnp.einsum(equation, a, b)


# ---- parts of arrays ----


@op("XlaDynamicSlice", moves=True)
def xla_dynamic_slice(input: Any, start_indices: Any, size_indices: Static) -> Any:
    """Returns a box; its start is moved so that it fits. See tf.raw_ops.XlaDynamicSlice."""
    sizes = dims(size_indices)
    if start_indices.ndim != 1 or start_indices.shape[0] != input.ndim or len(sizes) != input.ndim:
        raise OpError(f"start and size must be vectors of {input.ndim} numbers")
    starts = jnp.asarray(start_indices)
    places = [starts[i] for i in range(input.ndim)]
    return lax.dynamic_slice(jnp.asarray(input), places, sizes, allow_negative_indices=False)


@op("XlaDynamicUpdateSlice", moves=True)
def xla_dynamic_update_slice(input: Any, update: Any, indices: Any) -> Any:
    """Replaces a box; its start is moved so that it fits. See tf.raw_ops.XlaDynamicUpdateSlice."""
    if indices.ndim != 1 or indices.shape[0] != input.ndim or update.ndim != input.ndim:
        raise OpError(f"the update must have rank {input.ndim}, and the indices as many numbers")
    starts = jnp.asarray(indices)
    places = [starts[i] for i in range(input.ndim)]
    return lax.dynamic_update_slice(jnp.asarray(input), jnp.asarray(update), places, allow_negative_indices=False)


@op("XlaGather", moves=True)
def xla_gather(
    operand: Any, start_indices: Any, slice_sizes: Static, *, dimension_numbers: str, indices_are_sorted: bool
) -> Any:
    """Gathers boxes; their starts are moved so that they fit. See tf.raw_ops.XlaGather."""
    numbers, axis = gather_fields(dimension_numbers)
    return lax.gather(
        jnp.asarray(operand),
        last_axis(start_indices, axis),
        numbers,
        dims(slice_sizes),
        indices_are_sorted=indices_are_sorted,
        mode=lax.GatherScatterMode.CLIP,
    )


@op("XlaPad", moves=True)
def xla_pad(input: Any, padding_value: Any, padding_low: Static, padding_high: Static, padding_interior: Static) -> Any:
    """Pads outside and between elements; negative padding cuts. See tf.raw_ops.XlaPad."""
    if not np.size(padding_low) == np.size(padding_high) == np.size(padding_interior) == input.ndim:
        raise OpError(f"paddings must have {input.ndim} numbers each")
    config = list(zip(dims(padding_low), dims(padding_high), dims(padding_interior), strict=True))
    return lax.pad(jnp.asarray(input), jnp.asarray(padding_value), config)


@op("XlaBroadcastHelper")
def xla_broadcast_helper(lhs: Any, rhs: Any, broadcast_dims: Static) -> tuple[Any, Any]:
    """Gives the operand of lower rank the other's, with dimensions of 1. See tf.raw_ops.XlaBroadcastHelper."""
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


def _grid(counts: list[int], paddings: list[int], rank: int, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pads = tuple(paddings) or (0,) * rank
    if len(counts) != rank or len(pads) != rank or math.prod(counts) != number or min(pads, default=0) < 0:
        raise OpError(f"{number} parts of rank {rank} do not fit a grid of {counts} with paddings {list(pads)}")
    return tuple(counts), pads


@op("XlaConcatND", moves=True)
def xla_concat_nd(inputs: list[Any], *, num_concats: list[int], paddings: Any = ()) -> Any:
    """Joins a grid of tensors and cuts padding off at the end. See tf.raw_ops.XlaConcatND."""
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


@op("XlaSplitND", moves=True)
def xla_split_nd(input: Any, *, N: int, num_splits: list[int], paddings: Any = ()) -> Any:
    """Splits into a grid of tensors, padded with zeros at the end. See tf.raw_ops.XlaSplitND."""
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


@op("XlaSort", stored=True)
def xla_sort(input: Any) -> Any:
    """Sorts the last dimension, -0 before 0 and NaN last. See tf.raw_ops.XlaSort."""
    x = jnp.asarray(input)
    return lax.sort(x, dimension=x.ndim - 1) if x.ndim else x


@op("XlaKeyValueSort", stored=True)
def xla_key_value_sort(keys: Any, values: Any) -> tuple[Any, Any]:
    """Sorts the last dimension of two tensors by the first. See tf.raw_ops.XlaKeyValueSort."""
    if keys.shape != values.shape:
        raise OpError(f"keys of shape {keys.shape} and values of shape {values.shape}")
    if not keys.ndim:
        return keys, values
    keys, values = lax.sort((jnp.asarray(keys), jnp.asarray(values)), dimension=keys.ndim - 1, num_keys=1)
    return keys, values


# ---- decompositions ----


@op("XlaSelfAdjointEig")
def xla_self_adjoint_eig(a: Any, *, lower: bool, max_iter: int, epsilon: float) -> tuple[Any, Any]:
    """Eigenvalues, increasing, and eigenvectors. See tf.raw_ops.XlaSelfAdjointEig.

    How many steps are made, and to which accuracy, is up to JAX.
    """
    del max_iter, epsilon
    a = jnp.asarray(a)
    triangle = jnp.tril(a) if lower else jnp.triu(a)
    strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    full = triangle + jnp.conj(jnp.swapaxes(strict, -1, -2))
    values, vectors = eigh(full)
    return values.astype(a.dtype), vectors


@op("XlaSvd")
def xla_svd(a: Any, *, max_iter: int, epsilon: float, precision_config: str) -> tuple[Any, Any, Any]:
    """Singular values, and square matrices u and v. See tf.raw_ops.XlaSvd.

    How many steps are made, and to which accuracy, is up to JAX.
    """
    del max_iter, epsilon, precision_config
    a = jnp.asarray(a)
    s, u, v = svd(a, True)
    return s.astype(a.dtype), u, v


# ---- numbers ----


@op("XlaReducePrecision")
def xla_reduce_precision(operand: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    """Rounds to a float of fewer bits. See tf.raw_ops.XlaReducePrecision."""
    return lax.reduce_precision(jnp.asarray(operand), exponent_bits, mantissa_bits)


@op("XlaDequantize")
def xla_dequantize(input: Any, *, min_range: float, max_range: float, mode: str, transpose_output: bool) -> Any:
    """Unpacks four bytes from each uint32, the highest first, to bfloat16. See tf.raw_ops.XlaDequantize."""
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


@op("XlaRngBitGenerator", words="whole")
def xla_rng_bit_generator(
    algorithm: Static, initial_state: Any, shape: Static, *, dtype: Any = _UINT64
) -> tuple[Any, Any]:
    """Random bits and the state after them, XLA's own. See tf.raw_ops.XlaRngBitGenerator.

    Without ``jax_enable_x64`` the state is a pair of words for each number, and 64-bit results have 32 bits.
    """
    kind = int(np.asarray(algorithm).reshape(()))
    if kind not in (_PHILOX, _THREEFRY, _AUTO):
        raise OpError(f"unknown algorithm {kind}")
    words = jnp.asarray(to_words(initial_state))
    count = words.shape[0]
    if count not in (2, 3) or (kind == _THREEFRY and count == 3):
        raise OpError(f"a state of {count} numbers does not fit algorithm {kind}")
    out = canonical(dtype)
    unsigned = np.dtype(f"uint{out.itemsize * 8}")
    if count == 2:
        algorithm_ = lax.RandomAlgorithm.RNG_THREE_FRY if kind == _THREEFRY else lax.RandomAlgorithm.RNG_PHILOX
        state, values = _one_by_one(words.reshape(4), dims(shape), unsigned, algorithm_)
        state = state.reshape(2, 2)
    else:
        state, values = _philox(words, dims(shape), unsigned)
    return _like(state, initial_state), lax.bitcast_convert_type(values, out)


def _one_by_one(state: Any, shape: Any, dtype: Any, algorithm: Any) -> tuple[Any, Any]:
    # Under vmap JAX would draw other numbers, for all rows at once.
    @jax.custom_batching.sequential_vmap
    def draw(state: Any) -> tuple[Any, Any]:
        return lax.rng_bit_generator(state, shape, dtype, algorithm=algorithm)

    return draw(state)


def _like(words: Any, given: Any) -> Any:
    if isinstance(given, Words) or given.dtype.itemsize == 8:
        return from_words(words)
    return words[:, 0]


def _philox(words: Any, shape: Any, dtype: np.dtype) -> tuple[Any, Any]:
    """Philox with a key and a counter of two numbers."""
    number = math.prod(shape)
    wide = dtype.itemsize == 8
    counter = jnp.stack([words[1, 0], words[1, 1], words[2, 0], words[2, 1]])
    total = number * 2 if wide else number
    found = bits((words[0, 0], words[0, 1]), counter, total).reshape(-1)[:total]
    steps = -(-total // 4)
    low = counter[0] + np.uint32(steps)
    carry = (low < np.uint32(steps)).astype(np.uint32)
    second = counter[1] + carry
    carry = carry & (second == 0).astype(np.uint32)
    third = counter[2] + carry
    fourth = counter[3] + (carry & (third == 0).astype(np.uint32))
    state = jnp.stack([words[0], jnp.stack([low, second]), jnp.stack([third, fourth])])
    values = lax.bitcast_convert_type(found.reshape(-1, 2), np.uint64) if wide else found.astype(dtype)
    return state, values.reshape(shape)


# ---- hints, and what only means something on several devices ----


@op("XlaOptimizationBarrier")
def xla_optimization_barrier(input: list[Any]) -> Any:
    """Keeps XLA from optimizing across it. See tf.raw_ops.XlaOptimizationBarrier."""
    return list(lax.optimization_barrier([jnp.asarray(v) for v in input]))


@op("XlaSetBound", host=lambda input, bound: input)
def xla_set_bound(input: Any, bound: Static) -> Any:
    """Hands its input on; the bound is a hint for dynamic shapes. See tf.raw_ops.XlaSetBound."""
    return input


@op("XlaSetDynamicDimensionSize")
def xla_set_dynamic_dimension_size(input: Any, dim_index: Static, size: Static) -> Any:
    """Cuts a dimension to a size known while tracing. See tf.raw_ops.XlaSetDynamicDimensionSize."""
    axis, (limit,) = int(np.asarray(dim_index).reshape(())), dims(size)
    if not 0 <= axis < input.ndim:
        raise OpError(f"dimension {axis} is out of range for a tensor of rank {input.ndim}")
    return lax.slice_in_dim(jnp.asarray(input), 0, limit, axis=axis)


@op("XlaRemoveDynamicDimensionSize")
def xla_remove_dynamic_dimension_size(input: Any, dim_index: Static) -> Any:
    """Hands its input on: dimensions have one size here. See tf.raw_ops.XlaRemoveDynamicDimensionSize.

    In XLA the elements cut off before come back.
    """
    return input


@op("XlaReplicaId")
def xla_replica_id() -> Any:
    """Returns 0, the only replica. See tf.raw_ops.XlaReplicaId."""
    return np.asarray(0, np.int32)


@op("XlaSharding", host=lambda input, *, sharding="", unspecified_dims=(): input)
def xla_sharding(input: Any, *, sharding: str = "", unspecified_dims: Any = ()) -> Any:
    """Hands its input on: how arrays are laid out over devices is up to JAX. See tf.raw_ops.XlaSharding."""
    return input


def _refuse_tiles(sharding: str) -> None:
    """Refuses a sharding that gives a device less than everything."""
    found = fields(sharding, 1, 3, 6)
    tiles = found.get(3, [])
    if found.get(6, [0])[-1]:
        tiles = tiles[:-1]
    if math.prod(tiles) > 1:
        raise OpError(f"the sharding splits the tensor into {tiles} parts; only one device is supported")


@op("XlaSpmdFullToShardShape")
def xla_spmd_full_to_shard_shape(input: Any, *, manual_sharding: str, dim: int = -1, unspecified_dims: Any = ()) -> Any:
    """Hands its input on: one device has all of it. See tf.raw_ops.XlaSpmdFullToShardShape."""
    _refuse_tiles(manual_sharding)
    return input


@op("XlaSpmdShardToFullShape")
def xla_spmd_shard_to_full_shape(
    input: Any, *, manual_sharding: str, full_shape: Any, dim: int = -1, unspecified_dims: Any = ()
) -> Any:
    """Hands its input on: one device has all of it. See tf.raw_ops.XlaSpmdShardToFullShape."""
    _refuse_tiles(manual_sharding)
    return input


def _refuse_groups(groups: Any) -> None:
    if np.ndim(groups) != 2 or np.shape(groups)[1] > 1:
        raise OpError(f"a collective over {np.shape(groups)} replicas; only groups of one are supported")


@op("XlaAllReduce")
def xla_all_reduce(input: Any, group_assignment: Static, *, reduce_op: str, mode: str) -> Any:
    """Hands its input on where groups have one replica. See tf.raw_ops.XlaAllReduce."""
    _refuse_groups(group_assignment)
    return input


@op("XlaReduceScatter")
def xla_reduce_scatter(input: Any, group_assignment: Static, scatter_dimension: Static, *, reduce_op: str) -> Any:
    """Hands its input on where groups have one replica. See tf.raw_ops.XlaReduceScatter."""
    _refuse_groups(group_assignment)
    return input
