"""Order statistics of float32 rows that TensorFlow has for TPU only.

Source: tensorflow/core/tpu/kernels/topk_ops.cc.

Equal values count once, or are made unique by their index.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError

_REST = np.int32(0x7FFFFFFF)  # all bits but the sign
_SMALLEST = np.int32(1 << 23)  # the bits of the smallest normal number


def _rows(input: Any, k: int = 0) -> Any:
    if input.ndim != 2:
        raise OpError(f"input must be a matrix, not of rank {input.ndim}")
    if k < 0:
        raise OpError(f"k must not be negative, got {k}")
    return jnp.asarray(input)


def _bits(x: Any) -> Any:
    return lax.bitcast_convert_type(x, np.int32)


def _flipped(bits: Any) -> Any:
    """Map the bits of floats to integers in the same order, and back."""
    return jnp.where(bits < 0, bits ^ _REST, bits)


@op("KthOrderStatistic")
def kth_order_statistic(input, *, k):
    """Return each row's k-th largest element.

    Args:
      input: ``[rows, width]``, float32. Negative NaN is the smallest number, positive NaN the largest.
    """
    x = _rows(input, k)
    width = x.shape[1]
    if k == 0 or (isinstance(width, int) and k > width):
        beyond = np.int32(-1 if k else _REST)
        return lax.bitcast_convert_type(jnp.full(x.shape[:1], beyond), np.float32)
    ordered = lax.sort(_flipped(_bits(x)), dimension=1)
    return lax.bitcast_convert_type(_flipped(ordered[:, width - k]), np.float32)


def _low_bits(width: int) -> np.int32:
    """Return the mask of the low bits that hold indices in a row of this width."""
    if not isinstance(width, int):
        raise OpError(f"the width of the rows must be static, got {width}")
    return np.int32((1 << max(width - 1, 0).bit_length()) - 1)


@op("MakeUnique")
def make_unique(input):
    """Return values whose lowest bits are replaced by their index in the row."""
    x = _rows(input)
    bits = _bits(x)
    bits = jnp.where((bits & _REST) == 0, bits | _SMALLEST, bits)
    index = lax.broadcasted_iota(np.int32, x.shape, 1)
    return lax.bitcast_convert_type((bits & ~_low_bits(x.shape[1])) | index, np.float32)


def _descending(x: Any, k: int) -> Any:
    """Return each row's k largest distinct values, then -inf; NaN is skipped."""
    none = jnp.asarray(-np.inf, x.dtype)
    values = jnp.where(jnp.isnan(x), none, x)

    def following(last: Any, _: Any) -> tuple[Any, Any]:
        best = jnp.max(jnp.where(values >= last[:, None], none, values), axis=1, initial=-np.inf)
        return best, best

    # No value is >= NaN, so the first step excludes none.
    return scan(following, jnp.full(x.shape[:1], np.nan, x.dtype), length=k)[1].T


@op("TopKUnique")
def top_k_unique(input, *, k):
    """Return the k largest distinct values of each row, and the last index of each.

    Args:
      k: number of values; beyond the distinct ones, values are -inf and indices -1.
    """
    x = _rows(input, k)
    values = _descending(x, k)
    same = x[:, None, :] == values[:, :, None]
    indices = jnp.where(same, lax.broadcasted_iota(np.int32, same.shape, 2), -1)
    return values, jnp.max(indices, axis=2, initial=-1)


@op("TopKWithUnique")
def top_k_with_unique(input, *, k):
    """Return the k largest results of `make_unique`, and the indices in their bits."""
    values = _descending(make_unique(_rows(input, k)), k)
    return values, _bits(values) & _low_bits(input.shape[1])
