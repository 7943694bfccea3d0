"""Specs: pytrees of values whose arrays are `jax.ShapeDtypeStruct`s.

Specs can be joined, and values coerced to them.

Branches of a conditional and iterations of a loop must return values of one spec. Specs of arrays must be equal.
Variants may do more: tensor lists of different lengths join to the larger capacity. A variant has two methods for this,
``common_spec(other)`` and ``coerce(spec)``: see `tf2jax_lite.values.variant`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.support.errors import OpError


def spec_of(value: Any) -> Any:
    """Return a value with each array replaced by its `jax.ShapeDtypeStruct`."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), value)


def same_spec(a: Any, b: Any) -> bool:
    """Return whether structure, shapes and dtypes are equal."""
    return _signature(a) == _signature(b)


def _signature(value: Any) -> Any:
    leaves, treedef = jax.tree.flatten(value)
    return treedef, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def common_spec(a: Any, b: Any) -> Any:
    """Return the join of specs ``a`` and ``b``; None stands for no value.

    Values of both specs can be coerced to it. The join of a spec with itself may be more general: a list drops the
    metadata about its elements.
    """
    a, b = (b, b) if a is None else (a, a) if b is None else (a, b)
    if type(a) is type(b) and hasattr(a, "common_spec"):
        return a.common_spec(b)
    if not same_spec(a, b):
        raise OpError(
            f"values of different shapes or dtypes ({format_spec(a)} and {format_spec(b)}) where JAX needs one"
        )
    return a


def coerce(value: Any, spec: Any) -> Any:
    """Return ``value`` in a spec that `common_spec` returned; zeros for None."""
    if value is None:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), spec)
    return value.coerce(spec) if hasattr(value, "coerce") else value


def coerce_all(items: Sequence[Any]) -> list[Any]:
    """Return values coerced to the join of their specs."""
    spec = join_specs([None if v is None else spec_of(v) for v in items])
    return [coerce(v, spec) for v in items]


def join_specs(specs: Sequence[Any]) -> Any:
    """Return the spec that values of all these specs can be coerced to."""
    present = [spec for spec in specs if spec is not None]
    return functools.reduce(common_spec, present, present[0]) if present else None


def format_spec(spec: Any) -> str:
    """Return dtypes and shapes of a spec, as error messages show them."""
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(spec)) or "nothing"
