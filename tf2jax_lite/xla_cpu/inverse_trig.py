"""Inverse trigonometric functions on CPU: polynomials near 0.

Arguments are reduced to that range.

XLA's CPU backend computes those of single precision by `atan2`, in a way that is not vectorized: nine to twenty times
as long as these (two cores, JAX 0.10). Results are at most 2 units in the last place from the exact ones.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .rules import Rule, by_table, with_cpu_rules

# Of (atan(sqrt(s)) / sqrt(s) - 1) / s on [0, 1], least relative error of the arctangent: 1.7e-8.
_ATAN = (
    -0.33333152532577515,
    0.19993773102760315,
    -0.14211055636405945,
    0.10666004568338394,
    -0.07552213966846466,
    0.04321185126900673,
    -0.016367923468351364,
    0.0029206909239292145,
)
# Of (asin(sqrt(s)) / sqrt(s) - 1) / s on [0, 1/4], likewise: 4.8e-9.
_ASIN = (0.16666752099990845, 0.07495297491550446, 0.04547037556767464, 0.02417951449751854, 0.04216630756855011)
_SMALL = 2.0**-12  # smaller arguments are their angles
_LARGE = 2.0**100
_SIGN = np.int32(-(2**31))
_NORMAL = np.int32(1 << 23)  # the bits of the least number that is not denormal


def _bits(x: Any) -> Any:
    return lax.bitcast_convert_type(x, np.int32)


def _float(bits: Any) -> Any:
    return lax.bitcast_convert_type(bits, np.float32)


def _up(x: Any) -> Any:
    """Scale nonnegative numbers by 2^24; denormals, otherwise 0, by their bits."""
    bits = _bits(x)
    denormal = lax.convert_element_type(bits, np.float32) * np.float32(2.0**-125)
    return jnp.where(bits < _NORMAL, denormal, x * np.float32(2.0**24))


def _odd_polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Return x + x^3 p(x^2); x itself where the rest rounds to nothing."""
    square = x * x
    total = np.float32(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * square + np.float32(coefficient)
    return jnp.where(x < np.float32(_SMALL), x, x + x * (square * total))


def _difference(of: float, x: Any) -> Any:
    """Return a constant of double precision minus a number of single precision."""
    first = np.float32(of)
    return (first - x) + np.float32(of - float(first))


def _signed(x: Any, sign: Any) -> Any:
    return _float(_bits(x) | (_bits(sign) & _SIGN))


def _atan2(y: Any, x: Any, **_: Any) -> Any:
    wide, high = (_float(_bits(v) & ~_SIGN) for v in (x, y))
    steep = _bits(high) > _bits(wide)
    few, many = jnp.where(steep, wide, high), jnp.where(steep, high, wide)
    is_large = many >= np.float32(_LARGE)
    quotient = jnp.where(is_large, few, _up(few)) / jnp.where(is_large, many, _up(many))
    angle = _odd_polynomial(jnp.where(many == 1, few, quotient), _ATAN)
    even = jnp.where(_bits(many) == 0, np.float32(0), np.float32(np.pi / 4))  # zeros and infinities, too
    angle = jnp.where(_bits(few) == _bits(many), even, angle)
    # From the nearer axis: a right angle minus an angle, or plus it on the left; pi has two terms, and one rounding.
    left = _bits(x) < 0
    angle = jnp.where(steep == left, angle, -angle)
    flat, small = ((np.float32(of), np.float32(of - float(np.float32(of)))) for of in (np.pi, np.pi / 2))
    high, low = (jnp.where(steep, small[i], jnp.where(left, flat[i], np.float32(0))) for i in (0, 1))
    angle = (high + angle) + low
    return jnp.where((x != x) | (y != y), np.float32(np.nan), _signed(angle, y))


def _atan(x: Any, **_: Any) -> Any:
    high = _float(_bits(x) & ~_SIGN)
    steep = high > 1
    angle = _odd_polynomial(jnp.where(steep, 1 / high, high), _ATAN)
    angle = jnp.where(high == 1, np.float32(np.pi / 4), jnp.where(steep, _difference(np.pi / 2, angle), angle))
    return jnp.where(x != x, x, _signed(angle, x))


def _halves(x: Any) -> tuple[Any, Any]:
    """Return whether x is far from 0, and its arcsine or half its arccosine."""
    high = _float(_bits(x) & ~_SIGN)
    far = high > np.float32(0.5)
    return far, _odd_polynomial(jnp.where(far, lax.sqrt((1 - high) * np.float32(0.5)), high), _ASIN)


def _asin(x: Any, **_: Any) -> Any:
    far, angle = _halves(x)
    return jnp.where(x != x, x, _signed(jnp.where(far, _difference(np.pi / 2, 2 * angle), angle), x))


def _acos(x: Any, **_: Any) -> Any:
    far, angle = _halves(x)
    is_negative = _bits(x) < 0
    near = _difference(np.pi / 2, _signed(angle, x))
    return jnp.where(far, jnp.where(is_negative, _difference(np.pi, 2 * angle), 2 * angle), near)


def _rules(lower: Any) -> tuple[Rule, ...]:
    reason = "XLA does not vectorize the function; a polynomial is. Within 2 units in the last place."
    return (Rule("inverse_trig_polynomial", lambda *args, **_: args[0].dtype == np.float32, lower, reason),)


RULES = {lax.atan2_p: _rules(_atan2), lax.atan_p: _rules(_atan), lax.asin_p: _rules(_asin), lax.acos_p: _rules(_acos)}

for _primitive, _table in RULES.items():
    with_cpu_rules(_primitive, by_table(_table))
