"""Quantized products and convolutions fused with bias, ReLU and (de)quantization.

They are in graphs quantized for oneDNN, whose kernels (``TF_ENABLE_ONEDNN_OPTS=1``) alone run these convolutions. Their
ranges are symmetric about 0: the end of larger magnitude is used, and 0 represents 0. Results are those of processors
with exact 8-bit products (VNNI): on others oneDNN halves the filters of qint8 images, and sums of two large products
saturate. Of matrix products, TensorFlow 2.21 treats every input as MIN_FIRST except in
QuantizedMatMulWithBiasAndDequantize. Where the range does not begin at 0, its correction for this is too large by far;
results here follow the op's definition.

TF: core/kernels/mkl/mkl_qmatmul_op.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.integer_convolution import integer_convolution
from tf2jax_lite.ops.common.precision import product, quotient
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from .tf1 import max_abs, round_and_saturate, scalar

_F32 = np.float32
_INT32, _UINT8, _INT8 = np.dtype(np.int32), np.dtype(np.uint8), np.dtype(np.int8)
_LIMITS = {_UINT8: _F32(255), _INT8: _F32(127)}
"""The integer of each dtype that represents the end of a range."""


def _ends(name: str, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the ends of a range: scalars, or vectors with an entry per channel."""
    if np.ndim(low) == 1 and np.shape(low) == np.shape(high) != (1,):
        return jnp.asarray(low), jnp.asarray(high)
    return scalar(f"min_{name}", low), scalar(f"max_{name}", high)


def check_operands(x: Any, y: Any) -> None:
    """Raise OpError unless the operands are (quint8 or qint8, qint8)."""
    if x.dtype not in _LIMITS or y.dtype != _INT8:
        raise OpError(f"operands of {x.dtype} and {y.dtype}; oneDNN has kernels for quint8 or qint8, and qint8")


def output_and_range(
    total: Any,
    dtype: np.dtype,
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    out_type: Any,
    *,
    bias: Any = None,
    relu: bool = False,
    frozen: tuple[Any, Any] | None = None,
    span: Any = None,
) -> tuple[Any, Any, Any]:
    """Add the bias to int32 products and convert them to the output dtype.

    Args:
      total: the products, int32 [..., channels].
      dtype: the first operand's dtype.
      first: the first operand's range.
      second: the second operand's range, or one for each channel.
      out_type: dtype of the results.
      bias: [channels], float32, or int32 in the scale of the products.
      frozen: the range of 8-bit results.
      span: the float that the first operand's largest integer represents, if not the end of larger magnitude.

    Returns:
      The results, and the ends of their range.
    """
    out_type = np.dtype(out_type)
    span = max_abs(*first) if span is None else span
    sizes = max_abs(*second)
    limit = _LIMITS[dtype] * _LIMITS[_INT8]
    if bias is not None:
        bias = jnp.asarray(bias)
        if bias.shape != total.shape[-1:]:
            raise OpError(f"a bias of shape {bias.shape} does not fit {total.shape[-1]} channels")
        if bias.dtype == _F32:
            total = total.astype(_F32) + product(bias, quotient(limit, span * sizes))
        else:
            total = total + bias
    if out_type == _F32:
        return total.astype(_F32) * quotient(span * sizes, limit), *first
    if frozen is None:
        if out_type != _INT32:
            raise OpError(f"output dtype {out_type}; oneDNN's kernels return qint32")
        if sizes.ndim:  # all channels get the largest range
            total = total.astype(_F32) * quotient(sizes, sizes.max())
        if total.dtype == _F32:
            total = lax.round(total, lax.RoundingMethod.TO_NEAREST_EVEN)
            total = jnp.clip(total, -(2.0**31), np.nextafter(_F32(2.0**31), _F32(0))).astype(_INT32)
        step = quotient(first[1] - first[0], _F32(255 if dtype == _UINT8 else 254)) * quotient(
            second[1] - second[0], _F32(254)
        )
        high = step * _F32(2**31 - 1)
        return jnp.maximum(total, 0) if relu else total, -high, high
    if out_type not in _LIMITS:
        raise OpError(f"output dtype {out_type}; oneDNN's kernels return quint8 or qint8")
    low, high = scalar("min_freezed_output", frozen[0]), scalar("max_freezed_output", frozen[1])
    out = total.astype(_F32) * quotient(_LIMITS[out_type] * span * sizes, limit * max_abs(low, high))
    out = round_and_saturate(jnp.maximum(out, 0) if relu else out, out_type)
    return out, jnp.asarray(low), jnp.asarray(high)


_OF_CONVOLUTION = "min_input max_input min_filter max_filter"
_OF_PRODUCT = "min_a max_a min_b max_b"
_FROZEN = ("min_freezed_output", "max_freezed_output")


def _frozen(given: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Return the range of 8-bit results, the last two inputs of ops that requantize."""
    return (given[_FROZEN[0]], given[_FROZEN[1]]) if _FROZEN[0] in given else None


def _register_convolution(
    name: str,
    *,
    bias: bool = False,
    relu: bool = False,
    depthwise: bool = False,
    padding_list: bool = True,
    default: np.dtype = _INT32,
) -> None:
    """Register a convolution; 8-bit results (``default``) have a range as last inputs."""
    inputs = f"input filter {'bias' if bias else ''} {_OF_CONVOLUTION} {'' if default == _INT32 else ' '.join(_FROZEN)}"
    attributes = {"out_type": default, "strides": REQUIRED, "padding": REQUIRED, "dilations": (1, 1, 1, 1)}

    @op(
        name,
        inputs=inputs,
        attributes=attributes | ({"padding_list": ()} if padding_list else {}),
        pattern=Pattern.CONTRACTION,
    )
    def call(*, input, filter, out_type, strides, padding, dilations, padding_list=(), bias=None, **given):
        """Convolve quantized images; filters may have a range for each channel."""
        images, kernel = jnp.asarray(input), jnp.asarray(filter)
        check_operands(images, kernel)
        if images.ndim != 4 or kernel.ndim != 4 or images.shape[3] != kernel.shape[2]:
            raise OpError(f"shapes {images.shape} and {kernel.shape} are not those of images and a filter")
        if any(len(v) != 4 or v[0] != 1 or v[3] != 1 for v in (strides, dilations)):
            raise UnsupportedAttributeError(f"strides {list(strides)} and dilations {list(dilations)}")
        if padding not in ("SAME", "VALID") or len(padding_list) not in (0, 8):
            raise UnsupportedAttributeError(f"padding {padding!r} with padding_list {list(padding_list)}")
        first = _ends("input", given["min_input"], given["max_input"])
        second = _ends("filter", given["min_filter"], given["max_filter"])
        channels = kernel.shape[2] * kernel.shape[3] if depthwise else kernel.shape[3]
        if np.shape(second[0]) not in ((), (channels,)) or np.shape(first[0]) != ():
            raise OpError(f"{np.size(second[0])} ranges do not fit {channels} channels")
        kernel = kernel.astype(_INT32)
        total = integer_convolution(
            images.astype(_INT32),
            kernel.reshape(*kernel.shape[:2], 1, channels) if depthwise else kernel,
            tuple(strides[1:3]),
            [(padding_list[i], padding_list[i + 1]) for i in (2, 4)] if padding_list else padding,
            rhs_dilation=tuple(dilations[1:3]),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=images.shape[3] if depthwise else 1,
            preferred_element_type=_INT32,
        )
        return output_and_range(
            total, images.dtype, first, second, out_type, bias=bias, relu=relu, frozen=_frozen(given)
        )


_register_convolution("QuantizedConv2DPerChannel", padding_list=False)
_register_convolution("QuantizedConv2DAndRelu", relu=True)
_register_convolution("QuantizedConv2DWithBias", bias=True)
_register_convolution("QuantizedConv2DWithBiasAndRelu", bias=True, relu=True)
_register_convolution("QuantizedConv2DAndRequantize", default=_INT8)
_register_convolution("QuantizedConv2DAndReluAndRequantize", relu=True, default=_UINT8)
_register_convolution("QuantizedConv2DWithBiasAndRequantize", bias=True, default=_INT8)
_register_convolution("QuantizedConv2DWithBiasAndReluAndRequantize", bias=True, relu=True, default=_UINT8)
_register_convolution("QuantizedDepthwiseConv2D", depthwise=True, padding_list=False)
_register_convolution("QuantizedDepthwiseConv2DWithBias", bias=True, depthwise=True, padding_list=False)
_register_convolution("QuantizedDepthwiseConv2DWithBiasAndRelu", bias=True, relu=True, depthwise=True)
_register_convolution(
    "QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize", bias=True, relu=True, depthwise=True, default=_UINT8
)


_ATTRIBUTES = {"transpose_a": False, "transpose_b": False, "input_quant_mode": "MIN_FIRST"}


def _product(
    *, a: Any, b: Any, bias: Any, Toutput: Any, input_quant_mode: str, relu: bool = False, **given: Any
) -> tuple[Any, Any, Any]:
    """Multiply, add the bias, and convert to the output dtype; return also the range."""
    if input_quant_mode not in ("MIN_FIRST", "SCALED"):
        raise UnsupportedAttributeError(f"input_quant_mode {input_quant_mode!r} is neither MIN_FIRST nor SCALED")
    left, right = jnp.asarray(a), jnp.asarray(b)
    check_operands(left, right)
    inner = (0 if given["transpose_a"] else 1), (1 if given["transpose_b"] else 0)
    if left.ndim != 2 or right.ndim != 2 or left.shape[inner[0]] != right.shape[inner[1]]:
        raise OpError(f"shapes {left.shape} and {right.shape} are not those of two matrices to multiply")
    min_a, max_a, min_b, max_b = (scalar(name, given[name]) for name in _OF_PRODUCT.split())
    dimensions = (((inner[0],), (inner[1],)), ((), ()))
    right = right.astype(_INT32)
    total = lax.dot_general(left.astype(_INT32), right, dimensions, preferred_element_type=_INT32)
    span = None
    if input_quant_mode == "MIN_FIRST":
        span = jnp.asarray(max_a - min_a)
        if jnp.asarray(bias).dtype == _F32:  # the lower end of the range times the columns' sums
            correction = quotient(right.sum(inner[1]).astype(_F32) * max_abs(min_b, max_b), _F32(127))
            bias = jnp.asarray(bias) + jnp.asarray(min_a) * correction
    ranges = (min_a, max_a), (min_b, max_b)
    return output_and_range(total, left.dtype, *ranges, Toutput, bias=bias, relu=relu, frozen=_frozen(given), span=span)


def _register_product(name: str, *, relu: bool = False, default: np.dtype = _INT32) -> None:
    """Register a product with a bias; 8-bit results have a range, the last two inputs."""
    inputs = f"a b bias {_OF_PRODUCT} {'' if default == _INT32 else ' '.join(_FROZEN)}"

    @op(name, inputs=inputs, attributes={"Toutput": default, **_ATTRIBUTES}, pattern=Pattern.CONTRACTION)
    def call(**operands):
        """Multiply quantized matrices and add a bias."""
        return _product(**operands, relu=relu)


_register_product("QuantizedMatMulWithBias")
_register_product("QuantizedMatMulWithBiasAndRelu", relu=True)
_register_product("QuantizedMatMulWithBiasAndRequantize", default=_UINT8)
_register_product("QuantizedMatMulWithBiasAndReluAndRequantize", relu=True, default=_UINT8)


@op(
    "QuantizedMatMulWithBiasAndDequantize",
    inputs=f"a b bias {_OF_PRODUCT} {' '.join(_FROZEN)}",
    attributes={"Toutput": REQUIRED, **_ATTRIBUTES},
    pattern=Pattern.CONTRACTION,
)
def quantized_mat_mul_with_bias_and_dequantize(**operands):
    """Multiply quantized matrices, add a bias, and return floats."""
    return _product(**{name: value for name, value in operands.items() if name not in _FROZEN})[0]
