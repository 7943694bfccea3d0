"""An identity that refuses to be transposed: it marks values through which no gradient flows backwards.

JAX refuses that for ``lax.while_loop`` too, but cannot say which of a model's loops is meant, nor what to do. This
marks a loop's results, so that the refusal is ours. Forward mode and vmap pass through.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tf2jax_lite.errors import ReverseModeError

__all__ = ["forward_only"]

_forward_only = Primitive("forward_only")
_forward_only.def_impl(lambda x, **_: x)
_forward_only.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_forward_only, lambda ctx, x, **_: [x])
batching.defvectorized(_forward_only)


def _refuse(cotangent: Any, x: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> NoReturn:
    raise ReverseModeError(message, node=node, op=op, path=path)


ad.deflinear2(_forward_only, _refuse)


def forward_only(value: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> Any:
    """Returns a pytree of arrays unchanged; taking gradients backwards through an inexact one is refused.

    Args:
      value: the pytree.
      message: what the error says.
      node: the node that is to blame.
      op: its op.
      path: the calls that lead to it.
    """

    def mark(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return _forward_only.bind(leaf, message=message, node=node, op=op, path=path)

    return jax.tree.map(mark, value)
