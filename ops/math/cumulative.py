"""Cumulative sums, products and log-sum-exps.

Kernels: scan_ops.cc, cumulative_logsumexp in tensorflow/core/kernels. 16-bit floats are accumulated in float32, in
TensorFlow in 16 bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.accumulation import in_float32, upcast
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import is_symbolic, normalize_axis
from tf2jax_lite.xla_cpu.cumulative import cumulative

_UFUNCS = {"Sum": np.add, "Prod": np.multiply}
_SYMBOLIC_UFUNCS = {"Sum": np.frompyfunc(operator.add, 2, 1), "Prod": np.frompyfunc(operator.mul, 2, 1)}
_IDENTITY = {"Sum": 0, "Prod": 1}


def _scan_axis(axis: Any, rank: int) -> int:
    if np.ndim(axis) != 0 or rank == 0:
        raise OpError(f"expected one axis of a tensor of rank >= 1, got {axis} for rank {rank}")
    return normalize_axis(axis, rank)


def _shifted(x: Any, axis: int, reverse: bool, identity: Any) -> Any:
    """Shift along the scan by one: the inclusive scan becomes exclusive."""
    one = jnp.asarray(identity, x.dtype)
    low, high = (-1, 1) if reverse else (1, -1)
    return lax.pad(x, one, [(low, high, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)])


def _scan(fn: Any, x: Any, axis: Any, exclusive: bool, reverse: bool, identity: Any) -> Any:
    axis = _scan_axis(axis, x.ndim)
    if exclusive:
        x = _shifted(x, axis, reverse, identity)
    return in_float32(lambda v: cumulative(fn, v, axis, reverse), x)


def _fold_scan(name: str) -> Callable[..., np.ndarray]:
    def scan(x: Any, axis: Any, *, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
        x = np.asarray(x)
        axis = _scan_axis(axis, x.ndim)
        values = np.flip(upcast(x), axis) if reverse else upcast(x)
        ufunc = _SYMBOLIC_UFUNCS[name] if is_symbolic(x) else _UFUNCS[name]
        y = ufunc.accumulate(values, axis=axis, dtype=values.dtype)
        if exclusive and x.shape[axis]:
            first = np.empty_like(np.take(y, [0], axis))
            first[...] = _IDENTITY[name]
            y = np.concatenate([first, np.take(y, range(x.shape[axis] - 1), axis)], axis)
        return (np.flip(y, axis) if reverse else y).astype(x.dtype)

    return scan


@op("Cumsum", fold=_fold_scan("Sum"), pattern=Pattern.MATERIALIZED)
def cumsum(x, axis: Static, *, exclusive=False, reverse=False):
    """Return cumulative sums along an axis."""
    return _scan(lax.cumsum, x, axis, exclusive, reverse, 0)


@op("Cumprod", fold=_fold_scan("Prod"), pattern=Pattern.MATERIALIZED)
def cumprod(x, axis: Static, *, exclusive=False, reverse=False):
    """Return cumulative products along an axis.

    Arguments are those of `cumsum`.

    The gradient is exact where elements are 0; TensorFlow divides by the input, and returns 0.
    """
    return _scan(lax.cumprod, x, axis, exclusive, reverse, 1)


@op("CumulativeLogsumexp", pattern=Pattern.MATERIALIZED)
def cumulative_logsumexp(x, axis: Static, *, exclusive=False, reverse=False):
    """Return cumulative log-sum-exps along an axis.

    Arguments are those of `cumsum`.

    All results after NaN are NaN; TensorFlow's CPU kernel replaces NaN by the element beside it.
    """
    return _scan(lax.cumlogsumexp, x, axis, exclusive, reverse, -np.inf)
