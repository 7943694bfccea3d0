"""The table of convolution rules, and the CPU lowering that consults it.

XLA's convolution on CPU is fast where each output sums many channels over a small window, and slow elsewhere. `RULES`
lists the replacements, in order: the first rule in force that applies is taken, and XLA lowers the rest. A rule
whose parts are convolutions again (`ConvParams.convolve`) has them lowered by this table, too. Half precision is summed
in float32. The predicates come from measurements on two x86-64 cores (benchmarks/pages/performance.md,
`xla_cpu.cost_model`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.outline import outline
from tf2jax_lite.xla_cpu.rules import call, with_cpu_rule
from tf2jax_lite.xla_cpu.selection import Rule, choose, is_enabled

from . import (
    conv3d,
    conv3d_planes,
    depthwise,
    filter_grad,
    grouped,
    grouped_as_depthwise,
    im2col,
    input_dilation,
    kernel_dilation,
    matmul,
    narrow_image,
    padding,
    row_packing,
    width_folding,
    winograd,
)
from .params import ConvParams, conv_params, convolve_channels_last, is_channels_last

__all__ = ["LAYOUT_RULES", "RULES", "call", "convolution_on_cpu"]


def _saves(per_product: float, *, of_gradients: float | None = None) -> Callable[[ConvParams], float]:
    """Return `Rule.saves`: run time saved, in products of a fast convolution.

    The numbers are estimates from run times of typical shapes (benchmarks/pages/performance.md); for rules without a
    row in its tables, from those of similar rules. Small shapes are taken to save as much for each product as large
    ones.

    Args:
      per_product: saved for each product of a convolution.
      of_gradients: of filter gradients of grouped convolutions; None for the same.
    """
    batched = per_product if of_gradients is None else of_gradients
    return lambda conv: (batched if conv.batch_groups > 1 else per_product) * conv.products


# The prefix "xla_" names entries that leave a convolution to XLA; they cannot be switched off.
RULES = (
    # Groups. After the last of these entries convolutions have one group.
    Rule(
        "depthwise_blocks",
        depthwise.is_blocked_depthwise,
        depthwise.depthwise_by_blocks,
        "Many taps of many channels exceed the L1 cache: 32 channels at a time.",
        outline=True,
        kernels=3,
        saves=_saves(80),
        needless_since=(0, 12),
    ),
    Rule(
        "depthwise_outlined",
        depthwise.is_outlined_depthwise,
        depthwise.depthwise,
        "Before depthwise: XLA computes the sum again for each user, which is costly for a long one.",
        outline=True,
        kernels=2,
        saves=_saves(80),
    ),
    Rule(
        "depthwise",
        depthwise.is_unrolled_depthwise,
        depthwise.depthwise,
        "XLA computes each channel alone; shifted slices times weights vectorize over channels.",
        kernels=2,
        saves=_saves(100),
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
        "grouped_unrolled",
        grouped.is_unrolled,
        grouped.unrolled,
        "A few groups of many channels are large convolutions, and rules apply to each.",
        kernels=5,
        saves=_saves(1.5),
    ),
    Rule(
        "grouped_pointwise",
        grouped.is_grouped_pointwise,
        grouped.pointwise,
        "With a 1x1 kernel, or its filter gradient, groups are the batch of one matrix product.",
        kernels=3,
        saves=_saves(10),
    ),
    Rule(
        "grouped_as_depthwise",
        grouped_as_depthwise.is_sum_of_depthwise,
        grouped_as_depthwise.by_channel_of_group,
        "Of few channels a product has few columns; a sum of depthwise convolutions needs no im2col.",
        kernels=10,
        saves=_saves(10, of_gradients=400),
    ),
    Rule(
        "grouped_loop",
        grouped.is_grouped,
        grouped.looped,
        "The remaining groups, one after the other: XLA is slow at them, and far slower at their filter gradients.",
        kernels=11,
        saves=_saves(15, of_gradients=1000),
    ),
    Rule("xla_grouped", grouped.has_groups, None, "Small ones, and those of long sums, XLA computes as fast."),
    # One matrix product.
    Rule(
        "pointwise",
        matmul.is_pointwise,
        matmul.pointwise,
        "A 1x1 kernel is a matrix product, of every stride-th value or spread afterwards.",
    ),
    # Fewer dimensions.
    Rule(
        "narrow_image",
        narrow_image.is_narrow,
        narrow_image.without_narrow_dimension,
        "XLA applies a kernel that is wider than the image to padding.",
        kernels=2,
        saves=_saves(10),
    ),
    Rule(
        "conv3d_as_2d",
        conv3d_planes.is_2d,
        conv3d_planes.as_2d,
        "A kernel of one plane or one column is a 2-D one: XLA's 3-D convolution is slow.",
        kernels=1,
        saves=_saves(1.3),
    ),
    # Input dilation.
    Rule(
        "swapped_operands_dilated",
        filter_grad.is_swapped_with_dilation,
        filter_grad.swapped_operands,
        "Before polyphase: with a window far larger than the result phases are filter gradients, still with zeros.",
        kernels=2,
        saves=_saves(2),
    ),
    Rule(
        "non_overlapping",
        input_dilation.is_non_overlapping,
        input_dilation.non_overlapping,
        "Before polyphase: one product gives all phases where the kernel is no longer than the dilation.",
        kernels=2,
        saves=_saves(1),
    ),
    Rule(
        "polyphase",
        input_dilation.has_polyphase,
        input_dilation.polyphase,
        "XLA multiplies by the zeros between values; each phase meets a part of the kernel only.",
        kernels=6,
        saves=_saves(2),
    ),
    # Filter gradients: windows about as large as the image.
    Rule(
        "patches_filter_gradient",
        matmul.is_patches_filter_gradient,
        matmul.patches_filter_gradient,
        "Taps further apart than results are one matrix product of the regrouped input.",
        kernels=1,
        saves=_saves(4),
    ),
    Rule(
        "filter_gradient_im2col",
        im2col.has_rows,
        im2col.by_rows,
        "XLA is made for small windows; here each window of a large image is a row of one matrix product.",
        kernels=16,
        saves=_saves(1.5),
    ),
    Rule(
        "patches",
        matmul.is_patches,
        matmul.patches,
        "Windows that do not overlap are one matrix product of the regrouped input.",
        kernels=1,
        saves=_saves(0.7),
        needless_since=(0, 12),
    ),
    Rule(
        "swapped_operands",
        filter_grad.has_swapped_operands,
        filter_grad.swapped_operands,
        "XLA fills its vectors with output channels: filter gradients with few get them from the image.",
        kernels=2,
        saves=_saves(2),
    ),
    # 3-D convolutions: XLA's has no fast code.
    Rule(
        "conv3d_depth_blocks",
        conv3d.has_depth_blocks,
        conv3d.by_depth_block,
        "Before conv3d_by_plane, which reads a volume that exceeds the cache again for each plane of the kernel.",
        kernels=8,
        saves=_saves(5),
    ),
    Rule(
        "conv3d_by_plane",
        conv3d.is_by_plane,
        conv3d.by_plane,
        "A sum of 2-D convolutions, one for each plane of the kernel.",
        kernels=7,
        saves=_saves(1),
    ),
    # Channels.
    Rule(
        "width_folding",
        width_folding.is_folded,
        width_folding.folded,
        "XLA computes 16 outputs at once: few channels to few leave lanes unused.",
        kernels=2,
        saves=_saves(3),
    ),
    Rule(
        "channel_padding",
        padding.has_odd_channels,
        padding.with_padded_channels,
        "XLA reads an odd number of channels one by one, else four at once.",
        kernels=2,
        saves=_saves(4),
        needless_since=(0, 12),
    ),
    # Fewer products.
    Rule(
        "kernel_dilation",
        kernel_dilation.has_batched_phases,
        kernel_dilation.batched_phases,
        "Before winograd, which takes the phases of a dilated kernel as images.",
        kernels=2,
        saves=_saves(0.5),
    ),
    Rule(
        "winograd",
        winograd.is_winograd,
        winograd.winograd,
        "16 products for 36 in 3x3 convolutions of many channels.",
        outline=True,
        kernels=5,
        saves=_saves(0.4),
    ),
    # Few or small images, short rows.
    Rule(
        "im2col",
        im2col.is_im2col,
        im2col.im2col,
        "XLA reads many weights slowly for few windows.",
        outline=True,
        kernels=6,
        saves=_saves(0.7),
    ),
    Rule(
        "small_image_padding",
        lambda conv: conv.sum_dtype == np.float32 and padding.is_small(conv),
        padding.with_explicit_padding,
        "XLA has no fast code for images with fewer positions than the kernel, padding not counted.",
        kernels=1,
        saves=_saves(1),
    ),
    Rule(
        "row_packing",
        row_packing.has_packed_rows,
        row_packing.pack_rows,
        "XLA gives a thread a block of columns: short rows leave threads idle.",
        kernels=2,
        saves=_saves(0.3),
        needless_since=(0, 12),
    ),
    Rule(
        "line_padding",
        padding.is_unpadded,
        padding.with_line_of_padding,
        "Without any padding XLA writes all windows to memory.",
        kernels=1,
        saves=_saves(2),
        needless_since=(0, 12),
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
    lower = functools.partial(rule.lower, conv=conv)
    out = outline(lower, lhs, rhs) if rule.outline and is_enabled("outline") else lower(lhs, rhs)
    return out.astype(conv.out_dtype)


def _convolve(lhs: Any, rhs: Any, **keywords: Any) -> Any:
    out = convolution_on_cpu(lhs, rhs, **keywords)
    return lax.conv_general_dilated_p.bind(lhs, rhs, **keywords) if out is None else out


with_cpu_rule(lax.conv_general_dilated_p, convolution_on_cpu)
