"""What goes into a custom gradient's node: arguments whose tangents only go backwards, and values that have none.

JAX refuses forward mode through ``jax.custom_vjp`` too, but inside ``jax.jit`` only when it compiles, and cannot say
which of a model's nodes is meant, nor what to do. `reverse_only` marks the arguments, so that the refusal is ours.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tf2jax_lite.errors import ForwardModeError
from tf2jax_lite.ops.inlining import inlined

from .marking import identity_primitive, marked

__all__ = ["aside", "reverse_only"]


# ---- arguments ----

# The identity on values. Its tangents go through the other primitive, which can be transposed, but not run.
_reverse_only = identity_primitive("reverse_only")
_tangent = Primitive("reverse_only_tangent")


def _refuse(*_: Any, message: str, node: str, op: str, path: tuple[str, ...]) -> NoReturn:
    raise ForwardModeError(message, node=node, op=op, path=path)


ad.defjvp(_reverse_only, lambda t, x, **params: _tangent.bind(t, **params))

_tangent.def_impl(_refuse)
_tangent.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_tangent, _refuse)
batching.defvectorized(_tangent)
ad.deflinear2(_tangent, lambda cotangent, x, **_: [cotangent])


def reverse_only(value: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> Any:
    """Returns a pytree of arrays unchanged; taking derivatives forwards through an inexact one is refused.

    The error comes when the tangent is computed or, inside ``jax.jit``, when JAX compiles it.

    Args:
      value: the pytree.
      message: what the error says.
      node: the node that is to blame.
      op: its op.
      path: the calls that lead to it.
    """
    return marked(_reverse_only, value, message=message, node=node, op=op, path=path)


# ---- other values ----


@jax.custom_jvp
def _aside(values: list[Any]) -> list[Any]:
    return values


@_aside.defjvp
def _aside_jvp(primals: Any, tangents: Any) -> Any:
    # Not jax.lax.stop_gradient, which would stop the derivatives of any order: those of this very rule go on.
    return primals[0], jax.tree.map(jnp.zeros_like, tangents[0])


_aside_inlined = inlined(_aside)


def aside(value: Any) -> Any:
    """Returns a pytree unchanged, but for the innermost differentiation constant; for those around it, it is not."""
    leaves, tree = jax.tree.flatten(value)
    moving = [i for i, v in enumerate(leaves) if isinstance(v, jax.Array) and jnp.issubdtype(v.dtype, jnp.inexact)]
    if moving:
        for i, v in zip(moving, _aside_inlined([leaves[i] for i in moving]), strict=True):
            leaves[i] = v
    return jax.tree.unflatten(tree, leaves)
