"""Identity primitives that support one mode of differentiation only.

JAX raises for forward mode through ``jax.custom_vjp``, and for reverse mode through a ``lax.while_loop`` with effects,
but without the name of the model's node or advice. Results pass through these identities instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from tf2jax_lite.jaxprs.compat import Primitive, Zero, register
from tf2jax_lite.loops.while_loop import zero
from tf2jax_lite.support.errors import ForwardModeError, ReverseModeError


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


# The identity on values. Its tangents pass through the other primitive, which can be transposed but not evaluated.
_reverse_only = identity_primitive("reverse_only")
_tangent = Primitive("reverse_only_tangent")


def _refuse(*_: Any, message: str, node: str, op: str, path: tuple[str, ...]) -> NoReturn:
    raise ForwardModeError(message, node=node, op=op, path=path)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    result = _reverse_only.bind(*primals, **params)
    (tangent,) = tangents
    return result, zero(result) if type(tangent) is Zero else _tangent.bind(tangent, **params)


register(_reverse_only, jvp=_jvp)
register(
    _tangent,
    impl=_refuse,
    abstract=lambda x, **_: x,
    linear=lambda cotangent, x, **_: [cotangent],
    batch="elementwise",
    lowering=_refuse,
)


def reverse_only(value: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> Any:
    """Return a pytree whose inexact arrays raise `ForwardModeError` in forward mode.

    The error comes when the tangent is computed or, inside ``jax.jit``, when JAX compiles it.
    """
    return passed_through(_reverse_only, value, message=message, node=node, op=op, path=path)


_forward_only = identity_primitive("forward_only")


def _refuse_reverse(cotangent: Any, x: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> NoReturn:
    raise ReverseModeError(message, node=node, op=op, path=path)


register(_forward_only, linear=_refuse_reverse)


def forward_only(value: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> Any:
    """Return a pytree whose inexact arrays raise `ReverseModeError` in reverse mode."""
    return passed_through(_forward_only, value, message=message, node=node, op=op, path=path)
