"""How convolutions are written on CPU, by shape.

The rule, from measurements on two x86-64 cores (docs/performance.md): XLA's convolution there is good where each
output sums many channels over a small window, and poor elsewhere. So

- a convolution of each channel by itself is a sum over the window's places of shifted slices times weights (*taps*);
  with gaps between the inputs' values (the gradient of a strided one) each phase of the output has its own taps;
- the gradient of that by the filter is one reduction with a result for each place;
- both go through many channels some at a time, that gradient through long rows one by one (`spelling_blocks`);
- a window of one place is a matrix product, of every ``s``-th value or spread over every ``s``-th;
- a window about as large as the input (filter gradients, dense layers in disguise) is a matrix product for each output;
  of large images the windows of some rows at a time are laid side by side for one (`spelling_whole`);
- an image of one place's width is convolved without that dimension, by a kernel with more outputs (`spelling_narrow`);
- windows that do not overlap (patches) are a matrix product of the regrouped input, and so is the gradient by their
  filter (`spelling_patches`);
- a 3x3 window moving one by one over an image large enough takes Winograd's tiles (`spelling_tiles`),
  one by a rate does with the values of each phase in an image of its own (`spelling_rates`);
- a few windows, with weights that do not stay near the processor or of an image smaller than they are, are gathered for
  one matrix product; other images with fewer places than the window get their padding first (`spelling_small`);
- several images, or strips of one, are put side by side where rows are too short for XLA to share among threads
  (`spelling_rows`);
- a gradient by the filter that gives few channels has its operands exchanged;
- of few channels that give few, neighbours in a row are put together as channels (`spelling_folded`);
- an odd number of channels is made even: XLA reads fours at once;
- without any padding XLA lays all windows side by side in memory: where that is much, it is given a line of padding,
  whose results are dropped;
- with gaps between the inputs' values as long as the window (transposed convolutions that do not overlap) there is one
  matrix product, whose results are laid out side by side; with smaller gaps each phase of the results is a convolution
  of its own (`spelling_phases`);
- a volume is a sum of convolutions of images, a large one slab by slab (`spelling_volumes`), and one such convolution
  where the window is a plane's or a column (`spelling_flat`);
- groups of channels are convolutions of their own, one after the other, or one product with the groups as its batch
  where a window has one place (`spelling_groups`); those of few channels are a sum of convolutions of each channel by
  itself (`spelling_members`).

What takes many operations stays a call of its own (`kept`). Everything else stays JAX's convolution. Half precision is
accumulated in float32.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.outline import kept
from tf2jax_lite.xla_cpu.rules import call, twin

from .conv3d import by_plane, by_slab, is_slabs, is_stacked, is_volume, stacked
from .conv3d_planes import flattened, is_flat
from .depthwise import depthwise, depthwise_filter
from .filter_grad import is_laid_out, is_turned, is_whole, laid_out, turned, whole
from .grouped import apart, is_point_of_groups, one_by_one, points, points_filter
from .grouped_as_depthwise import by_member, filter_by_member
from .input_dilation import by_phase, has_phases, is_apart, set_apart
from .kernel_dilation import by_rate, is_by_rate
from .matmul import is_patches, is_patches_filter, patches, patches_filter
from .narrow_image import is_narrow, narrowed
from .padding import is_small, surrounded
from .params import Conv, cut, is_plain, pad, place_of, plain, product, read, respec, transposed
from .row_packing import placing, side_by_side
from .width_folding import fold_of, folded
from .winograd import is_tiled, tiled

__all__ = ["call", "convolution_on_cpu"]

_FEWEST_KEPT = 36  # taps of a call of its own: computing so many twice costs more than their result's way to memory
_MOST_TAPS = 128  # code grows with the taps: beyond, compiling would take longer than is gained
_FEWEST_GROUPED, _MOST_SUMMED = 1 << 20, 1 << 12  # products of all groups, and of each result
_FEW_MEMBERS, _FEW_OF_FILTERS = 8, 4  # channels of a group
_FEW_GROUPS, _FEWEST_ALONE = 4, 32  # groups, and their channels
_MOST_PLACES, _MOST_ROWS, _MOST_GATHERED = 9, 2560, 1 << 22  # of a window, windows, and values of all windows
_MANY_WEIGHTS = ((64, 1 << 19), (512, 1 << 20))  # for so many windows at most, so many weights at least
_MOST_UNPADDED, _MOST_OF_FEW, _FEWEST_UNPADDED = 3 << 20, 1 << 18, 3  # values of all windows, and channels
_TOGETHER, _FEWEST_EVENED = 4, 1 << 20  # channels that are read at once, and products
_SLOW_OUTPUTS = range(17, 33)  # outputs of a few channels


def convolution_on_cpu(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Returns the result of ``conv_general_dilated`` with these operands and parameters, or None to leave it alone."""
    found = _spelled(lhs, rhs, params)
    if found is None and not is_plain(params["dimension_numbers"]):
        return plain(lhs, rhs, **params)
    return found


def _spelled(lhs: Any, rhs: Any, params: dict[str, Any]) -> Any:
    """Returns the result in one of the forms above, or None."""
    if lhs.dtype != rhs.dtype or not jnp.issubdtype(lhs.dtype, jnp.floating):
        return None
    conv = read(lhs, rhs, params)
    if conv is None:
        return None
    if max(conv.gaps) == 1 and any(n < 0 for pair in conv.pads for n in pair):
        return _cropped(lhs, rhs, conv, params)
    channels, outputs = lhs.shape[conv.lhs[1]], rhs.shape[conv.rhs[0]]
    wide = _wider(lhs.dtype)
    if conv.batch_groups == 1 and 1 < conv.groups == channels:
        if not _is_tapped(conv, 1):
            return None
        spelled = functools.partial(depthwise, conv=conv)
        if math.prod(conv.window) >= _FEWEST_KEPT:
            spelled = functools.partial(kept, spelled)
        found = spelled(lhs.astype(wide), rhs.astype(wide))
    elif (
        1 < conv.batch_groups == lhs.shape[conv.lhs[0]] and math.prod(conv.result) <= _MOST_TAPS and max(conv.gaps) == 1
    ):
        found = depthwise_filter(lhs.astype(wide), rhs.astype(wide), conv)
    elif 1 < conv.batch_groups == lhs.shape[conv.lhs[0]] == outputs:
        return None
    elif conv.batch_groups > 1 or conv.groups > 1:
        if not _is_grouped(lhs, conv, channels, outputs):
            return None
        found = _by_group(lhs, rhs, conv, params, wide)
    elif _is_point(conv):
        found = _point(lhs, rhs, conv, wide)
    elif is_narrow(conv):
        return narrowed(lhs, rhs, conv, params, _convolved)
    elif is_flat(conv):
        return flattened(lhs, rhs, conv, params, _convolved)
    elif max(conv.gaps) > 1 and is_turned(conv, lhs.shape[conv.lhs[0]], outputs):
        return turned(lhs, rhs, conv, params, _convolved)
    elif is_apart(conv):
        found = set_apart(lhs, rhs, conv, wide)
    elif has_phases(conv, channels, outputs):
        return by_phase(lhs, rhs, conv, params, _convolved)
    elif is_patches_filter(conv):
        found = patches_filter(lhs, rhs, conv, wide)
    elif is_laid_out(conv, channels, lhs.shape[conv.lhs[0]], outputs):
        found = laid_out(lhs, rhs, conv, wide)
    elif is_whole(conv, (lhs.shape[conv.lhs[0]], outputs)):
        found = whole(lhs, rhs, conv, wide)
    elif is_patches(conv):
        found = patches(lhs, rhs, conv, wide)
    elif is_turned(conv, lhs.shape[conv.lhs[0]], outputs):
        return turned(lhs, rhs, conv, params, _convolved)
    elif is_volume(conv):
        summed = {**params, "preferred_element_type": wide}
        if is_stacked(conv, lhs.shape[conv.lhs[0]], channels, outputs):
            found = stacked(lhs.astype(wide), rhs.astype(wide), conv, summed, _convolved)
        elif is_slabs(conv, lhs.shape[conv.lhs[0]], channels, outputs):
            found = by_slab(lhs.astype(wide), rhs.astype(wide), conv, summed)
        else:
            found = by_plane(lhs.astype(wide), rhs.astype(wide), conv, summed, _convolved)
    elif lhs.dtype == np.float32 and (fold := fold_of(conv, lhs.shape[conv.lhs[0]], channels, outputs)) > 1:
        return folded(lhs, rhs, conv, params, fold)
    elif _is_odd(lhs, conv, channels, outputs):
        return _evened(lhs, rhs, conv, params)
    elif is_by_rate(conv, lhs.shape[conv.lhs[0]], channels, outputs):
        return by_rate(lhs, rhs, conv, params, _convolved)
    elif is_tiled(conv, lhs.shape[conv.lhs[0]], channels, outputs):
        found = kept(functools.partial(tiled, conv=conv), lhs.astype(wide), rhs.astype(wide))
    elif _is_gathered(conv, lhs.shape[conv.lhs[0]], channels, outputs):
        found = kept(functools.partial(_gathered, conv=conv, wide=wide), lhs, rhs)
    elif wide == np.float32 and is_small(conv):
        found = surrounded(
            lhs.astype(wide), rhs.astype(wide), conv, {**params, "preferred_element_type": wide}, _convolved
        )
    elif lhs.dtype == np.float32 and (placed := placing(conv, lhs.shape[conv.lhs[0]], channels, outputs)):
        found = side_by_side(lhs, rhs, conv, params, *placed)
    elif _is_unpadded(lhs, conv, channels, wide):
        found = _with_padding(lhs, rhs, conv, params)
    else:
        return None
    return found.astype(conv.dtype)


def _convolved(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Returns the result of ``conv_general_dilated``, spelled as the rule says."""
    found = _spelled(lhs, rhs, params)
    return plain(lhs, rhs, **params) if found is None else found


def _wider(dtype: Any) -> Any:
    """Returns the dtype of sums: float32 for half precision."""
    return np.float32 if jnp.finfo(dtype).bits < 32 else dtype


# Groups of channels.


def _is_grouped(lhs: Any, conv: Conv, channels: Any, outputs: int) -> bool:
    """Whether groups are spelled: XLA takes long for them, and far longer for gradients by their filters."""
    if conv.batch_groups > 1:
        return isinstance(lhs.shape[conv.lhs[0]], int)
    sizes = (lhs.shape[conv.lhs[0]], *conv.result, *conv.window, channels, outputs)
    if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) // conv.groups < _FEWEST_GROUPED:
        return False
    # XLA is faster where sums are long along one dimension alone.
    summed = math.prod(conv.window) * channels // conv.groups
    return summed <= _MOST_SUMMED or max(conv.window) < math.prod(conv.window)


def _by_group(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any], wide: Any) -> Any:
    """Convolves groups: of few channels member by member, single places in one product, others one by one."""
    featured = conv.groups > 1
    groups = conv.groups * conv.batch_groups
    each = lhs.shape[conv.lhs[1 if featured else 0]] // groups
    if groups <= _FEW_GROUPS and each >= _FEWEST_ALONE:
        return apart(lhs, rhs, conv, params, _convolved)
    if isinstance(lhs.shape[conv.lhs[0]], int) and isinstance(lhs.shape[conv.lhs[1]], int):
        if is_point_of_groups(conv):
            return (points if featured else points_filter)(lhs, rhs, conv, wide)
        if _is_by_member(rhs, conv, each):
            return (by_member if featured else filter_by_member)(lhs, rhs, conv, wide)
    return one_by_one(lhs, rhs, conv, params, _convolved)


def _is_by_member(rhs: Any, conv: Conv, each: int) -> bool:
    """Whether groups of so few channels are convolved member by member."""
    if conv.batch_groups > 1:
        return each <= _FEW_OF_FILTERS and math.prod(conv.result) * each <= _MOST_TAPS and max(conv.gaps) == 1
    return _is_tapped(conv, each) and (each <= _FEW_MEMBERS or conv.groups == rhs.shape[conv.rhs[0]])


def _is_tapped(conv: Conv, each: int) -> bool:
    """Whether a sum over a window's places, of so many channels each, is short enough to be written out."""
    return math.prod(conv.window) * each <= _MOST_TAPS and (max(conv.gaps) == 1 or max(conv.strides) == 1)


# Matrix products.


def _is_point(conv: Conv) -> bool:
    """Whether the window has one place."""
    strided = any(s > 1 for s in conv.strides)
    return math.prod(conv.window) == 1 and not (strided and any(g > 1 for g in conv.gaps))


def _point(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    places = conv.lhs[2:]
    spread = any(g > 1 for g in conv.gaps)
    if not spread:
        lhs = cut(pad(lhs, places, conv.pads), places, [0] * len(places), conv.result, conv.strides)
    weights = lax.squeeze(rhs, conv.rhs[2:])
    out_first = conv.rhs[0] < conv.rhs[1]
    out = product(lhs, weights, ((conv.lhs[1],), (1 if out_first else 0,)), conv, wide)
    # The product's dimensions: those of the input without its channel, then the output's channel.
    have = [d - (d > conv.lhs[1]) for d in conv.lhs]
    have[1] = out.ndim - 1
    if spread:  # the sum over one place: values can be spread after the product
        out = pad(out, have[2:], conv.pads, conv.gaps)
    return respec(out, have, conv.out)


def _is_gathered(conv: Conv, batch: Any, channels: int, outputs: int) -> bool:
    """Whether there are few windows, and weights that are many beside them.

    XLA's convolution takes long to get at weights that do not stay near the processor, and where the image is smaller
    than the window.
    """
    if any(g != 1 for g in conv.gaps) or not all(isinstance(n, int) for n in (batch, channels, outputs)):
        return False
    rows, places = batch * math.prod(conv.result), math.prod(conv.window)
    if (
        (places > _MOST_PLACES and not is_small(conv))
        or min(channels, outputs) < 32
        or rows > _MOST_ROWS
        or rows * places * channels > _MOST_GATHERED
    ):
        return False
    weights = places * channels * outputs
    small = 2 * math.prod(conv.sizes) < places <= _MOST_PLACES
    return small or any(rows <= most and weights >= least for most, least in _MANY_WEIGHTS)


def _gathered(lhs: Any, rhs: Any, conv: Conv, wide: Any) -> Any:
    """Lays the values of each window side by side (*im2col*) for one matrix product; a loop, which compiles fast."""
    rank = len(conv.result)
    places = tuple(range(1, rank + 1))
    padded = pad(respec(lhs, conv.lhs, (0, rank + 1, *places)), places, conv.pads)
    channels, rows = padded.shape[-1], padded.shape[0] * math.prod(conv.result)
    sizes = [(n - 1) * s + 1 for n, s in zip(conv.result, conv.strides, strict=True)]
    zero = np.int32(0)

    def put(index: Any, windows: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        starts = (zero, *place_of(index, conv.window, conv.rates), zero)
        part = lax.dynamic_slice(padded, starts, (padded.shape[0], *sizes, channels), allow_negative_indices=False)
        part = cut(part, places, [0] * rank, conv.result, conv.strides)
        part = lax.reshape(part, (rows, 1, channels))
        return lax.dynamic_update_slice(windows, part, (zero, index, zero), allow_negative_indices=False)

    count = math.prod(conv.window)
    windows = lax.fori_loop(zero, np.int32(count), put, jnp.zeros((rows, count, channels), lhs.dtype))
    weights = transposed(rhs, (*conv.rhs[2:], conv.rhs[1], conv.rhs[0]))
    weights = lax.reshape(weights, (count, channels, weights.shape[-1]))
    out = product(windows, weights, ((1, 2), (0, 1)), conv, wide)
    out = lax.reshape(out, (padded.shape[0], *conv.result, out.shape[-1]))
    return respec(out, (0, rank + 1, *places), conv.out)


# Padding.


def _cropped(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any]) -> Any:
    """Cuts off what negative padding leaves out, and convolves without it.

    XLA reads beyond the array where padding is negative on one side and positive on the other
    (https://github.com/openxla/xla/issues/48713), and is slow elsewhere.
    """
    outer = tuple((max(lo, 0), max(hi, 0)) for lo, hi in conv.pads)
    inner = [(min(lo, 0), min(hi, 0)) for lo, hi in conv.pads]
    if any(n + lo + hi < 1 for n, (lo, hi) in zip(conv.sizes, inner, strict=True)):  # nothing but padding is left
        sizes = (lhs.shape[conv.lhs[0]] // conv.batch_groups, rhs.shape[conv.rhs[0]], *conv.result)
        return jnp.zeros([n for _, n in sorted(zip(conv.out, sizes, strict=True))], conv.dtype)
    return _convolved(pad(lhs, conv.lhs[2:], inner), rhs, **{**params, "padding": outer})


def _is_odd(lhs: Any, conv: Conv, channels: Any, outputs: int) -> bool:
    """Whether channels are of an odd number, which XLA reads one by one."""
    sizes = (*conv.result, *conv.window, channels, outputs)
    if len(conv.window) != 2 or lhs.dtype != np.float32 or not all(isinstance(n, int) for n in sizes):
        return False
    if max(conv.gaps) > 1 or channels % 2 == 0 or channels == 1 or math.prod(sizes) < _FEWEST_EVENED:
        return False
    return channels > _TOGETHER or outputs in _SLOW_OUTPUTS


def _evened(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any]) -> Any:
    """Convolves with channels of zeros up to the next multiple of four."""
    more = ((0, -lhs.shape[conv.lhs[1]] % _TOGETHER),)
    return _convolved(pad(lhs, conv.lhs[1:2], more), pad(rhs, conv.rhs[1:2], more), **params)


def _is_unpadded(lhs: Any, conv: Conv, channels: Any, wide: Any) -> bool:
    """Whether an image without padding has windows of so many values that writing them down takes longest."""
    if len(conv.window) != 2 or lhs.dtype != wide or any(p != (0, 0) for p in conv.pads) or max(conv.gaps) > 1:
        return False
    sizes = [n if isinstance(n, int) else 1 for n in (lhs.shape[conv.lhs[0]], *conv.result, *conv.window, channels)]
    most = _MOST_OF_FEW if sizes[-1] <= _TOGETHER else _MOST_UNPADDED
    return sizes[-1] >= _FEWEST_UNPADDED and math.prod(sizes) >= most


def _with_padding(lhs: Any, rhs: Any, conv: Conv, params: dict[str, Any]) -> Any:
    """Convolves with one line of zeros after the last one, of the longer side; results that it is part of are cut.

    A column where the window is larger than the result (gradients by the filter): there XLA is faster with it.
    """
    side = int(conv.result[1] > conv.result[0] or math.prod(conv.window) > math.prod(conv.result))
    padding = tuple((0, int(i == side)) for i in range(2))
    out = plain(lhs, rhs, **{**params, "padding": padding})
    return lax.slice_in_dim(out, 0, conv.result[side], axis=conv.out[2 + side])


twin(lax.conv_general_dilated_p, convolution_on_cpu)
