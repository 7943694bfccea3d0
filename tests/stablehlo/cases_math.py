"""Elementwise primitives and dtypes: data for the sweep."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import case
from .values import C2, WORDS, B, C, D, I, N, P, Q, U, V


def unary(name, fn, x, **options):
    return case(name, fn, x, **{**D, **options})


def binary(name, fn, x, y, **options):
    return case(name, fn, x, y, **{**D, **options})


ELEMENTWISE = [
    *(
        unary(n, getattr(lax, n), V)
        for n in ["abs", "neg", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asinh", "atan", "exp", "exp2", "expm1"]
    ),
    *(unary(n, getattr(lax, n), V) for n in ["square", "logistic", "erf", "erfc", "bessel_i0e", "bessel_i1e"]),
    *(unary(n, getattr(lax, n), P) for n in ["log", "log1p", "sqrt", "rsqrt", "cbrt", "lgamma", "digamma"]),
    *(unary(n, getattr(lax, n), U) for n in ["asin", "acos", "atanh", "erf_inv"]),
    unary("acosh", lax.acosh, P + 1),
    *(case(n, getattr(lax, n), V, vmap=True) for n in ["sign", "floor", "ceil", "is_finite"]),
    case("round", lambda x: (lax.round(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)), V * 2.5, **B),
    *(
        unary(f"{n}_complex", getattr(lax, n), C)
        for n in ["neg", "sin", "cos", "tan", "tanh", "sinh", "cosh", "exp", "log", "sqrt", "rsqrt"]
    ),
    *(
        case(f"{n}_complex", getattr(lax, n), C, **B)
        for n in ["expm1", "log1p", "logistic", "asin", "acos", "atan", "asinh"]
    ),
    *(
        case(f"{n}_complex", getattr(lax, n), C, **B)
        for n in ["acosh", "atanh", "square", "sign", "is_finite"]
        if n != "is_finite"
    ),
    *(unary(n, getattr(lax, n), C) for n in ["real", "imag", "conj"]),
    unary("abs_complex", lax.abs, C),
    binary("complex", lax.complex, V, Q),
    *(binary(n, getattr(lax, n), V, Q) for n in ["add", "sub", "mul", "div", "atan2", "max", "min", "rem"]),
    *(binary(f"{n}_complex", getattr(lax, n), C, C2) for n in ["add", "sub", "mul", "div", "pow"]),
    binary("pow", lax.pow, P, V),
    case("pow_integers", lax.pow, V, I % 4, **D),
    case("integer_pow", lambda x: (x**3, x**-2, x**7), V, **D),
    binary("igamma", lax.igamma, P, Q, tol=1e-4, second=False),
    binary("igammac", lax.igammac, P, Q, tol=1e-4, second=False),
    case("igamma_grad_a", lax.igamma_grad_a, P, Q, tol=1e-4, **B),
    case("random_gamma_grad", lax.random_gamma_grad, P, Q, tol=1e-4, **B),
    case("betainc", lambda a, b, x: lax.betainc(a, b, (x + 1) / 2), P, Q, U, tol=1e-4, **B),
    case("betainc_gradient", lambda x: lax.betainc(P, Q, (x + 1) / 2), U, tol=1e-3, **D),
    case("polygamma", lambda x: lax.polygamma(jnp.full_like(x, 2), x), P, tol=1e-4, **D),
    case("zeta", lambda x, q: lax.zeta(x + 1, q), P, Q, tol=1e-4, **B),
    case("nextafter", lax.nextafter, V, Q, **B),
    *(case(n, getattr(lax, n), N, **B) for n in ["clz", "population_count"]),
    *(case(n, getattr(lax, n), I, **B) for n in ["bitwise_not", "sign", "abs"]),
    *(
        case(n, getattr(lax, n), I, I[::-1].copy(), **B)
        for n in ["bitwise_and", "bitwise_or", "bitwise_xor", "max", "min"]
    ),
    *(
        case(f"{n}_bool", getattr(lax, n), I > 0, I > 2, **B)
        for n in ["bitwise_and", "bitwise_or", "bitwise_xor", "max", "min"]
    ),
    case("integer_division", lambda x, y: (lax.div(x, y), lax.rem(x, y)), I, np.int32([2, 3, -2, 7]), **B),
    case("unsigned_division", lambda x, y: (lax.div(x, y), lax.rem(x, y)), N, np.uint32([2, 3, 5, 7]), **B),
    case(
        "shifts", lambda x: (x << 3, lax.shift_right_arithmetic(x, x * 0 + 2), lax.shift_right_logical(x, x * 0 + 2)), I
    ),
    *(case(n, getattr(lax, n), V, np.sort(Q), **B) for n in ["eq", "ne", "lt", "le", "gt", "ge"]),
    case("complex_equality", lambda x, y: (lax.eq(x, y), lax.ne(x, y)), C, C2, **B),
    case("bool_order", lambda x, y: (lax.lt(x, y), lax.ge(x, y)), I > 0, I > 2, **B),
    case("clamp", lambda x: (lax.clamp(-0.5, x, 0.5), lax.clamp(x - 1, x * 2, x + 1)), V, **D),
    case("clamp_integers", lambda x: lax.clamp(-1, x, 9), I, **B),
    case("select_n", lambda x, y: lax.select_n(x > 0.5, x, y), V, Q, **D),
    case("select_three", lambda i, x: lax.select_n(i, x, 2 * x, 3 * x), np.int32([0, 2, 1, 2]), V, **D),
    case("reduce_precision", lambda x: lax.reduce_precision(x, 5, 4), V, **B),
    case("mulhi", lambda x, y: lax.mulhi(x, y), WORDS, WORDS[::-1].copy(), **B),
    case("mulhi_signed", lambda x, y: lax.mulhi(x, y), WORDS.view(np.int32), WORDS[::-1].view(np.int32).copy(), **B),
    case("stop_gradient", lambda x: x * lax.stop_gradient(x), V, **B),
    case("copy", lambda x: jnp.array(x, copy=True) * 2, V, **D),
]

_INTS = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int2", "uint2")
_FLOATS = [n for n in dir(jnp) if n.startswith(("float8_", "float4_")) or n in ("float16", "bfloat16", "float32")]


def through(name):
    """Through the dtype and back: a cast in, an operation there, a cast out."""
    dtype = jnp.dtype(getattr(jnp, name))

    def fn(x):
        small = x.astype(dtype)
        return small.astype(np.float32), jnp.where(x > 1, small, small[::-1]).astype(np.float32), small.reshape(2, 2).T

    return fn


DTYPES = [
    *(case(f"dtype_{n}", through(n), np.int32([0, 1, 1, 0]), size=2) for n in _INTS),
    *(case(f"dtype_{n}", through(n), np.float32([0.5, 1, 2, 4]), size=2) for n in _FLOATS),
    case(
        "arithmetic_int4", lambda x: (x.astype(jnp.int4) * jnp.int4(2) - jnp.int4(1)).astype(np.int32), np.int32([1, 3])
    ),
    case("constant_int4", lambda x: x + jnp.array([1, -2, 3, 7], jnp.int4).astype(np.int32), np.int32([1, 3, 0, 1])),
    case("constant_float8", lambda x: x + jnp.array([0.5, -2, 3, 0], jnp.float8_e5m2).astype(np.float32), V),
    case("bitcast_same", lambda x: lax.bitcast_convert_type(x, np.uint32), V, **B),
    case("bitcast_narrower", lambda x: lax.bitcast_convert_type(x, np.uint8), V, **B),
    case(
        "bitcast_wider", lambda x: lax.bitcast_convert_type(x, np.float32), np.arange(16, dtype=np.uint8).reshape(4, 4)
    ),
    case("bitcast_int4", lambda x: lax.bitcast_convert_type(x, jnp.int4).astype(np.int8), np.int8([17, -3])),
    case("convert_complex", lambda x: (x.astype(np.complex64), (x > 0).astype(np.complex64)), V),
    case("convert_saturates", lambda x: x.astype(np.int8), np.float32([1.7, -3.2, 100.0])),
    case("convert_from_bool", lambda x: ((x > 0).astype(np.float32), (x > 0).astype(np.uint8)), V),
]
