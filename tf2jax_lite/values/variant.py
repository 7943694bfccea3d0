"""The protocol of variants: non-array values (tensor lists, sparse matrices).

Ops that TensorFlow also defines on variants (ZerosLike, Add, AddN, Conj, Pack, Unpack) ask
``isinstance(value, Variant)`` and call these methods. So op families need not import each other's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tf2jax_lite.support.errors import OpError


class Variant:
    """A value that is not an array. Subclasses are pytrees.

    Where branches or iterations return values of different specs, a subclass may have ``common_spec(other)``, which
    returns the spec that values of both specs can be coerced to, and ``coerce(spec)``: see `tf2jax_lite.values.specs`.

    Attributes:
      is_pytree_handle: whether branches and loops carry its leaves.
      zeros_are_unset: whether a list of zeros of this class leaves its elements unset, which need no sizes.
    """

    is_pytree_handle: ClassVar[bool] = True
    zeros_are_unset: ClassVar[bool] = False

    def zeros_like(self) -> Any:
        """Return zeros of the structure of this value (ZerosLike)."""
        raise self._unsupported("ZerosLike")

    def add(self, other: Any) -> Any:
        """Return the sum with another value (Add, AddN)."""
        raise self._unsupported("Add")

    def conj(self) -> Any:
        """Return the complex conjugate (Conj)."""
        raise self._unsupported("Conj")

    def stack(self, others: Sequence[Any]) -> Any:
        """Return this value and others as a vector of variants (Pack)."""
        raise self._unsupported("Pack")

    def unstack(self) -> list[Any]:
        """Return the elements of a vector of variants (Unpack)."""
        raise self._unsupported("Unpack")

    def _unsupported(self, op: str) -> OpError:
        return OpError(f"{op} is not supported for a {type(self).__name__}")


def add_variants(values: Sequence[Any]) -> Any:
    """Return the sum of values if any of them is a variant, else None.

    Args:
      values: variants of one class; a TensorList also accepts arrays, which add nothing.
    """
    index = next((i for i, value in enumerate(values) if isinstance(value, Variant)), None)
    if index is None:
        return None
    total = values[index]
    for other in (*values[:index], *values[index + 1 :]):
        total = total.add(other)
    return total
