"""Max and average pooling in two and three dimensions, and their gradients.

For a window that is all padding, or that contains NaN, the result of TensorFlow's CPU kernels depends on their loop
(the lowest finite number, or the other values of the window). Here the results are minus infinity and NaN. In two
dimensions the gradient of a maximum goes to the first of equal ones, in three dimensions to all of them.

TF: core/kernels/maxpooling_op.cc, core/kernels/pooling_ops_3d.cc.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.dim_expr import canonical_array, canonical_dim
from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims
from tf2jax_lite.xla_cpu.pooling import call

from .conv import Dims, layout, resolve_padding, spatial


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


def _reduce_max(value: Any, *, window: Window) -> Any:
    return lax.reduce_window(value, _lowest(value.dtype), lax.max, *window)


def _reduce_sum(value: Any, *, window: Window) -> Any:
    return lax.reduce_window(value, np.zeros((), value.dtype), lax.add, *window)


def _window_max(value: Any, window: Window) -> Any:
    return canonical_array(call(_reduce_max, value, window=window))


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
