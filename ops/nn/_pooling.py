"""Windows, and their maxima, means, argmax and ties.

Shared by `pooling` and `pooling_grad`. For a window that is all padding, or that contains NaN, the result of
TensorFlow's CPU kernels depends on their loop (the lowest finite number, or the other values of the window). Here the
results are minus infinity and NaN.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.canonical_dims import canonical_array, canonical_dim
from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.xla_cpu.pooling import call

from ._convolution import Dims, layout, resolve_padding, spatial


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


def lowest(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def _reduce_max(value: Any, *, window: Window) -> Any:
    return lax.reduce_window(value, lowest(value.dtype), lax.max, *window)


def _reduce_sum(value: Any, *, window: Window) -> Any:
    return lax.reduce_window(value, np.zeros((), value.dtype), lax.add, *window)


def window_max(value: Any, window: Window) -> Any:
    return canonical_array(call(_reduce_max, value, window=window))


def max_pool_of(value: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str) -> Any:
    """Return the maximum of each window; the gradient goes to the first maximum."""
    value = jnp.asarray(value)
    return window_max(value, window_of(value, ksize, strides, padding, explicit, data_format))


def _counts(value: Any, window: Window) -> Any:
    """Return the number of elements in each window without padding.

    The result is a scalar, or an array that broadcasts.
    """
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
    return in_float32(lambda v: canonical_array(call(_reduce_sum, v, window=window)) / _counts(v, window), value)


def _first_max(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    (x, i), (y, j) = a, b
    # NaN is the largest, as in the maximum itself.
    x_nan, y_nan = lax.ne(x, x), lax.ne(y, y)
    same = lax.bitwise_or(lax.eq(x, y), lax.bitwise_and(x_nan, y_nan))
    larger = lax.bitwise_or(lax.gt(x, y), lax.bitwise_and(x_nan, lax.bitwise_not(y_nan)))
    left = lax.bitwise_or(larger, lax.bitwise_and(same, lax.lt(i, j)))
    return lax.select(left, x, y), lax.select(left, i, j)


def argmax_of(value: Any, window: Window) -> Any:
    """Return the flat index of each window's first maximum.

    int32, within the batch element.
    """
    value = lax.stop_gradient(value)
    index = lax.reshape(lax.iota(np.int32, math.prod(value.shape[1:])), value.shape[1:])
    index = lax.broadcast_in_dim(index, value.shape, tuple(range(1, value.ndim)))
    init = (lowest(value.dtype), np.array(np.iinfo(np.int32).max, np.int32))
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
    """Yield, for each tap of the window, the arguments of ``lax.slice``.

    These are starts, limits and strides.
    """
    counts = [canonical_dim((n - k) // s + 1) for n, k, s in zip(shape, window.sizes, window.strides, strict=True)]
    for start in itertools.product(*map(range, window.sizes)):
        limits = [b + (n - 1) * s + 1 for b, n, s in zip(start, counts, window.strides, strict=True)]
        yield start, limits, window.strides


def _padded(value: Any, fill: Any, window: Window) -> Any:
    return lax.pad(value, fill, [(before, after, 0) for before, after in window.padding])


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def max_with_ties(value: Any, window: Window) -> Any:
    """Return the maximum of each window; all equal maxima get the whole gradient."""
    return window_max(value, window)


def sum_of_ties(value: Any, top: Any, tangent: Any, window: Window) -> Any:
    """Return for each window the sum of ``tangent`` where ``value`` equals ``top``."""
    value = _padded(value, lowest(value.dtype), window)
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
