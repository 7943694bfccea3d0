"""Grayscale morphological dilation of images, and its gradients.

The gradient goes to the first maximal sum of image and filter, as in TensorFlow.

TF: core/kernels/dilation_ops.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.dim_expr import canonical_dim
from tf2jax_lite.ops.common.precision import total
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.xla_cpu.materialize import materialize

from .conv import Dims, resolve_padding


def lowest_finite(dtype: Any) -> np.ndarray:
    """Return the lowest finite value of a dtype, as a scalar of it."""
    return np.array((jnp.finfo if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo)(dtype).min, dtype)


def _geometry(input: Any, filter: Any, strides: Dims, rates: Dims, padding: str) -> tuple[Any, list[Any], list[Any]]:
    """Return padding, strides and dilations of rows and columns."""
    if input.ndim != 4 or filter.ndim != 3 or input.shape[3] != filter.shape[2]:
        raise OpError(f"an image batch {input.shape} and a filter {filter.shape} (rows, columns, depth) do not fit")
    for name, values in (("strides", strides), ("rates", rates)):
        if len(values) != 4 or values[0] != 1 or values[3] != 1 or min(values) < 1:
            raise OpError(f"{name} must be positive, and 1 for batch and depth, not {list(values)}")
    strides, dilations = list(strides[1:3]), list(rates[1:3])
    pads = resolve_padding(padding, (), "NHWC", input.shape[1:3], filter.shape[:2], strides, dilations)
    return pads, strides, dilations


def _taps(
    input: Any, filter: Any, strides: Dims, rates: Dims, padding: str
) -> tuple[Any, tuple[Any, ...], Iterator[Any]]:
    """Return padding, the result's shape, and taps: row, column, slice of pixels."""
    pads, strides, dilations = _geometry(input, filter, strides, rates, padding)
    full = [d + before + after for d, (before, after) in zip(input.shape[1:3], pads, strict=True)]
    window = [(k - 1) * r + 1 for k, r in zip(filter.shape[:2], dilations, strict=True)]
    if any(isinstance(d, int) and d < k for d, k in zip(full, window, strict=True)):
        raise OpError(f"a dilated filter of {window} pixels does not fit a padded image of {full}")
    counts = [canonical_dim((d - k) // s + 1) for d, k, s in zip(full, window, strides, strict=True)]

    def taps() -> Iterator[Any]:
        for row, column in np.ndindex(*filter.shape[:2]):
            start = [0, row * dilations[0], column * dilations[1], 0]
            limit = [a + (n - 1) * s + 1 for a, n, s in zip(start[1:3], counts, strides, strict=True)]
            yield row, column, start, (input.shape[0], *limit, input.shape[3]), (1, *strides, 1)

    return (
        [(0, 0, 0), *((before, after, 0) for before, after in pads), (0, 0, 0)],
        (input.shape[0], *counts, input.shape[3]),
        taps(),
    )


def _dilate(input: Any, filter: Any, strides: Dims, rates: Dims, padding: str) -> tuple[Any, Any]:
    """Return the maximal sums, and the index of the first filter tap of each."""
    pads, shape, taps = _taps(input, filter, strides, rates, padding)
    inside = lax.pad(jnp.ones(input.shape[1:3], bool), np.False_, pads[1:3])
    padded = lax.pad(input, np.zeros((), input.dtype), pads)
    # Padding is never selected; the result for a window that is all padding is this value, as in TensorFlow.
    best, argmax = jnp.full(shape, lowest_finite(input.dtype)), jnp.zeros(shape, np.int32)
    for tap, (row, column, start, limit, steps) in enumerate(taps):
        total = lax.slice(padded, start, limit, steps) + filter[row, column]
        valid = lax.slice(inside, start[1:3], limit[1:3], steps[1:3])[None, :, :, None]
        larger = valid & (total > best)
        best, argmax = jnp.where(larger, total, best), jnp.where(larger, jnp.int32(tap), argmax)
    return best, materialize(argmax)  # XLA would recompute it for each tap that it is compared with


def _input_gradient(input: Any, filter: Any, grad: Any, strides: Dims, rates: Dims, padding: str) -> Any:
    argmax = _dilate(input, filter, strides, rates, padding)[1]
    pads, _, taps = _taps(input, filter, strides, rates, padding)
    full = [before + d + after for d, (before, after, _) in zip(input.shape, pads, strict=True)]
    zero = np.zeros((), grad.dtype)
    out = jnp.zeros(full, grad.dtype)
    for tap, (_, _, start, limit, steps) in enumerate(taps):
        # The transpose of the slice.
        config = [(a, d - b, s - 1) for a, b, d, s in zip(start, limit, full, steps, strict=True)]
        out = out + lax.pad(jnp.where(argmax == tap, grad, zero), zero, config)
    return lax.pad(out, zero, [(-before, -after, 0) for before, after, _ in pads])


def _filter_gradient(input: Any, filter: Any, grad: Any, strides: Dims, rates: Dims, padding: str) -> Any:
    argmax = _dilate(input, filter, strides, rates, padding)[1]
    count = filter.shape[0] * filter.shape[1]
    parts = [total(jnp.where(argmax == k, grad, np.zeros((), grad.dtype)), (0, 1, 2)) for k in range(count)]
    return jnp.stack(parts).reshape(filter.shape) if parts else jnp.zeros_like(filter)


@op("Dilation2D")
def dilation2d(input, filter, *, strides, rates, padding):
    """Compute the maximal sum of pixels and filter in each window."""
    input, filter = jnp.asarray(input), jnp.asarray(filter)

    @jax.custom_jvp
    def dilate(input: Any, filter: Any) -> Any:
        return _dilate(input, filter, strides, rates, padding)[0]

    @dilate.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        input, filter = primals
        out, argmax = _dilate(input, filter, strides, rates, padding)
        pads, _, taps = _taps(input, filter, strides, rates, padding)
        padded = lax.pad(tangents[0], np.zeros((), out.dtype), pads)
        total = jnp.zeros_like(out)
        for tap, (row, column, *pixels) in enumerate(taps):
            total = total + jnp.where(argmax == tap, lax.slice(padded, *pixels) + tangents[1][row, column], 0)
        return out, total

    return dilate(input, filter)


@op("Dilation2DBackpropInput")
def dilation2d_backprop_input(input, filter, out_backprop, *, strides, rates, padding):
    """Compute the gradient of `dilation2d` with respect to its input."""
    input, filter, grad = (jnp.asarray(v) for v in (input, filter, out_backprop))
    return _input_gradient(input, filter, grad, strides, rates, padding)


@op("Dilation2DBackpropFilter")
def dilation2d_backprop_filter(input, filter, out_backprop, *, strides, rates, padding):
    """Compute the gradient of `dilation2d` with respect to its filter."""
    input, filter, grad = (jnp.asarray(v) for v in (input, filter, out_backprop))
    return _filter_gradient(input, filter, grad, strides, rates, padding)
