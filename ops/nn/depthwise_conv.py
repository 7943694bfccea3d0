"""Depthwise convolution, with filters for each channel, and its gradients."""

from __future__ import annotations

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import dims

from ._convolution import ConvAttrs, convolve_depthwise, grouped, input_gradient
from .conv import register_conv2d, register_filter_gradient

depthwise_conv2d = register_conv2d("DepthwiseConv2dNative", convolve_depthwise)


@op("DepthwiseConv2dNativeBackpropInput", pattern=Pattern.CONTRACTION)
def depthwise_conv2d_backprop_input(
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
    """Compute the gradient of `depthwise_conv2d` with respect to its input.

    TF: core/kernels/depthwise_conv_grad_op.cc.
    """
    attrs = ConvAttrs(strides, padding, data_format, dilations, explicit_paddings)
    return input_gradient(dims(input_sizes), *grouped(filter, attrs), out_backprop)


register_filter_gradient("DepthwiseConv2dNativeBackpropFilter", convolve_depthwise)
