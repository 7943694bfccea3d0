"""Rules for elementwise primitives, with safe values in padding for gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from tf2jax_lite.dynamic_shapes.evaluator import Evaluator, is_symbolic, rule
from tf2jax_lite.jaxprs.compat import Literal, bind
from tf2jax_lite.jaxprs.independence import ELEMENTWISE

# Not elementwise, but padding stays behind the other elements.
_MOVES = frozenset({"bitcast_convert_type", "debug_callback", "loop_start", "squeeze", "stack", "transpose"})
# Operand values with finite derivatives. Padding gets these, since 0 times infinity there would make gradients of valid
# elements NaN. One value per operand; None: the operand stays.
_FINITE_AT: dict[str, tuple[float | None, ...]] = {
    "acos": (0,),
    "acosh": (2,),
    "asin": (0,),
    "atan2": (1, 1),
    "atanh": (0,),
    "cbrt": (1,),
    "digamma": (1,),
    "div": (None, 1),
    "erf_inv": (0,),
    "exp": (0,),
    "exp2": (0,),
    "expm1": (0,),
    "igamma": (1, 1),
    "igamma_grad_a": (1, 1),
    "igammac": (1, 1),
    "integer_pow": (1,),
    "lgamma": (1,),
    "log": (1,),
    "log1p": (0,),
    "polygamma": (1, 1),
    "pow": (1, 1),
    "regularized_incomplete_beta": (1, 1, 0),
    "rem": (None, 1),
    "rsqrt": (1,),
    "sqrt": (1,),
    "tan": (0,),
    "zeta": (2, 1),
}


@rule(*(ELEMENTWISE - _FINITE_AT.keys()), *_MOVES)
def _plain(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return bind(eqn, *_broadcast_scalars(ev, eqn, args))


def _broadcast_scalars(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    """Return operands with scalars broadcast to the result, and 0 in its padding."""
    # The gradient of a scalar is a sum over all elements, and the gradient of padding may be NaN.
    shape = eqn.outvars[0].aval.shape if len(eqn.outvars) == 1 else ()
    if not is_symbolic(shape):
        return args
    out = list(args)
    for i, var in enumerate(eqn.invars):
        if not isinstance(var, Literal) and var.aval.shape == () and jnp.issubdtype(var.aval.dtype, jnp.inexact):
            out[i] = ev.sizes.filled(jnp.broadcast_to(args[i], ev.sizes.padded_shape(shape)), shape, 0)
    return out


@rule(*_FINITE_AT)
def _guarded(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    values, args, shape = _FINITE_AT[eqn.primitive.name], _broadcast_scalars(ev, eqn, args), eqn.outvars[0].aval.shape
    for i, (var, value) in enumerate(zip(eqn.invars, values, strict=False)):
        if value is not None and not isinstance(var, Literal) and jnp.issubdtype(var.aval.dtype, jnp.inexact):
            args[i] = ev.sizes.filled(jnp.asarray(args[i]), var.aval.shape or shape, value)
    return bind(eqn, *args)
