"""Gradients of variables that are read after an assignment in the same call.

TensorFlow takes gradients at a variable's handle: every read, before or after an assignment, counts as one of the
variable itself, and nothing flows back through what was assigned. That holds for a function's results. The variables'
new values, which TensorFlow has no gradient of, depend on all that they were computed from, as values in JAX do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from tf2jax_lite.support.errors import OpError

__all__ = ["Wanted", "as_variable", "separately"]


@jax.custom_jvp
def as_variable(current: Any, initial: Any) -> Any:
    """Returns ``current``, whose derivative is that of ``initial``.

    Args:
      current: what the variable holds now.
      initial: what it held when the function was called: the param that gradients are taken by.

    Raises:
      OpError: a derivative is taken and the two differ in shape.
    """
    return current


def _as_variable_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    current, initial = primals
    tangent = tangents[1]
    if isinstance(tangent, SymbolicZero):
        return as_variable(current, initial), SymbolicZero(jax.typeof(current))
    if current.shape != initial.shape:
        raise OpError(
            f"a gradient is taken by a variable of shape {initial.shape} that was assigned a value of shape "
            f"{current.shape}; TensorFlow's gradient would have the latter. Give the param that shape, or take the "
            "gradient by what is assigned, with its assignment left out"
        )
    return as_variable(current, initial), tangent.astype(current.dtype)


as_variable.defjvp(_as_variable_jvp, symbolic_zeros=True)

Results = tuple[Any, Any]
"""Two pytrees of arrays: a function's results, and the variables' new values."""


Wanted = Literal["both", "results", "state"]
"""What a run is for: values alone; results, which are differentiated as in TensorFlow; new values of variables."""


def separately(run: Callable[[list[Any], Wanted], Results], args: list[Any]) -> Results:
    """Runs a function, of which results and new values of variables have derivatives of their own.

    Args:
      run: takes arrays, and what of its results is wanted. Values are the same whatever is.
      args: the arrays.

    Returns:
      What ``run`` gives. Undifferentiated, it runs once.
    """

    @jax.custom_jvp
    def call(args: list[Any]) -> Results:
        return run(args, "both")

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        (args,), (directions,) = primals, tangents
        # A zero told as numbers would go through derivatives that are not finite.
        moving = [i for i, t in enumerate(directions) if not isinstance(t, SymbolicZero) and _is_inexact(args[i])]

        def part(wanted: Wanted) -> Any:
            def of(chosen: list[Any]) -> Any:
                given = list(args)
                for i, value in zip(moving, chosen, strict=True):
                    given[i] = value
                results, state = run(given, wanted)
                return results if wanted == "results" else state

            return jax.jvp(of, ([args[i] for i in moving],), ([directions[i] for i in moving],))

        results, moved = part("results")
        state, shifted = part("state")
        return (results, state), (moved, shifted)

    call.defjvp(rule, symbolic_zeros=True)
    return call(args)


def _is_inexact(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)
