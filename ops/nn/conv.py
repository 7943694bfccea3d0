"""Convolution in two and three dimensions, of each channel, and its gradients.

Layouts and padding come first (pooling and dilation use them, too), then `convolve`, then the two gradients, which are
transposes of it, then the ops.

TF: core/kernels/conv_ops.cc, conv_ops_3d.cc, depthwise_conv_op.cc, and conv_grad_*.cc, depthwise_conv_grad_op.cc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.dim_expr import canonical_array, canonical_dim
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.common.broadcasting import array
from tf2jax_lite.ops.common.integer_convolution import integer_convolution
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims
from tf2jax_lite.xla_cpu.conv.rule import call

Dims = Sequence[int]


class ConvAttrs(NamedTuple):
    """Attributes of a convolution, with the names and the layout of the OpDefs.

    Attributes:
      strides: one entry for each dimension of ``data_format``; empty: all 1.
      padding: ``"SAME"``, ``"VALID"`` or ``"EXPLICIT"``.
      data_format: dimensions of the input and of the output, such as ``"NHWC"``.
      dilations: one entry for each dimension of ``data_format``; empty: all 1.
      explicit_paddings: for ``"EXPLICIT"``, (before, after) for each dimension of ``data_format``.
      groups: number of feature groups; None: input channels over the filter's input channels.
    """

    strides: Dims
    padding: str
    data_format: str
    dilations: Dims = ()
    explicit_paddings: Dims = ()
    groups: int | None = None

    def window_strides(self) -> tuple[int, ...]:
        """Return the strides of the spatial dimensions."""
        return spatial(self.strides, self.data_format)

    def window_dilations(self) -> tuple[int, ...]:
        """Return the filter's dilations of the spatial dimensions."""
        return spatial(self.dilations, self.data_format)

    def window_padding(self, sizes: Sequence[Any], window: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return (before, after) of the spatial dimensions, for given sizes and window."""
        strides, dilations = self.window_strides(), self.window_dilations()
        return resolve_padding(
            self.padding, self.explicit_paddings, self.data_format, sizes, window, strides, dilations
        )

    def dimension_numbers(self) -> tuple[str, str, str]:
        """Return the layouts of input, filter and output for ``lax``."""
        letters = "DHW"[-(len(self.data_format) - 2) :]
        return (self.data_format, letters + "IO", self.data_format)


def layout(data_format: str) -> tuple[int, tuple[int, ...]]:
    """Return the channel axis and the spatial axes of a data format such as NHWC."""
    return data_format.index("C"), tuple(i for i, letter in enumerate(data_format) if letter not in "NC")


def spatial(values: Dims, data_format: str) -> tuple[int, ...]:
    """Return the spatial entries of an attribute; an empty one means ones."""
    if not values:
        return (1,) * (len(data_format) - 2)
    return tuple(int(values[i]) for i in layout(data_format)[1])


def resolve_padding(
    padding: str,
    explicit_paddings: Dims,
    data_format: str,
    sizes: Sequence[Any],
    window: Sequence[Any],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[Any, Any]]:
    """Return padding as ``lax`` takes it: (before, after) for each spatial dimension."""
    if padding == "EXPLICIT":
        return [(int(explicit_paddings[2 * i]), int(explicit_paddings[2 * i + 1])) for i in layout(data_format)[1]]
    if padding == "VALID":
        return [(0, 0)] * len(sizes)
    if padding != "SAME":
        raise OpError(f"unknown padding {padding!r}")
    dilated = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    pads = lax.padtype_to_pads(tuple(sizes), tuple(dilated), tuple(strides), "SAME")
    return [(canonical_dim(before), canonical_dim(after)) for before, after in pads]


def convolve(input: Any, filter: Any, attrs: ConvAttrs) -> Any:
    """Convolve with any number of spatial dimensions."""
    input, filter = array(input), array(filter)
    channel, spatial_axes = layout(attrs.data_format)
    strides, dilations = attrs.window_strides(), attrs.window_dilations()
    if min(*strides, *dilations) < 1:
        raise OpError(f"strides {strides} and dilations {dilations} must be positive")
    window = filter.shape[: len(spatial_axes)]
    pads = tuple(map(tuple, attrs.window_padding([input.shape[i] for i in spatial_axes], window)))
    groups = input.shape[channel] // filter.shape[-2] if attrs.groups is None else attrs.groups
    params: dict[str, Any] = {
        "window_strides": strides,
        "rhs_dilation": dilations,
        "dimension_numbers": attrs.dimension_numbers(),
        "feature_group_count": groups or 1,
        "preferred_element_type": input.dtype,
    }
    symbolic = [i for i, axis in enumerate(spatial_axes) if not isinstance(input.shape[axis], int)]
    if jnp.issubdtype(input.dtype, jnp.integer) and not symbolic:
        return integer_convolution(input, filter, padding=pads, **params)
    if not symbolic or (attrs.padding == "SAME" and max(strides) == 1):
        return call(lax.conv_general_dilated, input, filter, padding=pads, **params)
    padding = "SAME" if attrs.padding == "SAME" else pads
    return canonical_array(_convolve_symbolic(input, filter, padding, pads, spatial_axes, symbolic, params))


def _convolve_symbolic(
    input: Any,
    filter: Any,
    padding: Any,
    pads: Sequence[tuple[Any, Any]],
    spatial_axes: Sequence[int],
    symbolic: Sequence[int],
    params: dict[str, Any],
) -> Any:
    """Convolve an input whose spatial dimensions ``symbolic`` are symbolic."""
    # The input is padded, or truncated, to exactly the part that windows cover. The padding of the gradients is static
    # then, as JAX requires of a convolution.
    spec = jax.eval_shape(functools.partial(lax.conv_general_dilated, padding=padding, **params), input, filter)
    config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * input.ndim
    rest = list(pads)
    for i in symbolic:
        axis, stride, dilation = spatial_axes[i], params["window_strides"][i], params["rhs_dilation"][i]
        # With strides, JAX computes gradients of symbolic sizes only where there are results.
        results = spec.shape[axis] if stride == 1 else max_dim(spec.shape[axis], 1)
        covered = (results - 1) * stride + (filter.shape[i] - 1) * dilation + 1
        config[axis] = (pads[i][0], covered - input.shape[axis] - pads[i][0], 0)
        rest[i] = (0, 0)
    padded = lax.pad(input, np.zeros((), input.dtype), config)
    result = call(lax.conv_general_dilated, padded, filter, padding=tuple(rest), **params)
    return result if result.shape == spec.shape else lax.slice(result, (0,) * result.ndim, spec.shape)


def grouped(filter: Any, attrs: ConvAttrs) -> tuple[Any, ConvAttrs]:
    """Return a depthwise filter as that of a group for each channel, and attributes."""
    filter = array(filter)
    height, width, channels, multiplier = filter.shape
    return lax.reshape(filter, (height, width, 1, channels * multiplier)), attrs._replace(groups=channels)


def convolve_depthwise(input: Any, filter: Any, attrs: ConvAttrs) -> Any:
    """Convolve each channel with its filters, [height, width, channels, multiplier]."""
    return convolve(input, *grouped(filter, attrs))


def input_gradient(shape: tuple[Any, ...], filter: Any, attrs: ConvAttrs, out_backprop: Any) -> Any:
    """Return the gradient of `convolve` with respect to an input of this shape."""
    out_backprop = array(out_backprop)
    if jnp.issubdtype(out_backprop.dtype, jnp.integer):
        return _integer_input_gradient(shape, array(filter), attrs, out_backprop)
    # Linear in the input: the transpose needs no forward pass.
    spec = jax.ShapeDtypeStruct(shape, out_backprop.dtype)
    return linear_transpose(lambda x: convolve(x, filter, attrs), spec, out_backprop, filter)


def _integer_input_gradient(shape: tuple[Any, ...], filter: Any, attrs: ConvAttrs, out_backprop: Any) -> Any:
    """Return the transposed convolution of integers, which JAX does not differentiate."""
    channel, spatial_axes = layout(attrs.data_format)
    strides, dilations = attrs.window_strides(), attrs.window_dilations()
    window = filter.shape[: len(spatial_axes)]
    sizes = [shape[i] for i in spatial_axes]
    groups = shape[channel] // filter.shape[-2] if attrs.groups is None else attrs.groups
    spans = [(k - 1) * d for k, d in zip(window, dilations, strict=True)]
    before = [span - lo for span, (lo, _) in zip(spans, attrs.window_padding(sizes, window), strict=True)]
    ends = [(out_backprop.shape[axis] - 1) * s + 1 for axis, s in zip(spatial_axes, strides, strict=True)]
    after = [n + span - lo - end for n, span, lo, end in zip(sizes, spans, before, ends, strict=True)]
    # The window is reversed, and input and output channels of each group are exchanged.
    inputs, outputs = filter.shape[-2], filter.shape[-1] // groups
    kernel = lax.rev(filter, range(len(spatial_axes)))
    kernel = lax.reshape(kernel, (*window, inputs, groups, outputs))
    kernel = jnp.moveaxis(kernel, -1, -3)
    kernel = lax.reshape(jnp.swapaxes(kernel, -1, -2), (*window, outputs, groups * inputs))
    return lax.conv_general_dilated(
        out_backprop,
        kernel,
        (1,) * len(spatial_axes),
        list(zip(before, after, strict=True)),
        lhs_dilation=strides,
        rhs_dilation=dilations,
        dimension_numbers=attrs.dimension_numbers(),
        feature_group_count=groups or 1,
        preferred_element_type=out_backprop.dtype,
    )


_2D = {"strides": REQUIRED, "padding": REQUIRED, "explicit_paddings": (), "data_format": "NHWC", "dilations": (1,) * 4}
_3D = {"strides": REQUIRED, "padding": REQUIRED, "data_format": "NDHWC", "dilations": (1,) * 5}
_3D_V1 = {"strides": REQUIRED, "padding": REQUIRED, "dilations": ()}
_BY_INPUT_SIZES = "input_sizes:Static filter out_backprop"
_BY_FILTER_SIZES = "input filter_sizes:Static out_backprop"
_BY_SHAPES = "input filter out_backprop"
_op = functools.partial(op, pattern=Pattern.CONTRACTION)


def _register(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    @_op(name)
    def call(input, filter, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)):
        """Convolve images.

        Args:
          filter: [*window, channels / groups, outputs], or of a depthwise one [*window, channels, multiplier].
        """
        return forward(input, filter, ConvAttrs(strides, padding, data_format, dilations, explicit_paddings))

    return call


conv2d = _register("Conv2D", convolve)
depthwise_conv2d = _register("DepthwiseConv2dNative", convolve_depthwise)


@_op("Conv3D")
def conv3d(input, filter, *, strides, padding, data_format="NDHWC", dilations=(1, 1, 1, 1, 1)):
    """Convolve volumes."""
    return convolve(input, filter, ConvAttrs(strides, padding, data_format, dilations))


@_op("Conv")
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


@_op("Conv2DBackpropInput", inputs=_BY_INPUT_SIZES, attributes=_2D)
@_op("Conv2DBackpropInputV2", inputs=_BY_SHAPES, attributes=_2D)
@_op("Conv3DBackpropInput", inputs=_BY_SHAPES, attributes=_3D_V1)
@_op("Conv3DBackpropInputV2", inputs=_BY_INPUT_SIZES, attributes=_3D)
def input_backprop(*, filter, out_backprop, input_sizes=None, input=None, **attributes):
    """Compute the gradient of a convolution with respect to its input.

    Of ``input`` only the shape is used. The result has the cotangent's dtype, also for integers.

    Args:
      input_sizes: the shape of the input, or its spatial sizes.
    """
    attrs = ConvAttrs(**{"data_format": "NDHWC", **attributes})
    shape = dims(input_sizes) if input is None else tuple(input.shape)
    channel, spatial_axes = layout(attrs.data_format)
    if len(shape) == len(spatial_axes):
        full: list[Any] = [out_backprop.shape[0]] * (len(shape) + 2)
        full[channel] = filter.shape[-2]
        for axis, size in zip(spatial_axes, shape, strict=True):
            full[axis] = size
        shape = tuple(full)
    return input_gradient(shape, filter, attrs, out_backprop)


@_op("DepthwiseConv2dNativeBackpropInput", inputs=_BY_INPUT_SIZES, attributes=_2D)
def depthwise_input_backprop(*, input_sizes, filter, out_backprop, **attributes):
    """Compute the gradient of `depthwise_conv2d` with respect to its input."""
    return input_gradient(dims(input_sizes), *grouped(filter, ConvAttrs(**attributes)), out_backprop)


@_op("Conv2DBackpropFilter", inputs=_BY_FILTER_SIZES, attributes=_2D)
@_op("Conv2DBackpropFilterV2", inputs=_BY_SHAPES, attributes=_2D)
@_op("Conv3DBackpropFilter", inputs=_BY_SHAPES, attributes=_3D_V1)
@_op("Conv3DBackpropFilterV2", inputs=_BY_FILTER_SIZES, attributes=_3D)
def filter_backprop(*, input, out_backprop, filter_sizes=None, filter=None, forward=convolve, **attributes):
    """Compute the gradient of a convolution with respect to its filter.

    Of ``filter`` only the shape is used.
    """
    shape = dims(filter_sizes) if filter is None else tuple(filter.shape)
    attrs = ConvAttrs(**{"data_format": "NDHWC", **attributes})
    spec = jax.ShapeDtypeStruct(shape, out_backprop.dtype)
    return linear_transpose(lambda w: forward(input, w, attrs), spec, jnp.asarray(out_backprop), input)


@_op("DepthwiseConv2dNativeBackpropFilter", inputs=_BY_FILTER_SIZES, attributes=_2D)
def depthwise_filter_backprop(**operands):
    """Compute the gradient of `depthwise_conv2d` with respect to its filter."""
    return filter_backprop(**operands, forward=convolve_depthwise)
