"""The logistic function: in float16 through float32, where ``exp(-x)`` is finite below -11, too."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from .accumulation import in_float32
from .elementwise_derivatives import differentiable

__all__ = ["logistic"]

# With a slope of its own, so that what is kept for a gradient is the float16 result.
_half = differentiable(lambda x, y: y * (1 - y))(lambda x: in_float32(lax.logistic, x))


def logistic(x: Any) -> Any:
    """Returns ``1 / (1 + exp(-x))``.

    Args:
      x: an array of floats or complex numbers.
    """
    return _half(x) if x.dtype == jnp.float16 else lax.logistic(x)
