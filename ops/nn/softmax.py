"""Softmax and its logarithm along any axis.

XLA's CPU backend takes an axis that is not the last one where it lies faster than it would transpose it to the end and
back, unless what follows the axis are a few values (two cores, JAX 0.10). Rows of many are taken as sums over leading
axes are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.common.broadcasting import matched
from tf2jax_lite.xla_cpu.reductions import has_long_rows, reduce_axes

__all__ = ["log_softmax", "log_softmax_in_place", "softmax"]

_FEW = 8  # values behind the axis


def softmax(x: Any, *, axis: int) -> Any:
    """Returns ``jax.nn.softmax(x, axis)``.

    Args:
      x: an array of floats.
      axis: one of its axes, not negative.
    """
    return _by_rows(x, axis) if _is_long(x, axis) else _in_place(jax.nn.softmax, x, axis)


def log_softmax(x: Any, *, axis: int) -> Any:
    """Returns ``jax.nn.log_softmax(x, axis)``.

    Args:
      x: an array of floats.
      axis: one of its axes, not negative.
    """
    if not _is_long(x, axis):
        return _in_place(log_softmax_in_place, x, axis)
    shifted = _shifted(x, axis)
    return lax.sub(*matched(shifted, lax.log(_kept(lax.reduce_sum, lax.exp(shifted), axis))))


def log_softmax_in_place(x: Any, axis: int) -> Any:
    """Returns ``jax.nn.log_softmax(x, axis)``, computed in float32 for 16-bit floats: its rounding errors are those of
    the sum of exponentials, which may be much larger than the result.

    Args:
      x: an array of floats.
      axis: one of its axes.
    """
    return _half_log_softmax(x, axis) if jnp.finfo(x.dtype).bits < 32 else jax.nn.log_softmax(x, axis=axis)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _half_log_softmax(x: Any, axis: int) -> Any:
    return in_float32(lambda v: jax.nn.log_softmax(v, axis=axis), x)


@_half_log_softmax.defjvp
def _(axis: int, primals: Any, tangents: Any) -> Any:
    # From the result, as TensorFlow has it: what is kept for a gradient has 16 bits.
    y = _half_log_softmax(primals[0], axis)

    def slope(t: Any, y: Any) -> Any:
        return t - jnp.sum(jnp.exp(y) * t, axis=axis, keepdims=True)

    return y, in_float32(slope, tangents[0], y)


def _in_place(fn: Callable[..., Any], x: Any, axis: int) -> Any:
    behind = x.shape[axis + 1 :]
    if all(isinstance(n, int) for n in behind) and math.prod(behind) <= _FEW:
        return jnp.moveaxis(fn(jnp.moveaxis(x, axis, -1), axis=-1), -1, axis)
    return fn(x, axis=axis)


def _is_long(x: Any, axis: int) -> bool:
    # Half precision is added up in single precision, which jax.nn does.
    return has_long_rows(x.shape, (axis,)) and jnp.finfo(x.dtype).bits >= 32


def _kept(fn: Callable[..., Any], x: Any, axis: int) -> Any:
    return lax.expand_dims(reduce_axes(fn, x, (axis,)), (axis,))


def _shifted(x: Any, axis: int) -> Any:
    return lax.sub(*matched(x, _kept(lax.reduce_max, lax.stop_gradient(x), axis)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _by_rows(x: Any, axis: int) -> Any:
    grown = lax.exp(_shifted(x, axis))
    return lax.div(*matched(grown, _kept(lax.reduce_sum, grown, axis)))


@_by_rows.defjvp
def _(axis: int, primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    y = _by_rows(x, axis)
    return y, y * lax.sub(*matched(t, _kept(lax.reduce_sum, y * t, axis)))
