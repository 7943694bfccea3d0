"""An identity that supports reverse mode only.

JAX raises for forward mode through ``jax.custom_vjp``, too, but without the name of the model's node or advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tf2jax_lite.jaxprs.compat import Primitive, Zero, register
from tf2jax_lite.loops.while_loop import zero
from tf2jax_lite.support.errors import ForwardModeError

from .identity_primitive import identity_primitive, passed_through

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
