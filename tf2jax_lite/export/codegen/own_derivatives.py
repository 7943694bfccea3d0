"""Find custom gradients that are what JAX derives of the function anyway.

jax2tf writes the derivative of a function beside it, as a program of its own. Source needs no rule for such a function
if both agree; they differ where the original function has derivative rules, or stops gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.dynamic_shapes.dim_expr import linear_terms
from tf2jax_lite.jaxprs.compat import Jaxpr, Var
from tf2jax_lite.jaxprs.evaluate import evaluate_equations

_TOLERANCE = 1e-4  # of gradients in float32, relative to the largest element
_SIZES = (3, 5, 2, 4, 7)  # of symbolic dimensions


def differentiable_results(jaxpr: Jaxpr, eqn: Any) -> list[Any] | None:
    """Return the variables whose own derivatives a custom gradient has; else None.

    Values and gradients of both are compared for random numbers.

    Args:
      jaxpr: the function.
      eqn: its equation with a custom gradient, which JAX has derived.
    """
    first = eqn.params["args"]
    stopped = eqn.invars[first : first + eqn.params["results"]]
    defined_by = {v: e for e in jaxpr.eqns for v in e.outvars}
    makers = [defined_by.get(v) if isinstance(v, Var) else None for v in stopped]
    if any(maker is None or maker.primitive.name != "stop_gradient" for maker in makers):
        return None
    try:
        return [maker.invars[0] for maker in makers] if _agree(jaxpr, eqn, makers) else None  # type: ignore[union-attr]
    except Exception:  # programs that cannot be lowered, or sizes that do not fit: the rule stays
        return None


def _agree(jaxpr: Jaxpr, eqn: Any, makers: Sequence[Any]) -> bool:
    """Return whether gradients with and without a custom gradient agree."""
    eqns = _needed(jaxpr, eqn)
    defined = {v for e in eqns for v in e.outvars}
    roots = list(dict.fromkeys(v for e in eqns for v in e.invars if isinstance(v, Var) and v not in defined))
    moving = [i for i, v in enumerate(roots) if jnp.issubdtype(v.aval.dtype, jnp.inexact)]

    def run(given: Sequence[Any], *, with_rule: bool) -> list[Any]:
        env = dict(zip(roots, given, strict=True))

        def rule(e: Any, operands: list[Any]) -> list[Any] | None:
            if with_rule:
                return None
            if e is eqn:
                return operands[e.params["args"] :][: e.params["results"]]
            return operands[:1] if any(e is maker for maker in makers) else None

        evaluate_equations(eqns, env, rule)
        return [env[v] for v in eqn.outvars]

    def gradients(given: list[Any], upstream: list[Any]) -> list[Any]:
        def pulled(with_rule: bool) -> Any:
            def of(*some: Any) -> list[Any]:
                chosen = dict(zip(moving, some, strict=True))
                return run([chosen.get(i, v) for i, v in enumerate(given)], with_rule=with_rule)

            return jax.vjp(of, *(given[i] for i in moving))[1](upstream)

        return [pulled(False), pulled(True)]

    inputs = [[jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in each] for each in (roots, eqn.outvars)]
    exported = jax.export.export(jax.jit(gradients))(*inputs)
    compared = 0
    for lowest in (-1, 0):  # negative variances are not finite
        drawn = _Draws(lowest)
        own, given = exported.call(*(list(map(drawn.array, each)) for each in inputs))
        if all(bool(jnp.all(jnp.isfinite(v))) for v in given):
            compared += 1
            if not all(map(_is_close, own, given)):
                return False
    return compared > 0


def _needed(jaxpr: Jaxpr, eqn: Any) -> list[Any]:
    """Return the equations that another one depends on, and it."""
    found, needed = [eqn], {v for v in eqn.invars if isinstance(v, Var)}
    for e in reversed(jaxpr.eqns[: next(i for i, e in enumerate(jaxpr.eqns) if e is eqn)]):
        if not needed.isdisjoint(e.outvars):
            found.append(e)
            needed |= {v for v in e.invars if isinstance(v, Var)}
    return found[::-1]


class _Draws:
    """Random arrays of numbers up to 1, with one number for each symbolic dimension."""

    def __init__(self, lowest: float) -> None:
        self._rng, self._lowest = np.random.default_rng(0), lowest
        self._count = itertools.cycle(_SIZES)
        self._sizes: dict[str, int] = {"": 1}

    def array(self, like: jax.ShapeDtypeStruct) -> Any:
        """Return an array of a shape and dtype; integers are 0."""
        shape = tuple(map(self._size, like.shape))
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.split(jax.random.key(0), shape) if shape else jax.random.key(0)
        inexact = jnp.issubdtype(like.dtype, jnp.inexact)
        numbers = self._rng.uniform(self._lowest, 1, shape) if inexact else np.zeros(shape)
        return jnp.asarray(numbers, like.dtype)

    def _size(self, dim: Any) -> int:
        if isinstance(dim, int):
            return dim
        terms = linear_terms(dim)
        if terms is None:
            raise ValueError(f"a size is not linear: {dim}")
        for name in terms:
            if name not in self._sizes:
                self._sizes[name] = next(self._count)
        return sum(factor * self._sizes[name] for name, factor in terms.items())


def _is_close(own: Any, given: Any) -> bool:
    own, given = np.asarray(own, np.complex128), np.asarray(given, np.complex128)
    return np.allclose(own, given, rtol=0, atol=_TOLERANCE * np.max(np.abs(given), initial=0) + 1e-6)
