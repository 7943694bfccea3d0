"""The table of convolution rules, and the CPU lowering that consults it.

XLA's convolution on CPU is fast where each output sums many channels over a small window, and slow elsewhere. `RULES`
lists the replacements, in order: the first rule in force that applies is taken, and XLA lowers the rest. A rule
whose parts are convolutions again (`ConvParams.convolve`) has them lowered by this table, too. Half precision is summed
in float32. The predicates come from measurements on two x86-64 cores (benchmarks/pages/performance.md,
`xla_cpu.cost_model`).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.convolutions import conv_params
from tf2jax_lite.xla_cpu.rules import Rule, choose, with_cpu_rules

from . import (
    conv3d,
    depthwise,
    filter_grad,
    grouped,
    grouped_as_depthwise,
    im2col,
    input_dilation,
    matmul,
    padding,
    width_folding,
)
from .channels_last import convolve_channels_last, is_channels_last

# The prefix "xla_" names entries that leave a convolution to XLA; they cannot be switched off.
RULES = (
    # Groups. After the last of these entries convolutions have one group.
    Rule(
        "depthwise",
        depthwise.is_unrolled_depthwise,
        depthwise.depthwise,
        "XLA computes each channel alone; shifted slices times weights vectorize over channels.",
    ),
    Rule("xla_depthwise", depthwise.is_depthwise, None, "Unrolling more taps takes longer to compile than it gains."),
    Rule(
        "depthwise_filter_gradient",
        depthwise.is_depthwise_filter_gradient,
        depthwise.depthwise_filter_gradient,
        "XLA computes batch groups as one large convolution; here one reduction has a result for each tap.",
    ),
    Rule(
        "xla_depthwise_filter_gradient",
        lambda conv: 1 < conv.batch_groups == conv.batch == conv.out_channels,
        None,
        "Of many taps: one convolution for each channel is no gain.",
    ),
    Rule(
        "grouped_pointwise",
        grouped.is_grouped_pointwise,
        grouped.pointwise,
        "With a 1x1 kernel, or its filter gradient, groups are the batch of one matrix product.",
    ),
    Rule(
        "grouped_as_depthwise",
        grouped_as_depthwise.is_sum_of_depthwise,
        grouped_as_depthwise.by_channel_of_group,
        "Of few channels a product has few columns; a sum of depthwise convolutions needs no im2col.",
    ),
    Rule(
        "grouped_loop",
        grouped.is_grouped,
        grouped.looped,
        "The remaining groups, one after the other: XLA is slow at them, and far slower at their filter gradients.",
    ),
    Rule("xla_grouped", grouped.has_groups, None, "Small ones, and those of long sums, XLA computes as fast."),
    # One matrix product.
    Rule(
        "pointwise",
        matmul.is_pointwise,
        matmul.pointwise,
        "A 1x1 kernel is a matrix product, of every stride-th value or spread afterwards.",
    ),
    Rule(
        "conv3d_as_2d",
        conv3d.is_2d,
        conv3d.as_2d,
        "A kernel of one plane or one column is a 2-D one: XLA's 3-D convolution is slow.",
    ),
    # Input dilation.
    Rule(
        "swapped_operands_dilated",
        filter_grad.is_swapped_with_dilation,
        filter_grad.swapped_operands,
        "Before polyphase: with a window far larger than the result phases are filter gradients, still with zeros.",
    ),
    Rule(
        "polyphase",
        input_dilation.has_polyphase,
        input_dilation.polyphase,
        "XLA multiplies by the zeros between values; each phase meets a part of the kernel only.",
    ),
    # Filter gradients: windows about as large as the image.
    Rule(
        "patches_filter_gradient",
        matmul.is_patches_filter_gradient,
        matmul.patches_filter_gradient,
        "Taps further apart than results are one matrix product of the regrouped input.",
    ),
    Rule(
        "filter_gradient_im2col",
        im2col.has_rows,
        im2col.by_rows,
        "XLA is made for small windows; here each window of a large image is a row of one matrix product.",
    ),
    Rule(
        "swapped_operands",
        filter_grad.has_swapped_operands,
        filter_grad.swapped_operands,
        "XLA fills its vectors with output channels: filter gradients with few get them from the image.",
    ),
    # 3-D convolutions: XLA's has no fast code.
    Rule(
        "conv3d_by_plane",
        conv3d.is_by_plane,
        conv3d.by_plane,
        "A sum of 2-D convolutions, one for each plane of the kernel.",
    ),
    # Few channels, few or small images.
    Rule(
        "width_folding",
        width_folding.is_folded,
        width_folding.folded,
        "XLA computes 16 outputs at once: few channels to few leave lanes unused.",
    ),
    Rule(
        "im2col",
        im2col.is_im2col,
        im2col.im2col,
        "XLA reads many weights slowly for few windows.",
    ),
    Rule(
        "small_image_padding",
        lambda conv: conv.sum_dtype == np.float32 and padding.is_small(conv),
        padding.with_explicit_padding,
        "XLA has no fast code for images with fewer positions than the kernel, padding not counted.",
    ),
)

# After `RULES`, and for operands that those do not see: integers, mixed dtypes, symbolic sizes.
LAYOUT_RULES = (
    Rule(
        "channels_last",
        lambda lhs, rhs, **keywords: not is_channels_last(keywords["dimension_numbers"]),
        convolve_channels_last,
        "In loops XLA does not bring dimensions into the order of its fast code.",
    ),
)


def convolution_on_cpu(lhs: Any, rhs: Any, **keywords: Any) -> Any:
    """Return a convolution's result by a rule, or None to leave it to XLA."""
    out = _by_rules(lhs, rhs, keywords)
    if out is None and choose(LAYOUT_RULES, lhs, rhs, **keywords) is not None:
        return convolve_channels_last(lhs, rhs, **keywords)
    return out


def _by_rules(lhs: Any, rhs: Any, keywords: dict[str, Any]) -> Any:
    if lhs.dtype != rhs.dtype or not jnp.issubdtype(lhs.dtype, jnp.floating):
        return None
    conv = conv_params(lhs, rhs, keywords, _convolve)
    if conv is None:
        return None
    if padding.has_negative_padding(conv):  # not a rule: it keeps XLA from reading beyond the array
        return padding.without_negative_padding(lhs, rhs, conv)
    rule = choose(RULES, conv)
    if rule is None or rule.lower is None:
        return None
    return rule.lower(lhs, rhs, conv).astype(conv.out_dtype)


def _convolve(lhs: Any, rhs: Any, **keywords: Any) -> Any:
    out = convolution_on_cpu(lhs, rhs, **keywords)
    return lax.conv_general_dilated_p.bind(lhs, rhs, **keywords) if out is None else out


with_cpu_rules(lax.conv_general_dilated_p, convolution_on_cpu)
