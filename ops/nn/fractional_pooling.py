"""Pooling over regions of uneven size (Graham, "Fractional max-pooling", 2014).

Rows and columns are cut at the places that a sequence names. TensorFlow draws the sequences from Philox; with
``deterministic`` and seeds given they are the same here, otherwise they come from the node's JAX key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.random.philox import block
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, static_value


class _Philox:
    """Counts through one Philox stream, as TensorFlow's GuardedPhiloxRandom does."""

    def __init__(self, seed: int, seed2: int):
        self._key = tuple(np.array([seed >> s & 0xFFFFFFFF], np.uint32) for s in (0, 32))
        self._high = tuple(np.array([seed2 >> s & 0xFFFFFFFF], np.uint32) for s in (0, 32))
        self._count = 0

    def words(self, count: int) -> list[int]:
        """Returns ``count`` words and moves on to the next block of four."""
        groups = math.ceil(count / 4)
        out: list[int] = []
        for i in range(self._count, self._count + groups):
            low = (np.array([i], np.uint32), np.array([0], np.uint32))
            out += [int(w[0]) for w in block((*low, *self._high), self._key)]  # type: ignore[arg-type]
        self._count += groups
        return out[:count]


def _bounds(size: int, regions: int) -> tuple[int, float, float]:
    """Returns the smaller region size, the mean region size and the largest offset of the pseudo-random sequence."""
    alpha, k = size / regions, size // regions
    return k, alpha, min((k + 2) / alpha - 1, (size + 1 - k) / alpha - (regions - 1))


def _sequence(size: int, regions: int, pseudo_random: bool, draw: _Philox) -> np.ndarray:
    """Returns where regions begin, and the end, as GeneratePoolingSequence does."""
    k, alpha, largest = _bounds(size, regions)
    if size % regions == 0:
        return np.arange(regions + 1) * k
    if pseudo_random:
        low, high = draw.words(2)
        unit = np.array([(0x3FF << 52) | ((low & 0xFFFFF) << 32) | high], np.uint64).view(np.float64)[0] - 1.0
        inner = [math.ceil(alpha * (i + unit * largest)) for i in range(1, regions)]
        return np.array([1, *inner, size + 1]) - 1
    sizes = [k + 1] * (size % regions) + [k] * (regions - size % regions)
    words = draw.words(regions)
    for i in range(regions - 1):
        j = i + words[i] % (regions - i)
        sizes[i], sizes[j] = sizes[j], sizes[i]
    return np.concatenate([[0], np.cumsum(sizes)])


def _drawn_sequence(size: int, regions: int, pseudo_random: bool, key: Any) -> Any:
    """Returns such a sequence drawn from a JAX key."""
    k, alpha, largest = _bounds(size, regions)
    if size % regions == 0:
        return np.arange(regions + 1, dtype=np.int32) * k
    ends = np.array([0, size], np.int32)
    if pseudo_random:
        u = jax.random.uniform(key, dtype=np.float32) * np.float32(largest)
        inner = lax.ceil((np.arange(1, regions, dtype=np.float32) + u) * np.float32(alpha)).astype(np.int32) - 1
        # Rounding in float32 must not make a region empty or too large.
        i = np.arange(1, regions)
        inner = jnp.clip(inner, i * k, np.minimum(i * (k + 1), size - (regions - i) * k))
        return jnp.concatenate([ends[:1], inner, ends[1:]])
    sizes = np.full(regions, k, np.int32) + (np.arange(regions) < size % regions)
    return jnp.concatenate([ends[:1], jnp.cumsum(jax.random.permutation(key, sizes.astype(np.int32)), dtype=np.int32)])


def _draws(attrs: Mapping[str, Any]) -> bool:
    return not (attrs.get("deterministic") and (attrs.get("seed") or attrs.get("seed2")))


def _sequences(
    shape: tuple[Any, ...],
    pooling_ratio: Sequence[float],
    pseudo_random: bool,
    deterministic: bool,
    seed: int,
    seed2: int,
    key: Any,
) -> tuple[Any, Any]:
    if len(shape) != 4 or len(pooling_ratio) != 4 or pooling_ratio[0] != 1 or pooling_ratio[3] != 1:
        raise OpError(f"only rows and columns of images can be pooled: shape {shape}, pooling_ratio {pooling_ratio}")
    if min(pooling_ratio) < 1:
        raise OpError(f"pooling_ratio cannot be smaller than 1, got {list(pooling_ratio)}")
    if not deterministic and (seed or seed2):
        raise OpError("both seed and seed2 should be 0 if deterministic is false")
    sizes = shape[1:3]
    if not all(isinstance(d, int) for d in sizes):
        raise OpError(f"rows and columns must be known, got shape {shape}")
    # The ratio is a float attribute, the division in float32.
    regions = [math.floor(np.float32(d) / np.float32(r)) for d, r in zip(sizes, pooling_ratio[1:3], strict=True)]
    if min(regions) < 1:
        raise OpError(f"nothing is left of shape {shape} with pooling_ratio {list(pooling_ratio)}")
    if deterministic and (seed or seed2):
        draw = _Philox(seed, seed2)
        rows, columns = (_sequence(d, n, pseudo_random, draw) for d, n in zip(sizes, regions, strict=True))
        return rows.astype(np.int32), columns.astype(np.int32)
    keys = jax.random.split(key)
    rows, columns = (_drawn_sequence(d, n, pseudo_random, k) for d, n, k in zip(sizes, regions, keys, strict=True))
    return rows, columns


def _places(sequence: Any, size: int, overlapping: bool) -> tuple[Any, Any]:
    """Returns the places of each region, [regions, most], and which of them count."""
    static = static_value(sequence)
    count = sequence.shape[0] - 1
    most = int(np.diff(static).max()) if static is not None and count else size // max(count, 1) + 1
    most += overlapping
    sequence = (np if static is not None else jnp).asarray(sequence, np.int32)
    start, end = sequence[:-1, None], sequence[1:, None] + int(overlapping)
    at = start + np.arange(most, dtype=np.int32)
    return at, (at < end) & (at < size)


def _regions(x: Any, rows: Any, columns: Any, overlapping: bool) -> tuple[Any, Any, Any, Any]:
    """Returns the regions, [batch, y, x, place, channel], which places count, and their rows and columns."""
    at_rows, row_ok = _places(rows, x.shape[1], overlapping)
    at_columns, column_ok = _places(columns, x.shape[2], overlapping)
    picked = jnp.take(x, at_rows.reshape(-1), axis=1, mode="clip")
    picked = jnp.take(picked, at_columns.reshape(-1), axis=2, mode="clip")
    (height, tall), (width, wide) = at_rows.shape, at_columns.shape
    picked = picked.reshape(x.shape[0], height, tall, width, wide, x.shape[3])
    picked = jnp.transpose(picked, (0, 1, 3, 2, 4, 5)).reshape(x.shape[0], height, width, tall * wide, x.shape[3])
    ok = (row_ok[:, None, :, None] & column_ok[None, :, None, :]).reshape(1, height, width, tall * wide, 1)
    shape = (height, width, tall, wide)
    flat = at_rows[:, None, :, None] * x.shape[2] + at_columns[None, :, None, :]
    return picked, ok, jnp.broadcast_to(flat, shape).reshape(1, height, width, tall * wide, 1), row_ok


def _with_sequences(out: Any, rows: Any, columns: Any) -> tuple[Any, Any, Any]:
    dtype = canonical(np.int64)
    return out, jnp.asarray(rows, dtype), jnp.asarray(columns, dtype)


def _lowest(dtype: Any) -> Any:
    return jnp.asarray((jnp.finfo if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo)(dtype).min, dtype)


def _first_best(picked: Any, ok: Any) -> Any:
    candidates = jnp.where(ok, lax.stop_gradient(picked), _lowest(picked.dtype))
    return lax.argmax(candidates, 3, np.int32)[:, :, :, None]


@op("FractionalMaxPool", needs_key=_draws)
def fractional_max_pool(
    value: Any,
    *,
    pooling_ratio: Sequence[float],
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    key: Any,
) -> tuple[Any, Any, Any]:
    """Returns maxima and the two sequences. See tf.raw_ops.FractionalMaxPool."""
    x = jnp.asarray(value)
    rows, columns = _sequences(x.shape, pooling_ratio, pseudo_random, deterministic, seed, seed2, key)
    picked, ok, _, _ = _regions(x, rows, columns, overlapping)
    out = jnp.take_along_axis(picked, _first_best(picked, ok), axis=3, mode="clip")[:, :, :, 0]
    return _with_sequences(out, rows, columns)


def _divide(total: Any, count: Any) -> Any:
    count = count.astype(total.dtype)
    return (
        total / count
        if jnp.issubdtype(total.dtype, jnp.inexact)
        else lax.div(total, jnp.broadcast_to(count, total.shape))
    )


@op("FractionalAvgPool", needs_key=_draws)
def fractional_avg_pool(
    value: Any,
    *,
    pooling_ratio: Sequence[float],
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    key: Any,
) -> tuple[Any, Any, Any]:
    """Returns means and the two sequences. See tf.raw_ops.FractionalAvgPool."""
    x = jnp.asarray(value)
    rows, columns = _sequences(x.shape, pooling_ratio, pseudo_random, deterministic, seed, seed2, key)
    picked, ok, _, _ = _regions(x, rows, columns, overlapping)
    sums = total(jnp.where(ok, picked, jnp.zeros((), x.dtype)), 3)
    return _with_sequences(_divide(sums, jnp.sum(jnp.asarray(ok), axis=3)), rows, columns)


@op("FractionalMaxPoolGrad")
def fractional_max_pool_grad(
    orig_input: Any,
    orig_output: Any,
    out_backprop: Any,
    row_pooling_sequence: Any,
    col_pooling_sequence: Any,
    *,
    overlapping: bool = False,
) -> Any:
    """See tf.raw_ops.FractionalMaxPoolGrad. Traced sequences must be of the kind that the forward op makes."""
    x, grad = jnp.asarray(orig_input), jnp.asarray(out_backprop)
    picked, ok, flat, _ = _regions(x, row_pooling_sequence, col_pooling_sequence, overlapping)
    best = _first_best(picked, ok)
    at = jnp.take_along_axis(jnp.broadcast_to(flat, (1, *best.shape[1:3], flat.shape[3], 1)), best, axis=3, mode="clip")
    at = at[:, :, :, 0]
    batch = lax.broadcasted_iota(np.int32, grad.shape, 0)
    channel = lax.broadcasted_iota(np.int32, grad.shape, 3)
    out = jnp.zeros((x.shape[0], x.shape[1] * x.shape[2], x.shape[3]), grad.dtype)
    return out.at[batch, at, channel].add(grad, mode="drop").reshape(x.shape)


@op("FractionalAvgPoolGrad")
def fractional_avg_pool_grad(
    orig_input_tensor_shape: Static,
    out_backprop: Any,
    row_pooling_sequence: Any,
    col_pooling_sequence: Any,
    *,
    overlapping: bool = False,
) -> Any:
    """See tf.raw_ops.FractionalAvgPoolGrad."""
    shape = dims(orig_input_tensor_shape)
    grad = jnp.asarray(out_backprop)
    memberships = []
    for sequence, size in zip((row_pooling_sequence, col_pooling_sequence), shape[1:3], strict=True):
        sequence = jnp.asarray(sequence, np.int32)
        at = lax.iota(np.int32, size)
        memberships.append((at >= sequence[:-1, None]) & (at < sequence[1:, None] + int(overlapping)))
    rows, columns = memberships
    count = (
        jnp.sum(rows, axis=1, dtype=np.int32)[None, :, None, None]
        * jnp.sum(columns, axis=1, dtype=np.int32)[None, None, :, None]
    )
    # TensorFlow adds the shares up in float64, integers too, and then drops the fraction.
    dtype = grad.dtype if jnp.issubdtype(grad.dtype, jnp.inexact) else canonical(np.float64)
    out = jnp.einsum(
        "nyxc,yh,xw->nhwc",
        grad.astype(dtype) / count.astype(dtype),
        rows.astype(dtype),
        columns.astype(dtype),
        precision=lax.Precision.HIGHEST,
    )
    return out.astype(grad.dtype)
