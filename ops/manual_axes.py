"""Values that differ between devices inside ``jax.shard_map``.

There a value's type says along which axes of the mesh it varies, and what a loop carries has to keep its type: a sum
that starts with zeros, equal everywhere, and adds each device's own data has to start as one that varies.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax

__all__ = ["axes_of", "varying_along"]


def axes_of(value: Any) -> frozenset[str]:
    """Returns the axes that an array, or an abstract value, varies along; outside of ``jax.shard_map`` none."""
    aval = value if isinstance(value, jax.core.AbstractValue) else jax.typeof(value)
    found = getattr(aval, "manual_axis_type", None) or getattr(aval, "vma", None)  # the second before JAX 0.10
    return frozenset(getattr(found, "varying", found) or ())


def varying_along(value: Any, axes: frozenset[str]) -> Any:
    """Returns an array as one that varies along these axes, too."""
    more = axes - axes_of(value)
    return lax.pcast(value, tuple(sorted(more)), to="varying") if more else value
