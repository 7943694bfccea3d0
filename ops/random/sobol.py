"""The Sobol sequence of quasirandom points.

``sobol.npz`` contains, for each dimension but the first, a primitive polynomial over GF(2) (all up to degree 13, in
order) and its initial direction numbers, one for each degree, by Joe and Kuo (2008). They were derived from points of
TensorFlow: point 2^k is the difference of direction numbers k and k - 1. tests/ops/random/test_sobol.py repeats this.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

_FLOAT32 = np.dtype(np.float32)
_DIGITS = 31  # a point's index is an int32
_DIMENSIONS = 1111


@functools.cache
def direction_numbers() -> np.ndarray:
    """Return direction numbers as binary fractions, uint32 [dimensions, digits]."""
    with np.load(Path(__file__).with_name("sobol.npz")) as table:
        initial, polynomial = table["initial"].astype(np.uint64), table["polynomial"].astype(np.int64)
    degree = np.floor(np.log2(polynomial)).astype(np.int64)
    rows = np.arange(len(polynomial))
    numbers = np.zeros((len(polynomial), _DIGITS), np.uint64)
    for k in range(_DIGITS):
        oldest = numbers[rows, np.maximum(k - degree, 0)]
        next_number = oldest ^ (oldest << degree.astype(np.uint64))
        for i in range(1, min(k, int(degree.max()) - 1) + 1):
            used = (i < degree) & ((polynomial >> np.maximum(degree - i, 0)) & 1 == 1)
            next_number ^= np.where(used, numbers[:, k - i] << np.uint64(i), 0).astype(np.uint64)
        start = initial[:, k] if k < initial.shape[1] else initial[:, 0]
        numbers[:, k] = np.where(k < degree, start, next_number)
    numbers = np.concatenate([np.ones((1, _DIGITS), np.uint64), numbers])
    return (numbers << np.arange(31, 31 - _DIGITS, -1).astype(np.uint64)).astype(np.uint32)


@op("SobolSample")
def sobol_sample(dim: Static, num_results: Static, skip, *, dtype=_FLOAT32):
    """Return points of the Sobol sequence.

    TF: core/kernels/sobol_op.cc.

    TensorFlow supports 21,201 dimensions, this op 1,111.

    Args:
      dim: static int scalar, number of dimensions, at most 1111.
      skip: int scalar, index of the first point.
    """
    dimensions, count = int(dim), int(num_results)
    if not 1 <= dimensions <= _DIMENSIONS:
        raise OpError(f"dim must be between 1 and {_DIMENSIONS}, got {dimensions}")
    if count < 1:
        raise OpError(f"num_results must be at least one, got {count}")
    first = static_value(skip)
    if first is not None and int(first) < 0:
        raise OpError(f"skip must not be negative, got {int(first)}")
    digits = _DIGITS if first is None else min((int(first) + count).bit_length(), _DIGITS)
    number = jnp.asarray(skip).astype(np.uint32) + np.uint32(1) + lax.iota(np.uint32, count)
    gray = number ^ (number >> np.uint32(1))
    point = jnp.zeros((count, dimensions), np.uint32)
    for k in range(digits):
        column = direction_numbers()[:dimensions, k]
        point = point ^ jnp.where((gray >> np.uint32(k) & np.uint32(1))[:, None] == 1, column, np.uint32(0))
    dtype = canonical(dtype)
    return point.astype(dtype) * np.asarray(2.0**-32, dtype)
