"""Bessel functions of the first, second and modified second kind.

Every derivative is written with the functions themselves, so that they can be differentiated any number of times and
a branch that is not taken never spoils a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from tf2jax_lite.ops.common.elementwise_derivatives import differentiable
from tf2jax_lite.ops.registry import op

from . import _bessel_coefficients as tables

__all__ = ["in_float", "ratio"]

# Squares of the first two zeros of J0 and of J1.
_ZEROS_0 = (5.783185962946785, 30.471262343662087)
_ZEROS_1 = (14.681970642123893, 49.2184563216946)
_FAR = (
    ((tables.P0_TOP, tables.P0_BOTTOM), (tables.Q0_TOP, tables.Q0_BOTTOM)),
    ((tables.P1_TOP, tables.P1_BOTTOM), (tables.Q1_TOP, tables.Q1_BOTTOM)),
)


def _const(value: float, x: Any) -> Any:
    return jnp.asarray(value, x.dtype)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluates a polynomial, highest power first."""
    total = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + _const(c, x)
    return total


def ratio(x: Any, top: Sequence[float], bottom: Sequence[float]) -> Any:
    """Evaluates a ratio of two polynomials, highest powers first."""
    return polynomial(x, top) / polynomial(x, bottom)


def _chebyshev(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluates a Chebyshev series in x / 2, highest term first, the constant term halved."""
    last, before, oldest = jnp.full_like(x, coefficients[0]), jnp.zeros_like(x), jnp.zeros_like(x)
    for c in coefficients[1:]:
        last, before, oldest = x * last - before + _const(c, x), last, before
    return (last - oldest) * _const(0.5, x)


def in_float(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns ``fn`` computed in float32 for 16-bit floats, as TensorFlow's kernels do."""

    def call(x: Any) -> Any:
        x = jnp.asarray(x)
        if np.dtype(x.dtype).itemsize > 2:
            return fn(x)
        return fn(x.astype(np.float32)).astype(x.dtype)

    return call


def _modulus_and_phase(x: Any, order: int) -> tuple[Any, Any, Any]:
    """Returns the two factors and the angle of the form that J and Y take beyond 5; x is at least 5."""
    s = _const(25.0, x) / (x * x)
    scale = _const(math.sqrt(2 / math.pi), x) * lax.rsqrt(x)
    p, q = (ratio(s, *coefficients) for coefficients in _FAR[order])
    q = q * (_const(5.0, x) / x)
    return p * scale, q * scale, x - _const(math.pi * (2 * order + 1) / 4, x)


def _far_j(x: Any, order: int) -> Any:
    p, q, angle = _modulus_and_phase(x, order)
    return p * lax.cos(angle) - q * lax.sin(angle)


def _far_y(x: Any, order: int) -> Any:
    p, q, angle = _modulus_and_phase(x, order)
    return p * lax.sin(angle) + q * lax.cos(angle)


def _pieces(x: Any, edge: float, near: Callable[[Any], Any], far: Callable[[Any], Any]) -> Any:
    """Returns near(x) up to the edge and far(x) beyond; each sees arguments of its own side only."""
    at = _const(edge, x)
    return jnp.where(x <= at, near(lax.min(x, at)), far(lax.max(x, at)))


def _near_j(x: Any, zeros: tuple[float, float], top: Sequence[float], bottom: Sequence[float]) -> Any:
    z = x * x
    return (z - _const(zeros[0], x)) * (z - _const(zeros[1], x)) * ratio(z, top, bottom)


@differentiable(lambda x, value: -_j1(x))
def _j0(x: Any) -> Any:
    def near(y: Any) -> Any:
        series = _const(1.0, y) - y * y * _const(0.25, y)
        return jnp.where(y < _const(1e-5, y), series, _near_j(y, _ZEROS_0, tables.J0_TOP, tables.J0_BOTTOM))

    return _pieces(lax.abs(x), 5.0, near, lambda y: _far_j(y, 0))


def _j1_slope(x: Any, value: Any) -> Any:
    zero = x == 0
    return jnp.where(zero, _const(0.5, x), _j0(x) - value / jnp.where(zero, _const(1.0, x), x))


@differentiable(_j1_slope)
def _j1(x: Any) -> Any:
    def near(y: Any) -> Any:
        return y * _near_j(y, _ZEROS_1, tables.J1_TOP, tables.J1_BOTTOM)

    size = _pieces(lax.abs(x), 5.0, near, lambda y: _far_j(y, 1))
    return jnp.where(x < 0, -size, size)


def _from_zero(x: Any, at_zero: float, fn: Callable[[Any], Any]) -> Any:
    """Returns fn(x) for positive x, and TensorFlow's value of everything else but NaN."""
    outside = x <= 0
    return jnp.where(outside, _const(at_zero, x), fn(jnp.where(outside, _const(1.0, x), x)))


def _y0_slope(x: Any, value: Any) -> Any:
    return -_y1(x)


@differentiable(_y0_slope)
def _y0(x: Any) -> Any:
    def near(y: Any) -> Any:
        return ratio(y * y, tables.Y0_TOP, tables.Y0_BOTTOM) + _const(2 / math.pi, y) * lax.log(y) * _j0(y)

    return _from_zero(x, -math.inf, lambda v: _pieces(v, 5.0, near, lambda y: _far_y(y, 0)))


@differentiable(lambda x, value: _y0(x) - value / x)
def _y1(x: Any) -> Any:
    def near(y: Any) -> Any:
        logarithmic = _j1(y) * lax.log(y) - 1 / y
        return y * ratio(y * y, tables.Y1_TOP, tables.Y1_BOTTOM) + _const(2 / math.pi, y) * logarithmic

    out = _from_zero(x, -math.inf, lambda v: _pieces(v, 5.0, near, lambda y: _far_y(y, 1)))
    if x.dtype == np.float64:
        return out
    return jnp.where(x == 0, _const(math.nan, x), out)  # as TensorFlow's kernel of single precision has it


def _k_near(y: Any, order: int) -> Any:
    log = lax.log(y * _const(0.5, y))
    if order == 0:
        return _chebyshev(y * y - 2, tables.K0_NEAR) - log * special.i0(y)
    return _chebyshev(y * y - 2, tables.K1_NEAR) / y + log * special.i1(y)


def _k_far(y: Any, order: int) -> Any:
    return _chebyshev(_const(8.0, y) / y - 2, (tables.K0_FAR, tables.K1_FAR)[order]) * lax.rsqrt(y)


def _k(x: Any, order: int) -> Any:
    return _from_zero(
        x, math.inf, lambda v: _pieces(v, 2.0, lambda y: _k_near(y, order), lambda y: lax.exp(-y) * _k_far(y, order))
    )


def _ke(x: Any, order: int) -> Any:
    return _from_zero(
        x, math.inf, lambda v: _pieces(v, 2.0, lambda y: lax.exp(y) * _k_near(y, order), lambda y: _k_far(y, order))
    )


_k0 = differentiable(lambda x, value: -_k1(x))(lambda x: _k(x, 0))
_k1 = differentiable(lambda x, value: -_k0(x) - value / x)(lambda x: _k(x, 1))
_k0e = differentiable(lambda x, value: value - _k1e(x))(lambda x: _ke(x, 0))
_k1e = differentiable(lambda x, value: value * (1 - 1 / x) - _k0e(x))(lambda x: _ke(x, 1))


def _register(name: str, fn: Callable[[Any], Any]) -> None:
    chosen = in_float(fn)

    def call(x: Any) -> Any:
        return chosen(x)

    call.__doc__ = f"See tf.raw_ops.{name}."
    op(name, dear=True)(call)


_register("BesselJ0", _j0)
_register("BesselJ1", _j1)
_register("BesselY0", _y0)
_register("BesselY1", _y1)
_register("BesselK0", _k0)
_register("BesselK1", _k1)
_register("BesselK0e", _k0e)
_register("BesselK1e", _k1e)
