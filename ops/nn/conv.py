"""Convolutions in two and three dimensions, depthwise ones, and their gradients."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.canonical_dims import canonical_array, canonical_dim
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.common.broadcasting import array
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, dims_array
from tf2jax_lite.xla_cpu.conv.rule import call

Dims = Sequence[int]


def layout(data_format: str) -> tuple[int, tuple[int, ...]]:
    """Returns the channel dimension and the spatial dimensions of a data format such as NHWC."""
    return data_format.index("C"), tuple(i for i, letter in enumerate(data_format) if letter not in "NC")


def spatial(values: Dims, data_format: str) -> tuple[int, ...]:
    """Returns the spatial entries of an attribute with one entry per dimension."""
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
) -> Any:
    """Returns padding as ``lax`` takes it: (before, after) for each spatial dimension."""
    if padding == "EXPLICIT":
        return [(int(explicit_paddings[2 * i]), int(explicit_paddings[2 * i + 1])) for i in layout(data_format)[1]]
    if padding == "VALID":
        return [(0, 0)] * len(sizes)
    if padding != "SAME":
        raise OpError(f"unknown padding {padding!r}")
    effective = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    pads = lax.padtype_to_pads(tuple(sizes), tuple(effective), tuple(strides), "SAME")
    return [(canonical_dim(before), canonical_dim(after)) for before, after in pads]


def _numbers(data_format: str) -> Any:
    letters = "DHW"[-(len(data_format) - 2) :]
    return (data_format, letters + "IO", data_format)


def convolve(
    input: Any,
    filter: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims,
    data_format: str,
    dilations: Dims,
    groups: int | None = None,
) -> Any:
    """Convolves; the number of groups follows from the channels unless given."""
    input, filter = array(input), array(filter)
    channel, places = layout(data_format)
    steps, rates = spatial(strides, data_format), spatial(dilations, data_format)
    if min(*steps, *rates) < 1:
        raise OpError(f"strides {steps} and dilations {rates} must be positive")
    window: Any = filter.shape[: len(places)]
    pads = resolve_padding(
        padding, explicit_paddings, data_format, [input.shape[i] for i in places], window, steps, rates
    )
    if groups is None:
        groups = input.shape[channel] // filter.shape[-2]
    params: dict[str, Any] = {
        "window_strides": steps,
        "rhs_dilation": rates,
        "dimension_numbers": _numbers(data_format),
        "feature_group_count": groups or 1,
        "preferred_element_type": input.dtype,
    }
    pads = tuple(map(tuple, pads))
    open_ = [i for i, place in enumerate(places) if not isinstance(input.shape[place], int)]
    if not open_ or (padding == "SAME" and max(steps) == 1):
        return call(lax.conv_general_dilated, input, filter, padding=pads, **params)
    found = _of_open_sizes(input, filter, "SAME" if padding == "SAME" else pads, pads, places, open_, params)
    return canonical_array(found)


def _of_open_sizes(
    input: Any,
    filter: Any,
    padding: Any,
    pads: Sequence[tuple[Any, Any]],
    places: Sequence[int],
    open_: Sequence[int],
    params: dict[str, Any],
) -> Any:
    """Convolves what has symbolic sizes, those of the spatial dimensions ``open_`` among them.

    They are padded or cut to what windows reach. Then the padding of gradients is made of numbers; JAX takes no other
    for a convolution.
    """
    form = jax.eval_shape(functools.partial(lax.conv_general_dilated, padding=padding, **params), input, filter)
    config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * input.ndim
    rest = list(pads)
    for i in open_:
        place, step, rate = places[i], params["window_strides"][i], params["rhs_dilation"][i]
        # With strides, JAX computes gradients of symbols only where there are results.
        results = form.shape[place] if step == 1 else max_dim(form.shape[place], 1)
        reached = (results - 1) * step + (filter.shape[i] - 1) * rate + 1
        config[place] = (pads[i][0], reached - input.shape[place] - pads[i][0], 0)
        rest[i] = (0, 0)
    padded = lax.pad(input, np.zeros((), input.dtype), config)
    found = call(lax.conv_general_dilated, padded, filter, padding=tuple(rest), **params)
    return found if found.shape == form.shape else lax.slice(found, (0,) * found.ndim, form.shape)


def _by_input(filter: Any, out_backprop: Any, shape: tuple[Any, ...], **kwargs: Any) -> Any:
    if jnp.issubdtype(array(out_backprop).dtype, jnp.integer):
        return _of_integers(array(filter), array(out_backprop), shape, **kwargs)

    def forward(x: Any) -> Any:
        return convolve(x, filter, **kwargs)

    # Linear in the input: the transpose needs no forward pass.
    form = jax.ShapeDtypeStruct(shape, out_backprop.dtype)
    return linear_transpose(forward, form, jnp.asarray(out_backprop), filter)


def _of_integers(
    filter: Any,
    out_backprop: Any,
    shape: tuple[Any, ...],
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims,
    data_format: str,
    dilations: Dims,
    groups: int | None = None,
) -> Any:
    """Returns a transposed convolution of integers, of which JAX takes no transpose: they have no derivatives."""
    channel, places = layout(data_format)
    steps, rates = spatial(strides, data_format), spatial(dilations, data_format)
    window: Any = filter.shape[: len(places)]
    sizes = [shape[i] for i in places]
    pads = resolve_padding(padding, explicit_paddings, data_format, sizes, window, steps, rates)
    if groups is None:
        groups = shape[channel] // filter.shape[-2]
    spans = [(k - 1) * r for k, r in zip(window, rates, strict=True)]
    before = [span - lo for span, (lo, _) in zip(spans, pads, strict=True)]
    ends = [(out_backprop.shape[place] - 1) * step + 1 for place, step in zip(places, steps, strict=True)]
    after = [n + span - lo - end for n, span, lo, end in zip(sizes, spans, before, ends, strict=True)]
    # Each group's inputs are outputs now, and the window is turned round.
    inputs, outputs = filter.shape[-2], filter.shape[-1] // groups
    kernel = lax.rev(filter, range(len(places)))
    kernel = lax.reshape(kernel, (*window, inputs, groups, outputs))
    kernel = jnp.moveaxis(kernel, -1, -3)
    kernel = lax.reshape(jnp.swapaxes(kernel, -1, -2), (*window, outputs, groups * inputs))
    return lax.conv_general_dilated(
        out_backprop,
        kernel,
        (1,) * len(places),
        list(zip(before, after, strict=True)),
        lhs_dilation=steps,
        rhs_dilation=rates,
        dimension_numbers=_numbers(data_format),
        feature_group_count=groups or 1,
        preferred_element_type=out_backprop.dtype,
    )


def _by_filter(input: Any, out_backprop: Any, shape: tuple[Any, ...], **kwargs: Any) -> Any:
    def forward(w: Any) -> Any:
        return convolve(input, w, **kwargs)

    form = jax.ShapeDtypeStruct(shape, out_backprop.dtype)
    return linear_transpose(forward, form, jnp.asarray(out_backprop), input)


@op("Conv2D", heavy=True)
def conv2d(
    input: Any,
    filter: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Convolves images. See tf.raw_ops.Conv2D."""
    return convolve(
        input,
        filter,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
    )


@op("Conv2DBackpropInput", heavy=True)
def conv2d_backprop_input(
    input_sizes: Static,
    filter: Any,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Returns the gradient by the images. See tf.raw_ops.Conv2DBackpropInput."""
    shape = dims(input_sizes)
    if len(shape) == 2:  # only the spatial sizes are given
        channel, places = layout(data_format)
        full: list[Any] = [out_backprop.shape[0]] * 4
        full[channel] = filter.shape[2]
        full[places[0]], full[places[1]] = shape
        shape = tuple(full)
    return _by_input(
        filter,
        out_backprop,
        shape,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
    )


@op("Conv2DBackpropFilter", heavy=True)
def conv2d_backprop_filter(
    input: Any,
    filter_sizes: Static,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Returns the gradient by the filter. See tf.raw_ops.Conv2DBackpropFilter."""
    return _by_filter(
        input,
        out_backprop,
        dims(filter_sizes),
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
    )


@op("Conv2DBackpropInputV2", heavy=True)
def conv2d_backprop_input_v2(
    input: Any,
    filter: Any,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Returns the gradient by images that are given for their shape. See tf.raw_ops.Conv2DBackpropInputV2."""
    return conv2d_backprop_input(
        dims_array(input.shape),
        filter,
        out_backprop,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
    )


@op("Conv2DBackpropFilterV2", heavy=True)
def conv2d_backprop_filter_v2(
    input: Any,
    filter: Any,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Returns the gradient by a filter that is given for its shape. See tf.raw_ops.Conv2DBackpropFilterV2."""
    return conv2d_backprop_filter(
        input,
        dims_array(filter.shape),
        out_backprop,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
    )


@op("Conv3D", heavy=True)
def conv3d(
    input: Any,
    filter: Any,
    *,
    strides: Dims,
    padding: str,
    data_format: str = "NDHWC",
    dilations: Dims = (1, 1, 1, 1, 1),
) -> Any:
    """Convolves volumes. See tf.raw_ops.Conv3D."""
    return convolve(
        input,
        filter,
        strides=strides,
        padding=padding,
        explicit_paddings=(),
        data_format=data_format,
        dilations=dilations,
    )


@op("Conv3DBackpropInputV2", heavy=True)
def conv3d_backprop_input(
    input_sizes: Static,
    filter: Any,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    data_format: str = "NDHWC",
    dilations: Dims = (1, 1, 1, 1, 1),
) -> Any:
    """Returns the gradient by the volumes. See tf.raw_ops.Conv3DBackpropInputV2."""
    return _by_input(
        filter,
        out_backprop,
        dims(input_sizes),
        strides=strides,
        padding=padding,
        explicit_paddings=(),
        data_format=data_format,
        dilations=dilations,
    )


@op("Conv3DBackpropFilterV2", heavy=True)
def conv3d_backprop_filter(
    input: Any,
    filter_sizes: Static,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    data_format: str = "NDHWC",
    dilations: Dims = (1, 1, 1, 1, 1),
) -> Any:
    """Returns the gradient by the filter. See tf.raw_ops.Conv3DBackpropFilterV2."""
    return _by_filter(
        input,
        out_backprop,
        dims(filter_sizes),
        strides=strides,
        padding=padding,
        explicit_paddings=(),
        data_format=data_format,
        dilations=dilations,
    )


def convolve_depthwise(input: Any, filter: Any, *, data_format: str, **kwargs: Any) -> Any:
    """Convolves each channel by itself; takes what `convolve` does but groups."""
    input, filter = array(input), array(filter)
    height, width, channels, multiplier = filter.shape
    filter = lax.reshape(filter, (height, width, 1, channels * multiplier))
    return convolve(input, filter, data_format=data_format, groups=channels, **kwargs)


@op("DepthwiseConv2dNative", heavy=True)
def depthwise_conv2d(
    input: Any,
    filter: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Convolves each channel by itself. See tf.raw_ops.DepthwiseConv2dNative."""
    return convolve_depthwise(
        input,
        filter,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=data_format,
        dilations=dilations,
    )


@op("DepthwiseConv2dNativeBackpropInput", heavy=True)
def depthwise_conv2d_backprop_input(
    input_sizes: Static,
    filter: Any,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Returns the gradient by the images. See tf.raw_ops.DepthwiseConv2dNativeBackpropInput."""

    def forward(x: Any) -> Any:
        return convolve_depthwise(
            x,
            filter,
            strides=strides,
            padding=padding,
            explicit_paddings=explicit_paddings,
            data_format=data_format,
            dilations=dilations,
        )

    form = jax.ShapeDtypeStruct(dims(input_sizes), out_backprop.dtype)
    return linear_transpose(forward, form, jnp.asarray(out_backprop), filter)


@op("DepthwiseConv2dNativeBackpropFilter", heavy=True)
def depthwise_conv2d_backprop_filter(
    input: Any,
    filter_sizes: Static,
    out_backprop: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "NHWC",
    dilations: Dims = (1, 1, 1, 1),
) -> Any:
    """Returns the gradient by the filter. See tf.raw_ops.DepthwiseConv2dNativeBackpropFilter."""

    def forward(w: Any) -> Any:
        return convolve_depthwise(
            input,
            w,
            strides=strides,
            padding=padding,
            explicit_paddings=explicit_paddings,
            data_format=data_format,
            dilations=dilations,
        )

    form = jax.ShapeDtypeStruct(dims(filter_sizes), out_backprop.dtype)
    return linear_transpose(forward, form, jnp.asarray(out_backprop), input)


@op("Conv", heavy=True)
def conv(
    input: Any,
    filter: Any,
    *,
    strides: Dims,
    padding: str,
    explicit_paddings: Dims = (),
    data_format: str = "CHANNELS_LAST",
    dilations: Dims = (),
    batch_dims: int = 1,
    groups: int = 1,
) -> Any:
    """Convolves in two or three dimensions, with any number of batch dimensions. See tf.raw_ops.Conv."""
    input = jnp.asarray(input)
    rank = input.ndim - batch_dims - 1
    if rank not in (2, 3):
        raise OpError(f"the input must have 2 or 3 spatial dimensions, not {rank}")
    letters = "DHW"[-rank:]
    batch, rest = input.shape[:batch_dims], input.shape[batch_dims:]
    result = convolve(
        lax.reshape(input, (math.prod(batch), *rest)),
        filter,
        strides=strides,
        padding=padding,
        explicit_paddings=explicit_paddings,
        data_format=f"N{letters}C" if data_format == "CHANNELS_LAST" else f"NC{letters}",
        dilations=dilations,
        groups=groups,
    )
    return lax.reshape(result, (*batch, *result.shape[1:]))
