"""Padding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, is_string

# A numpy twin computes results up to this size; larger ones are made in the trace, where they cost no memory.
SMALL = 1024


def pairs(paddings: Any, rank: int) -> list[tuple[Any, Any]]:
    """Returns paddings, an [n, 2] array, as pairs; they may be dimension expressions.

    Raises:
      OpError: not a pair for each dimension, or a negative one.
    """
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


def _host_pad_v2(input: Any, paddings: Any, constant_values: Any) -> Any:
    input, fill = np.asarray(input), np.asarray(constant_values)
    wanted = pairs(paddings, input.ndim)
    shape = tuple(b + d + a for d, (b, a) in zip(input.shape, wanted, strict=True))
    small = all(isinstance(d, int) for d in shape) and math.prod(shape) <= SMALL
    if not small and not is_string(input):
        return pad_v2(as_array(input), paddings, as_array(fill).astype(canonical(input.dtype)))
    dtype = object if object in (input.dtype, fill.dtype) else input.dtype
    out = np.full(shape, fill[()], dtype)
    out[tuple(slice(b, b + d) for d, (b, _) in zip(input.shape, wanted, strict=True))] = input
    return out


def _host_pad(input: Any, paddings: Any) -> Any:
    input = np.asarray(input)
    if is_string(input):
        return _host_pad_v2(input, paddings, np.array(b"", object))
    return _host_pad_v2(input, paddings, np.zeros((), np.int32 if input.dtype == object else input.dtype))


@op("Pad", host=_host_pad, elements=result_size.padded, moves=True)
def pad(input: Any, paddings: Static) -> Any:
    """Pads with zeros. See tf.raw_ops.Pad."""
    return pad_v2(input, paddings, np.zeros((), input.dtype))


@op("PadV2", host=_host_pad_v2, elements=result_size.padded, moves=True)
def pad_v2(input: Any, paddings: Static, constant_values: Any) -> Any:
    """Pads with a value, which takes no gradient. See tf.raw_ops.PadV2."""
    input = jnp.asarray(input)
    fill = lax.stop_gradient(jnp.asarray(constant_values))
    wanted = pairs(paddings, input.ndim)
    try:
        return lax.pad(input, fill, [(b, a, 0) for b, a in wanted])
    except InconclusiveDimensionOperation:
        for width in itertools.chain(*wanted):
            if width < 0:  # JAX's error, but about what is padded rather than about what comes out
                raise OpError(f"paddings must be non-negative, got {width}") from None
        raise


def _mirror(paddings: Any, shape: tuple[Any, ...], mode: str) -> tuple[list[tuple[Any, Any]], int]:
    """Returns the paddings, and how many elements at each end are not repeated. ``shape`` is before padding."""
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise OpError(f"unknown mode {mode!r}")
    skip = 1 if mode == "REFLECT" else 0
    wanted = pairs(paddings, len(shape))
    for d, (b, a) in zip(shape, wanted, strict=True):
        if any(isinstance(p, int) and isinstance(d, int) and p > d - skip for p in (b, a)):
            least = "less than" if skip else "no greater than"
            raise OpError(f"paddings must be {least} the dimension size: {b}, {a} for {d}")
    return wanted, skip


def _is_zero(value: Any) -> bool:
    return isinstance(value, int) and value == 0


@op("MirrorPad", elements=result_size.padded, moves=True)
def mirror_pad(input: Any, paddings: Static, *, mode: str) -> Any:
    """Pads with mirrored values. See tf.raw_ops.MirrorPad."""
    x = jnp.asarray(input)
    wanted, skip = _mirror(paddings, x.shape, mode)
    for axis, (before, after) in enumerate(wanted):
        size = x.shape[axis]
        parts = [x]
        if not _is_zero(before):
            parts.insert(0, lax.rev(lax.slice_in_dim(x, skip, skip + before, axis=axis), (axis,)))
        if not _is_zero(after):
            parts.append(lax.rev(lax.slice_in_dim(x, size - skip - after, size - skip, axis=axis), (axis,)))
        x = lax.concatenate(parts, axis) if len(parts) > 1 else x
    return x


@op("MirrorPadGrad", moves=True)
def mirror_pad_grad(input: Any, paddings: Static, *, mode: str) -> Any:
    """Folds mirrored margins back onto what they mirror. See tf.raw_ops.MirrorPadGrad."""
    x = jnp.asarray(input)
    inner = tuple(d - b - a for d, (b, a) in zip(x.shape, pairs(paddings, x.ndim), strict=True))
    wanted, skip = _mirror(paddings, inner, mode)
    zero = np.zeros((), x.dtype)
    for axis, (before, after) in enumerate(wanted):
        size, total = inner[axis], x.shape[axis]
        out = lax.slice_in_dim(x, before, total - after, axis=axis)
        for margin, low, place in ((before, 0, skip), (after, total - after, size - skip - after)):
            if not _is_zero(margin):
                part = lax.rev(lax.slice_in_dim(x, low, low + margin, axis=axis), (axis,))
                config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * x.ndim
                config[axis] = (place, size - place - margin, 0)
                out = lax.add(out, lax.pad(part, zero, config))
        x = out
    return x
