"""One line of source for each equation: JAX's primitives as calls of ``jax.lax``, ``jax.random`` and operators."""

from . import arrays, elementwise, keys, products  # noqa: F401
from .equations import Equation, Raw, call, expression, rule

__all__ = ["Equation", "Raw", "call", "expression", "rule"]
