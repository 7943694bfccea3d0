"""An identity that supports forward mode only.

JAX raises for reverse mode through a ``lax.while_loop`` with effects, too, but without the name of the model's loop or
advice. The loop's results pass through this identity instead.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tf2jax_lite.jaxprs.compat import register
from tf2jax_lite.support.errors import ReverseModeError

from .identity_primitive import identity_primitive, passed_through

_forward_only = identity_primitive("forward_only")


def _refuse(cotangent: Any, x: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> NoReturn:
    raise ReverseModeError(message, node=node, op=op, path=path)


register(_forward_only, linear=_refuse)


def forward_only(value: Any, *, message: str, node: str, op: str, path: tuple[str, ...]) -> Any:
    """Return a pytree whose inexact arrays raise `ReverseModeError` in reverse mode."""
    return passed_through(_forward_only, value, message=message, node=node, op=op, path=path)
