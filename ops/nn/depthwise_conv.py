"""Depthwise convolution, with filters for each channel, and its gradients."""

from __future__ import annotations

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import dims
from tf2jax_lite.values.types import Array

from ._convolution import ConvAttrs, Dims, convolve_depthwise, grouped, input_gradient
from .conv import register_conv2d, register_filter_gradient

depthwise_conv2d = register_conv2d("DepthwiseConv2dNative", convolve_depthwise)


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


register_filter_gradient("DepthwiseConv2dNativeBackpropFilter", convolve_depthwise)
