"""3-D convolutions by (1, k, k) or (k, 1, 1) kernels, as one 2-D one.

A (1, k, k) kernel convolves each plane as an image. A (k, 1, 1) kernel convolves one image whose columns are all those
of a plane. Networks for videos have both, one after the other (Tran et al., "A closer look at spatiotemporal
convolutions for action recognition", 2018). XLA has long rows then, and the rules of 2-D convolutions apply.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from .params import ConvParams, pad, reorder, strided_slice

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
