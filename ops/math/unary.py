"""Elementwise functions of one tensor, and the ops of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.ops.common.broadcasting import array, is_small, pair
from tf2jax_lite.ops.common.derivatives import logistic, with_zero_safe_jvp, zero_safe_product
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import is_string
from tf2jax_lite.values.variant import Variant


def _unary(
    name: str, summary: str, fn: Callable[[Any], Any], host: Callable[[Any], Any] | None = None, **options: Any
) -> None:
    """Register an elementwise op of one tensor."""

    def call(x):
        return fn(array(x))

    call.__doc__ = f"{summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, fold=_folded(host) if host else None, **options)(call)


def _folded(fn: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x: np.asarray(fn(np.asarray(x)))


# --- Arithmetic


@jax.custom_jvp
def _abs(x: Any) -> Any:
    return lax.abs(x)


# TensorFlow multiplies by the sign, which is 0 at 0; JAX's rule takes 1 there.
_abs.defjvps(lambda t, y, x: t * lax.sign(x))

_reciprocal = with_zero_safe_jvp(lambda x: lax.div(jnp.ones_like(x), x), lambda x, y: -y * y)
_sqrt = with_zero_safe_jvp(lax.sqrt, lambda x, y: jnp.asarray(0.5, x.dtype) / y)
_rsqrt = with_zero_safe_jvp(lax.rsqrt, lambda x, y: jnp.asarray(-0.5, x.dtype) * y * y * y)


def _round_to_even(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


_unary("Neg", "Negate", lax.neg, np.negative)
_unary(
    "Abs",
    "Return the absolute value",
    lambda x: _abs(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.abs(x),
    np.abs,
)
_unary("Sign", "Return -1, 0 or 1 (x / |x| for complex numbers)", jnp.sign, np.sign)
_unary("Square", "Square", lambda x: lax.mul(x, x), np.square)
_unary("Sqrt", "Return the square root", _sqrt, np.sqrt)
_unary("Rsqrt", "Return the reciprocal of the square root", _rsqrt)
_unary("Reciprocal", "Return 1 / x", _reciprocal)
_unary("Inv", "Return 1 / x", _reciprocal)
_unary("Floor", "Round down", lax.floor, np.floor)
_unary("Ceil", "Round up", lax.ceil, np.ceil)
_unary(
    "Round",
    "Round to the nearest integer, ties to even (TensorFlow 2.21 returns 0 for integers)",
    lambda x: _round_to_even(x) if jnp.issubdtype(x.dtype, jnp.floating) else x,
    lambda x: x if jnp.issubdtype(x.dtype, jnp.integer) else np.rint(x),  # symbolic floats have a rint of their own
)
_unary("Rint", "Round to the nearest integer, ties to even", _round_to_even)


# --- Exponentials and logarithms


def _fold_log(x: Any) -> Any:
    # In the constant's own precision: TensorFlow code writes log(1e-307) in float64 for a number close to -inf.
    with np.errstate(all="ignore"):
        return np.log(x)


@jax.custom_jvp
def _expm1(x: Any) -> Any:
    return lax.expm1(x)


# JAX's rule takes the result plus 1, which loses digits where the derivative is small.
_expm1.defjvps(lambda t, y, x: t * lax.exp(x))

_unary("Exp", "Return the exponential", lax.exp, pattern=Pattern.TRANSCENDENTAL)
_unary("Expm1", "Return exp(x) - 1", inlined(_expm1), pattern=Pattern.TRANSCENDENTAL)
_unary("Log", "Return the natural logarithm", lax.log, _fold_log, pattern=Pattern.TRANSCENDENTAL)
_unary("Log1p", "Return log(1 + x)", lax.log1p, pattern=Pattern.TRANSCENDENTAL)
_unary("Sigmoid", "Return 1 / (1 + exp(-x))", logistic, pattern=Pattern.TRANSCENDENTAL)


# --- Trigonometric and hyperbolic functions


@jax.custom_jvp
def _complex_acosh(x: Any) -> Any:
    return lax.acosh(x)


# JAX's rule takes the root of (x - 1) (x + 1), which has the other sign left of the imaginary axis.
_complex_acosh.defjvps(lambda t, y, x: t / lax.sinh(y))


@jax.custom_jvp
def _real_acosh(x: Any) -> Any:
    return lax.acosh(x)


# NaN below 1, like the function; JAX's rule is finite below -1.
_real_acosh.defjvps(lambda t, y, x: t * (lax.rsqrt(x - 1) * lax.rsqrt(x + 1)))
_inlined_acosh = inlined(_real_acosh)


def _acosh(x: Any) -> Any:
    return _complex_acosh(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else _inlined_acosh(x)


for _name, _summary, _fn in (
    ("Sin", "sine", lax.sin),
    ("Cos", "cosine", lax.cos),
    ("Tan", "tangent", lax.tan),
    ("Asin", "inverse sine", lax.asin),
    ("Acos", "inverse cosine", lax.acos),
    ("Atan", "inverse tangent", lax.atan),
    ("Sinh", "hyperbolic sine", lax.sinh),
    ("Cosh", "hyperbolic cosine", lax.cosh),
    ("Tanh", "hyperbolic tangent", lax.tanh),
    ("Asinh", "inverse hyperbolic sine", lax.asinh),
    ("Acosh", "inverse hyperbolic cosine", _acosh),
    ("Atanh", "inverse hyperbolic tangent", lax.atanh),
):
    _unary(_name, f"Return the {_summary}", _fn, pattern=Pattern.TRANSCENDENTAL)


# --- Error and gamma functions


@jax.custom_jvp
def _digamma(x: Any) -> Any:
    # NaN at both zeros, as in TensorFlow; JAX's is infinite there since 0.12.
    return lax.add(lax.digamma(x), jnp.where(x == 0, np.asarray(np.nan, x.dtype), np.asarray(0, x.dtype)))


def _trigamma(x: Any) -> Any:
    # JAX's is NaN at infinity.
    infinite = x == np.inf
    out = lax.polygamma(lax.full_like(x, 1), jnp.where(infinite, jnp.ones_like(x), x))
    return jnp.where(infinite, jnp.zeros_like(x), out)


_digamma.defjvps(lambda t, y, x: t * _trigamma(x))

_unary("Erf", "Return the error function", lax.erf, pattern=Pattern.TRANSCENDENTAL)
_unary("Erfc", "Return the complementary error function", lax.erfc, pattern=Pattern.TRANSCENDENTAL)
_unary("Erfinv", "Return the inverse error function", lax.erf_inv, pattern=Pattern.TRANSCENDENTAL)
_unary("Lgamma", "Return log |gamma(x)|", lax.lgamma, pattern=Pattern.TRANSCENDENTAL)
_unary("Digamma", "Return the derivative of log gamma(x)", _digamma, pattern=Pattern.TRANSCENDENTAL)


# --- Zeros, ones


def _fold_zeros_like(x: Any) -> Any:
    return np.full(np.shape(x), b"", object) if is_string(x) else np.asarray(np.zeros_like(x))


@op("ZerosLike", fold=_fold_zeros_like)
def zeros_like(x):
    """Return zeros of an array, list or other variant.

    Zeros of a small static shape are static.
    """
    if isinstance(x, Variant):
        return x.zeros_like()
    return np.zeros(x.shape, x.dtype) if is_small(x.shape) else jnp.zeros_like(x)


@op("OnesLike", fold=np.ones_like)
def ones_like(x):
    """Return ones, static ones for a small static shape."""
    return np.ones(x.shape, x.dtype) if is_small(x.shape) else jnp.ones_like(x)


# --- Complex numbers


@op("Conj", fold=lambda input: np.asarray(np.conj(input)))
def conj(input):
    """Return the complex conjugate, also of a sparse matrix."""
    return input.conj() if isinstance(input, Variant) else lax.conj(jnp.asarray(input))


@op("Real")
def real(input, *, Tout=None):
    """Return the real part."""
    return jnp.real(input)


@op("Imag")
def imag(input, *, Tout=None):
    """Return the imaginary part."""
    return jnp.imag(input)


@op("Angle")
def angle(input, *, Tout=None):
    """Return the argument of complex numbers, in (-pi, pi]."""
    return lax.atan2(jnp.imag(input), jnp.real(input))


@op("ComplexAbs")
def complex_abs(x, *, Tout=None):
    """Return the absolute value of complex numbers."""
    return jnp.abs(x)


# --- Gradients, from the result ``y`` and its gradient ``dy``


@op("SigmoidGrad")
def sigmoid_grad(y, dy):
    """Return ``dy * y * (1 - y)``."""
    y, dy = pair(y, dy)
    return dy * y * (1 - y)


@op("TanhGrad")
def tanh_grad(y, dy):
    """Return ``dy * (1 - y * y)``."""
    y, dy = pair(y, dy)
    return dy * (1 - y * y)


def _zero_safe_grad(y: Any, dy: Any, derivative: Callable[[Any], Any]) -> Any:
    """Return ``dy * derivative(conj(y))``, 0 where ``dy`` is 0."""
    y, dy = pair(y, dy)
    return zero_safe_product(dy, derivative(lax.conj(y) if jnp.iscomplexobj(y) else y))


@op("SqrtGrad")
def sqrt_grad(y, dy):
    """Return ``dy * 0.5 / conj(y)``, 0 where ``dy`` is 0."""
    return _zero_safe_grad(y, dy, lambda y: jnp.asarray(0.5, y.dtype) / y)


@op("RsqrtGrad")
def rsqrt_grad(y, dy):
    """Return ``dy * -0.5 * conj(y)**3``, 0 where ``dy`` is 0."""
    return _zero_safe_grad(y, dy, lambda y: jnp.asarray(-0.5, y.dtype) * y * y * y)


@op("ReciprocalGrad", "InvGrad")
def reciprocal_grad(y, dy):
    """Return ``-dy * conj(y)**2``, 0 where ``dy`` is 0."""
    return _zero_safe_grad(y, dy, lambda y: -y * y)
