"""Ranking as it was made for TPUs: rows of float32, of which equal values count once or are told apart by their place.

TensorFlow has kernels of these for TPUs only (tensorflow/core/tpu/kernels/topk_ops.cc).
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
    """Turns the bits of numbers into whole numbers in the same order, and back."""
    return jnp.where(bits < 0, bits ^ _REST, bits)


@op("KthOrderStatistic")
def kth_order_statistic(input: Any, *, k: int) -> Any:
    """Each row's k-th largest; NaN with a sign is the least, one without the largest. See tf.raw_ops.KthOrderStatistic.

    Of ``k`` 0 that is NaN, and of more than there are, NaN with a sign.
    """
    x = _rows(input, k)
    width = x.shape[1]
    if k == 0 or (isinstance(width, int) and k > width):
        beyond = np.int32(-1 if k else _REST)
        return lax.bitcast_convert_type(jnp.full(x.shape[:1], beyond), np.float32)
    ordered = lax.sort(_flipped(_bits(x)), dimension=1)
    return lax.bitcast_convert_type(_flipped(ordered[:, width - k]), np.float32)


def _low_bits(width: int) -> np.int32:
    """Returns the bits in which places of a row of this width are written."""
    if not isinstance(width, int):
        raise OpError(f"the width of the rows must be known while tracing, not {width}")
    return np.int32((1 << max(width - 1, 0).bit_length()) - 1)


@op("MakeUnique")
def make_unique(input: Any) -> Any:
    """Writes each value's place in its row into its lowest bits. See tf.raw_ops.MakeUnique."""
    x = _rows(input)
    bits = _bits(x)
    bits = jnp.where((bits & _REST) == 0, bits | _SMALLEST, bits)
    place = lax.broadcasted_iota(np.int32, x.shape, 1)
    return lax.bitcast_convert_type((bits & ~_low_bits(x.shape[1])) | place, np.float32)


def _descending(x: Any, k: int) -> Any:
    """Returns each row's k largest values, of equal ones one, then -inf. NaN is no value."""
    none = jnp.asarray(-np.inf, x.dtype)
    values = jnp.where(jnp.isnan(x), none, x)

    def following(last: Any, _: Any) -> tuple[Any, Any]:
        best = jnp.max(jnp.where(values >= last[:, None], none, values), axis=1, initial=-np.inf)
        return best, best

    # Nothing is as large as NaN, so that the first round leaves nothing out.
    return scan(following, jnp.full(x.shape[:1], np.nan, x.dtype), length=k)[1].T


@op("TopKUnique")
def top_k_unique(input: Any, *, k: int) -> tuple[Any, Any]:
    """The k largest different values of each row, and the last place of each. See tf.raw_ops.TopKUnique."""
    x = _rows(input, k)
    values = _descending(x, k)
    same = x[:, None, :] == values[:, :, None]
    places = jnp.where(same, lax.broadcasted_iota(np.int32, same.shape, 2), -1)
    return values, jnp.max(places, axis=2, initial=-1)


@op("TopKWithUnique")
def top_k_with_unique(input: Any, *, k: int) -> tuple[Any, Any]:
    """The k largest of what `make_unique` gives, and the places that it wrote there. See tf.raw_ops.TopKWithUnique."""
    values = _descending(make_unique(_rows(input, k)), k)
    return values, _bits(values) & _low_bits(input.shape[1])
