"""Inputs and factors of matmuls without their axes of size one.

XLA:CPU gives arrays with such an axis (a batch of one) another layout inside a loop, with a copy in a kernel of its
own. Without the axis there is nothing to copy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Var
from tf2jax_lite.loops.body import Body, reshaped, variables


def run(body: Body) -> Body:
    """Remove unit axes from traced inputs, and from carried matmul factors."""
    before, after = [], []

    def squeezed(var: Any) -> Any:
        narrow = _without_unit_axes(var)
        if narrow is not var:
            before.append(reshaped(narrow, var))
        return narrow

    xs = {}
    for v, x in body.xs.items():
        narrow = v if isinstance(x, np.ndarray) else squeezed(v)
        xs[narrow] = _with_shape(x, (body.trips, *narrow.aval.shape))
    factors = {v for e in body.eqns if e.primitive is lax.dot_general_p for v in variables(e.invars)}
    carry, carry_out = {}, []
    for (v, x), result in zip(body.carry.items(), body.carry_out, strict=True):
        narrow = squeezed(v) if v in factors and isinstance(result, Var) else v
        carry[narrow] = _with_shape(x, narrow.aval.shape)
        if narrow is not v:
            after.append(reshaped(result, Var(narrow.aval)))
            result = after[-1].outvars[0]
        carry_out.append(result)
    if not before:
        return body

    def finish(carry: list[Any], ys: list[Any]) -> Any:
        pairs = zip(carry, body.carry_out, strict=True)
        return body.finish([_with_shape(x, v.aval.shape) if isinstance(v, Var) else x for x, v in pairs], ys)

    return dataclasses.replace(
        body, eqns=[*before, *body.eqns, *after], xs=xs, carry=carry, carry_out=carry_out, finish=finish
    )


def _without_unit_axes(var: Any) -> Any:
    shape = tuple(n for n in var.aval.shape if n != 1)
    return var if len(shape) == len(var.aval.shape) else Var(var.aval.update(shape=shape))


def _with_shape(value: Any, shape: tuple[int, ...]) -> Any:
    return value if tuple(value.shape) == tuple(shape) else lax.reshape(value, shape)
