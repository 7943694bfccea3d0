"""Convolution in two and three dimensions, and its gradients.

TF: core/kernels/conv_grad_ops_3d.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, dims_array

from ._convolution import ConvAttrs, convolve, filter_gradient, input_gradient, layout


def register_conv2d(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Register a convolution by ``forward(input, filter, attrs)``, and return it."""

    @op(name, pattern=Pattern.CONTRACTION)
    def call(input, filter, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)):
        """Convolve images.

        TF: core/kernels/conv_ops.cc, core/kernels/depthwise_conv_op.cc.

        Args:
          filter: [*window, channels / groups, outputs], or of a depthwise one [*window, channels, multiplier].
        """
        return forward(input, filter, ConvAttrs(strides, padding, data_format, dilations, explicit_paddings))

    return call


def register_filter_gradient(name: str, *forward: Callable[..., Any]) -> None:
    """Register the gradient of a convolution of images with respect to its filter."""

    @op(name, pattern=Pattern.CONTRACTION)
    def call(
        input,
        filter_sizes: Static,
        out_backprop,
        *,
        strides,
        padding,
        explicit_paddings=(),
        data_format="NHWC",
        dilations=(1, 1, 1, 1),
    ):
        """Compute the gradient of a convolution with respect to its filter.

        TF: core/kernels/conv_grad_filter_ops.cc, core/kernels/depthwise_conv_grad_op.cc.
        """
        attrs = ConvAttrs(strides, padding, data_format, dilations, explicit_paddings)
        return filter_gradient(input, dims(filter_sizes), attrs, out_backprop, *forward)


conv2d = register_conv2d("Conv2D", convolve)
register_filter_gradient("Conv2DBackpropFilter")


@op("Conv2DBackpropInput", pattern=Pattern.CONTRACTION)
def conv2d_backprop_input(
    input_sizes: Static,
    filter,
    out_backprop,
    *,
    strides,
    padding,
    explicit_paddings=(),
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
):
    """Compute the gradient of `conv2d` with respect to its input.

    TF: core/kernels/conv_grad_input_ops.cc.

    Args:
      input_sizes: static ints [4], the shape of the input; or [2], its height and width.

    Returns:
      An array of the input's shape and the cotangent's dtype, also for integers.
    """
    shape = dims(input_sizes)
    if len(shape) == 2:
        channel, spatial_axes = layout(data_format)
        full: list[Any] = [out_backprop.shape[0]] * 4
        full[channel] = filter.shape[2]
        full[spatial_axes[0]], full[spatial_axes[1]] = shape
        shape = tuple(full)
    attrs = ConvAttrs(strides, padding, data_format, dilations, explicit_paddings)
    return input_gradient(shape, filter, attrs, out_backprop)


@op("Conv2DBackpropInputV2", pattern=Pattern.CONTRACTION)
def conv2d_backprop_input_v2(
    input, filter, out_backprop, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)
):
    """Compute the gradient of `conv2d` with respect to its input.

    As `conv2d_backprop_input`, for an input of which only the shape is used. TensorFlow has no kernel.
    """
    attrs = ConvAttrs(strides, padding, data_format, dilations, explicit_paddings)
    return input_gradient(tuple(input.shape), filter, attrs, out_backprop)


@op("Conv2DBackpropFilterV2", pattern=Pattern.CONTRACTION)
def conv2d_backprop_filter_v2(
    input, filter, out_backprop, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)
):
    """Compute the gradient of `conv2d` with respect to its filter.

    As Conv2DBackpropFilter, for a filter of which only the shape is used. TensorFlow has no kernel.
    """
    attrs = ConvAttrs(strides, padding, data_format, dilations, explicit_paddings)
    return filter_gradient(input, tuple(filter.shape), attrs, out_backprop)


@op("Conv3D", pattern=Pattern.CONTRACTION)
def conv3d(input, filter, *, strides, padding, data_format="NDHWC", dilations=(1, 1, 1, 1, 1)):
    """Convolve volumes.

    TF: core/kernels/conv_ops_3d.cc.
    """
    return convolve(input, filter, ConvAttrs(strides, padding, data_format, dilations))


@op("Conv3DBackpropInputV2", pattern=Pattern.CONTRACTION)
def conv3d_backprop_input(
    input_sizes: Static, filter, out_backprop, *, strides, padding, data_format="NDHWC", dilations=(1, 1, 1, 1, 1)
):
    """Compute the gradient of `conv3d` with respect to its input."""
    attrs = ConvAttrs(strides, padding, data_format, dilations)
    return input_gradient(dims(input_sizes), filter, attrs, out_backprop)


@op("Conv3DBackpropFilterV2", pattern=Pattern.CONTRACTION)
def conv3d_backprop_filter(
    input, filter_sizes: Static, out_backprop, *, strides, padding, data_format="NDHWC", dilations=(1, 1, 1, 1, 1)
):
    """Compute the gradient of `conv3d` with respect to its filter."""
    return filter_gradient(input, dims(filter_sizes), ConvAttrs(strides, padding, data_format, dilations), out_backprop)


@op("Conv", pattern=Pattern.CONTRACTION)
def conv(
    input,
    filter,
    *,
    strides,
    padding,
    explicit_paddings=(),
    data_format="CHANNELS_LAST",
    dilations=(),
    batch_dims=1,
    groups=1,
):
    """Convolve in two or three dimensions, with any number of batch dimensions.

    Args:
      input: [*batch, *spatial, channels], or channels before the spatial dimensions.
    """
    input = jnp.asarray(input)
    rank = input.ndim - batch_dims - 1
    if rank not in (2, 3):
        raise OpError(f"the input must have 2 or 3 spatial dimensions, not {rank}")
    letters = "DHW"[-rank:]
    batch, rest = input.shape[:batch_dims], input.shape[batch_dims:]
    order = f"N{letters}C" if data_format == "CHANNELS_LAST" else f"NC{letters}"
    attrs = ConvAttrs(strides, padding, order, dilations, explicit_paddings, groups)
    result = convolve(lax.reshape(input, (math.prod(batch), *rest)), filter, attrs)
    return lax.reshape(result, (*batch, *result.shape[1:]))


@op("Conv3DBackpropInput", pattern=Pattern.CONTRACTION)
def conv3d_backprop_input_v1(input, filter, out_backprop, *, strides, padding, dilations=()):
    """Return the input gradient of a 3-D convolution.

    ``input`` is given for its shape.
    """
    sizes = dims_array(input.shape)
    return conv3d_backprop_input(sizes, filter, out_backprop, strides=strides, padding=padding, dilations=dilations)


@op("Conv3DBackpropFilter", pattern=Pattern.CONTRACTION)
def conv3d_backprop_filter_v1(input, filter, out_backprop, *, strides, padding, dilations=()):
    """Return the filter gradient of a 3-D convolution.

    ``filter`` is given for its shape.
    """
    sizes = dims_array(filter.shape)
    return conv3d_backprop_filter(input, sizes, out_backprop, strides=strides, padding=padding, dilations=dilations)
