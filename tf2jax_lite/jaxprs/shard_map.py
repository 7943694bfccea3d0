"""Values that differ between devices inside ``jax.shard_map``.

There a value's type says along which axes of the mesh it varies, and what a loop carries has to keep its type: a sum
that starts with zeros, equal everywhere, and adds each device's own data has to start as one that varies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from . import compat
from .compat import AbstractValue, ShapedArray, varying_axes

__all__ = ["alike", "axes_of", "in_mesh", "linear_transpose", "lower_fun", "varying_along"]


def axes_of(value: Any) -> frozenset[str]:
    """Returns the axes that an array, or an abstract value, varies along; outside of ``jax.shard_map`` none."""
    return varying_axes(value if isinstance(value, AbstractValue) else jax.typeof(value))


def in_mesh() -> bool:
    """Returns whether what is traced now is inside ``jax.shard_map``."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def varying_along(value: Any, axes: frozenset[str]) -> Any:
    """Returns an array as one that varies along these axes, too."""
    more = axes - axes_of(value)
    return lax.pcast(value, tuple(sorted(more)), to="varying") if more else value


def alike(*values: Any) -> tuple[Any, ...]:
    """Returns arrays as ones that vary along the same axes, all that any of them varies along."""
    axes = frozenset[str]().union(*map(axes_of, values))
    return tuple(varying_along(v, axes) for v in values) if axes else values


def linear_transpose(function: Callable[[Any], Any], like: Any, cotangent: Any, *others: Any) -> Any:
    """Returns what the transpose of a linear function of one array gives.

    Args:
      function: of an array like ``like``; gives one array.
      like: an array, or its shape and dtype.
      cotangent: of what the function gives.
      *others: arrays that the function reads.
    """
    axes = frozenset[str]().union(*map(axes_of, (cotangent, *others)))
    form: Any = jax.ShapeDtypeStruct(like.shape, like.dtype)
    if axes:
        form = jax.typeof(varying_along(lax.full(like.shape, 0, like.dtype), axes))
    return jax.linear_transpose(function, form)(varying_along(cotangent, axes))[0]


def lower_fun(fn: Callable[..., Any], *, multiple_results: bool) -> Callable[..., Any]:
    """Returns ``jax.interpreters.mlir.lower_fun`` of a function that knows nothing of meshes.

    When a primitive is lowered, what varies between devices has been accounted for, and the arrays are one device's.

    Args:
      fn: a function of arrays and a primitive's parameters, without communication between devices.
      multiple_results: whether it returns a list.
    """
    rule = compat.lower_fun(fn, multiple_results=multiple_results)

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        if any(map(axes_of, ctx.avals_in)):
            ctx = ctx.replace(avals_in=[ShapedArray(a.shape, a.dtype, a.weak_type) for a in ctx.avals_in])
        return rule(ctx, *args, **params)

    return lower
