"""Space to batch, space to depth, their inverses, and image patches.

Kernels: spacetobatch_op.cc, batchtospace_op.cc, spacetodepth_op.cc, depthtospace_op.cc, extract_image_patches_op.cc,
extract_volume_patches_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.dim_expr import canonical_dim
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.common.broadcasting import is_int, is_zero
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.static import dims

from .pad import pairs


def _blocks(block_shape: Any, rank: int) -> tuple[int, ...]:
    blocks = tuple(map(int, dims(block_shape)))
    if np.ndim(block_shape) != 1 or len(blocks) >= rank:
        raise OpError(f"block_shape of shape {np.shape(block_shape)} for a tensor of rank {rank}")
    if any(b < 1 for b in blocks):
        raise OpError(f"block sizes must be positive, got {blocks}")
    return blocks


@op("SpaceToBatchND", pattern=Pattern.INJECTIVE)
def space_to_batch_nd(input, block_shape: Static, paddings: Static):
    """Move blocks of spatial dimensions into the batch.

    Args:
      block_shape: ``[m]``, block sizes >= 1 of the first m spatial dimensions.
      paddings: ``[m, 2]``, zeros before and after them; padded dimensions are multiples of the block sizes.
    """
    x = jnp.asarray(input)
    blocks = _blocks(block_shape, x.ndim)
    count = len(blocks)
    pads = pairs(paddings, count)
    config = [(0, 0, 0), *[(b, a, 0) for b, a in pads], *[(0, 0, 0)] * (x.ndim - 1 - count)]
    if any(not is_zero(p) for pair in pads for p in pair):
        x = lax.pad(x, np.zeros((), x.dtype), config)
    split: list[Any] = [x.shape[0]]
    for i, block in enumerate(blocks):
        size = x.shape[1 + i]
        if is_int(size) and size % block:
            raise OpError(f"padded dimension {1 + i} of size {size} is no multiple of the block's {block}")
        split += [size // block, block]
    batch = x.shape[0] * math.prod(blocks)
    x = lax.reshape(x, (*split, *x.shape[1 + count :]))
    rest = range(1 + 2 * count, x.ndim)
    x = lax.transpose(x, (*(2 + 2 * i for i in range(count)), 0, *(1 + 2 * i for i in range(count)), *rest))
    return lax.reshape(x, (batch, *x.shape[count + 1 :]))


@op("BatchToSpaceND", pattern=Pattern.INJECTIVE)
def batch_to_space_nd(input, block_shape: Static, crops: Static):
    """Move blocks of the batch into spatial dimensions.

    Args:
      input: ``[batch, *spatial, ...]``; the batch is a multiple of the product of block sizes.
      block_shape: ``[m]``, block sizes >= 1 of the first m spatial dimensions.
      crops: ``[m, 2]``, elements dropped at both ends of the resulting dimensions.
    """
    x = jnp.asarray(input)
    blocks = _blocks(block_shape, x.ndim)
    count = len(blocks)
    cut = pairs(crops, count)
    total = math.prod(blocks)
    batch = x.shape[0]
    if is_int(batch) and batch % total:
        raise OpError(f"batch of {batch} is no multiple of the block's {total}")
    batch = batch // total
    spatial = [d * b for d, b in zip(x.shape[1 : 1 + count], blocks, strict=True)]
    rest = x.shape[1 + count :]
    x = lax.reshape(x, (*blocks, batch, *x.shape[1:]))
    order = [count, *(i for j in range(count) for i in (count + 1 + j, j)), *range(2 * count + 1, x.ndim)]
    x = lax.reshape(lax.transpose(x, order), (batch, *spatial, *rest))
    for i, ((before, after), size) in enumerate(zip(cut, spatial, strict=True)):
        if all(map(is_int, (before, after, size))) and before + after > size:
            raise OpError(f"crops ({before}, {after}) of dimension {1 + i} of size {size}")
        if not all(map(is_zero, (before, after))):
            if all(map(is_int, (before, after, size))):
                x = lax.slice_in_dim(x, before, size - after, axis=1 + i)
                continue
            # JAX cannot decide for all symbolic sizes that a slice ends inside.
            after = size - before - max_dim(size - before - after, 0)
            config = [(-before, -after, 0) if axis == 1 + i else (0, 0, 0) for axis in range(x.ndim)]
            x = lax.pad(x, np.zeros((), x.dtype), config)
    return x


def _block_size(block_size: int) -> int:
    if block_size < 2:
        raise OpError(f"block size must be greater than 1, got {block_size}")
    return block_size


@op("SpaceToBatch", pattern=Pattern.INJECTIVE)
def space_to_batch(input, paddings: Static, *, block_size):
    """Move blocks of an image into the batch."""
    return space_to_batch_nd(input, np.full(2, _block_size(block_size)), paddings)


@op("BatchToSpace", pattern=Pattern.INJECTIVE)
def batch_to_space(input, crops: Static, *, block_size):
    """Move blocks of the batch into an image."""
    return batch_to_space_nd(input, np.full(2, _block_size(block_size)), crops)


def _image(input: Any, block_size: int, data_format: str) -> tuple[Any, bool]:
    x = jnp.asarray(input)
    if data_format not in ("NHWC", "NCHW"):
        raise UnsupportedAttributeError(f"data_format {data_format!r} (quantized values) is not supported")
    if x.ndim != 4:
        raise OpError(f"input must have rank 4, got {x.ndim}")
    _block_size(block_size)
    return x, data_format == "NHWC"


@op("SpaceToDepth", pattern=Pattern.INJECTIVE)
def space_to_depth(input, *, block_size, data_format="NHWC"):
    """Move blocks of an image into its channels."""
    x, channels_last = _image(input, block_size, data_format)
    n, h, w, c = x.shape if channels_last else (x.shape[0], *x.shape[2:], x.shape[1])
    if any(is_int(d) and d % block_size for d in (h, w)):
        raise OpError(f"an image of {h} x {w} does not divide into blocks of {block_size}")
    rows, columns, depth = h // block_size, w // block_size, c * block_size * block_size
    if channels_last:
        x = lax.reshape(x, (n, rows, block_size, columns, block_size, c))
        return lax.reshape(lax.transpose(x, (0, 1, 3, 2, 4, 5)), (n, rows, columns, depth))
    x = lax.reshape(x, (n, c, rows, block_size, columns, block_size))
    return lax.reshape(lax.transpose(x, (0, 3, 5, 1, 2, 4)), (n, depth, rows, columns))


@op("DepthToSpace", pattern=Pattern.INJECTIVE)
def depth_to_space(input, *, block_size, data_format="NHWC"):
    """Move channels into blocks of an image."""
    x, channels_last = _image(input, block_size, data_format)
    n, h, w, c = x.shape if channels_last else (x.shape[0], *x.shape[2:], x.shape[1])
    if is_int(c) and c % (block_size * block_size):
        raise OpError(f"{c} channels do not divide into blocks of {block_size} x {block_size}")
    rows, columns, depth = h * block_size, w * block_size, c // (block_size * block_size)
    if channels_last:
        x = lax.reshape(x, (n, h, w, block_size, block_size, depth))
        return lax.reshape(lax.transpose(x, (0, 1, 3, 2, 4, 5)), (n, rows, columns, depth))
    x = lax.reshape(x, (n, block_size, block_size, depth, h, w))
    return lax.reshape(lax.transpose(x, (0, 3, 4, 1, 5, 2)), (n, depth, rows, columns))


def _patches(x: Any, ksizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str) -> Any:
    """Return patches of dimensions 1 to n-2, flattened into the last dimension."""
    rank = x.ndim
    spatial = range(1, rank - 1)
    for name, values in (("ksizes", ksizes), ("strides", strides), ("rates", rates)):
        if len(values) != rank:
            raise OpError(f"{name} must have {rank} elements, got {list(values)}")
        if values[0] != 1 or values[-1] != 1 or min(values) < 1:
            raise OpError(f"{name} must be positive, and 1 for batch and depth, got {list(values)}")
    if padding not in ("SAME", "VALID"):
        raise OpError(f"unknown padding {padding!r}")
    counts: list[Any] = []
    config: list[Any] = [(0, 0, 0)] * rank
    for i in spatial:
        size, extent, stride = x.shape[i], (ksizes[i] - 1) * rates[i] + 1, strides[i]
        if padding == "VALID":
            counts.append(max_dim(canonical_dim((size - extent) // stride + 1), 0))
            continue
        counts.append(canonical_dim(-(-size // stride)))
        missing = max_dim((counts[-1] - 1) * stride + extent - size, 0)
        config[i] = (missing // 2, missing - missing // 2, 0)
    if any(not is_zero(p) for before, after, _ in config for p in (before, after)):
        x = lax.pad(x, np.zeros((), x.dtype), config)
    # One dimension at a time: as many slices as the sum of the kernel's sizes, not their product. Dimension i becomes
    # two, windows and taps.
    axis = 1
    for i, count in zip(spatial, counts, strict=True):
        step, rate = strides[i], rates[i]
        if is_int(count) and count == 0:
            x = jnp.zeros((*x.shape[:axis], 0, ksizes[i], *x.shape[axis + 1 :]), x.dtype)
        else:
            span = (count - 1) * step + 1
            parts = [lax.slice_in_dim(x, k * rate, k * rate + span, step, axis) for k in range(ksizes[i])]
            x = lax.concatenate([lax.expand_dims(p, (axis + 1,)) for p in parts], axis + 1)
        axis += 2
    n = rank - 2
    x = lax.transpose(x, (0, *(1 + 2 * i for i in range(n)), *(2 + 2 * i for i in range(n)), 1 + 2 * n))
    return lax.reshape(x, (*x.shape[: 1 + n], math.prod(x.shape[1 + n :])))


@op("ExtractImagePatches", pattern=Pattern.INJECTIVE)
def extract_image_patches(images, *, ksizes, strides, rates, padding):
    """Return the patches of images in the last dimension."""
    x = jnp.asarray(images)
    if x.ndim != 4:
        raise OpError(f"images must have rank 4, got {x.ndim}")
    return _patches(x, ksizes, strides, rates, padding)


@op("ExtractVolumePatches", pattern=Pattern.INJECTIVE)
def extract_volume_patches(input, *, ksizes, strides, padding):
    """Return the patches of volumes in the last dimension."""
    x = jnp.asarray(input)
    if x.ndim != 5:
        raise OpError(f"input must have rank 5, got {x.ndim}")
    return _patches(x, ksizes, strides, (1,) * 5, padding)
