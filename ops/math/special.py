"""Bessel I, incomplete gamma and beta, zeta, polygamma, Spence, expint.

JAX computes the values. Where it differs from TensorFlow's kernels on CPU (parameters that are 0, negative or
infinite, where a limit has more than one value) results are TensorFlow's; tests/ops/math/test_special.py compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.common.derivatives import random_gamma_grad
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern


def _register(name: str, summary: str, fn: Callable[..., Any], inputs: int = 1) -> None:
    def unary(x):
        return fn(jnp.asarray(x))

    def binary(a, x):
        shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(x))
        return fn(jnp.broadcast_to(a, shape), jnp.broadcast_to(x, shape))

    call = unary if inputs == 1 else binary
    call.__doc__ = f"{summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, pattern=Pattern.TRANSCENDENTAL)(call)


def _const(value: float, like: Any) -> Any:
    return jnp.asarray(value, like.dtype)


# --- Of one argument


@jax.custom_jvp
def _spence(x: Any) -> Any:
    return special.spence(x)


def _spence_derivative(x: Any) -> Any:
    one = lax.eq(x, jnp.ones((), x.dtype))
    quotient = jnp.log(x) / (1 - jnp.where(one, jnp.zeros((), x.dtype), x))
    return jnp.where(one, -jnp.ones((), x.dtype), quotient)


_spence.defjvps(lambda t, y, x: t * _spence_derivative(x))


@jax.custom_jvp
def _expint(x: Any) -> Any:
    # NaN below 0, as in TensorFlow; JAX's loop does not end between -0.5 and 0 in float32.
    out = jnp.where(x < 0, np.nan, special.expi(jnp.where(x < 0, jnp.ones_like(x), x)))
    return jnp.where(x == 0, -np.inf, out)


_expint.defjvps(lambda t, y, x: t * jnp.exp(x) / x)


@jax.custom_jvp
def _i0(x: Any) -> Any:
    return special.i0(x)


# JAX differentiates exp(|x|), and takes 1 for the derivative of |x| at 0; the derivative of I0 is 0 there.
_i0.defjvps(lambda t, y, x: t * special.i1(x))


@jax.custom_jvp
def _i1e(x: Any) -> Any:
    return special.i1e(x)


def _i1e_derivative(x: Any, y: Any) -> Any:
    zero = x == 0
    out = special.i0e(x) - y * (lax.sign(x) + 1 / jnp.where(zero, jnp.ones_like(x), x))
    return jnp.where(zero, _const(0.5, x), out)


_i1e.defjvps(lambda t, y, x: t * _i1e_derivative(x, y))


@jax.custom_jvp
def _ndtri(x: Any) -> Any:
    return special.ndtri(x)


# Infinite at 0 and 1, and NaN for NaN, where JAX's derivative is 0 and 1/2.
_ndtri.defjvps(lambda t, y, x: t * (_const(math.sqrt(2 * math.pi), x) * lax.exp(y * y / 2)))

_register("BesselI0", "Return the modified Bessel function I of order zero", lambda x: in_float32(_i0, x))
_register("BesselI0e", "Return Bessel I of order zero, times exp(-|x|)", lambda x: in_float32(special.i0e, x))
_register("BesselI1", "Return the modified Bessel function I of order one", lambda x: in_float32(special.i1, x))
_register("BesselI1e", "Return Bessel I of order one, times exp(-|x|)", lambda x: in_float32(_i1e, x))
_register("Ndtri", "Return the quantile of the standard normal distribution", _ndtri)
_register("Spence", "Return Spence's dilogarithm", _spence)
_register("Expint", "Return the exponential integral", _expint)


# --- Of two or three arguments


@jax.custom_jvp
def _zeta(x: Any, q: Any) -> Any:
    """Return the Hurwitz zeta function, with a derivative only with respect to q."""
    inf = np.array(np.inf, x.dtype)
    out = jnp.where((q == inf) & (x > 1), 0, lax.zeta(x, q))
    out = jnp.where(x == inf, jnp.where(q > 1, 0, jnp.where(q == 1, 1, jnp.where(q < 1, inf, out))), out)
    return jnp.where(x < 1, np.nan, out)


@_zeta.defjvp
def _zeta_jvp(primals: Any, tangents: Any) -> Any:
    x, q = primals
    return _zeta(x, q), -x * _zeta(x + 1, q) * tangents[1]


def _polygamma(n: Any, x: Any) -> Any:
    inf = np.array(np.inf, x.dtype)
    out = lax.polygamma(lax.stop_gradient(n), x)  # no gradient of n in TensorFlow
    out = jnp.where((x == inf) & (n >= 1) & (n == jnp.floor(n)), 0, out)
    return jnp.where((n == inf) & ~jnp.isnan(x), jnp.where(x <= 1, inf, np.nan), out)


def _flat(a: Any, x: Any) -> Any:
    """Return where incomplete gamma functions are constant; JAX's jvp is NaN there."""
    return ((a == np.inf) & (x > 0)) | ((x == np.inf) & (a > 0)) | ((x == 0) & ~(a > 0))


def _unless_flat(fn: Callable[[Any, Any], Any], a: Any, x: Any) -> Any:
    """Return ``fn(a, x)``, and some constant where that is flat."""
    flat, one = _flat(a, x), np.ones((), a.dtype)
    return fn(jnp.where(flat, one, a), jnp.where(flat, one, x))


def _igamma(a: Any, x: Any) -> Any:
    out = jnp.where(a <= 0, np.nan, _unless_flat(lax.igamma, a, x))
    out = jnp.where((x == np.inf) & (a > 0), 1, out)
    out = jnp.where((a == np.inf) & (x > 0), 0, out)
    return jnp.where((x == 0) & ~(a > 0), 0, out)


def _igammac(a: Any, x: Any) -> Any:
    out = jnp.where((a <= 0) | jnp.isnan(a), np.nan, _unless_flat(lax.igammac, a, x))
    out = jnp.where((x == np.inf) & (a > 0), 0, out)
    return jnp.where((a == np.inf) & (x >= 0) & (x < np.inf), 1, out)


def _igamma_grad_a(a: Any, x: Any) -> Any:
    return jnp.where(_flat(a, x), np.zeros((), a.dtype), _unless_flat(lax.igamma_grad_a, a, x))


_register("Igamma", "Return the lower regularized incomplete gamma function", _igamma, 2)
_register("Igammac", "Return the upper regularized incomplete gamma function", _igammac, 2)
_register("IgammaGradA", "Return the derivative of Igamma with respect to a", _igamma_grad_a, 2)
_register("RandomGammaGrad", "Return the derivative of gamma samples with respect to alpha", random_gamma_grad, 2)
_register("Zeta", "Return the Hurwitz zeta function", _zeta, 2)
_register("Polygamma", "Return the polygamma function of order a (the digamma function for 0)", _polygamma, 2)


@jax.custom_jvp
def _betainc(a: Any, b: Any, x: Any) -> Any:
    undefined = (a <= 0) | (b <= 0) | ((jnp.isinf(a) | jnp.isinf(b)) & (x > 0) & (x < 1))
    out = jnp.where((x == 0) | (x == 1), x, lax.betainc(a, b, x))
    return jnp.where(undefined, np.nan, out)


@_betainc.defjvp
def _betainc_jvp(primals: Any, tangents: Any) -> Any:
    # As in TensorFlow, which is finite at both ends where a parameter is 1; JAX's is NaN.
    a, b, x = primals
    log_beta = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    density = jnp.exp(special.xlog1py(b - 1, -x) + special.xlogy(a - 1, x) - log_beta)
    return _betainc(a, b, x), tangents[2] * density


@op("Betainc")
def betainc(a, b, x):
    """Return the regularized incomplete beta function.

    As in TensorFlow, only the derivative with respect to ``x`` is defined.
    """
    shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(b), jnp.shape(x))
    return _betainc(*(jnp.broadcast_to(jnp.asarray(v), shape) for v in (a, b, x)))
