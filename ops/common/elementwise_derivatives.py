"""Functions of one array with the derivative that is written down for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["differentiable", "gamma_slope"]


def differentiable(slope: Callable[[Any, Any], Any]) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Returns a decorator that gives an elementwise function its derivative.

    Where the slope is infinite or no number, so is the derivative, whatever comes in (`no_nan.with_slope` has it zero
    where nothing comes in).

    Args:
      slope: the derivative, from the argument and the function's value; elementwise and differentiable itself.
    """

    def decorate(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        wrapped = jax.custom_jvp(fn)

        @wrapped.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents
            value = wrapped(x)
            return value, t * slope(x, value)

        return wrapped

    return decorate


@jax.custom_jvp
def gamma_slope(alpha: Any, sample: Any) -> Any:
    """Returns the derivative of a gamma variable by ``alpha`` that keeps its quantile; floats of 32 or 64 bits.

    JAX's own is made of loops, through which no gradient goes backwards.
    """
    slope: Any = lax.random_gamma_grad  # its type stub asks for a keyword that it does not take
    return slope(alpha, sample)


@gamma_slope.defjvp
def _gamma_slope_jvp(primals: Any, tangents: Any) -> Any:
    alpha, sample = primals
    one, zero = jnp.ones_like(alpha), jnp.zeros_like(alpha)
    by_alpha = jax.jvp(lax.random_gamma_grad, primals, (one, zero))[1]
    by_sample = jax.jvp(lax.random_gamma_grad, primals, (zero, one))[1]
    return gamma_slope(alpha, sample), by_alpha * tangents[0] + by_sample * tangents[1]
