"""Convolutions, normalization and activations that TensorFlow's optimizer joined into one op."""

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
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from . import activations
from .conv import convolve, depthwise_conv2d
from .normalization import fused_batch_norm_v3

Dims = Sequence[int]


def _pad_convolve(input: Any, paddings: Any, filter: Any, mode: str, strides: Dims, padding: str) -> Any:
    if any(before != 0 or after != 0 for before, after in (pairs(paddings, 4)[i] for i in (0, 3))):
        raise OpError("only height and width can be padded")
    return convolve(
        mirror_pad(input, paddings, mode=mode),
        filter,
        strides=strides,
        padding=padding,
        explicit_paddings=(),
        data_format="NHWC",
        dilations=(),
    )


@op("FusedPadConv2D", heavy=True)
def fused_pad_conv2d(input: Any, paddings: Static, filter: Any, *, mode: str, strides: Dims, padding: str) -> Any:
    """Pads with mirrored values and convolves. See tf.raw_ops.FusedPadConv2D."""
    return _pad_convolve(input, paddings, filter, mode, strides, padding)


@op("FusedResizeAndPadConv2D", heavy=True, options=("resize_bilinear_precision",))
def fused_resize_and_pad_conv2d(
    input: Any,
    size: Static,
    paddings: Static,
    filter: Any,
    *,
    resize_align_corners: bool = False,
    mode: str,
    strides: Dims,
    padding: str,
    resize_bilinear_precision: str = "highest",
) -> Any:
    """Resizes (in float32), pads with mirrored values and convolves. See tf.raw_ops.FusedResizeAndPadConv2D."""
    input = jnp.asarray(input)
    resized = resize_bilinear(
        input, size, align_corners=resize_align_corners, resize_bilinear_precision=resize_bilinear_precision
    )
    return _pad_convolve(resized.astype(input.dtype), paddings, filter, mode, strides, padding)


# By the names in ``fused_ops``; TensorFlow's CPU kernels have the first four.
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
    """Applies what follows a product: each of ``fused_ops`` takes the arguments that it needs from ``args``."""
    rest = list(args)
    needed = {"BiasAdd": 1, "FusedBatchNorm": 4, "Add": 1}
    if sum(needed.get(name, 0) for name in fused_ops) != len(rest):
        raise OpError(f"{len(rest)} arguments do not fit fused_ops {list(fused_ops)}")
    for name in fused_ops:
        taken, rest = rest[: needed.get(name, 0)], rest[needed.get(name, 0) :]
        if name == "BiasAdd":
            x = activations.bias_add(x, taken[0], data_format=data_format)
        elif name == "Add":
            x = x + taken[0]
        elif name == "FusedBatchNorm":
            x = fused_batch_norm_v3(x, *taken, epsilon=epsilon, data_format=data_format, is_training=False)[0]
        elif name == "LeakyRelu":
            x = activations.leaky_relu(x, alpha=leakyrelu_alpha)
        elif name in _ACTIVATIONS:
            x = _ACTIVATIONS[name](x)
        else:
            raise UnsupportedAttributeError(
                f"fused_ops {list(fused_ops)}: {name!r} is none of {', '.join((*needed, *_ACTIVATIONS))}"
            )
    return x


@op("_FusedConv2D", heavy=True)
def fused_conv2d(
    input: Any,
    filter: Any,
    args: list[Any],
    host_args: list[Any],
    *,
    num_args: int,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    filter_format: str = "HWIO",
    dilations: Dims = (1, 1, 1, 1),
    fused_ops: Sequence[str] = (),
    epsilon: float = 0.0001,
    leakyrelu_alpha: float = 0.2,
) -> Any:
    """Convolves and applies ``fused_ops`` to the result, in floating point. See the OpDef _FusedConv2D."""
    if filter_format != "HWIO" or data_format not in ("NHWC", "NCHW"):
        raise UnsupportedAttributeError(f"data_format {data_format!r} with filter_format {filter_format!r}")
    if host_args or not jnp.issubdtype(input.dtype, jnp.floating):
        raise OpError("quantized fused convolutions are a GPU's, and not done")
    product = convolve(
        input,
        filter,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
    )
    return _epilogue(product, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@op("_FusedConv3D", heavy=True)
def fused_conv3d(
    input: Any,
    filter: Any,
    args: list[Any],
    *,
    num_args: int,
    strides: Dims,
    padding: str,
    data_format: str = "NDHWC",
    dilations: Dims = (1, 1, 1, 1, 1),
    padding_list: Dims = (),
    fused_ops: Sequence[str] = (),
    epsilon: float = 0.0001,
    leakyrelu_alpha: float = 0.2,
) -> Any:
    """Convolves volumes and applies ``fused_ops``. See the OpDef _FusedConv3D."""
    if padding_list and padding != "VALID":
        raise UnsupportedAttributeError(f"padding {padding!r} together with padding_list {list(padding_list)}")
    product = convolve(
        input,
        filter,
        strides=strides,
        padding="EXPLICIT" if padding_list else padding,
        explicit_paddings=padding_list,
        data_format=data_format,
        dilations=dilations,
    )
    return _epilogue(product, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@op("_FusedDepthwiseConv2dNative", heavy=True)
def fused_depthwise_conv2d(
    input: Any,
    filter: Any,
    args: list[Any],
    *,
    num_args: int,
    strides: Dims,
    padding: str,
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
    fused_ops: Sequence[str] = (),
    epsilon: float = 0.0001,
    leakyrelu_alpha: float = 0.2,
) -> Any:
    """Convolves each channel by itself and applies ``fused_ops``. See the OpDef _FusedDepthwiseConv2dNative."""
    product = depthwise_conv2d(
        input, filter, strides=strides, padding=padding, data_format=data_format, dilations=dilations
    )
    return _epilogue(product, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@op("_FusedMatMul", heavy=True)
def fused_mat_mul(
    a: Any,
    b: Any,
    args: list[Any],
    *,
    num_args: int,
    transpose_a: bool = False,
    transpose_b: bool = False,
    fused_ops: Sequence[str] = (),
    epsilon: float = 0.0001,
    leakyrelu_alpha: float = 0.2,
) -> Any:
    """Multiplies matrices and applies ``fused_ops`` to the result. See the OpDef _FusedMatMul."""
    product = mat_mul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return _epilogue(product, args, fused_ops, "NHWC", epsilon, leakyrelu_alpha)


@op("_FusedBatchNormEx")
def fused_batch_norm_ex(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any,
    variance: Any,
    side_input: list[Any],
    *,
    epsilon: float = 0.0001,
    exponential_avg_factor: float = 1.0,
    activation_mode: str = "Identity",
    data_format: str = "NHWC",
    is_training: bool = True,
) -> tuple[Any, ...]:
    """FusedBatchNormV3, an optional tensor added to it, and an activation. See the OpDef _FusedBatchNormEx."""
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


# What the kernel has functions for.
_UNARY = frozenset(
    """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Exp Expm1 Floor Inv Log Log1p Neg Reciprocal Relu Relu6 Rint
    Round Rsqrt Selu Sigmoid Sin Sinh Sqrt Square Tan Tanh
    """.split()  # noqa: SIM905
)


@op("_UnaryOpsComposition")
def unary_ops_composition(x: Any, *, op_names: Sequence[str]) -> Any:
    """Applies one op after the other. See the OpDef _UnaryOpsComposition."""
    for name in op_names:
        entry = registry.lookup(name)
        if name not in _UNARY or entry is None:
            raise UnsupportedAttributeError(f"op_names {list(op_names)}: there is no {name!r}")
        x = entry.fn(x)
    return x
