"""Max and average pooling in two and three dimensions, and their gradients.

For a window that is all padding, or that contains NaN, the result of TensorFlow's CPU kernels depends on their loop
(the lowest finite number, or the other values of the window). Here the results are minus infinity and NaN. In two
dimensions the gradient of a maximum goes to the first of equal ones, in three dimensions to all of them.

Fractional pooling has regions of different sizes: Graham, "Fractional max-pooling", 2014. A pooling sequence holds the
boundaries of the regions, for rows and for columns. TensorFlow draws it with Philox. With ``deterministic`` and a seed
it is the same here; otherwise it is drawn from the node's JAX key.

TF: core/kernels/maxpooling_op.cc, core/kernels/pooling_ops_3d.cc.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.dim_expr import canonical_array, canonical_dim
from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.common.precision import in_float32, total
from tf2jax_lite.ops.random.philox import block
from tf2jax_lite.ops.registry import REQUIRED, Static, op
from tf2jax_lite.ops.traits import Key, Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, static_value

from .conv import Dims, layout, resolve_padding, spatial
from .morphology import lowest_finite


class Window(NamedTuple):
    """Window sizes, strides and padding as in ``lax.reduce_window``.

    Each has one entry for each dimension; padding is (before, after).
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[Any, Any], ...]


def window_of(value: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str) -> Window:
    """Return the window that attributes describe."""
    _, spatial_axes = layout(data_format)
    ksize, strides = tuple(int(k) for k in ksize), tuple(int(s) for s in strides)
    if not value.ndim == len(ksize) == len(strides) == len(data_format):
        raise OpError(f"shape {value.shape}, ksize {ksize}, strides {strides}: they must have rank {len(data_format)}")
    if min(*ksize, *strides) < 1:
        raise OpError(f"ksize {ksize} and strides {strides} must be positive")
    pads: list[tuple[Any, Any]] = [(0, 0)] * len(ksize)
    sizes = [value.shape[i] for i in spatial_axes]
    ones = (1,) * len(spatial_axes)
    spatial_pads = resolve_padding(
        padding, explicit, data_format, sizes, spatial(ksize, data_format), spatial(strides, data_format), ones
    )
    for i, pair in zip(spatial_axes, spatial_pads, strict=True):
        if padding == "EXPLICIT" and max(pair) >= ksize[i]:
            raise OpError(f"padding {tuple(pair)} of axis {i} must be smaller than the window, {ksize[i]}")
        pads[i] = pair
    return Window(ksize, strides, tuple(map(tuple, pads)))


def _lowest(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def _reduce_sum(value: Any, window: Window) -> Any:
    return lax.reduce_window(value, np.zeros((), value.dtype), lax.add, *window)


def _window_max(value: Any, window: Window) -> Any:
    return canonical_array(lax.reduce_window(value, _lowest(value.dtype), lax.max, *window))


def _counts(value: Any, window: Window) -> Any:
    """Return the number of elements in each window without padding, which broadcasts."""
    out: Any = np.ones((1,) * value.ndim)
    for axis, (size, width, stride, (before, after)) in enumerate(zip(value.shape, *window, strict=True)):
        if all(isinstance(p, int) and p == 0 for p in (before, after)):
            out = out * width
            continue
        shape = [-1 if i == axis else 1 for i in range(value.ndim)]
        if isinstance(size, int):
            start = np.arange((size + before + after - width) // stride + 1) * stride - before
            count: Any = np.minimum(start + width, size) - np.maximum(start, 0)
        else:
            # The size is symbolic: sum ones.
            ones, zero = jnp.ones((size,), value.dtype), np.zeros((), value.dtype)
            count = canonical_array(lax.reduce_window(ones, zero, lax.add, (width,), (stride,), [(before, after)]))
        out = out * count.reshape(shape)
    if isinstance(out, np.ndarray):
        same = out.size and (out == out.flat[0]).all()
        return np.array(out.flat[0] if same else out, value.dtype)
    return out.astype(value.dtype)


def avg_pool_of(value: Any, ksize: Dims, strides: Dims, padding: str, data_format: str) -> Any:
    """Return the mean of each window without padding."""
    value = jnp.asarray(value)
    window = window_of(value, ksize, strides, padding, (), data_format)
    spatial_axes = layout(data_format)[1]
    if any(k != 1 or s != 1 for i, (k, s) in enumerate(zip(*window[:2], strict=True)) if i not in spatial_axes):
        raise OpError(f"means over batch or channels: ksize {window.sizes}, strides {window.strides}")
    return in_float32(lambda v: canonical_array(_reduce_sum(v, window)) / _counts(v, window), value)


def _first_max(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    (x, i), (y, j) = a, b
    # NaN is the largest, as in the maximum itself.
    x_nan, y_nan = lax.ne(x, x), lax.ne(y, y)
    same = lax.bitwise_or(lax.eq(x, y), lax.bitwise_and(x_nan, y_nan))
    larger = lax.bitwise_or(lax.gt(x, y), lax.bitwise_and(x_nan, lax.bitwise_not(y_nan)))
    left = lax.bitwise_or(larger, lax.bitwise_and(same, lax.lt(i, j)))
    return lax.select(left, x, y), lax.select(left, i, j)


def argmax_of(value: Any, window: Window) -> Any:
    """Return int32 indices, in the batch element, of each window's first maximum."""
    value = lax.stop_gradient(value)
    index = lax.reshape(lax.iota(np.int32, math.prod(value.shape[1:])), value.shape[1:])
    index = lax.broadcast_in_dim(index, value.shape, tuple(range(1, value.ndim)))
    init = (_lowest(value.dtype), np.array(np.iinfo(np.int32).max, np.int32))
    return canonical_array(lax.reduce_window((value, index), init, _first_max, *window)[1])


def _flat(value: Any) -> Any:
    return lax.reshape(value, (value.shape[0], math.prod(value.shape[1:])))


def gather(value: Any, index: Any) -> Any:
    """Return the elements of each batch element at flat indices."""
    return jnp.take_along_axis(_flat(value), _flat(index), axis=1, mode="clip").reshape(index.shape)


def scatter_add(shape: tuple[Any, ...], grad: Any, index: Any) -> Any:
    """Return zeros with ``grad`` added at flat indices of each batch element."""
    index = _flat(index)
    rows = lax.broadcasted_iota(np.int32, index.shape, 0)
    out = jnp.zeros((shape[0], math.prod(shape[1:])), grad.dtype).at[rows, index].add(_flat(grad), mode="drop")
    return lax.reshape(out, shape)


# 3-D maxima: every element that equals the maximum gets the whole gradient in TensorFlow.


def _slices(shape: tuple[Any, ...], window: Window) -> Any:
    """Yield starts, limits and strides of ``lax.slice`` for each tap of the window."""
    counts = [canonical_dim((n - k) // s + 1) for n, k, s in zip(shape, window.sizes, window.strides, strict=True)]
    for start in itertools.product(*map(range, window.sizes)):
        limits = [b + (n - 1) * s + 1 for b, n, s in zip(start, counts, window.strides, strict=True)]
        yield start, limits, window.strides


def _padded(value: Any, fill: Any, window: Window) -> Any:
    return lax.pad(value, fill, [(before, after, 0) for before, after in window.padding])


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def max_with_ties(value: Any, window: Window) -> Any:
    """Return the maximum of each window; all equal maxima get the whole gradient."""
    return _window_max(value, window)


def sum_of_ties(value: Any, top: Any, tangent: Any, window: Window) -> Any:
    """Return for each window the sum of ``tangent`` where ``value`` equals ``top``."""
    value = _padded(value, _lowest(value.dtype), window)
    tangent = _padded(tangent, np.zeros((), tangent.dtype), window)
    total = jnp.zeros(top.shape, tangent.dtype)
    for tap in _slices(value.shape, window):
        part = lax.slice(tangent, *tap)
        total = total + lax.select(lax.eq(lax.slice(value, *tap), top), part, jnp.zeros_like(part))
    return total


@max_with_ties.defjvp
def _max_with_ties_jvp(window: Window, primals: Any, tangents: Any) -> Any:
    top = max_with_ties(primals[0], window)
    return top, sum_of_ties(primals[0], top, tangents[0], window)


def image_size(x: Any, dtype: Any) -> Any:
    """Return the number of elements of an image, a scalar of ``dtype``."""
    return jnp.asarray(x.shape[1] * x.shape[2] * x.shape[3], dtype)


_WINDOW = {"ksize": REQUIRED, "strides": REQUIRED, "padding": REQUIRED}
_2D, _3D = ({**_WINDOW, "data_format": data_format} for data_format in ("NHWC", "NDHWC"))
_EXPLICIT = {**_WINDOW, "explicit_paddings": (), "data_format": "NHWC"}
_V2 = {"padding": REQUIRED, "data_format": "NHWC"}
_op = functools.partial(op, pattern=Pattern.MATERIALIZED)


@_op("MaxPool", inputs="input", attributes=_EXPLICIT)
@_op("MaxPoolV2", inputs="input ksize:Static strides:Static", attributes=_V2)
def max_pool(input, *, ksize, strides, padding, explicit_paddings=(), data_format="NHWC"):
    """Compute the maximum of each window."""
    x = jnp.asarray(input)
    return _window_max(x, window_of(x, dims(ksize), dims(strides), padding, explicit_paddings, data_format))


@_op("AvgPool")
def avg_pool(value, *, ksize, strides, padding, data_format="NHWC"):
    """Compute the mean of each window, without padding.

    TF: core/kernels/avgpooling_op.cc.
    """
    return avg_pool_of(value, ksize, strides, padding, data_format)


@_op("AvgPool3D")
def avg_pool3d(input, *, ksize, strides, padding, data_format="NDHWC"):
    """Compute the mean of each window of volumes, without padding."""
    return avg_pool_of(input, ksize, strides, padding, data_format)


@_op("MaxPoolWithArgmax")
def max_pool_with_argmax(input, *, ksize, strides, Targmax=np.int64, padding, include_batch_in_index=False):
    """Compute the maximum of each window and its flat index.

    Indices are within a batch element, or with ``include_batch_in_index`` within the whole array.
    """
    x = jnp.asarray(input)
    index = argmax_of(x, window_of(x, ksize, strides, padding, (), "NHWC"))
    out, dtype = gather(x, index), canonical(Targmax)
    index = lax.convert_element_type(index, dtype)
    if include_batch_in_index:
        index = index + lax.broadcasted_iota(dtype, (x.shape[0], 1, 1, 1), 0) * image_size(x, dtype)
    return out, index


@_op("MaxPool3D")
def max_pool3d(input, *, ksize, strides, padding, data_format="NDHWC"):
    """Compute the maximum of each window of volumes.

    Every element that equals the maximum gets the whole gradient, as in TensorFlow.
    """
    x = jnp.asarray(input)
    window = window_of(x, ksize, strides, padding, (), data_format)
    if any(not isinstance(p, int) for pair in window.padding for p in pair):
        return _window_max(x, window)  # symbolic padding: not hashable, as custom_jvp needs it
    return max_with_ties(x, window)


@_op("MaxPoolGrad", inputs="orig_input orig_output grad", attributes=_EXPLICIT)
@_op("MaxPoolGradV2", inputs="orig_input orig_output grad ksize:Static strides:Static", attributes=_V2)
def max_pool_grad(*, orig_input, orig_output, grad, ksize, strides, padding, explicit_paddings=(), data_format="NHWC"):
    """Compute the gradient of `max_pool`; it goes to the first maximum.

    ``orig_output`` is ignored, as in TensorFlow.
    """
    x, grad = jnp.asarray(orig_input), jnp.asarray(grad)
    window = window_of(x, dims(ksize), dims(strides), padding, explicit_paddings, data_format)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return scatter_add(x.shape, grad, argmax_of(x, window))

    @jax.custom_jvp
    def pull(x: Any, grad: Any) -> Any:
        return jax.vjp(lambda v: _window_max(v, window), x)[1](grad)[0]

    @pull.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        # JAX's own second derivative may select another one of equal maxima.
        x = primals[0]
        return pull(*primals), scatter_add(x.shape, tangents[1], argmax_of(x, window))

    return pull(x, grad)


@op("MaxPoolGradGrad", inputs="orig_input orig_output grad", attributes=_2D)
@op("MaxPool3DGradGrad", inputs="orig_input orig_output grad", attributes=_3D)
@op("MaxPoolGradGradV2", inputs="orig_input orig_output grad ksize:Static strides:Static", attributes=_V2)
def max_pool_grad_grad(*, orig_input, orig_output, grad, ksize, strides, padding, data_format):
    """Gather ``grad``, of the input's shape, at the first maximum of each window."""
    x = jnp.asarray(orig_input)
    return gather(jnp.asarray(grad), argmax_of(x, window_of(x, dims(ksize), dims(strides), padding, (), data_format)))


def _within_image(x: Any, argmax: Any, include_batch_in_index: bool) -> Any:
    argmax = jnp.asarray(argmax)
    if not include_batch_in_index:
        return argmax
    batch = lax.broadcasted_iota(argmax.dtype, (argmax.shape[0], 1, 1, 1), 0)
    return argmax - batch * image_size(x, argmax.dtype)


def _register_with_argmax(name: str, move: Callable[[Any, Any, Any], Any]) -> None:
    @op(name)
    def call(input, grad, argmax, *, ksize, strides, padding, include_batch_in_index=False):
        """Move ``grad`` to, or from, given indices.

        TF: core/kernels/maxpooling_op.cc, where the second gradient has a kernel for GPUs only.

        Indices outside of the image are dropped, where TensorFlow raises an error.
        """
        return move(input, jnp.asarray(grad), _within_image(input, argmax, include_batch_in_index))


_register_with_argmax("MaxPoolGradWithArgmax", lambda x, grad, index: scatter_add(jnp.shape(x), grad, index))
_register_with_argmax("MaxPoolGradGradWithArgmax", lambda x, grad, index: gather(grad, index))


@_op("MaxPool3DGrad")
def max_pool3d_grad(orig_input, orig_output, grad, *, ksize, strides, padding, data_format="NDHWC"):
    """Compute the gradient of `max_pool3d`; it goes to all equal maxima."""
    x, top, grad = jnp.asarray(orig_input), jnp.asarray(orig_output), jnp.asarray(grad)
    window = window_of(x, ksize, strides, padding, (), data_format)
    spec = jax.ShapeDtypeStruct(x.shape, grad.dtype)
    return linear_transpose(lambda t: sum_of_ties(x, top, t, window), spec, grad, x, top)


@_op("AvgPoolGrad", inputs="orig_input_shape:Static grad", attributes=_2D)
@_op("AvgPool3DGrad", inputs="orig_input_shape:Static grad", attributes=_3D)
def avg_pool_grad(*, orig_input_shape, grad, **window):
    """Compute the gradient of average pooling."""
    spec = jax.ShapeDtypeStruct(dims(orig_input_shape), grad.dtype)
    return linear_transpose(functools.partial(avg_pool_of, **window), spec, jnp.asarray(grad))


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
