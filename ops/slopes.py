"""Functions of one array with the derivative that is written down for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

__all__ = ["differentiable"]


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
