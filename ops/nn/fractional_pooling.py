"""Fractional pooling: regions of different sizes.

Graham, "Fractional max-pooling", 2014. A pooling sequence holds the boundaries of the regions, for rows and for
columns. TensorFlow draws it with Philox. With ``deterministic`` and a seed it is the same here; otherwise it is drawn
from the node's JAX key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.precision import total
from tf2jax_lite.ops.random.philox import block
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, static_value

from .morphology import lowest_finite


class _Philox:
    """One Philox stream on the host, as TensorFlow's GuardedPhiloxRandom."""

    def __init__(self, seed: int, seed2: int):
        self._key = tuple(np.array([seed >> s & 0xFFFFFFFF], np.uint32) for s in (0, 32))
        self._high = tuple(np.array([seed2 >> s & 0xFFFFFFFF], np.uint32) for s in (0, 32))
        self._count = 0

    def words(self, count: int) -> list[int]:
        """Return the next ``count`` words, from a new block of four."""
        groups = math.ceil(count / 4)
        out: list[int] = []
        for i in range(self._count, self._count + groups):
            low = (np.array([i], np.uint32), np.array([0], np.uint32))
            out += [int(w[0]) for w in block((*low, *self._high), self._key)]  # type: ignore[arg-type]
        self._count += groups
        return out[:count]


def _bounds(size: int, regions: int) -> tuple[int, float, float]:
    """Return the smaller and the mean region size, and the sequence's maximal offset."""
    alpha, k = size / regions, size // regions
    return k, alpha, min((k + 2) / alpha - 1, (size + 1 - k) / alpha - (regions - 1))


def _sequence(size: int, regions: int, pseudo_random: bool, stream: _Philox) -> np.ndarray:
    """Return region boundaries, as GeneratePoolingSequence of TensorFlow."""
    k, alpha, largest = _bounds(size, regions)
    if size % regions == 0:
        return np.arange(regions + 1) * k
    if pseudo_random:
        low, high = stream.words(2)
        unit = np.array([(0x3FF << 52) | ((low & 0xFFFFF) << 32) | high], np.uint64).view(np.float64)[0] - 1.0
        inner = [math.ceil(alpha * (i + unit * largest)) for i in range(1, regions)]
        return np.array([1, *inner, size + 1]) - 1
    sizes = [k + 1] * (size % regions) + [k] * (regions - size % regions)
    words = stream.words(regions)
    for i in range(regions - 1):
        j = i + words[i] % (regions - i)
        sizes[i], sizes[j] = sizes[j], sizes[i]
    return np.concatenate([[0], np.cumsum(sizes)])


def _drawn_sequence(size: int, regions: int, pseudo_random: bool, key: Any) -> Any:
    """Return region boundaries drawn from a JAX key."""
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
        raise OpError(
            f"only rows and columns of 4-D images can be pooled: shape {shape}, pooling_ratio {pooling_ratio}"
        )
    if min(pooling_ratio) < 1:
        raise OpError(f"pooling_ratio cannot be smaller than 1, got {list(pooling_ratio)}")
    if not deterministic and (seed or seed2):
        raise OpError("both seed and seed2 should be 0 if deterministic is false")
    sizes = shape[1:3]
    if not all(isinstance(d, int) for d in sizes):
        raise OpError(f"rows and columns must be static, got shape {shape}")
    # The ratio is a float attribute, the division in float32.
    regions = [math.floor(np.float32(d) / np.float32(r)) for d, r in zip(sizes, pooling_ratio[1:3], strict=True)]
    if min(regions) < 1:
        raise OpError(f"the result of shape {shape} with pooling_ratio {list(pooling_ratio)} is empty")
    if deterministic and (seed or seed2):
        stream = _Philox(seed, seed2)
        rows, columns = (_sequence(d, n, pseudo_random, stream) for d, n in zip(sizes, regions, strict=True))
        return rows.astype(np.int32), columns.astype(np.int32)
    keys = jax.random.split(key)
    rows, columns = (_drawn_sequence(d, n, pseudo_random, k) for d, n, k in zip(sizes, regions, keys, strict=True))
    return rows, columns


def _region_indices(sequence: Any, size: int, overlapping: bool) -> tuple[Any, Any]:
    """Return indices [regions, largest region], and a mask of those in each region."""
    static = static_value(sequence)
    count = sequence.shape[0] - 1
    largest = int(np.diff(static).max()) if static is not None and count else size // max(count, 1) + 1
    largest += overlapping
    sequence = (np if static is not None else jnp).asarray(sequence, np.int32)
    start, end = sequence[:-1, None], sequence[1:, None] + int(overlapping)
    index = start + np.arange(largest, dtype=np.int32)
    return index, (index < end) & (index < size)


def _regions(x: Any, rows: Any, columns: Any, overlapping: bool) -> tuple[Any, Any, Any]:
    """Return pixels of all regions, a mask of those inside, and indices in an image."""
    row_index, row_mask = _region_indices(rows, x.shape[1], overlapping)
    column_index, column_mask = _region_indices(columns, x.shape[2], overlapping)
    pixels = jnp.take(x, row_index.reshape(-1), axis=1, mode="clip")
    pixels = jnp.take(pixels, column_index.reshape(-1), axis=2, mode="clip")
    (height, region_height), (width, region_width) = row_index.shape, column_index.shape
    area = region_height * region_width
    pixels = pixels.reshape(x.shape[0], height, region_height, width, region_width, x.shape[3])
    pixels = jnp.transpose(pixels, (0, 1, 3, 2, 4, 5)).reshape(x.shape[0], height, width, area, x.shape[3])
    mask = (row_mask[:, None, :, None] & column_mask[None, :, None, :]).reshape(1, height, width, area, 1)
    flat = row_index[:, None, :, None] * x.shape[2] + column_index[None, :, None, :]
    flat = jnp.broadcast_to(flat, (height, width, region_height, region_width))
    return pixels, mask, flat.reshape(1, height, width, area, 1)


def _argmax(pixels: Any, mask: Any) -> Any:
    """Return indices of regions' first maxima, [batch, rows, columns, 1, channel]."""
    candidates = jnp.where(mask, lax.stop_gradient(pixels), lowest_finite(pixels.dtype))
    return lax.argmax(candidates, 3, np.int32)[:, :, :, None]


def _maxima(pixels: Any, mask: Any) -> Any:
    return jnp.take_along_axis(pixels, _argmax(pixels, mask), axis=3, mode="clip")[:, :, :, 0]


def _means(pixels: Any, mask: Any) -> Any:
    sums = total(jnp.where(mask, pixels, jnp.zeros((), pixels.dtype)), 3)
    count = jnp.sum(jnp.asarray(mask), axis=3).astype(sums.dtype)
    if jnp.issubdtype(sums.dtype, jnp.inexact):
        return sums / count
    return lax.div(sums, jnp.broadcast_to(count, sums.shape))


def _register(name: str, reduce: Callable[..., Any]) -> None:
    @op(name, draws=_draws)
    def call(
        value,
        *,
        pooling_ratio,
        pseudo_random=False,
        overlapping=False,
        deterministic=False,
        seed=0,
        seed2=0,
        key: Key | None,
    ):
        """Reduce regions, and the two pooling sequences.

        TF: core/kernels/fractional_pool_common.cc.
        """
        x = jnp.asarray(value)
        rows, columns = _sequences(x.shape, pooling_ratio, pseudo_random, deterministic, seed, seed2, key)
        out = reduce(*_regions(x, rows, columns, overlapping)[:2])
        dtype = canonical(np.int64)
        return out, jnp.asarray(rows, dtype), jnp.asarray(columns, dtype)


_register("FractionalMaxPool", _maxima)
_register("FractionalAvgPool", _means)


@op("FractionalMaxPoolGrad")
def fractional_max_pool_grad(
    orig_input, orig_output, out_backprop, row_pooling_sequence, col_pooling_sequence, *, overlapping=False
):
    """Compute the gradient of FractionalMaxPool.

    TF: core/kernels/fractional_max_pool_op.cc.

    Traced sequences must have the region sizes of the forward op.
    """
    x, grad = jnp.asarray(orig_input), jnp.asarray(out_backprop)
    pixels, mask, flat = _regions(x, row_pooling_sequence, col_pooling_sequence, overlapping)
    argmax = _argmax(pixels, mask)
    index = jnp.take_along_axis(flat, argmax, axis=3, mode="clip")[:, :, :, 0]
    batch = lax.broadcasted_iota(np.int32, grad.shape, 0)
    channel = lax.broadcasted_iota(np.int32, grad.shape, 3)
    out = jnp.zeros((x.shape[0], x.shape[1] * x.shape[2], x.shape[3]), grad.dtype)
    return out.at[batch, index, channel].add(grad, mode="drop").reshape(x.shape)


@op("FractionalAvgPoolGrad")
def fractional_avg_pool_grad(
    orig_input_tensor_shape: Static, out_backprop, row_pooling_sequence, col_pooling_sequence, *, overlapping=False
):
    """Compute the gradient of FractionalAvgPool.

    TF: core/kernels/fractional_avg_pool_op.cc.
    """
    shape = dims(orig_input_tensor_shape)
    grad = jnp.asarray(out_backprop)
    memberships = []
    for sequence, size in zip((row_pooling_sequence, col_pooling_sequence), shape[1:3], strict=True):
        sequence = jnp.asarray(sequence, np.int32)
        index = lax.iota(np.int32, size)
        memberships.append((index >= sequence[:-1, None]) & (index < sequence[1:, None] + int(overlapping)))
    rows, columns = memberships
    count = (
        jnp.sum(rows, axis=1, dtype=np.int32)[None, :, None, None]
        * jnp.sum(columns, axis=1, dtype=np.int32)[None, None, :, None]
    )
    # TensorFlow accumulates in float64, integers too, and truncates at the end.
    dtype = grad.dtype if jnp.issubdtype(grad.dtype, jnp.inexact) else canonical(np.float64)
    out = jnp.einsum(
        "nyxc,yh,xw->nhwc",
        grad.astype(dtype) / count.astype(dtype),
        rows.astype(dtype),
        columns.astype(dtype),
        precision=lax.Precision.HIGHEST,
    )
    return out.astype(grad.dtype)
