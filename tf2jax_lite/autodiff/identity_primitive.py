"""Identities that are primitives of their own, so that transforms of what flows through them meet our rules."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.jaxprs.compat import Primitive, register

__all__ = ["identity_primitive", "marked"]


def identity_primitive(name: str) -> Primitive:
    """Returns a primitive that gives its argument back, under jit and vmap, too; derivatives are the caller's."""
    primitive = Primitive(name)
    register(
        primitive,
        impl=lambda x, **_: x,
        abstract=lambda x, **_: x,
        batch="elementwise",
        lowering=lambda ctx, x, **_: [x],
    )
    return primitive


def marked(primitive: Primitive, value: Any, **params: Any) -> Any:
    """Returns a pytree unchanged, its inexact arrays sent through the primitive: the others have no derivatives."""

    def mark(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return primitive.bind(leaf, **params)

    return jax.tree.map(mark, value)
