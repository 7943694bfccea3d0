"""Gradients with respect to variables read after an assignment in a call.

TensorFlow takes gradients at a variable's handle: every read, before or after an assignment, is differentiated with
respect to the variable, and no gradient flows through the assigned value. That holds for a function's results. The
variables' new values, which have no gradient in TensorFlow, depend on all values that they are computed from, as they
do in JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from tf2jax_lite.support.errors import OpError


@jax.custom_jvp
def as_variable(current: Any, initial: Any) -> Any:
    """Return ``current`` with the derivative of ``initial``.

    Args:
      initial: its value when the function was called: the param that gradients are taken with respect to.
    """
    return current


def _as_variable_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    current, initial = primals
    tangent = tangents[1]
    if isinstance(tangent, SymbolicZero):
        return as_variable(current, initial), SymbolicZero(jax.typeof(current))
    if current.shape != initial.shape:
        raise OpError(
            f"a gradient is taken with respect to a variable of shape {initial.shape} that was assigned a value of "
            f"shape {current.shape}; TensorFlow's gradient would have the latter. Give the param that shape, or take "
            "the gradient with respect to the assigned value, without the assignment"
        )
    return as_variable(current, initial), tangent.astype(current.dtype)


as_variable.defjvp(_as_variable_jvp, symbolic_zeros=True)

Results = tuple[Any, Any]
"""Two pytrees of arrays: a function's results, and the variables' new values."""


Wanted = Literal["both", "results", "state", "sizes"]
"""The purpose of a run: values alone; results, differentiated as in TensorFlow; new values of variables; shapes."""


def separately(run: Callable[[list[Any], Wanted], Results], args: list[Any]) -> Results:
    """Run a function with separate derivatives of results and new variables.

    Args:
      run: takes arrays, and the purpose of the run. Values do not depend on the purpose.

    Returns:
      The results of ``run``. It runs once unless derivatives are taken.
    """

    @jax.custom_jvp
    def call(args: list[Any]) -> Results:
        return run(args, "both")

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        (args,), (directions,) = primals, tangents
        # Zeros as numbers would meet derivatives that are not finite.
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
