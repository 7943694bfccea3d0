"""Mesh axes along which values vary inside ``jax.shard_map``.

A value's type has the mesh axes that it varies along, and a loop's carry has to keep its type: a sum that starts with
zeros, equal on all devices, and adds each device's own data has to start as a value that varies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from . import compat
from .compat import AbstractValue, ShapedArray, varying_axes


def axes_of(value: Any) -> frozenset[str]:
    """Return axes that an array or aval varies along; none outside ``shard_map``."""
    return varying_axes(value if isinstance(value, AbstractValue) else jax.typeof(value))


def in_mesh() -> bool:
    """Return whether the code that is being traced is inside ``jax.shard_map``."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def varying_along(value: Any, axes: frozenset[str]) -> Any:
    """Return an array that varies along these axes, too."""
    more = axes - axes_of(value)
    return lax.pcast(value, tuple(sorted(more)), to="varying") if more else value


def same_axes(*values: Any) -> tuple[Any, ...]:
    """Return arrays that all vary along the axes that any of them varies along."""
    axes = frozenset[str]().union(*map(axes_of, values))
    return tuple(varying_along(v, axes) for v in values) if axes else values


def linear_transpose(function: Callable[[Any], Any], like: Any, cotangent: Any, *others: Any) -> Any:
    """Apply the transpose of a linear function of one array."""
    axes = frozenset[str]().union(*map(axes_of, (cotangent, *others)))
    spec: Any = jax.ShapeDtypeStruct(like.shape, like.dtype)
    if axes:
        spec = jax.typeof(varying_along(lax.full(like.shape, 0, like.dtype), axes))
    return jax.linear_transpose(function, spec)(varying_along(cotangent, axes))[0]


def lower_fun(fn: Callable[..., Any], *, multiple_results: bool) -> Callable[..., Any]:
    """Return a function's lowering rule, for operands varying along axes or not.

    When a primitive is lowered, varying axes have been accounted for, and the arrays are those of one device.
    """
    rule = compat.lower_fun(fn, multiple_results=multiple_results)

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        if any(map(axes_of, ctx.avals_in)):
            ctx = ctx.replace(avals_in=[ShapedArray(a.shape, a.dtype, a.weak_type) for a in ctx.avals_in])
        return rule(ctx, *args, **params)

    return lower
