"""Padding by a constant or mirrored values.

Kernels: pad_op.cc, mirror_pad_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import is_small, is_zero
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, is_string


def pairs(paddings: Any, rank: int) -> list[tuple[Any, Any]]:
    """Return paddings as (before, after) pairs of ints or dimension expressions."""
    paddings = np.asarray(paddings)
    if paddings.shape != (rank, 2):
        raise OpError(f"paddings must have shape ({rank}, 2), got {paddings.shape}")
    out = []
    for row in paddings:
        before, after = dims(row)
        if any(isinstance(p, int) and p < 0 for p in (before, after)):
            raise OpError(f"paddings must be non-negative, got ({before}, {after})")
        out.append((before, after))
    return out


def _fold_pad_v2(input: Any, paddings: Any, constant_values: Any) -> Any:
    input, fill = np.asarray(input), np.asarray(constant_values)
    wanted = pairs(paddings, input.ndim)
    shape = tuple(b + d + a for d, (b, a) in zip(input.shape, wanted, strict=True))
    if not is_small(shape) and not is_string(input):
        return pad_v2(as_array(input), paddings, as_array(fill).astype(canonical(input.dtype)))
    dtype = object if object in (input.dtype, fill.dtype) else input.dtype
    out = np.full(shape, fill[()], dtype)
    out[tuple(slice(b, b + d) for d, (b, _) in zip(input.shape, wanted, strict=True))] = input
    return out


def _fold_pad(input: Any, paddings: Any) -> Any:
    input = np.asarray(input)
    if is_string(input):
        return _fold_pad_v2(input, paddings, np.array(b"", object))
    return _fold_pad_v2(input, paddings, np.zeros((), np.int32 if input.dtype == object else input.dtype))


@op("Pad", fold=_fold_pad, result_size=result_size.padded, pattern=Pattern.INJECTIVE)
def pad(input, paddings: Static):
    """Pad with zeros.

    Args:
      paddings: ``[rank, 2]``, ints >= 0, before and after each dimension.
    """
    return pad_v2(input, paddings, np.zeros((), input.dtype))


@op("PadV2", fold=_fold_pad_v2, result_size=result_size.padded, pattern=Pattern.INJECTIVE)
def pad_v2(input, paddings: Static, constant_values):
    """Pad with a value, which gets no gradient.

    Args:
      paddings: ``[rank, 2]``, ints >= 0, before and after each dimension.
    """
    input = jnp.asarray(input)
    fill = lax.stop_gradient(jnp.asarray(constant_values))
    wanted = pairs(paddings, input.ndim)
    try:
        return lax.pad(input, fill, [(b, a, 0) for b, a in wanted])
    except InconclusiveDimensionOperation:
        for width in itertools.chain(*wanted):
            if width < 0:  # JAX's error speaks about the result's shape
                raise OpError(f"paddings must be non-negative, got {width}") from None
        raise


def _mirror(paddings: Any, shape: tuple[Any, ...], mode: str) -> tuple[list[tuple[Any, Any]], int]:
    """Return paddings and the numbers of unrepeated elements at each end."""
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise OpError(f"unknown mode {mode!r}")
    skip = 1 if mode == "REFLECT" else 0
    wanted = pairs(paddings, len(shape))
    for d, (b, a) in zip(shape, wanted, strict=True):
        if any(isinstance(p, int) and isinstance(d, int) and p > d - skip for p in (b, a)):
            bound = "less than" if skip else "no greater than"
            raise OpError(f"paddings must be {bound} the dimension size: {b}, {a} for {d}")
    return wanted, skip


@op("MirrorPad", result_size=result_size.padded, pattern=Pattern.INJECTIVE)
def mirror_pad(input, paddings: Static, *, mode):
    """Pad with mirrored values."""
    x = jnp.asarray(input)
    wanted, skip = _mirror(paddings, x.shape, mode)
    for axis, (before, after) in enumerate(wanted):
        size = x.shape[axis]
        parts = [x]
        if not is_zero(before):
            parts.insert(0, lax.rev(lax.slice_in_dim(x, skip, skip + before, axis=axis), (axis,)))
        if not is_zero(after):
            parts.append(lax.rev(lax.slice_in_dim(x, size - skip - after, size - skip, axis=axis), (axis,)))
        x = lax.concatenate(parts, axis) if len(parts) > 1 else x
    return x


@op("MirrorPadGrad", pattern=Pattern.INJECTIVE)
def mirror_pad_grad(input, paddings: Static, *, mode):
    """Add mirrored margins to the elements that they repeat.

    Args:
      paddings: ``[rank, 2]``, as those of `mirror_pad`.
    """
    x = jnp.asarray(input)
    inner = tuple(d - b - a for d, (b, a) in zip(x.shape, pairs(paddings, x.ndim), strict=True))
    wanted, skip = _mirror(paddings, inner, mode)
    zero = np.zeros((), x.dtype)
    for axis, (before, after) in enumerate(wanted):
        size, total = inner[axis], x.shape[axis]
        out = lax.slice_in_dim(x, before, total - after, axis=axis)
        for margin, low, start in ((before, 0, skip), (after, total - after, size - skip - after)):
            if not is_zero(margin):
                part = lax.rev(lax.slice_in_dim(x, low, low + margin, axis=axis), (axis,))
                config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * x.ndim
                config[axis] = (start, size - start - margin, 0)
                out = lax.add(out, lax.pad(part, zero, config))
        x = out
    return x
