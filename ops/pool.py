"""Pooling in two and three dimensions, and its gradients."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .conv import layout, resolve_padding, spatial
from .registry import Static, op
from .values import dims

Dims = Sequence[int]


def _window(value: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str) -> Any:
    """Returns window, strides and padding for every dimension."""
    _, places = layout(data_format)
    window, steps = tuple(int(k) for k in ksize), tuple(int(s) for s in strides)
    pads: list[tuple[Any, Any]] = [(0, 0)] * len(window)
    sizes = [value.shape[i] for i in places]
    ones = (1,) * len(places)
    found = resolve_padding(
        padding, explicit, data_format, sizes, spatial(ksize, data_format), spatial(strides, data_format), ones
    )
    for i, pair in zip(places, found, strict=True):
        pads[i] = pair
    return window, steps, tuple(pads)


def _lowest(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min, dtype)


def max_pool_general(value: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str) -> Any:
    """Returns the maximum of each window; the gradient goes to the first maximum."""
    value = jnp.asarray(value)
    window, steps, pads = _window(value, ksize, strides, padding, explicit, data_format)
    return lax.reduce_window(value, _lowest(value.dtype), lax.max, window, steps, pads)


def avg_pool_general(value: Any, ksize: Dims, strides: Dims, padding: str, data_format: str) -> Any:
    """Returns the mean of each window, padding left out."""
    value = jnp.asarray(value)
    window, steps, pads = _window(value, ksize, strides, padding, (), data_format)
    zero = np.zeros((), value.dtype)
    total = lax.reduce_window(value, zero, lax.add, window, steps, pads)
    if padding == "VALID":
        return total / np.array(np.prod(window), value.dtype)
    _, places = layout(data_format)
    shape = tuple(value.shape[i] if i in places else 1 for i in range(value.ndim))
    small = tuple(w if i in places else 1 for i, w in enumerate(window))
    count = lax.reduce_window(jnp.ones(shape, value.dtype), zero, lax.add, small, steps, pads)
    return total / count


@op("MaxPool")
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


@op("MaxPoolV2")
def max_pool_v2(input: Any, ksize: Static, strides: Static, *, padding: str, data_format: str = "NHWC") -> Any:
    """See tf.raw_ops.MaxPoolV2."""
    return max_pool_general(input, dims(ksize), dims(strides), padding, (), data_format)


@op("MaxPool3D")
def max_pool3d(input: Any, *, ksize: Dims, strides: Dims, padding: str, data_format: str = "NDHWC") -> Any:
    """See tf.raw_ops.MaxPool3D."""
    return max_pool_general(input, ksize, strides, padding, (), data_format)


@op("AvgPool")
def avg_pool(value: Any, *, ksize: Dims, strides: Dims, padding: str, data_format: str = "NHWC") -> Any:
    """See tf.raw_ops.AvgPool."""
    return avg_pool_general(value, ksize, strides, padding, data_format)


@op("AvgPool3D")
def avg_pool3d(input: Any, *, ksize: Dims, strides: Dims, padding: str, data_format: str = "NDHWC") -> Any:
    """See tf.raw_ops.AvgPool3D."""
    return avg_pool_general(input, ksize, strides, padding, data_format)


@op("MaxPoolGrad")
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
    """See tf.raw_ops.MaxPoolGrad."""

    def forward(x: Any) -> Any:
        return max_pool_general(x, ksize, strides, padding, explicit_paddings, data_format)

    return jax.vjp(forward, jnp.asarray(orig_input))[1](jnp.asarray(grad))[0]


@op("MaxPool3DGrad")
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
    """See tf.raw_ops.MaxPool3DGrad."""

    def forward(x: Any) -> Any:
        return max_pool_general(x, ksize, strides, padding, (), data_format)

    return jax.vjp(forward, jnp.asarray(orig_input))[1](jnp.asarray(grad))[0]


def _avg_grad(shape: Any, grad: Any, ksize: Dims, strides: Dims, padding: str, data_format: str) -> Any:
    def forward(x: Any) -> Any:
        return avg_pool_general(x, ksize, strides, padding, data_format)

    aval = jax.ShapeDtypeStruct(dims(shape), grad.dtype)
    return jax.linear_transpose(forward, aval)(jnp.asarray(grad))[0]


@op("AvgPoolGrad")
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


@op("AvgPool3DGrad")
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
