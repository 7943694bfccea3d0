"""The catalog of expanded calls, each with a function that calls it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.interpreter.core import OpContext, rule
from tf2jax_lite.stablehlo.parsing.module import TensorType


@dataclasses.dataclass(frozen=True)
class Idiom:
    """A call that may be in a module."""

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


def _mapped(fn: Callable[..., Any], axes: list[tuple[int | None, ...]]) -> Callable[..., Any]:
    for level in axes:
        fn = jax.vmap(fn, in_axes=level)
    return fn


def _gamma(key: Any, a: Any, *, shape: tuple[int, ...], log_space: bool, mapped: bool) -> Any:
    def draw(key: Any, a: Any) -> Any:
        variates = jax.random.loggamma if log_space else jax.random.gamma
        return variates(_key(key, "threefry2x32"), a, shape, a.dtype)

    return _mapped(draw, [(0, 0 if mapped else None)] * (key.ndim - 1))(key, a)


def _window_tangent(x: Any, tangent: Any, *, kind: str, window: tuple[Any, ...]) -> Any:
    reduce = lax.max if kind == "max" else lax.min
    start = -np.inf if kind == "max" else np.inf
    pool = lambda y: lax.reduce_window(y, np.asarray(start, y.dtype), reduce, *window)  # noqa: E731
    return jax.jvp(pool, (x,), (tangent,))


ARITY = {"nextafter": 2, "zeta": 2, "polygamma": 2}
"""Numbers of arguments of elementwise functions with more than one."""

POLYNOMIALS = ("bessel_i1e", "digamma", "erf_inv", "lgamma")
"""Functions that are found by name if their argument is not a constant: see `recognizer`."""

ELEMENTWISE = (*ARITY, *POLYNOMIALS, "bessel_i0e", "erfc")
"""Functions whose op histogram is the same for all shapes."""

_CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(lax, name) for name in ELEMENTWISE},
    "window_tangent": _window_tangent,
    "gamma": _gamma,
}


@rule(*(f"jax.{name}" for name in _CALLS))
def _idiom(ctx: OpContext, *args: Any) -> Any:
    return ctx.attr("idiom").call(*args)
