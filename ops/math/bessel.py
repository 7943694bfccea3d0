"""Bessel functions of the first, second and modified second kind (J, Y, K).

Derivatives are expressed by the functions themselves. So they have derivatives of any order, and no gradient is NaN by
a branch that is not selected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern

from . import _bessel_coefficients as tables

# Squares of the first two zeros of J0 and of J1.
_ZEROS_0 = (5.783185962946785, 30.471262343662087)
_ZEROS_1 = (14.681970642123893, 49.2184563216946)
_ASYMPTOTIC = (
    ((tables.P0_TOP, tables.P0_BOTTOM), (tables.Q0_TOP, tables.Q0_BOTTOM)),
    ((tables.P1_TOP, tables.P1_BOTTOM), (tables.Q1_TOP, tables.Q1_BOTTOM)),
)


def _const(value: float, x: Any) -> Any:
    return jnp.asarray(value, x.dtype)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a polynomial, highest power first."""
    total = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + _const(c, x)
    return total


def ratio(x: Any, top: Sequence[float], bottom: Sequence[float]) -> Any:
    """Evaluate a ratio of two polynomials, highest powers first."""
    return polynomial(x, top) / polynomial(x, bottom)


def _chebyshev(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a Chebyshev series in x / 2, highest term first, half the constant."""
    last, before, oldest = jnp.full_like(x, coefficients[0]), jnp.zeros_like(x), jnp.zeros_like(x)
    for c in coefficients[1:]:
        last, before, oldest = x * last - before + _const(c, x), last, before
    return (last - oldest) * _const(0.5, x)


def _modulus_and_phase(x: Any, order: int) -> tuple[Any, Any, Any]:
    """Return p, q and the angle in p cos(angle) - q sin(angle), for x >= 5."""
    s = _const(25.0, x) / (x * x)
    scale = _const(math.sqrt(2 / math.pi), x) * lax.rsqrt(x)
    p, q = (ratio(s, *coefficients) for coefficients in _ASYMPTOTIC[order])
    q = q * (_const(5.0, x) / x)
    return p * scale, q * scale, x - _const(math.pi * (2 * order + 1) / 4, x)


def _asymptotic_j(x: Any, order: int) -> Any:
    p, q, angle = _modulus_and_phase(x, order)
    return p * lax.cos(angle) - q * lax.sin(angle)


def _asymptotic_y(x: Any, order: int) -> Any:
    p, q, angle = _modulus_and_phase(x, order)
    return p * lax.sin(angle) + q * lax.cos(angle)


def _piecewise(x: Any, edge: float, near: Callable[[Any], Any], far: Callable[[Any], Any]) -> Any:
    """Return near(x) up to the edge, far(x) beyond; arguments are clamped to each."""
    at = _const(edge, x)
    return jnp.where(x <= at, near(lax.min(x, at)), far(lax.max(x, at)))


def _near_j(x: Any, zeros: tuple[float, float], top: Sequence[float], bottom: Sequence[float]) -> Any:
    z = x * x
    return (z - _const(zeros[0], x)) * (z - _const(zeros[1], x)) * ratio(z, top, bottom)


@jax.custom_jvp
def _j0(x: Any) -> Any:
    def near(y: Any) -> Any:
        series = _const(1.0, y) - y * y * _const(0.25, y)
        return jnp.where(y < _const(1e-5, y), series, _near_j(y, _ZEROS_0, tables.J0_TOP, tables.J0_BOTTOM))

    return _piecewise(lax.abs(x), 5.0, near, lambda y: _asymptotic_j(y, 0))


_j0.defjvps(lambda t, y, x: t * -_j1(x))


@jax.custom_jvp
def _j1(x: Any) -> Any:
    def near(y: Any) -> Any:
        return y * _near_j(y, _ZEROS_1, tables.J1_TOP, tables.J1_BOTTOM)

    size = _piecewise(lax.abs(x), 5.0, near, lambda y: _asymptotic_j(y, 1))
    return jnp.where(x < 0, -size, size)


def _j1_derivative(x: Any, y: Any) -> Any:
    zero = x == 0
    return jnp.where(zero, _const(0.5, x), _j0(x) - y / jnp.where(zero, _const(1.0, x), x))


_j1.defjvps(lambda t, y, x: t * _j1_derivative(x, y))


def _for_positive(x: Any, at_zero: float, fn: Callable[[Any], Any]) -> Any:
    """Return fn(x) for positive x, ``at_zero`` for others, and NaN for NaN."""
    outside = x <= 0
    return jnp.where(outside, _const(at_zero, x), fn(jnp.where(outside, _const(1.0, x), x)))


@jax.custom_jvp
def _y0(x: Any) -> Any:
    def near(y: Any) -> Any:
        return ratio(y * y, tables.Y0_TOP, tables.Y0_BOTTOM) + _const(2 / math.pi, y) * lax.log(y) * _j0(y)

    return _for_positive(x, -math.inf, lambda v: _piecewise(v, 5.0, near, lambda y: _asymptotic_y(y, 0)))


_y0.defjvps(lambda t, y, x: t * -_y1(x))


@jax.custom_jvp
def _y1(x: Any) -> Any:
    def near(y: Any) -> Any:
        logarithmic = _j1(y) * lax.log(y) - 1 / y
        return y * ratio(y * y, tables.Y1_TOP, tables.Y1_BOTTOM) + _const(2 / math.pi, y) * logarithmic

    out = _for_positive(x, -math.inf, lambda v: _piecewise(v, 5.0, near, lambda y: _asymptotic_y(y, 1)))
    if x.dtype == np.float64:
        return out
    return jnp.where(x == 0, _const(math.nan, x), out)  # as TensorFlow's float32 kernel


_y1.defjvps(lambda t, y, x: t * (_y0(x) - y / x))


def _k_near(y: Any, order: int) -> Any:
    log = lax.log(y * _const(0.5, y))
    if order == 0:
        return _chebyshev(y * y - 2, tables.K0_NEAR) - log * special.i0(y)
    return _chebyshev(y * y - 2, tables.K1_NEAR) / y + log * special.i1(y)


def _k_far(y: Any, order: int) -> Any:
    return _chebyshev(_const(8.0, y) / y - 2, (tables.K0_FAR, tables.K1_FAR)[order]) * lax.rsqrt(y)


def _k(x: Any, order: int) -> Any:
    return _for_positive(
        x, math.inf, lambda v: _piecewise(v, 2.0, lambda y: _k_near(y, order), lambda y: lax.exp(-y) * _k_far(y, order))
    )


def _ke(x: Any, order: int) -> Any:
    return _for_positive(
        x, math.inf, lambda v: _piecewise(v, 2.0, lambda y: lax.exp(y) * _k_near(y, order), lambda y: _k_far(y, order))
    )


_k0 = jax.custom_jvp(lambda x: _k(x, 0))
_k1 = jax.custom_jvp(lambda x: _k(x, 1))
_k0e = jax.custom_jvp(lambda x: _ke(x, 0))
_k1e = jax.custom_jvp(lambda x: _ke(x, 1))
_k0.defjvps(lambda t, y, x: t * -_k1(x))
_k1.defjvps(lambda t, y, x: t * (-_k0(x) - y / x))
_k0e.defjvps(lambda t, y, x: t * (y - _k1e(x)))
_k1e.defjvps(lambda t, y, x: t * (y * (1 - 1 / x) - _k0e(x)))


def _register(name: str, summary: str, fn: Callable[[Any], Any]) -> None:
    def call(x):
        return in_float32(fn, jnp.asarray(x))

    call.__doc__ = f"Return the {summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, pattern=Pattern.TRANSCENDENTAL)(call)


for _order, _name in enumerate(("zero", "one")):
    _register(f"BesselJ{_order}", f"Bessel function J of order {_name}", (_j0, _j1)[_order])
    _register(f"BesselY{_order}", f"Bessel function Y of order {_name}", (_y0, _y1)[_order])
    _register(f"BesselK{_order}", f"modified Bessel function K of order {_name}", (_k0, _k1)[_order])
    _register(f"BesselK{_order}e", f"Bessel function K of order {_name}, times exp(x)", (_k0e, _k1e)[_order])
