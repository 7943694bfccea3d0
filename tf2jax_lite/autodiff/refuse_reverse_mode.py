"""An identity that refuses to be transposed: it marks values through which no gradient flows backwards.

JAX refuses that for a ``lax.while_loop`` with effects too, but cannot say which of a model's loops is meant, nor what
to do. This marks a loop's results, so that the refusal is ours. Forward mode and vmap pass through.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tf2jax_lite.jaxprs.compat import register
from tf2jax_lite.support.errors import ReverseModeError

from .identity_primitive import identity_primitive, marked

__all__ = ["forward_only"]

_forward_only = identity_primitive("forward_only")


def _refuse(cotangent: Any, x: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> NoReturn:
    raise ReverseModeError(message, node=node, op=op, path=path)


register(_forward_only, linear=_refuse)


def forward_only(value: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> Any:
    """Returns a pytree of arrays unchanged; taking gradients backwards through an inexact one is refused.

    Args:
      value: the pytree.
      message: what the error says.
      node: the node that is to blame.
      op: its op.
      path: the calls that lead to it.
    """
    return marked(_forward_only, value, message=message, node=node, op=op, path=path)
