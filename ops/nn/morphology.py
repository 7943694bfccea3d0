"""Grey-scale dilation of images, and its gradients.

TensorFlow takes the first largest sum of image and filter, and sends the gradient there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.canonical_dims import canonical_dim
from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.xla_cpu.materialize import materialize

from .conv import resolve_padding

Dims = Sequence[int]


def _lowest(dtype: Any) -> Any:
    # Padding never wins; a window that holds nothing but padding keeps this number, as in TensorFlow.
    return np.array((jnp.finfo if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo)(dtype).min, dtype)


def _geometry(input: Any, filter: Any, strides: Dims, rates: Dims, padding: str) -> tuple[Any, list[Any], list[Any]]:
    """Returns the padding of rows and columns, the strides and the rates."""
    if input.ndim != 4 or filter.ndim != 3 or input.shape[3] != filter.shape[2]:
        raise OpError(f"an image batch {input.shape} and a filter {filter.shape} (rows, columns, depth) do not fit")
    for name, values in (("strides", strides), ("rates", rates)):
        if len(values) != 4 or values[0] != 1 or values[3] != 1 or min(values) < 1:
            raise OpError(f"{name} must be positive, and 1 for batch and depth, not {list(values)}")
    steps, spread = list(strides[1:3]), list(rates[1:3])
    pads = resolve_padding(padding, (), "NHWC", input.shape[1:3], filter.shape[:2], steps, spread)
    return pads, steps, spread


def _places(
    input: Any, filter: Any, strides: Dims, rates: Dims, padding: str
) -> tuple[Any, tuple[Any, ...], Iterator[Any]]:
    """Returns the padding, the shape of results, and for each place in the filter how its pixels are cut out.

    They are cut out of the padded image.
    """
    pads, steps, spread = _geometry(input, filter, strides, rates, padding)
    full = [d + before + after for d, (before, after) in zip(input.shape[1:3], pads, strict=True)]
    reach = [(k - 1) * r + 1 for k, r in zip(filter.shape[:2], spread, strict=True)]
    if any(isinstance(d, int) and d < r for d, r in zip(full, reach, strict=True)):
        raise OpError(f"a filter that reaches over {reach} pixels does not fit an image of {full}")
    counts = [canonical_dim((d - r) // s + 1) for d, r, s in zip(full, reach, steps, strict=True)]

    def cuts() -> Iterator[Any]:
        for row, column in np.ndindex(*filter.shape[:2]):
            start = [0, row * spread[0], column * spread[1], 0]
            limit = [a + (n - 1) * s + 1 for a, n, s in zip(start[1:3], counts, steps, strict=True)]
            yield row, column, start, (input.shape[0], *limit, input.shape[3]), (1, *steps, 1)

    return (
        [(0, 0, 0), *((before, after, 0) for before, after in pads), (0, 0, 0)],
        (input.shape[0], *counts, input.shape[3]),
        cuts(),
    )


def _dilate(input: Any, filter: Any, strides: Dims, rates: Dims, padding: str) -> tuple[Any, Any]:
    """Returns the largest sums, and at which place of the filter each is (the first of equal ones)."""
    pads, shape, cuts = _places(input, filter, strides, rates, padding)
    inside = lax.pad(jnp.ones(input.shape[1:3], bool), np.False_, pads[1:3])
    padded = lax.pad(input, np.zeros((), input.dtype), pads)
    best, where = jnp.full(shape, _lowest(input.dtype)), jnp.zeros(shape, np.int32)
    for place, (row, column, start, limit, steps) in enumerate(cuts):
        total = lax.slice(padded, start, limit, steps) + filter[row, column]
        here = lax.slice(inside, start[1:3], limit[1:3], steps[1:3])[None, :, :, None]
        larger = here & (total > best)
        best, where = jnp.where(larger, total, best), jnp.where(larger, jnp.int32(place), where)
    return best, materialize(where)  # XLA would recompute it for each tap that it is compared with


def _by_input(input: Any, filter: Any, grad: Any, strides: Dims, rates: Dims, padding: str) -> Any:
    where = _dilate(input, filter, strides, rates, padding)[1]
    pads, _, cuts = _places(input, filter, strides, rates, padding)
    full = [before + d + after for d, (before, after, _) in zip(input.shape, pads, strict=True)]
    zero = np.zeros((), grad.dtype)
    out = jnp.zeros(full, grad.dtype)
    for place, (_, _, start, limit, steps) in enumerate(cuts):
        # Back to where the pixels were cut out.
        spread = [(a, d - b, s - 1) for a, b, d, s in zip(start, limit, full, steps, strict=True)]
        out = out + lax.pad(jnp.where(where == place, grad, zero), zero, spread)
    return lax.pad(out, zero, [(-before, -after, 0) for before, after, _ in pads])


def _by_filter(input: Any, filter: Any, grad: Any, strides: Dims, rates: Dims, padding: str) -> Any:
    where = _dilate(input, filter, strides, rates, padding)[1]
    count = filter.shape[0] * filter.shape[1]
    parts = [total(jnp.where(where == k, grad, np.zeros((), grad.dtype)), (0, 1, 2)) for k in range(count)]
    return jnp.stack(parts).reshape(filter.shape) if parts else jnp.zeros_like(filter)


@op("Dilation2D")
def dilation2d(input: Any, filter: Any, *, strides: Dims, rates: Dims, padding: str) -> Any:
    """Returns the largest sum of pixels and filter in each window. See tf.raw_ops.Dilation2D."""
    input, filter = jnp.asarray(input), jnp.asarray(filter)

    @jax.custom_jvp
    def dilate(input: Any, filter: Any) -> Any:
        return _dilate(input, filter, strides, rates, padding)[0]

    @dilate.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        input, filter = primals
        out, where = _dilate(input, filter, strides, rates, padding)
        pads, _, cuts = _places(input, filter, strides, rates, padding)
        moved = lax.pad(tangents[0], np.zeros((), out.dtype), pads)
        total = jnp.zeros_like(out)
        for place, (row, column, *cut) in enumerate(cuts):
            total = total + jnp.where(where == place, lax.slice(moved, *cut) + tangents[1][row, column], 0)
        return out, total

    return dilate(input, filter)


@op("Dilation2DBackpropInput")
def dilation2d_backprop_input(
    input: Any, filter: Any, out_backprop: Any, *, strides: Dims, rates: Dims, padding: str
) -> Any:
    """Returns the gradient by the image. See tf.raw_ops.Dilation2DBackpropInput."""
    input, filter, grad = (jnp.asarray(v) for v in (input, filter, out_backprop))
    return _by_input(input, filter, grad, strides, rates, padding)


@op("Dilation2DBackpropFilter")
def dilation2d_backprop_filter(
    input: Any, filter: Any, out_backprop: Any, *, strides: Dims, rates: Dims, padding: str
) -> Any:
    """Returns the gradient by the filter. See tf.raw_ops.Dilation2DBackpropFilter."""
    input, filter, grad = (jnp.asarray(v) for v in (input, filter, out_backprop))
    return _by_filter(input, filter, grad, strides, rates, padding)
