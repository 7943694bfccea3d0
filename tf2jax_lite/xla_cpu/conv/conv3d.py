"""3-D convolutions by 2-D ones, for which XLA on CPU has faster code.

A (1, k, k) kernel convolves each plane as an image. A (k, 1, 1) kernel convolves one image whose columns are all those
of a plane. Networks for videos have both, one after the other (Tran et al., "A closer look at spatiotemporal
convolutions for action recognition", 2018). Other kernels are sums of 2-D convolutions, one for each of their planes.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, pad, reorder, strided_slice
from tf2jax_lite.xla_cpu import cost_model

_IMAGES = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def is_2d(conv: ConvParams) -> bool:
    """Return whether a single-group kernel is (1, k, k) or (k, 1, 1)."""
    if conv.rank != 3:
        return False
    return _is_plane(conv) or conv.window[1:] == conv.lhs_dilation[1:] == (1, 1)


def _is_plane(conv: ConvParams) -> bool:
    return conv.window[0] == conv.lhs_dilation[0] == 1


def as_2d(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a 3-D convolution, for which `is_2d` holds, as a 2-D one."""
    values, kernel = reorder(lhs, conv.lhs_spec, (0, 4, 1, 2, 3)), reorder(rhs, conv.rhs_spec, (4, 3, 0, 1, 2))
    plane = _is_plane(conv)
    # Along dimensions of kernel size 1, padding only adds results, and strides leave some out.
    alone = [0] if plane else [1, 2]
    dims, counts = [d + 1 for d in alone], [conv.result[d] for d in alone]
    values = pad(values, dims, [conv.pads[d] for d in alone])
    values = strided_slice(values, dims, [0] * len(alone), counts, [conv.strides[d] for d in alone])
    batch, depth, height, width, channels = values.shape
    if plane:
        values, kernel = lax.reshape(values, (batch * depth, height, width, channels)), lax.squeeze(kernel, (0,))
    else:
        values, kernel = lax.reshape(values, (batch, depth, height * width, channels)), lax.squeeze(kernel, (2,))

    def of(entries: Any, one: Any) -> tuple[Any, Any]:
        return tuple(entries[1:]) if plane else (entries[0], one)

    out = conv.convolve(
        values,
        kernel,
        window_strides=of(conv.strides, 1),
        padding=of(conv.pads, (0, 0)),
        lhs_dilation=of(conv.lhs_dilation, 1),
        rhs_dilation=of(conv.rhs_dilation, 1),
        dimension_numbers=_IMAGES,
    )
    return reorder(lax.reshape(out, (batch, *conv.result, out.shape[-1])), (0, 4, 1, 2, 3), conv.out_spec)


def is_by_plane(conv: ConvParams) -> bool:
    """Return whether a single-group convolution is 3-D with few kernel planes."""
    return conv.rank == 3 and conv.window[0] <= cost_model.MAX_UNROLLED_DEPTH and not conv.has_lhs_dilation


def by_plane(lhs: Any, rhs: Any, conv: ConvParams) -> Any:
    """Return a convolution for which `is_by_plane` holds, in the dtype of sums."""
    values = pad(reorder(lhs.astype(conv.sum_dtype), conv.lhs_spec, (0, 4, 1, 2, 3)), (1,), conv.pads[:1])
    keywords: dict[str, Any] = {
        "window_strides": conv.strides[1:],
        "padding": conv.pads[1:],
        "lhs_dilation": conv.lhs_dilation[1:],
        "rhs_dilation": conv.rhs_dilation[1:],
        "dimension_numbers": _IMAGES,
        "preferred_element_type": conv.sum_dtype,
    }
    kernel = reorder(rhs.astype(conv.sum_dtype), conv.rhs_spec, (4, 3, 0, 1, 2))
    batch, depth = values.shape[0], conv.result[0]
    total: Any = None
    for plane in range(conv.window[0]):
        images = strided_slice(values, (1,), (plane * conv.rhs_dilation[0],), (depth,), conv.strides[:1])
        images = lax.reshape(images, (batch * depth, *images.shape[2:]))
        part = conv.convolve(images, kernel[plane], **keywords)
        total = part if total is None else total + part
    return reorder(jnp.reshape(total, (batch, depth, *total.shape[1:])), (0, 4, 1, 2, 3), conv.out_spec)
