"""Optionals: variant tensors that hold some tensors, or nothing. TensorFlow's gradients of branches use them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.errors import OpError

from . import forms
from .registry import op
from .values import known

__all__ = ["Optional"]


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Optional:
    """What an optional is here.

    Attributes:
      components: the values, or None as long as nothing is known of them.
      present: whether it holds them: a bool, or a traced bool scalar. If it does not, they are zeros.
    """

    components: tuple[Any, ...] | None
    present: Any
    is_pytree_handle = True

    @property
    def is_traced(self) -> bool:
        """Whether it depends on data if there is a value."""
        return not isinstance(self.present, bool)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns children and auxiliary data: a static flag is not a child."""
        if self.is_traced:
            return (self.components, self.present), None
        return (self.components,), self.present

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Optional:
        """Undoes `tree_flatten`."""
        return cls(children[0], children[1] if aux is None else aux)

    def common_form(self, other: Optional) -> Optional:
        """Returns the form that both forms fit: see `tf2jax_lite.ops.forms`.

        Raises:
          OpError: they hold values that cannot meet.
        """
        same = not self.is_traced and not other.is_traced and self.present == other.present
        present = self.present if same else jax.ShapeDtypeStruct((), np.dtype(bool))
        a, b = self.components, other.components
        if a is None or b is None:
            either = b if a is None else a
            return Optional(either and tuple(forms.common_form(x, None) for x in either), present)
        if len(a) != len(b):
            raise OpError(f"an optional of {len(a)} values meets one of {len(b)}")
        return Optional(tuple(forms.common_form(x, y) for x, y in zip(a, b, strict=True)), present)

    def fitted(self, form: Optional) -> Optional:
        """Returns the optional in a form that `common_form` gave."""
        components = form.components
        if components is not None:
            mine = self.components or (None,) * len(components)
            components = tuple(forms.fitted(v, f) for v, f in zip(mine, components, strict=True))
        return Optional(components, jnp.asarray(self.present) if form.is_traced else self.present)


def _is_optional(value: Any) -> Optional:
    if not isinstance(value, Optional):
        raise OpError(f"expected an optional, got {type(value).__name__}")
    return value


@op("OptionalFromValue")
def optional_from_value(components: list[Any]) -> Optional:
    """Makes an optional of some values. See tf.raw_ops.OptionalFromValue."""
    return Optional(tuple(components), True)


@op("OptionalNone")
def optional_none() -> Optional:
    """Makes an optional that holds nothing. See tf.raw_ops.OptionalNone."""
    return Optional(None, False)


@op("OptionalHasValue")
def optional_has_value(optional: Any) -> Any:
    """Tells whether an optional holds something. See tf.raw_ops.OptionalHasValue."""
    value = _is_optional(optional)
    return value.present if value.is_traced else np.asarray(value.present)


@op("OptionalGetValue")
def optional_get_value(optional: Any) -> tuple[list[Any]]:
    """Returns what an optional holds, zeros where data decides that it is nothing. See tf.raw_ops.OptionalGetValue."""
    value = _is_optional(optional)
    found = known(value.present) if value.is_traced else value.present
    if value.components is None or (found is not None and not bool(found)):
        raise OpError("the value of an optional is read that holds none")
    return (list(value.components),)
