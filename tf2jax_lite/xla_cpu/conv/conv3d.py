"""3-D convolutions by 2-D ones, per kernel plane or per depth block.

XLA's 3-D convolution on CPU lacks the fast code of its 2-D convolution.

Plane by plane, a large volume is read and written again for each plane of the kernel, and the partial sums are as large
as it is. So blocks of a few planes are convolved one after the other, in the cache. A block's planes are the rows of
one image, each with its own rows one behind the other, zeros between them: a shift down the volume is a shift by a row
along the image, and the kernel's rows are further output channels of one convolution, whose results are shifted and
added up. With few outputs that is faster for smaller volumes, too, as XLA computes sixteen and more at once: a half to
a sixth of the time (two cores with AVX-512, JAX 0.10). With many channels planes by Winograd's filtering (`winograd`)
are faster: 0.55 to 1.0 of the blocks' time there.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import cost_model

from .params import ConvParams, pad, reorder, strided_slice
from .winograd import is_winograd

_IMAGES = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def is_by_plane(conv: ConvParams) -> bool:
    """Return whether a single-group convolution is 3-D with few kernel planes."""
    return conv.rank == 3 and conv.window[0] <= cost_model.MAX_UNROLLED_DEPTH and not conv.has_lhs_dilation


def _planes(conv: ConvParams) -> ConvParams:
    """Return the convolution of a volume's planes by one plane of the kernel."""
    names = ("sizes", "window", "result", "strides", "pads", "lhs_dilation", "rhs_dilation")
    planes = {name: getattr(conv, name)[1:] for name in names}
    return dataclasses.replace(conv, **planes, batch=conv.batch * conv.result[0])


def _floats(conv: ConvParams) -> int:
    """Return the number of the input's and the result's values."""
    return conv.batch * (conv.in_channels * math.prod(conv.sizes) + conv.out_channels * math.prod(conv.result))


def _has_static_sizes(conv: ConvParams) -> bool:
    return all(isinstance(n, int) for n in (conv.batch, conv.in_channels, conv.out_channels))


def has_depth_blocks(conv: ConvParams) -> bool:
    """Return whether an unnegatively padded `is_by_plane` goes block by block."""
    if not is_by_plane(conv) or not _has_static_sizes(conv) or max(conv.strides) > 1:
        return False
    span, outputs = (conv.window[2] - 1) * conv.rhs_dilation[2], conv.out_channels
    if conv.window[1] == 1 or span == 0 or conv.pads[2][0] > span:
        return False
    if conv.window[1] * outputs > cost_model.DEPTH_BLOCK_MAX_OUTPUTS or is_winograd(_planes(conv)):
        return False
    few = outputs <= cost_model.SIMD_LANES
    return _floats(conv) >= (cost_model.VOLUME_MIN_FLOATS_OF_FEW_OUTPUTS if few else cost_model.VOLUME_MIN_FLOATS)


def by_depth_block(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `has_depth_blocks` holds, in the dtype of sums."""
    lhs, rhs = lhs.astype(conv.sum_dtype), rhs.astype(conv.sum_dtype)
    (front, back), (top, bottom), (left, right) = conv.pads
    depth, height, width = conv.result
    kernel_rows, span = conv.window[1], (conv.window[2] - 1) * conv.rhs_dilation[2]
    # From one row to the next; zeros after a row's values are padding on both sides.
    length = max(conv.sizes[2] + max(left, right), width)
    values = reorder(lhs, conv.lhs_spec, (0, 4, 1, 2, 3))
    batch, channels, outputs = values.shape[0], values.shape[4], rhs.shape[conv.rhs_spec[0]]
    values = pad(values, (1, 2, 3), ((front, back), (top, bottom), (0, length - conv.sizes[2])))
    columns = values.shape[2] * length
    values = lax.reshape(values, (*values.shape[:2], columns, channels))
    kernel = lax.transpose(reorder(rhs, conv.rhs_spec, (4, 3, 0, 1, 2)), (0, 2, 3, 1, 4))
    kernel = lax.reshape(kernel, (*kernel.shape[:3], kernel_rows * outputs))
    keywords = {
        "window_strides": (1, 1),
        "padding": ((0, 0), (left, span - left)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (conv.rhs_dilation[0], conv.rhs_dilation[2]),
        "dimension_numbers": _IMAGES,
        "preferred_element_type": conv.sum_dtype,
    }
    planes = min(max(cost_model.DEPTH_BLOCK_FLOATS // (columns * (channels + kernel_rows * outputs)), 1), depth)
    more = (conv.window[0] - 1) * conv.rhs_dilation[0]
    blocks = -(-depth // planes)
    zero = np.int32(0)

    def put(index: Any, results: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        which = lax.div(index, np.int32(blocks))
        # The last block begins where it ends with the volume.
        first = lax.min((index - which * np.int32(blocks)) * np.int32(planes), np.int32(depth - planes))
        sizes = (1, planes + more, columns, channels)
        block = lax.dynamic_slice(values, (which, first, zero, zero), sizes, allow_negative_indices=False)
        out = conv.convolve_directly(block, kernel, **keywords)
        total: Any = None
        for row in range(kernel_rows):
            starts = (row * conv.rhs_dilation[1] * length, row * outputs)
            part = strided_slice(out, (2, 3), starts, (height * length, outputs))
            total = part if total is None else lax.add(total, part)
        rows = lax.slice_in_dim(lax.reshape(total, (1, planes, height, length, outputs)), 0, width, axis=3)
        return lax.dynamic_update_slice(results, rows, (which, first, zero, zero, zero), allow_negative_indices=False)

    results = jnp.zeros((batch, depth, height, width, outputs), conv.sum_dtype)
    results = lax.fori_loop(zero, np.int32(batch * blocks), put, results)
    return reorder(results, (0, 4, 1, 2, 3), conv.out_spec)


def _images(lhs: Any, conv: ConvParams) -> tuple[Any, dict[str, Any]]:
    """Return volumes padded in depth, and parameters to convolve planes."""
    values = pad(reorder(lhs.astype(conv.sum_dtype), conv.lhs_spec, (0, 4, 1, 2, 3)), (1,), conv.pads[:1])
    return values, {
        "window_strides": conv.strides[1:],
        "padding": conv.pads[1:],
        "lhs_dilation": conv.lhs_dilation[1:],
        "rhs_dilation": conv.rhs_dilation[1:],
        "dimension_numbers": _IMAGES,
        "preferred_element_type": conv.sum_dtype,
    }


def by_plane(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `is_by_plane` holds, in the dtype of sums."""
    values, keywords = _images(lhs, conv)
    kernel = reorder(rhs.astype(conv.sum_dtype), conv.rhs_spec, (4, 3, 0, 1, 2))
    batch, depth = values.shape[0], conv.result[0]
    total: Any = None
    for plane in range(conv.window[0]):
        images = strided_slice(values, (1,), (plane * conv.rhs_dilation[0],), (depth,), conv.strides[:1])
        images = lax.reshape(images, (batch * depth, *images.shape[2:]))
        part = conv.convolve(images, kernel[plane], **keywords)
        total = part if total is None else total + part
    return reorder(jnp.reshape(total, (batch, depth, *total.shape[1:])), (0, 4, 1, 2, 3), conv.out_spec)
