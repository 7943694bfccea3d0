"""Pooling in two and three dimensions, and its gradients.

Where a window holds no number, or NaN, TensorFlow's CPU kernels give what their loop happens to give (the lowest
finite number, or the other values of the window); here NaN stays NaN and minus infinity stays that.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.canonical_dims import canonical_array, canonical_dim
from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims
from tf2jax_lite.xla_cpu.pooling import call

from .conv import layout, resolve_padding, spatial

Dims = Sequence[int]
Window = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[Any, Any], ...]]


def _window(value: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str) -> Window:
    """Returns window, strides and padding for every dimension."""
    _, places = layout(data_format)
    window, steps = tuple(int(k) for k in ksize), tuple(int(s) for s in strides)
    if not value.ndim == len(window) == len(steps) == len(data_format):
        raise OpError(f"shape {value.shape}, ksize {window}, strides {steps}: they must have rank {len(data_format)}")
    if min(*window, *steps) < 1:
        raise OpError(f"ksize {window} and strides {steps} must be positive")
    pads: list[tuple[Any, Any]] = [(0, 0)] * len(window)
    sizes = [value.shape[i] for i in places]
    ones = (1,) * len(places)
    found = resolve_padding(
        padding, explicit, data_format, sizes, spatial(ksize, data_format), spatial(strides, data_format), ones
    )
    for i, pair in zip(places, found, strict=True):
        if padding == "EXPLICIT" and max(pair) >= window[i]:
            raise OpError(f"padding {tuple(pair)} of axis {i} must be smaller than the window, {window[i]}")
        pads[i] = pair
    return window, steps, tuple(map(tuple, pads))


def _lowest(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def _largest(value: Any, *, where: Window) -> Any:
    return lax.reduce_window(value, _lowest(value.dtype), lax.max, *where)


def _total(value: Any, *, where: Window) -> Any:
    return lax.reduce_window(value, np.zeros((), value.dtype), lax.add, *where)


def _max(value: Any, where: Window) -> Any:
    return canonical_array(call(_largest, value, where=where))


def max_pool_general(value: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str) -> Any:
    """Returns the maximum of each window; the gradient goes to the first maximum."""
    value = jnp.asarray(value)
    return _max(value, _window(value, ksize, strides, padding, explicit, data_format))


def _counts(value: Any, where: Window) -> Any:
    """Returns how many elements each window holds: one number, or an array that broadcasts."""
    out: Any = np.ones((1,) * value.ndim)
    for axis, (size, window, step, (before, after)) in enumerate(zip(value.shape, *where, strict=True)):
        if all(isinstance(p, int) and p == 0 for p in (before, after)):
            out = out * window
            continue
        shape = [-1 if i == axis else 1 for i in range(value.ndim)]
        if isinstance(size, int):
            start = np.arange((size + before + after - window) // step + 1) * step - before
            count: Any = np.minimum(start + window, size) - np.maximum(start, 0)
        else:
            # The size is symbolic: count ones.
            ones, zero = jnp.ones((size,), value.dtype), np.zeros((), value.dtype)
            count = canonical_array(lax.reduce_window(ones, zero, lax.add, (window,), (step,), [(before, after)]))
        out = out * count.reshape(shape)
    if isinstance(out, np.ndarray):
        same = out.size and (out == out.flat[0]).all()
        return np.array(out.flat[0] if same else out, value.dtype)
    return out.astype(value.dtype)


def avg_pool_general(value: Any, ksize: Dims, strides: Dims, padding: str, data_format: str) -> Any:
    """Returns the mean of each window, padding left out."""
    value = jnp.asarray(value)
    where = _window(value, ksize, strides, padding, (), data_format)
    places = layout(data_format)[1]
    if any(k != 1 or s != 1 for i, (k, s) in enumerate(zip(*where[:2], strict=True)) if i not in places):
        raise OpError(f"means over batch or channels: ksize {where[0]}, strides {where[1]}")
    return in_float32(lambda v: canonical_array(call(_total, v, where=where)) / _counts(v, where), value)


@op("MaxPool", stored=True)
def max_pool(
    input: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
) -> Any:
    """See tf.raw_ops.MaxPool."""
    return max_pool_general(input, ksize, strides, padding, explicit_paddings, data_format)


@op("MaxPoolV2", stored=True)
def max_pool_v2(input: Any, ksize: Static, strides: Static, *, padding: str, data_format: str = "NHWC") -> Any:
    """See tf.raw_ops.MaxPoolV2."""
    return max_pool_general(input, dims(ksize), dims(strides), padding, (), data_format)


@op("AvgPool", stored=True)
def avg_pool(value: Any, *, ksize: Dims, strides: Dims, padding: str, data_format: str = "NHWC") -> Any:
    """See tf.raw_ops.AvgPool."""
    return avg_pool_general(value, ksize, strides, padding, data_format)


@op("AvgPool3D", stored=True)
def avg_pool3d(input: Any, *, ksize: Dims, strides: Dims, padding: str, data_format: str = "NDHWC") -> Any:
    """See tf.raw_ops.AvgPool3D."""
    return avg_pool_general(input, ksize, strides, padding, data_format)


# Positions of maxima.


def _first(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    (x, i), (y, j) = a, b
    # NaN counts as the largest, as it does in the value.
    x_nan, y_nan = lax.ne(x, x), lax.ne(y, y)
    same = lax.bitwise_or(lax.eq(x, y), lax.bitwise_and(x_nan, y_nan))
    larger = lax.bitwise_or(lax.gt(x, y), lax.bitwise_and(x_nan, lax.bitwise_not(y_nan)))
    left = lax.bitwise_or(larger, lax.bitwise_and(same, lax.lt(i, j)))
    return lax.select(left, x, y), lax.select(left, i, j)


def _argmax(value: Any, where: Window) -> Any:
    """Returns the position of each window's first maximum, counted within its batch element."""
    value = lax.stop_gradient(value)
    size: Any = 1
    for d in value.shape[1:]:
        size = size * d
    index = lax.broadcast_in_dim(
        lax.reshape(lax.iota(np.int32, size), value.shape[1:]), value.shape, tuple(range(1, value.ndim))
    )
    nothing = (_lowest(value.dtype), np.array(np.iinfo(np.int32).max, np.int32))
    return canonical_array(lax.reduce_window((value, index), nothing, _first, *where)[1])


def _flat(value: Any) -> Any:
    size: Any = 1
    for d in value.shape[1:]:
        size = size * d
    return lax.reshape(value, (value.shape[0], size))


def _pick(value: Any, index: Any) -> Any:
    """Returns the elements of each batch element at flat positions."""
    return jnp.take_along_axis(_flat(value), _flat(index), axis=1, mode="clip").reshape(index.shape)


def _scatter(shape: tuple[Any, ...], grad: Any, index: Any) -> Any:
    """Adds up ``grad`` at flat positions of each batch element."""
    size: Any = 1
    for d in shape[1:]:
        size = size * d
    index = _flat(index)
    rows = lax.broadcasted_iota(np.int32, index.shape, 0)
    out = jnp.zeros((shape[0], size), grad.dtype).at[rows, index].add(_flat(grad), mode="drop")
    return lax.reshape(out, shape)


def _max_grad(
    orig_input: Any, grad: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str
) -> Any:
    x, grad = jnp.asarray(orig_input), jnp.asarray(grad)
    where = _window(x, ksize, strides, padding, explicit, data_format)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return _scatter(x.shape, grad, _argmax(x, where))

    @jax.custom_jvp
    def pull(x: Any, grad: Any) -> Any:
        return jax.vjp(lambda v: _max(v, where), x)[1](grad)[0]

    @pull.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        # JAX's own second derivative may take another one of equal maxima.
        x = primals[0]
        return pull(*primals), _scatter(x.shape, tangents[1], _argmax(x, where))

    return pull(x, grad)


def _max_grad_grad(orig_input: Any, grad: Any, ksize: Dims, strides: Dims, padding: str, data_format: str) -> Any:
    x = jnp.asarray(orig_input)
    return _pick(jnp.asarray(grad), _argmax(x, _window(x, ksize, strides, padding, (), data_format)))


@op("MaxPoolGrad", stored=True)
def max_pool_grad(
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
) -> Any:
    """See tf.raw_ops.MaxPoolGrad. As there, ``orig_output`` does not count."""
    return _max_grad(orig_input, grad, ksize, strides, padding, explicit_paddings, data_format)


@op("MaxPoolGradV2", stored=True)
def max_pool_grad_v2(
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    ksize: Static,
    strides: Static,
    *,
    padding: str,
    data_format: str = "NHWC",
) -> Any:
    """See tf.raw_ops.MaxPoolGradV2."""
    return _max_grad(orig_input, grad, dims(ksize), dims(strides), padding, (), data_format)


@op("MaxPoolGradGrad")
def max_pool_grad_grad(
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    data_format: str = "NHWC",
) -> Any:
    """Returns what ``grad`` holds at the maxima. See tf.raw_ops.MaxPoolGradGrad."""
    return _max_grad_grad(orig_input, grad, ksize, strides, padding, data_format)


@op("MaxPoolGradGradV2")
def max_pool_grad_grad_v2(
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    ksize: Static,
    strides: Static,
    *,
    padding: str,
    data_format: str = "NHWC",
) -> Any:
    """Returns what ``grad`` holds at the maxima. See tf.raw_ops.MaxPoolGradGradV2."""
    return _max_grad_grad(orig_input, grad, dims(ksize), dims(strides), padding, data_format)


@op("MaxPool3DGradGrad")
def max_pool3d_grad_grad(
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    data_format: str = "NDHWC",
) -> Any:
    """Returns what ``grad`` holds at the maxima. See tf.raw_ops.MaxPool3DGradGrad."""
    return _max_grad_grad(orig_input, grad, ksize, strides, padding, data_format)


@op("MaxPoolWithArgmax", stored=True)
def max_pool_with_argmax(
    input: Any,
    *,
    ksize: Dims,
    strides: Dims,
    Targmax: Any = np.int64,
    padding: str,
    include_batch_in_index: bool = False,
) -> tuple[Any, Any]:
    """Returns each window's maximum and its flat position. See tf.raw_ops.MaxPoolWithArgmax."""
    x = jnp.asarray(input)
    index = _argmax(x, _window(x, ksize, strides, padding, (), "NHWC"))
    out, dtype = _pick(x, index), canonical(Targmax)
    index = lax.convert_element_type(index, dtype)
    if include_batch_in_index:
        index = index + lax.broadcasted_iota(dtype, (x.shape[0], 1, 1, 1), 0) * _image_size(x, dtype)
    return out, index


def _image_size(x: Any, dtype: Any) -> Any:
    return jnp.asarray(x.shape[1] * x.shape[2] * x.shape[3], dtype)


def _within_image(x: Any, argmax: Any, include_batch_in_index: bool) -> Any:
    argmax = jnp.asarray(argmax)
    if not include_batch_in_index:
        return argmax
    batch = lax.broadcasted_iota(argmax.dtype, (argmax.shape[0], 1, 1, 1), 0)
    return argmax - batch * _image_size(x, argmax.dtype)


@op("MaxPoolGradWithArgmax")
def max_pool_grad_with_argmax(
    input: Any,
    grad: Any,
    argmax: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    include_batch_in_index: bool = False,
) -> Any:
    """Adds ``grad`` up at given positions; one outside the image is ignored, where TensorFlow refuses it.

    See tf.raw_ops.MaxPoolGradWithArgmax.
    """
    return _scatter(jnp.shape(input), jnp.asarray(grad), _within_image(input, argmax, include_batch_in_index))


@op("MaxPoolGradGradWithArgmax")
def max_pool_grad_grad_with_argmax(
    input: Any,
    grad: Any,
    argmax: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    include_batch_in_index: bool = False,
) -> Any:
    """Returns what ``grad`` holds at given positions. See tf.raw_ops.MaxPoolGradGradWithArgmax."""
    return _pick(jnp.asarray(grad), _within_image(input, argmax, include_batch_in_index))


# Maxima of volumes: TensorFlow's gradient goes to every element that equals the maximum, in full.


def _slices(shape: tuple[Any, ...], where: Window) -> Any:
    """Yields, for each place in the window, how to cut it out of a padded array: starts, limits, strides."""
    window, steps, pads = where
    full = [size + before + after for size, (before, after) in zip(shape, pads, strict=True)]
    counts = [canonical_dim((size - k) // s + 1) for size, k, s in zip(full, window, steps, strict=True)]
    for start in itertools.product(*map(range, window)):
        yield start, [b + (n - 1) * s + 1 for b, n, s in zip(start, counts, steps, strict=True)], steps


def _padded(value: Any, fill: Any, where: Window) -> Any:
    return lax.pad(value, fill, [(before, after, 0) for before, after in where[2]])


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _max_all(value: Any, where: Window) -> Any:
    return _max(value, where)


def _gather_ties(value: Any, top: Any, tangent: Any, where: Window) -> Any:
    value = _padded(value, _lowest(value.dtype), where)
    tangent = _padded(tangent, np.zeros((), tangent.dtype), where)
    total = jnp.zeros(top.shape, tangent.dtype)
    for cut in _slices(value.shape, (*where[:2], ((0, 0),) * value.ndim)):
        part = lax.slice(tangent, *cut)
        total = total + lax.select(lax.eq(lax.slice(value, *cut), top), part, jnp.zeros_like(part))
    return total


@_max_all.defjvp
def _max_all_jvp(where: Window, primals: Any, tangents: Any) -> Any:
    top = _max_all(primals[0], where)
    return top, _gather_ties(primals[0], top, tangents[0], where)


@op("MaxPool3D", stored=True)
def max_pool3d(input: Any, *, ksize: Dims, strides: Dims, padding: str, data_format: str = "NDHWC") -> Any:
    """See tf.raw_ops.MaxPool3D. Every element that equals the maximum gets the whole gradient, as there."""
    x = jnp.asarray(input)
    where = _window(x, ksize, strides, padding, (), data_format)
    if any(not isinstance(p, int) for pair in where[2] for p in pair):
        return _max(x, where)  # symbolic padding: not a key that custom_jvp could hash
    return _max_all(x, where)


@op("MaxPool3DGrad", stored=True)
def max_pool3d_grad(
    orig_input: Any,
    orig_output: Any,
    grad: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    data_format: str = "NDHWC",
) -> Any:
    """See tf.raw_ops.MaxPool3DGrad. Every element that equals the maximum gets the whole gradient, as there."""
    x, top, grad = jnp.asarray(orig_input), jnp.asarray(orig_output), jnp.asarray(grad)
    where = _window(x, ksize, strides, padding, (), data_format)
    form = jax.ShapeDtypeStruct(x.shape, grad.dtype)
    return linear_transpose(lambda t: _gather_ties(x, top, t, where), form, grad, x, top)


def _avg_grad(shape: Any, grad: Any, ksize: Dims, strides: Dims, padding: str, data_format: str) -> Any:
    def forward(x: Any) -> Any:
        return avg_pool_general(x, ksize, strides, padding, data_format)

    form = jax.ShapeDtypeStruct(dims(shape), grad.dtype)
    return linear_transpose(forward, form, jnp.asarray(grad))


@op("AvgPoolGrad", stored=True)
def avg_pool_grad(
    orig_input_shape: Static,
    grad: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    data_format: str = "NHWC",
) -> Any:
    """See tf.raw_ops.AvgPoolGrad."""
    return _avg_grad(orig_input_shape, grad, ksize, strides, padding, data_format)


@op("AvgPool3DGrad", stored=True)
def avg_pool3d_grad(
    orig_input_shape: Static,
    grad: Any,
    *,
    ksize: Dims,
    strides: Dims,
    padding: str,
    data_format: str = "NDHWC",
) -> Any:
    """See tf.raw_ops.AvgPool3DGrad."""
    return _avg_grad(orig_input_shape, grad, ksize, strides, padding, data_format)
