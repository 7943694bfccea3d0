"""Special functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from tf2jax_lite.ops.common.elementwise_derivatives import differentiable, gamma_slope
from tf2jax_lite.ops.registry import op
from tf2jax_lite.values.int64 import U32Pair, is_int64, to_32_bits, to_u32_pair

from .bessel import in_float


def _register(name: str, fn: Callable[..., Any], count: int) -> None:
    def unary(x: Any) -> Any:
        return fn(jnp.asarray(x))

    def binary(a: Any, x: Any) -> Any:
        shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(x))
        return fn(jnp.broadcast_to(a, shape), jnp.broadcast_to(x, shape))

    chosen = unary if count == 1 else binary
    chosen.__doc__ = f"See tf.raw_ops.{name}."
    op(name, dear=True)(chosen)


@jax.custom_jvp
def _spence(x: Any) -> Any:
    return special.spence(x)


@_spence.defjvp
def _spence_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    one = lax.eq(x, jnp.ones((), x.dtype))
    slope = jnp.log(x) / (1 - jnp.where(one, jnp.zeros((), x.dtype), x))
    return _spence(x), t * jnp.where(one, -jnp.ones((), x.dtype), slope)


@jax.custom_jvp
def _zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function: JAX has no derivative of it, TensorFlow only that by ``q``."""
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
    out = lax.polygamma(lax.stop_gradient(n), x)  # TensorFlow has no derivative by n
    out = jnp.where((x == inf) & (n >= 1) & (n == jnp.floor(n)), 0, out)
    return jnp.where((n == inf) & ~jnp.isnan(x), jnp.where(x <= 1, inf, np.nan), out)


# Where a parameter is 0, negative or infinite, limits can be taken in more than one way. These are the values of
# TensorFlow's kernels on CPU, to which tests/ops/math/test_special.py holds them; JAX's differ.


def _flat(a: Any, x: Any) -> Any:
    """Returns where the incomplete gamma functions have no slope: JAX's is no number there."""
    return ((a == np.inf) & (x > 0)) | ((x == np.inf) & (a > 0)) | ((x == 0) & ~(a > 0))


def _apart(fn: Callable[[Any, Any], Any], a: Any, x: Any) -> Any:
    """Returns ``fn(a, x)``, and some number without slopes where that is flat."""
    flat, one = _flat(a, x), np.ones((), a.dtype)
    return fn(jnp.where(flat, one, a), jnp.where(flat, one, x))


def _igamma(a: Any, x: Any) -> Any:
    out = jnp.where(a <= 0, np.nan, _apart(lax.igamma, a, x))
    out = jnp.where((x == np.inf) & (a > 0), 1, out)
    out = jnp.where((a == np.inf) & (x > 0), 0, out)
    return jnp.where((x == 0) & ~(a > 0), 0, out)


def _igammac(a: Any, x: Any) -> Any:
    out = jnp.where((a <= 0) | jnp.isnan(a), np.nan, _apart(lax.igammac, a, x))
    out = jnp.where((x == np.inf) & (a > 0), 0, out)
    return jnp.where((a == np.inf) & (x >= 0) & (x < np.inf), 1, out)


def _igamma_grad_a(a: Any, x: Any) -> Any:
    return jnp.where(_flat(a, x), np.zeros((), a.dtype), _apart(lax.igamma_grad_a, a, x))


@jax.custom_jvp
def _expint(x: Any) -> Any:
    # TensorFlow's has no values below 0, where the loop of JAX's goes on without end between -0.5 and 0 in float32.
    out = jnp.where(x < 0, np.nan, special.expi(jnp.where(x < 0, jnp.ones_like(x), x)))
    return jnp.where(x == 0, -np.inf, out)


@_expint.defjvp
def _expint_jvp(primals: Any, tangents: Any) -> Any:
    return _expint(*primals), tangents[0] * jnp.exp(primals[0]) / primals[0]


def _const(value: float, like: Any) -> Any:
    return jnp.asarray(value, like.dtype)


@jax.custom_jvp
def _i0(x: Any) -> Any:
    return special.i0(x)


@_i0.defjvp
def _i0_jvp(primals: Any, tangents: Any) -> Any:
    # JAX goes through exp(|x|), whose derivative at 0 it takes to be 1; here it is 0.
    return _i0(*primals), tangents[0] * special.i1(primals[0])


# JAX's slopes: 0 at the ends of the normal distribution, where this one is infinite, and 1/2 where x is no number.
_ndtri = differentiable(lambda x, y: _const(math.sqrt(2 * math.pi), x) * lax.exp(y * y / 2))(special.ndtri)


def _i1e_slope(x: Any, y: Any) -> Any:
    zero = x == 0
    slope = special.i0e(x) - y * (lax.sign(x) + 1 / jnp.where(zero, jnp.ones_like(x), x))
    return jnp.where(zero, _const(0.5, x), slope)


_i1e = differentiable(_i1e_slope)(special.i1e)


_register("BesselI0", in_float(_i0), 1)
_register("BesselI0e", in_float(special.i0e), 1)
_register("BesselI1", in_float(special.i1), 1)
_register("BesselI1e", in_float(_i1e), 1)
_register("Ndtri", _ndtri, 1)
_register("Spence", _spence, 1)
_register("Expint", _expint, 1)
_register("Igamma", _igamma, 2)
_register("Igammac", _igammac, 2)
_register("IgammaGradA", _igamma_grad_a, 2)
_register("RandomGammaGrad", gamma_slope, 2)
_register("Zeta", _zeta, 2)
_register("Polygamma", _polygamma, 2)


@jax.custom_jvp
def _betainc(a: Any, b: Any, x: Any) -> Any:
    undefined = (a <= 0) | (b <= 0) | ((jnp.isinf(a) | jnp.isinf(b)) & (x > 0) & (x < 1))
    out = jnp.where((x == 0) | (x == 1), x, lax.betainc(a, b, x))
    return jnp.where(undefined, np.nan, out)


@_betainc.defjvp
def _betainc_jvp(primals: Any, tangents: Any) -> Any:
    # TensorFlow's form, which has a value at both ends where a parameter is 1; JAX's has none.
    a, b, x = primals
    log_beta = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    slope = jnp.exp(special.xlog1py(b - 1, -x) + special.xlogy(a - 1, x) - log_beta)
    return _betainc(a, b, x), tangents[2] * slope


@op("Betainc")
def betainc(a: Any, b: Any, x: Any) -> Any:
    """Returns the regularized incomplete beta function. See tf.raw_ops.Betainc.

    It has a derivative by ``x`` alone, as in TensorFlow.
    """
    shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(b), jnp.shape(x))
    return _betainc(*(jnp.broadcast_to(jnp.asarray(v), shape) for v in (a, b, x)))


@op("LeftShift", words="whole")
def left_shift(x: Any, y: Any) -> Any:
    """Shifts left; counts out of range are clamped, as in TensorFlow's kernel. See tf.raw_ops.LeftShift.

    Without 64-bit mode, what is shifted as uint64 keeps both of its words: keys of generators are put together so.
    """
    wide = isinstance(x, U32Pair) or any(is_int64(v) and v.dtype == np.uint64 for v in (x, y))
    if wide and not jax.config.jax_enable_x64:
        return _shifted_words(jnp.asarray(to_u32_pair(x)), jnp.asarray(to_u32_pair(y)), getattr(x, "dtype", np.uint64))
    x, y = jnp.broadcast_arrays(jnp.asarray(to_32_bits(x)), jnp.asarray(to_32_bits(y)))
    return lax.shift_left(x, _clamped(y))


def _shifted_words(x: Any, y: Any, dtype: Any) -> U32Pair:
    low, high, count = x[..., 0], x[..., 1], y[..., 0]
    negative = lax.bitcast_convert_type(y[..., 1], np.int32) < 0
    count = jnp.where(
        negative, np.uint32(0), jnp.where(y[..., 1] > 0, np.uint32(63), jnp.minimum(count, np.uint32(63)))
    )
    low, high, count = jnp.broadcast_arrays(low, high, count)
    # Shifts by 32 and more give 0 here.
    carried = lax.shift_right_logical(low, np.uint32(32) - count) | lax.shift_left(low, count - np.uint32(32))
    words = jnp.stack([lax.shift_left(low, count), lax.shift_left(high, count) | carried], -1)
    return U32Pair(words, np.dtype(dtype if np.dtype(dtype).itemsize == 8 else np.uint64))


def _bitwise(name: str, fn: Callable[..., Any]) -> None:
    def run(x: Any, y: Any) -> Any:
        found = [v.dtype for v in (x, y) if isinstance(v, U32Pair)]
        if found:
            return U32Pair(fn(jnp.asarray(to_u32_pair(x)), jnp.asarray(to_u32_pair(y))), found[0])
        return fn(jnp.asarray(x), jnp.asarray(y))

    run.__doc__ = f"See tf.raw_ops.{name}."
    op(name, words="whole")(run)


_bitwise("BitwiseAnd", jnp.bitwise_and)
_bitwise("BitwiseOr", jnp.bitwise_or)
_bitwise("BitwiseXor", jnp.bitwise_xor)


@op("RightShift")
def right_shift(x: Any, y: Any) -> Any:
    """Shifts right, keeping the sign; counts out of range are clamped. See tf.raw_ops.RightShift."""
    x, y = jnp.broadcast_arrays(jnp.asarray(x), jnp.asarray(y))
    signed = jnp.issubdtype(x.dtype, jnp.signedinteger)
    return (lax.shift_right_arithmetic if signed else lax.shift_right_logical)(x, _clamped(y))


def _clamped(y: Any) -> Any:
    bits = np.dtype(y.dtype).itemsize * 8
    return jnp.clip(y, 0, bits - 1).astype(y.dtype)


@op("PopulationCount")
def population_count(x: Any) -> Any:
    """Counts bits. See tf.raw_ops.PopulationCount."""
    return jax.lax.population_count(jnp.asarray(x)).astype(np.uint8)
