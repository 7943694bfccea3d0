"""Evaluates a jaxpr whose shapes have symbolic dimensions with arrays that have room for the most there can be."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import Var, bind
from tf2jax_lite.jaxprs.evaluate import evaluate
from tf2jax_lite.jaxprs.walk import inner, parts
from tf2jax_lite.support.errors import OpError, Tf2JaxError
from tf2jax_lite.values.static import as_array

from .actual_sizes import Sizes, is_symbolic
from .assumptions import doubtful
from .tracker import is_found, prefix_p

__all__ = ["Evaluator", "Rule", "rule", "rules"]

Rule = Callable[["Evaluator", Any, list[Any]], list[Any]]
"""How one primitive is evaluated, of an equation and its operands with room: gives its results with room."""

rules: dict[str, Rule] = {}


def rule(*names: str, bounded: bool = False) -> Callable[[Rule], Rule]:
    """Registers the rule of the primitives called so.

    Args:
      *names: of primitives.
      bounded: whether what is not there of its floating-point results is made 0.
    """

    def register(found: Rule) -> Rule:
        rules.update(dict.fromkeys(names, _bounded(found) if bounded else found))
        return found

    return register


def _bounded(found: Rule) -> Rule:
    def result(ev: Evaluator, var: Any, value: Any) -> Any:
        aval = var.aval
        return ev.sizes.filled(value, aval.shape, 0) if jnp.issubdtype(aval.dtype, jnp.inexact) else value

    @functools.wraps(found)
    def bounded(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
        return [result(ev, *pair) for pair in zip(eqn.outvars, found(ev, eqn, args), strict=True)]

    return bounded


class Evaluator:
    """Evaluates equations.

    Elements beyond a dimension's size hold anything that is finite. Rules see to it that none of it reaches an element
    that is there. Gradients flow the other way: where something that is there may have an influence on what is not, a
    rule is `bounded`, so that NaN in the gradient of what is not there ends there.

    Args:
      sizes: what is known of the variables in dimensions; equations of `prefix_p` add to it.
    """

    def __init__(self, sizes: Sizes):
        self.sizes = sizes
        self._symbolic: dict[int, bool] = {}

    def run(self, closed: Any, args: Sequence[Any]) -> list[Any]:
        """Evaluates a jaxpr, closed or open."""

        def literal(value: Any) -> Any:
            # JAX may leave a number as wide as numpy gave it, where what takes it is as wide as JAX's.
            return as_array(value) if isinstance(value, np.ndarray | np.generic) else value

        return evaluate(closed, args, self._equation, literal=literal)

    def inside(self, closed: Any, *args: Any) -> list[Any]:
        """Evaluates a jaxpr within a trace of its own: what it finds of sizes stays there."""
        return [jnp.asarray(v) for v in Evaluator(self.sizes.given(self.sizes.values)).checked(closed, args)]

    def checked(self, closed: Any, args: Sequence[Any]) -> list[Any]:
        """Evaluates a jaxpr; where sizes turn out not to be what they were taken to be, its results are NaN.

        Whole numbers are the least that there are then, without a sign the greatest.

        Raises:
          OpError: a truth value depends on such a size, or another result that cannot say so.
        """
        results = self.run(closed, args)
        if not self.sizes.checks:
            return results
        fits = functools.reduce(operator.and_, self.sizes.checks)
        affected = doubtful(parts(closed)[0])
        return [
            self._marked(v, x, fits) if isinstance(v, Var) and v in affected else x
            for v, x in zip(parts(closed)[0].outvars, results, strict=True)
        ]

    def _marked(self, var: Any, value: Any, fits: Any) -> Any:
        dtype = var.aval.dtype
        if jnp.issubdtype(dtype, jnp.integer):  # what jnp.take fills with where an index is out of range
            info = jnp.iinfo(dtype)
            return jnp.where(fits, value, info.min if jnp.issubdtype(dtype, jnp.signedinteger) else info.max)
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise OpError(
                f"two sizes that data decides are taken to be equal, and a result of dtype {dtype} could not say so if "
                "they are not"
            )
        return value * jnp.where(fits, 1, jnp.nan).astype(value.dtype)  # a product: its gradient is NaN, too

    def _equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        if not self._concerns(eqn):
            return bind(eqn, *args)
        found = rules.get(eqn.primitive.name)
        if found is None:
            raise unsupported(eqn)
        try:
            return found(self, eqn, args)
        except OpError as error:
            where = str(eqn.source_info.name_stack)
            if where and "(node " not in str(error):  # what is inside of a call does not know its node
                raise OpError(f"{error} (node {where!r})") from error
            raise
        except Tf2JaxError:
            raise
        except Exception as error:  # of JAX, about shapes that a rule made: what it is about is this equation
            raise OpError(f"JAX's {shown(eqn)}: {type(error).__name__}: {str(error).split(chr(10))[0]}") from error

    def is_symbolic(self, closed: Any) -> bool:
        """Whether anything in a jaxpr has a symbolic dimension."""
        jaxpr, _ = parts(closed)
        if id(jaxpr) not in self._symbolic:
            self._symbolic[id(jaxpr)] = any(map(self._concerns, jaxpr.eqns))
        return self._symbolic[id(jaxpr)]

    def _concerns(self, eqn: Any) -> bool:
        if (
            eqn.primitive is prefix_p
            or is_found(eqn.params.get("dim", 0))
            or any(is_symbolic(v.aval.shape) for v in _shaped(eqn))
        ):
            return True
        return any(map(self.is_symbolic, inner(eqn.params)))


def _shaped(eqn: Any) -> Iterator[Any]:
    return (v for v in (*eqn.invars, *eqn.outvars) if hasattr(v.aval, "shape"))


def shown(eqn: Any) -> str:
    """Returns which primitive of which node this is, for messages."""
    where = str(eqn.source_info.name_stack)
    shapes = ", ".join(str(list(v.aval.shape)) for v in eqn.invars if hasattr(v.aval, "shape"))
    return f"{eqn.primitive.name} of shapes {shapes}" + (f" (node {where!r})" if where else "")


def unsupported(eqn: Any) -> OpError:
    """Returns the error for an equation that cannot be evaluated so."""
    return OpError(f"JAX's {shown(eqn)} cannot have a size that depends on traced values there")
