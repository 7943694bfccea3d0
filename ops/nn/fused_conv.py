"""Ops that Grappler fuses with bias, normalization and activation.

The OpDefs (core/ops/nn_ops.cc, math_ops.cc) are internal, so that ``tf.raw_ops`` has none of those with an underscore.

TF: core/kernels/conv_ops_fused_image_transform.cc, core/ops/math_ops.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.ops import registry
from tf2jax_lite.ops.arrays.pad import mirror_pad, pairs
from tf2jax_lite.ops.common.derivatives import logistic
from tf2jax_lite.ops.image.resize import resize_bilinear
from tf2jax_lite.ops.linalg.matmul import mat_mul
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from . import activations
from ._convolution import ConvAttrs, Dims, convolve, convolve_depthwise
from .normalization import fused_batch_norm_v3


def _pad_convolve(input: Any, paddings: Any, filter: Any, mode: str, strides: Dims, padding: str) -> Any:
    if any(before != 0 or after != 0 for before, after in (pairs(paddings, 4)[i] for i in (0, 3))):
        raise OpError("only height and width can be padded")
    return convolve(mirror_pad(input, paddings, mode=mode), filter, ConvAttrs(strides, padding, "NHWC"))


@op("FusedPadConv2D", pattern=Pattern.CONTRACTION)
def fused_pad_conv2d(input, paddings: Static, filter, *, mode, strides, padding):
    """Mirror-pad and convolve images.

    Args:
      input: [batch, height, width, channels].
      paddings: static ints [4, 2], (before, after); 0 for batch and channels.
      filter: [height, width, channels, outputs].

    Returns:
      [batch, height, width, outputs]; the input's dtype.

    Raises:
      OpError: batch or channels are padded, or padding is larger than the image.
    """
    return _pad_convolve(input, paddings, filter, mode, strides, padding)


@op("FusedResizeAndPadConv2D", pattern=Pattern.CONTRACTION)
def fused_resize_and_pad_conv2d(
    input,
    size: Static,
    paddings: Static,
    filter,
    *,
    resize_align_corners=False,
    mode,
    strides,
    padding,
):
    """Resize (in float32), mirror-pad and convolve images.

    Args:
      input: [batch, height, width, channels].
      size: static ints (height, width).
      paddings: static ints [4, 2], (before, after); 0 for batch and channels.
      filter: [height, width, channels, outputs].

    Returns:
      [batch, height, width, outputs]; the input's dtype.

    Raises:
      OpError: batch or channels are padded, or padding is larger than the image.
    """
    input = jnp.asarray(input)
    resized = resize_bilinear(input, size, align_corners=resize_align_corners)
    return _pad_convolve(resized.astype(input.dtype), paddings, filter, mode, strides, padding)


# Keys are names in ``fused_ops``; TensorFlow's CPU kernels have the first four.
_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "Relu": activations.relu,
    "Relu6": activations.relu6,
    "Elu": activations.elu,
    "LeakyRelu": activations.leaky_relu,
    "Tanh": jnp.tanh,
    "Sigmoid": logistic,
    "GeluApproximate": lambda x: jax.nn.gelu(x, approximate=True),
    "GeluExact": lambda x: jax.nn.gelu(x, approximate=False),
}


def _epilogue(
    x: Any, args: list[Any], fused_ops: Sequence[str], data_format: str, epsilon: float, leakyrelu_alpha: float
) -> Any:
    """Apply ``fused_ops`` in order; each consumes its operands from ``args``.

    Raises:
      OpError: the number of ``args`` is not that of the operands.
      UnsupportedAttributeError: an op is unknown.
    """
    rest = list(args)
    arity = {"BiasAdd": 1, "FusedBatchNorm": 4, "Add": 1}
    if sum(arity.get(name, 0) for name in fused_ops) != len(rest):
        raise OpError(f"{len(rest)} arguments do not fit fused_ops {list(fused_ops)}")
    for name in fused_ops:
        operands, rest = rest[: arity.get(name, 0)], rest[arity.get(name, 0) :]
        if name == "BiasAdd":
            x = activations.bias_add(x, operands[0], data_format=data_format)
        elif name == "Add":
            x = x + operands[0]
        elif name == "FusedBatchNorm":
            x = fused_batch_norm_v3(x, *operands, epsilon=epsilon, data_format=data_format, is_training=False)[0]
        elif name == "LeakyRelu":
            x = activations.leaky_relu(x, alpha=leakyrelu_alpha)
        elif name in _ACTIVATIONS:
            x = _ACTIVATIONS[name](x)
        else:
            raise UnsupportedAttributeError(
                f"fused_ops {list(fused_ops)}: {name!r} is none of {', '.join((*arity, *_ACTIVATIONS))}"
            )
    return x


@op("_FusedConv2D", pattern=Pattern.CONTRACTION)
def fused_conv2d(
    input,
    filter,
    args,
    host_args,
    *,
    num_args,
    strides,
    padding,
    explicit_paddings=(),
    data_format="NHWC",
    filter_format="HWIO",
    dilations=(1, 1, 1, 1),
    fused_ops=(),
    epsilon=0.0001,
    leakyrelu_alpha=0.2,
):
    """Convolve images and apply ``fused_ops`` to the result, in floating point.

    TF: OpDef _FusedConv2D (core/ops/nn_ops.cc).

    Returns:
      [batch, *spatial, outputs].

    Raises:
      OpError: operands are quantized, or ``args`` do not fit ``fused_ops``.
      UnsupportedAttributeError: a format or a fused op is not supported.
    """
    if filter_format != "HWIO" or data_format not in ("NHWC", "NCHW"):
        raise UnsupportedAttributeError(f"data_format {data_format!r} with filter_format {filter_format!r}")
    if host_args or not jnp.issubdtype(input.dtype, jnp.floating):
        raise OpError("quantized _FusedConv2D, which TensorFlow has on GPUs only, is not supported")
    product = convolve(input, filter, ConvAttrs(strides, padding, data_format, dilations, explicit_paddings))
    return _epilogue(product, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@op("_FusedConv3D", pattern=Pattern.CONTRACTION)
def fused_conv3d(
    input,
    filter,
    args,
    *,
    num_args,
    strides,
    padding,
    data_format="NDHWC",
    dilations=(1, 1, 1, 1, 1),
    padding_list=(),
    fused_ops=(),
    epsilon=0.0001,
    leakyrelu_alpha=0.2,
):
    """Convolve volumes and apply ``fused_ops`` to the result.

    TF: OpDef _FusedConv3D (core/ops/nn_ops.cc).
    """
    if padding_list and padding != "VALID":
        raise UnsupportedAttributeError(f"padding {padding!r} together with padding_list {list(padding_list)}")
    padding = "EXPLICIT" if padding_list else padding
    product = convolve(input, filter, ConvAttrs(strides, padding, data_format, dilations, padding_list))
    return _epilogue(product, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@op("_FusedDepthwiseConv2dNative", pattern=Pattern.CONTRACTION)
def fused_depthwise_conv2d(
    input,
    filter,
    args,
    *,
    num_args,
    strides,
    padding,
    data_format="NHWC",
    dilations=(1, 1, 1, 1),
    fused_ops=(),
    epsilon=0.0001,
    leakyrelu_alpha=0.2,
):
    """Convolve each channel with its own filters and apply ``fused_ops``.

    TF: OpDef _FusedDepthwiseConv2dNative (core/ops/nn_ops.cc).
    """
    product = convolve_depthwise(input, filter, ConvAttrs(strides, padding, data_format, dilations))
    return _epilogue(product, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@op("_FusedMatMul", pattern=Pattern.CONTRACTION)
def fused_mat_mul(
    a, b, args, *, num_args, transpose_a=False, transpose_b=False, fused_ops=(), epsilon=0.0001, leakyrelu_alpha=0.2
):
    """Multiply matrices and apply ``fused_ops`` to the result.

    TF: OpDef _FusedMatMul (core/ops/math_ops.cc).
    """
    product = mat_mul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return _epilogue(product, args, fused_ops, "NHWC", epsilon, leakyrelu_alpha)


@op("_FusedBatchNormEx")
def fused_batch_norm_ex(
    x,
    scale,
    offset,
    mean,
    variance,
    side_input,
    *,
    epsilon=0.0001,
    exponential_avg_factor=1.0,
    activation_mode="Identity",
    data_format="NHWC",
    is_training=True,
):
    """Apply FusedBatchNormV3, add an optional side input, and apply ReLU.

    TF: OpDef _FusedBatchNormEx (core/ops/nn_ops.cc).
    """
    if activation_mode not in ("Identity", "Relu"):
        raise UnsupportedAttributeError(f"activation_mode {activation_mode!r} is neither 'Identity' nor 'Relu'")
    y, *others = fused_batch_norm_v3(
        x,
        scale,
        offset,
        mean,
        variance,
        epsilon=epsilon,
        exponential_avg_factor=exponential_avg_factor,
        data_format=data_format,
        is_training=is_training,
    )
    for side in side_input:
        y = y + side
    return (activations.relu(y) if activation_mode == "Relu" else y), *others


# Ops that the kernel supports.
_UNARY = frozenset(
    """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Exp Expm1 Floor Inv Log Log1p Neg Reciprocal Relu Relu6 Rint
    Round Rsqrt Selu Sigmoid Sin Sinh Sqrt Square Tan Tanh
    """.split()  # noqa: SIM905
)


@op("_UnaryOpsComposition")
def unary_ops_composition(x, *, op_names):
    """Apply unary ops in order.

    TF: OpDef _UnaryOpsComposition (core/ops/math_ops.cc).

    Raises:
      UnsupportedAttributeError: an op is not supported by TensorFlow's kernel.
    """
    for name in op_names:
        entry = registry.lookup(name)
        if name not in _UNARY or entry is None:
            raise UnsupportedAttributeError(f"op_names {list(op_names)}: {name!r} is not supported")
        x = entry.fn(x)
    return x
