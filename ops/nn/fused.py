"""Ops that Grappler fuses with bias, normalization and activation.

The OpDefs (core/ops/nn_ops.cc, math_ops.cc, mkl_nn_ops.cc) are internal, so that ``tf.raw_ops`` has none of those with
an underscore. Those for oneDNN, TensorFlow's default on Linux, are in graphs saved after optimization.

TF: core/kernels/conv_ops_fused_image_transform.cc, core/ops/math_ops.cc, core/kernels/mkl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops import registry
from tf2jax_lite.ops.arrays.pad import mirror_pad, pairs
from tf2jax_lite.ops.common.derivatives import logistic
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.image.resize import resize_bilinear
from tf2jax_lite.ops.linalg.matmul import batch_mat_mul_v2, mat_mul
from tf2jax_lite.ops.registry import REQUIRED, Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from . import activations
from .activations import leaky_relu
from .conv import ConvAttrs, Dims, convolve, convolve_depthwise
from .normalization import NORM_ATTRIBUTES, fused_batch_norm, fused_batch_norm_v3


def _pad_convolve(input: Any, paddings: Any, filter: Any, mode: str, strides: Dims, padding: str) -> Any:
    if any(before != 0 or after != 0 for before, after in (pairs(paddings, 4)[i] for i in (0, 3))):
        raise OpError("only height and width can be padded")
    return convolve(mirror_pad(input, paddings, mode=mode), filter, ConvAttrs(strides, padding, "NHWC"))


@op("FusedPadConv2D", pattern=Pattern.CONTRACTION)
def fused_pad_conv2d(input, paddings: Static, filter, *, mode, strides, padding):
    """Mirror-pad and convolve images.

    Args:
      paddings: static ints [4, 2], (before, after); 0 for batch and channels.
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
      paddings: static ints [4, 2], (before, after); 0 for batch and channels.
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
    x: Any, args: list[Any], *, fused_ops: Sequence[str], data_format: str, epsilon: float, leakyrelu_alpha: float
) -> Any:
    """Apply ``fused_ops`` in order; each consumes its operands from ``args``."""
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
            x = fused_batch_norm(x, *operands, epsilon=epsilon, data_format=data_format, is_training=False)[0]
        elif name == "LeakyRelu":
            x = activations.leaky_relu(x, alpha=leakyrelu_alpha)
        elif name in _ACTIVATIONS:
            x = _ACTIVATIONS[name](x)
        else:
            raise UnsupportedAttributeError(
                f"fused_ops {list(fused_ops)}: {name!r} is none of {', '.join((*arity, *_ACTIVATIONS))}"
            )
    return x


_STRIDED = {"num_args": REQUIRED, "strides": REQUIRED, "padding": REQUIRED}
_EPILOGUE = {"fused_ops": (), "epsilon": 0.0001, "leakyrelu_alpha": 0.2}
_2D = {**_STRIDED, "data_format": "NHWC", "dilations": (1,) * 4, **_EPILOGUE}
_3D = {**_STRIDED, "data_format": "NDHWC", "dilations": (1,) * 5, "padding_list": (), **_EPILOGUE}


_STRIDED = {"num_args": REQUIRED, "strides": REQUIRED, "padding": REQUIRED}
_EPILOGUE = {"fused_ops": (), "epsilon": 0.0001, "leakyrelu_alpha": 0.2}
_2D = {**_STRIDED, "data_format": "NHWC", "dilations": (1,) * 4, **_EPILOGUE}
_3D = {**_STRIDED, "data_format": "NDHWC", "dilations": (1,) * 5, "padding_list": (), **_EPILOGUE}


def _convolved(
    forward: Callable[..., Any],
    *,
    input: Any,
    filter: Any,
    args: list[Any],
    num_args: int,
    strides: Dims,
    padding: str,
    data_format: str,
    dilations: Dims,
    explicit_paddings: Dims = (),
    **epilogue: Any,
) -> Any:
    product = forward(input, filter, ConvAttrs(strides, padding, data_format, dilations, explicit_paddings))
    return _epilogue(product, args, data_format=data_format, **epilogue)


@op(
    "_FusedConv2D",
    inputs="input filter args host_args",
    attributes={**_2D, "explicit_paddings": (), "filter_format": "HWIO"},
    pattern=Pattern.CONTRACTION,
)
def fused_conv2d(*, host_args, filter_format, **operands):
    """Convolve images and apply ``fused_ops`` to the result, in floating point."""
    data_format = operands["data_format"]
    if filter_format != "HWIO" or data_format not in ("NHWC", "NCHW"):
        raise UnsupportedAttributeError(f"data_format {data_format!r} with filter_format {filter_format!r}")
    if host_args or not jnp.issubdtype(operands["input"].dtype, jnp.floating):
        raise OpError("quantized _FusedConv2D, which TensorFlow has on GPUs only, is not supported")
    return _convolved(convolve, **operands)


@op("_FusedConv3D", inputs="input filter args", attributes=_3D, pattern=Pattern.CONTRACTION)
def fused_conv3d(*, padding, padding_list, **operands):
    """Convolve volumes and apply ``fused_ops`` to the result."""
    if padding_list and padding != "VALID":
        raise UnsupportedAttributeError(f"padding {padding!r} together with padding_list {list(padding_list)}")
    padding = "EXPLICIT" if padding_list else padding
    return _convolved(convolve, padding=padding, explicit_paddings=padding_list, **operands)


@op("_FusedDepthwiseConv2dNative", inputs="input filter args", attributes=_2D, pattern=Pattern.CONTRACTION)
def fused_depthwise_conv2d(**operands):
    """Convolve each channel with its own filters and apply ``fused_ops``."""
    return _convolved(convolve_depthwise, **operands)


@op(
    "_FusedMatMul",
    inputs="a b args",
    attributes={"num_args": REQUIRED, "transpose_a": False, "transpose_b": False, **_EPILOGUE},
    pattern=Pattern.CONTRACTION,
)
def fused_mat_mul(*, a, b, args, num_args, transpose_a, transpose_b, **epilogue):
    """Multiply matrices and apply ``fused_ops`` to the result."""
    product = mat_mul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return _epilogue(product, args, data_format="NHWC", **epilogue)


@op(
    "_FusedBatchNormEx",
    inputs="x scale offset mean variance side_input",
    attributes={**NORM_ATTRIBUTES, "activation_mode": "Identity"},
)
def fused_batch_norm_ex(*, side_input, activation_mode, **operands):
    """Apply FusedBatchNormV3, add an optional side input, and apply ReLU."""
    if activation_mode not in ("Identity", "Relu"):
        raise UnsupportedAttributeError(f"activation_mode {activation_mode!r} is neither 'Identity' nor 'Relu'")
    y, *others = fused_batch_norm_v3(**operands)
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
    """
    for name in op_names:
        entry = registry.lookup(name)
        if name not in _UNARY or entry is None:
            raise UnsupportedAttributeError(f"op_names {list(op_names)}: {name!r} is not supported")
        x = entry.fn(x)
    return x


@op("_MklSwish", pattern=Pattern.TRANSCENDENTAL)
def swish(features):
    """Compute x * sigmoid(x). TF: OpDef _MklSwish (core/ops/mkl_nn_ops.cc)."""
    return jax.nn.silu(jnp.asarray(features))


@op("_MklFusedMish", pattern=Pattern.TRANSCENDENTAL)
def mish(features):
    """Compute x * tanh(softplus(x)). TF: OpDef _MklFusedMish (core/ops/mkl_nn_ops.cc)."""
    return in_float32(jax.nn.mish, jnp.asarray(features))


def _normalized(x: Any, scale: Any, offset: Any, axes: Sequence[int], epsilon: float) -> Any:
    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        x = x - jnp.mean(x, axis=tuple(axes), keepdims=True)
        variance = jnp.mean(x * x, axis=tuple(axes), keepdims=True)
        return x * lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype)) * scale + offset

    return in_float32(normalized, *map(jnp.asarray, (x, scale, offset)))


@op("_MklLayerNorm")
def layer_norm(x, scale, offset, *, epsilon=0.001):
    """Normalize along the last axis.

    TF: OpDef _MklLayerNorm (core/ops/mkl_nn_ops.cc).
    """
    size = x.shape[-1] if x.ndim else None
    if np.shape(scale) != (size,) or np.shape(offset) != (size,):
        raise OpError(f"scale {np.shape(scale)} and offset {np.shape(offset)} do not fit {tuple(x.shape)}")
    return _normalized(x, scale, offset, (-1,), epsilon)


@op("_MklFusedInstanceNorm")
def instance_norm(x, gamma, beta, *, reduction_axes, fused_ops=(), epsilon=0.0001, leakyrelu_alpha=0.2):
    """Normalize each channel of each image, channels last or first.

    TF: OpDef _MklFusedInstanceNorm (core/ops/mkl_nn_ops.cc).
    """
    rank = x.ndim
    axes = sorted(axis % rank for axis in reduction_axes)
    channels_first = axes == list(range(2, rank))
    if rank not in (4, 5) or not (channels_first or axes == list(range(1, rank - 1))):
        raise UnsupportedAttributeError(f"reduction_axes {list(reduction_axes)} of {rank} dimensions")
    if list(fused_ops) not in ([], ["Relu"], ["LeakyRelu"]):
        raise UnsupportedAttributeError(f"fused_ops {list(fused_ops)}")
    shape = (x.shape[1], *(1,) * (rank - 2)) if channels_first else (x.shape[-1],)
    gamma, beta = (jnp.reshape(v, shape) for v in (gamma, beta))
    y = _normalized(x, gamma, beta, axes, epsilon)
    if not fused_ops:
        return y
    return jax.nn.relu(y) if fused_ops[0] == "Relu" else leaky_relu(y, alpha=leakyrelu_alpha)


@op("_MklFusedBatchMatMulV2", pattern=Pattern.CONTRACTION)
def fused_batch_mat_mul(
    x, y, args, *, num_args, adj_x=False, adj_y=False, fused_ops=(), epsilon=0.0001, leakyrelu_alpha=0.2
):
    """Multiply batches of matrices, multiply by a scalar and add a mask.

    TF: OpDef _MklFusedBatchMatMulV2 (core/ops/mkl_nn_ops.cc).
    """
    if list(fused_ops) != ["Mul", "Add"] or len(args) != 2:
        raise UnsupportedAttributeError(
            f"fused_ops {list(fused_ops)} with {len(args)} arguments; only Mul and Add are supported"
        )
    return batch_mat_mul_v2(x, y, adj_x=adj_x, adj_y=adj_y) * jnp.asarray(args[0]) + jnp.asarray(args[1])
