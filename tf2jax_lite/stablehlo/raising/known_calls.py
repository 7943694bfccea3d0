"""The catalog of expanded calls, each with a function that calls it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.interpreter.core import OpContext, rule
from tf2jax_lite.stablehlo.interpreter.dot_conv_fft import convolution
from tf2jax_lite.stablehlo.parsing.module import TensorType


@dataclasses.dataclass(frozen=True)
class Idiom:
    """A call that may be in a module.

    Attributes:
      name: of the function, from `_CALLS`.
      types: of its arguments.
      options: keywords, as pairs.
      platform: of the lowering to find.
    """

    name: str
    types: tuple[TensorType, ...]
    options: tuple[tuple[str, Any], ...] = ()
    platform: str = "cpu"

    def call(self, *args: Any) -> list[Any]:
        """Call it."""
        return jax.tree.leaves(_CALLS[self.name](*args, **dict(self.options)))


def frozen(value: Any) -> Any:
    """Return an attribute hashable: pairs for mappings, tuples for arrays, lists."""
    if isinstance(value, dict):
        return tuple((k, frozen(v)) for k, v in value.items())
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value


# ---- random numbers ----


def _key(data: Any, impl: str) -> Any:
    return jax.random.wrap_key_data(data, impl=impl)


def _bits(key: Any, *, shape: tuple[int, ...], dtype: str) -> Any:
    def bits(data: Any) -> Any:
        return jax.random.bits(_key(data, "threefry2x32"), shape, dtype)

    return _mapped(bits, [(0,)] * (key.ndim - 1))(key)


def _seed(seed: Any, *, impl: str) -> Any:
    def make(seed: Any) -> Any:
        return jax.random.key_data(jax.random.key(seed, impl=impl))

    return _mapped(make, [(0,)] * seed.ndim)(seed)


def _split(key: Any, *, shape: tuple[int, ...], impl: str) -> Any:
    def split(data: Any) -> Any:
        return jax.random.key_data(jax.random.split(_key(data, impl), shape))

    return _mapped(split, [(0,)] * (key.ndim - 1))(key)


def _fold_in(key: Any, data: Any, *, impl: str) -> Any:
    def fold_in(key: Any, data: Any) -> Any:
        return jax.random.key_data(jax.random.fold_in(_key(key, impl), data))

    levels = max(key.ndim - 1, data.ndim)
    axes = [(0 if i < key.ndim - 1 else None, 0 if i < data.ndim else None) for i in range(levels)]
    return _mapped(fold_in, axes)(key, data)


def _mapped(fn: Callable[..., Any], axes: list[tuple[int | None, ...]]) -> Callable[..., Any]:
    for level in axes:
        fn = jax.vmap(fn, in_axes=level)
    return fn


def _gamma(key: Any, a: Any, *, shape: tuple[int, ...], log_space: bool, mapped: bool) -> Any:
    def draw(key: Any, a: Any) -> Any:
        variates = jax.random.loggamma if log_space else jax.random.gamma
        return variates(_key(key, "threefry2x32"), a, shape, a.dtype)

    return _mapped(draw, [(0, 0 if mapped else None)] * (key.ndim - 1))(key, a)


def _generated(state: Any, *, shape: tuple[int, ...], dtype: Any, algorithm: str) -> Any:
    return lax.rng_bit_generator(state, shape, dtype, lax.RandomAlgorithm[f"RNG_{algorithm}"])


# ---- products and factorizations ----


def _packed_qr(x: Any) -> Any:
    return jnp.linalg.qr(x, mode="raw")


def _ragged_dot(lhs: Any, rhs: Any, sizes: Any, *, numbers: tuple[Any, ...], precision: Any, preferred: Any) -> Any:
    found = lax.RaggedDotDimensionNumbers(*numbers)
    return lax.ragged_dot_general(lhs, rhs, sizes, found, precision=precision, preferred_element_type=preferred)


def _top_k(x: Any, *, k: int, axis: int) -> Any:
    return lax.top_k(x, k, axis=axis)


def _convolution(lhs: Any, rhs: Any, *, attributes: tuple[tuple[str, Any], ...]) -> Any:
    attrs = dict(attributes)
    return convolution(lhs, rhs, {**attrs, "dimension_numbers": dict(attrs["dimension_numbers"])}, None)


def _window_tangent(x: Any, tangent: Any, *, kind: str, window: tuple[Any, ...]) -> Any:
    reduce = lax.max if kind == "max" else lax.min
    start = -np.inf if kind == "max" else np.inf
    pool = lambda y: lax.reduce_window(y, np.asarray(start, y.dtype), reduce, *window)  # noqa: E731
    return jax.jvp(pool, (x,), (tangent,))


COMPLEX = ("exp", "expm1", "log", "log1p", "logistic", "sin", "cos", "sqrt", "square", "conj", "pow", "div")
COMPLEX += ("asin", "acos", "atan", "asinh", "acosh", "atanh")
"""Functions of complex numbers that are expanded to real and imaginary parts."""

ARITY = {"betainc": 3, "igamma": 2, "igammac": 2, "igamma_grad_a": 2, "random_gamma_grad": 2}
ARITY |= {"nextafter": 2, "zeta": 2, "polygamma": 2, "pow": 2, "div": 2}
"""Numbers of arguments of elementwise functions with more than one."""

POLYNOMIALS = ("bessel_i1e", "digamma", "erf_inv", "lgamma")
"""Functions that are found by name if their argument is not a constant: see `recognizer`."""

ELEMENTWISE = {*ARITY, *COMPLEX, *POLYNOMIALS, "bessel_i0e", "erfc"}
"""Functions whose op histogram is the same for all shapes."""

_CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(lax, name) for name in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "betainc")},
    **{name: getattr(lax, name) for name in ("bessel_i0e", "erfc", "nextafter", "zeta", "polygamma")},
    **{
        name: getattr(lax.linalg, name)
        for name in ("cholesky", "cholesky_update", "eig", "eigh", "hessenberg", "lu", "qr", "schur", "svd")
    },
    **{name: getattr(lax.linalg, name) for name in ("lu_pivots_to_permutation", "symmetric_product")},
    **{name: getattr(lax, name) for name in (*COMPLEX, *POLYNOMIALS)},
    "qr_raw": _packed_qr,
    "ragged_dot": _ragged_dot,
    "top_k": _top_k,
    "window_tangent": _window_tangent,
    "convolution": _convolution,
    "bits": _bits,
    "rng_bit_generator": _generated,
    "seed": _seed,
    "split": _split,
    "fold_in": _fold_in,
    "gamma": _gamma,
}


@rule(*(f"jax.{name}" for name in _CALLS))
def _idiom(ctx: OpContext, *args: Any) -> Any:
    return ctx.attr("idiom").call(*args)
