"""Equations of a jaxpr, taken by themselves, whichever release of JAX wrote them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax

__all__ = ["COMPOSITE", "bind", "expanded", "scan_counts", "size"]

COMPOSITE = "call_hi_primitive"
"""The primitive of what JAX since 0.12 keeps as one equation until it is lowered, such as `jnp.searchsorted`."""


def bind(eqn: Any, *args: Any, primitive: Any = None) -> list[Any]:
    """Evaluates an equation.

    Args:
      eqn: of a jaxpr.
      *args: a value for each of its operands.
      primitive: what is bound in the place of the equation's primitive, with the same parameters.

    Returns:
      Its results.
    """
    found = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # JAX before 0.10: a pair
    results = (primitive or eqn.primitive).bind(*functions, *args, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


def expanded(eqn: Any) -> Any:
    """Returns what a `COMPOSITE` equation is made of, as a closed jaxpr of its operands."""
    composite = eqn.params["_prim"]

    def run(*args: Any) -> Any:
        return composite.expand(*composite.in_tree.unflatten(args))

    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars))


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """Returns how many of a scan's operands its body closes over, and how many it carries; the others are sliced.

    Args:
      params: of an equation of ``lax.scan``.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    closed_over, carried, _ = params["ft_in"].unpack()  # JAX since 0.11: a tree for each of the three
    return len(closed_over), len(carried)


def size(var: Any, trips: int = 1) -> float:
    """Returns how many values a variable has in so many iterations; infinity where its shape is symbolic."""
    shape = var.aval.shape
    return trips * math.prod(shape) if all(isinstance(n, int) for n in shape) else math.inf
