"""Print each equation in one line of source.

JAX's primitives become calls of ``jax.lax`` and ``jax.random``, and operators.
"""

from . import rules_elementwise, rules_indexing, rules_linalg, rules_prng  # noqa: F401
from .registry import Equation, Raw, call, expression, rule

__all__ = ["Equation", "Raw", "call", "expression", "rule"]
