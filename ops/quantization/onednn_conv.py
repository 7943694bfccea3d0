"""Convolutions and products of quantized tensors joined with what follows them, as in graphs quantized for oneDNN.

Only TensorFlow with oneDNN's kernels (``TF_ENABLE_ONEDNN_OPTS=1``) runs these. Ranges are symmetric about 0: the larger
end of a range counts, and 0 stands for 0. Results are those of processors that multiply 8-bit numbers exactly (VNNI):
on others oneDNN halves filters of qint8 images, and pairs of large products saturate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import product, quotient
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from .tf1_requantize import scalar
from .tf1_requantize_per_channel import largest, saturated

__all__ = ["check_operands", "finished"]

_F32 = np.float32
_INT32, _UINT8, _INT8 = np.dtype(np.int32), np.dtype(np.uint8), np.dtype(np.int8)
_ONES = (1, 1, 1, 1)
_MOST = {_UINT8: _F32(255), _INT8: _F32(127)}
"""The largest number of each type: which stands for the end of a range."""


def _ends(name: str, low: Any, high: Any) -> tuple[Any, Any]:
    """Returns a range, or one for each channel."""
    if np.ndim(low) == 1 and np.shape(low) == np.shape(high) != (1,):
        return jnp.asarray(low), jnp.asarray(high)
    return scalar(f"min_{name}", low), scalar(f"max_{name}", high)


def check_operands(x: Any, y: Any) -> None:
    """Raises OpError for types that no kernel multiplies."""
    if x.dtype not in _MOST or y.dtype != _INT8:
        raise OpError(f"operands of {x.dtype} and {y.dtype}; oneDNN has kernels for quint8 or qint8, and qint8")


def finished(
    total: Any,
    dtype: np.dtype,
    first: tuple[Any, Any],
    second: tuple[Any, Any],
    wanted: Any,
    *,
    bias: Any = None,
    relu: bool = False,
    frozen: tuple[Any, Any] | None = None,
    span: Any = None,
) -> tuple[Any, Any, Any]:
    """Returns products with their bias in the type that is wanted, and the range of that.

    Args:
      total: the products, int32.
      dtype: the first operand's type.
      first: the first operand's range.
      second: the second operand's range or ranges.
      wanted: type of the results.
      bias: floats, or numbers as the products.
      relu: whether negative results are 0.
      frozen: the range of results of 8 bits.
      span: what the first operand's largest number stands for, where that is not the range's larger end.

    Raises:
      OpError: something does not fit together.
    """
    wanted = np.dtype(wanted)
    span = largest(*first) if span is None else span
    sizes = largest(*second)
    limit = _MOST[dtype] * _MOST[_INT8]
    if bias is not None:
        bias = jnp.asarray(bias)
        if bias.shape != total.shape[-1:]:
            raise OpError(f"a bias of shape {bias.shape} does not fit {total.shape[-1]} channels")
        if bias.dtype == _F32:
            total = total.astype(_F32) + product(bias, quotient(limit, span * sizes))
        else:
            total = total + bias
    if wanted == _F32:
        return total.astype(_F32) * quotient(span * sizes, limit), *first
    if frozen is None:
        if wanted != _INT32:
            raise OpError(f"the result is to be of {wanted}; oneDNN's kernels give qint32")
        if sizes.ndim:  # all channels get the range of the widest
            total = total.astype(_F32) * quotient(sizes, sizes.max())
        if total.dtype == _F32:
            total = lax.round(total, lax.RoundingMethod.TO_NEAREST_EVEN)
            total = jnp.clip(total, -(2.0**31), np.nextafter(_F32(2.0**31), _F32(0))).astype(_INT32)
        step = quotient(first[1] - first[0], _F32(255 if dtype == _UINT8 else 254)) * quotient(
            second[1] - second[0], _F32(254)
        )
        most = step * _F32(2**31 - 1)
        return jnp.maximum(total, 0) if relu else total, -most, most
    if wanted not in _MOST:
        raise OpError(f"the result is to be of {wanted}; oneDNN's kernels give quint8 or qint8")
    low, high = scalar("min_freezed_output", frozen[0]), scalar("max_freezed_output", frozen[1])
    out = total.astype(_F32) * quotient(_MOST[wanted] * span * sizes, limit * largest(low, high))
    out = saturated(jnp.maximum(out, 0) if relu else out, wanted)
    return out, jnp.asarray(low), jnp.asarray(high)


def _convolved(
    input: Any,
    filter: Any,
    ranges: Sequence[Any],
    *,
    strides: Sequence[int],
    padding: str,
    dilations: Sequence[int],
    padding_list: Sequence[int] = (),
    depthwise: bool = False,
) -> tuple[Any, np.dtype, tuple[Any, Any], tuple[Any, Any]]:
    """Returns what `finished` takes."""
    images, kernel = jnp.asarray(input), jnp.asarray(filter)
    check_operands(images, kernel)
    if images.ndim != 4 or kernel.ndim != 4 or images.shape[3] != kernel.shape[2]:
        raise OpError(f"shapes {images.shape} and {kernel.shape} are not those of images and a filter")
    if any(len(v) != 4 or v[0] != 1 or v[3] != 1 for v in (strides, dilations)):
        raise UnsupportedAttributeError(f"strides {list(strides)} and dilations {list(dilations)}")
    if padding not in ("SAME", "VALID") or len(padding_list) not in (0, 8):
        raise UnsupportedAttributeError(f"padding {padding!r} with padding_list {list(padding_list)}")
    first, second = _ends("input", *ranges[:2]), _ends("filter", *ranges[2:])
    channels = kernel.shape[2] * kernel.shape[3] if depthwise else kernel.shape[3]
    if np.shape(second[0]) not in ((), (channels,)) or np.shape(first[0]) != ():
        raise OpError(f"{np.size(second[0])} ranges do not fit {channels} channels")
    groups = images.shape[3] if depthwise else 1
    total = lax.conv_general_dilated(
        images.astype(_INT32),
        kernel.astype(_INT32).reshape(*kernel.shape[:2], 1, channels) if depthwise else kernel.astype(_INT32),
        tuple(strides[1:3]),
        [(padding_list[i], padding_list[i + 1]) for i in (2, 4)] if padding_list else padding,
        rhs_dilation=tuple(dilations[1:3]),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
        preferred_element_type=_INT32,
    )
    return total, images.dtype, first, second


def _plain(name: str, **how: Any) -> None:
    @op(name, heavy=True)
    def call(
        input: Any,
        filter: Any,
        min_input: Any,
        max_input: Any,
        min_filter: Any,
        max_filter: Any,
        *,
        out_type: Any = _INT32,
        strides: Sequence[int],
        padding: str,
        dilations: Sequence[int] = _ONES,
    ) -> tuple[Any, Any, Any]:
        ranges = (min_input, max_input, min_filter, max_filter)
        made = _convolved(input, filter, ranges, strides=strides, padding=padding, dilations=dilations, **how)
        return finished(*made, out_type)

    call.__doc__ = f"Convolves images; filters may have a range for each channel. See tf.raw_ops.{name}."


_plain("QuantizedConv2DPerChannel")
_plain("QuantizedDepthwiseConv2D", depthwise=True)


@op("QuantizedConv2DAndRelu", heavy=True)
def quantized_conv2d_and_relu(
    input: Any,
    filter: Any,
    min_input: Any,
    max_input: Any,
    min_filter: Any,
    max_filter: Any,
    *,
    out_type: Any = _INT32,
    strides: Sequence[int],
    padding: str,
    dilations: Sequence[int] = _ONES,
    padding_list: Sequence[int] = (),
) -> tuple[Any, Any, Any]:
    """Convolves images; negative results are 0. See the OpDef QuantizedConv2DAndRelu."""
    made = _convolved(
        input,
        filter,
        (min_input, max_input, min_filter, max_filter),
        strides=strides,
        padding=padding,
        dilations=dilations,
        padding_list=padding_list,
    )
    return finished(*made, out_type, relu=True)


@op("QuantizedDepthwiseConv2DWithBias", heavy=True)
def quantized_depthwise_conv2d_with_bias(
    input: Any,
    filter: Any,
    bias: Any,
    min_input: Any,
    max_input: Any,
    min_filter: Any,
    max_filter: Any,
    *,
    out_type: Any = _INT32,
    strides: Sequence[int],
    padding: str,
    dilations: Sequence[int] = _ONES,
) -> tuple[Any, Any, Any]:
    """Convolves each channel, and adds a bias. See tf.raw_ops.QuantizedDepthwiseConv2DWithBias."""
    ranges = (min_input, max_input, min_filter, max_filter)
    made = _convolved(input, filter, ranges, strides=strides, padding=padding, dilations=dilations, depthwise=True)
    return finished(*made, out_type, bias=bias)


def _with_bias(name: str, *, relu: bool = False, **how: Any) -> None:
    @op(name, heavy=True)
    def call(
        input: Any,
        filter: Any,
        bias: Any,
        min_input: Any,
        max_input: Any,
        min_filter: Any,
        max_filter: Any,
        *,
        out_type: Any = _INT32,
        strides: Sequence[int],
        padding: str,
        dilations: Sequence[int] = _ONES,
        padding_list: Sequence[int] = (),
    ) -> tuple[Any, Any, Any]:
        made = _convolved(
            input,
            filter,
            (min_input, max_input, min_filter, max_filter),
            strides=strides,
            padding=padding,
            dilations=dilations,
            padding_list=padding_list,
            **how,
        )
        return finished(*made, out_type, bias=bias, relu=relu)

    call.__doc__ = f"Convolves images and adds a bias. See tf.raw_ops.{name}."


_with_bias("QuantizedConv2DWithBias")
_with_bias("QuantizedConv2DWithBiasAndRelu", relu=True)
_with_bias("QuantizedDepthwiseConv2DWithBiasAndRelu", relu=True, depthwise=True)


def _narrowed(name: str, default: np.dtype, *, relu: bool = False) -> None:
    @op(name, heavy=True)
    def call(
        input: Any,
        filter: Any,
        min_input: Any,
        max_input: Any,
        min_filter: Any,
        max_filter: Any,
        min_freezed_output: Any,
        max_freezed_output: Any,
        *,
        out_type: Any = default,
        strides: Sequence[int],
        padding: str,
        dilations: Sequence[int] = _ONES,
        padding_list: Sequence[int] = (),
    ) -> tuple[Any, Any, Any]:
        made = _convolved(
            input,
            filter,
            (min_input, max_input, min_filter, max_filter),
            strides=strides,
            padding=padding,
            dilations=dilations,
            padding_list=padding_list,
        )
        return finished(*made, out_type, relu=relu, frozen=(min_freezed_output, max_freezed_output))

    call.__doc__ = f"Convolves images, and gives the results a range in 8 bits. See the OpDef {name}."


_narrowed("QuantizedConv2DAndRequantize", _INT8)
_narrowed("QuantizedConv2DAndReluAndRequantize", _UINT8, relu=True)


def _narrowed_with_bias(name: str, default: np.dtype, *, relu: bool = False, **how: Any) -> None:
    @op(name, heavy=True)
    def call(
        input: Any,
        filter: Any,
        bias: Any,
        min_input: Any,
        max_input: Any,
        min_filter: Any,
        max_filter: Any,
        min_freezed_output: Any,
        max_freezed_output: Any,
        *,
        out_type: Any = default,
        strides: Sequence[int],
        padding: str,
        dilations: Sequence[int] = _ONES,
        padding_list: Sequence[int] = (),
    ) -> tuple[Any, Any, Any]:
        made = _convolved(
            input,
            filter,
            (min_input, max_input, min_filter, max_filter),
            strides=strides,
            padding=padding,
            dilations=dilations,
            padding_list=padding_list,
            **how,
        )
        return finished(*made, out_type, bias=bias, relu=relu, frozen=(min_freezed_output, max_freezed_output))

    call.__doc__ = f"Convolves images, adds a bias, and gives the results a range in 8 bits. See tf.raw_ops.{name}."


_narrowed_with_bias("QuantizedConv2DWithBiasAndRequantize", _INT8)
_narrowed_with_bias("QuantizedConv2DWithBiasAndReluAndRequantize", _UINT8, relu=True)
_narrowed_with_bias("QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize", _UINT8, relu=True, depthwise=True)
