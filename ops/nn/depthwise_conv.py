"""Depthwise convolution, with filters for each channel, and its gradients."""

from __future__ import annotations

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import dims
from tf2jax_lite.values.types import Array

from ._convolution import ConvAttrs, Dims, convolve_depthwise, filter_gradient, grouped, input_gradient


@op("DepthwiseConv2dNative", pattern=Pattern.CONTRACTION)
def depthwise_conv2d(
    input: Array,
    filter: Array,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Array:
    """Convolve each channel with its own filters.

    TF: tf.raw_ops.DepthwiseConv2dNative (core/kernels/depthwise_conv_op.cc).

    Args:
      input: [batch, *spatial, channels], in the order of ``data_format``.
      filter: [height, width, channels, multiplier].
      strides: strides of the window, one entry for each dimension of ``data_format``.
      padding: ``"SAME"``, ``"VALID"`` or ``"EXPLICIT"``.
      explicit_paddings: for ``"EXPLICIT"``, (before, after) for each dimension of ``data_format``.
      data_format: order of the dimensions, ``"NHWC"`` or ``"NCHW"``.
      dilations: dilations of the window, one entry for each dimension of ``data_format``.

    Returns:
      [batch, *spatial, channels * multiplier], in the order of ``data_format``; the input's dtype.

    Raises:
      OpError: a stride or a dilation is not positive, or the padding is unknown.
    """
    return convolve_depthwise(input, filter, ConvAttrs(strides, padding, data_format, dilations, explicit_paddings))


@op("DepthwiseConv2dNativeBackpropInput", pattern=Pattern.CONTRACTION)
def depthwise_conv2d_backprop_input(
    input_sizes: Static,
    filter: Array,
    out_backprop: Array,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Array:
    """Compute the gradient of `depthwise_conv2d` with respect to its input.

    TF: tf.raw_ops.DepthwiseConv2dNativeBackpropInput (core/kernels/depthwise_conv_grad_op.cc).

    Args:
      input_sizes: static ints, the shape of the input.
      filter: [height, width, channels, multiplier].
      out_backprop: the cotangent of the output.
      strides: strides of the window, one entry for each dimension of ``data_format``.
      padding: ``"SAME"``, ``"VALID"`` or ``"EXPLICIT"``.
      explicit_paddings: for ``"EXPLICIT"``, (before, after) for each dimension of ``data_format``.
      data_format: order of the dimensions, ``"NHWC"`` or ``"NCHW"``.
      dilations: dilations of the window, one entry for each dimension of ``data_format``.

    Returns:
      An array of the input's shape and the cotangent's dtype.

    Raises:
      OpError: a stride or a dilation is not positive, or the padding is unknown.
    """
    attrs = ConvAttrs(strides, padding, data_format, dilations, explicit_paddings)
    return input_gradient(dims(input_sizes), *grouped(filter, attrs), out_backprop)


@op("DepthwiseConv2dNativeBackpropFilter", pattern=Pattern.CONTRACTION)
def depthwise_conv2d_backprop_filter(
    input: Array,
    filter_sizes: Static,
    out_backprop: Array,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Array:
    """Compute the gradient of `depthwise_conv2d` with respect to its filter.

    TF: tf.raw_ops.DepthwiseConv2dNativeBackpropFilter (core/kernels/depthwise_conv_grad_op.cc).

    Args:
      input: [batch, *spatial, channels], in the order of ``data_format``.
      filter_sizes: static ints, the shape of the filter.
      out_backprop: the cotangent of the output.
      strides: strides of the window, one entry for each dimension of ``data_format``.
      padding: ``"SAME"``, ``"VALID"`` or ``"EXPLICIT"``.
      explicit_paddings: for ``"EXPLICIT"``, (before, after) for each dimension of ``data_format``.
      data_format: order of the dimensions, ``"NHWC"`` or ``"NCHW"``.
      dilations: dilations of the window, one entry for each dimension of ``data_format``.

    Returns:
      An array of the filter's shape and the cotangent's dtype.

    Raises:
      OpError: a stride or a dilation is not positive, or the padding is unknown.
    """
    attrs = ConvAttrs(strides, padding, data_format, dilations, explicit_paddings)
    return filter_gradient(input, dims(filter_sizes), attrs, out_backprop, convolve_depthwise)
