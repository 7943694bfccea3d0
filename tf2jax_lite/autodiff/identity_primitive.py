"""Identity primitives, at which transformations of values meet our rules."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.jaxprs.compat import Primitive, register


def identity_primitive(name: str) -> Primitive:
    """Return an identity primitive, for which the caller registers derivatives."""
    primitive = Primitive(name)
    register(
        primitive,
        impl=lambda x, **_: x,
        abstract=lambda x, **_: x,
        batch="elementwise",
        lowering=lambda ctx, x, **_: [x],
    )
    return primitive


def passed_through(primitive: Primitive, value: Any, **params: Any) -> Any:
    """Return a pytree whose inexact arrays, the differentiable ones, pass through it."""

    def send(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return primitive.bind(leaf, **params)

    return jax.tree.map(send, value)
