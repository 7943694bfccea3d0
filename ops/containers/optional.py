"""Optionals: variant tensors that hold some tensors, or nothing. TensorFlow's gradients of branches use them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.math import binary, unary
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import canonical, known

__all__ = ["Optional"]


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Optional:
    """What an optional is here.

    Attributes:
      components: the values, or None as long as nothing is known of them.
      present: whether it holds them: a bool, or a traced bool scalar. If it does not, they are zeros.
      others: values of other kinds that it holds instead if data decides so. TensorFlow keeps what two branches of one
        conditional compute in one optional: a predicate in one branch, an optional of a predicate in the other. Each
        branch of the gradient reads what its own kind says.
    """

    components: tuple[Any, ...] | None
    present: Any
    others: tuple[tuple[Any, ...], ...] = ()
    is_pytree_handle = True

    @property
    def is_traced(self) -> bool:
        """Whether it depends on data if there is a value."""
        return not isinstance(self.present, bool)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns children and auxiliary data: a static flag is not a child."""
        if self.is_traced:
            return (self.components, self.others, self.present), None
        return (self.components, self.others), self.present

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Optional:
        """Undoes `tree_flatten`."""
        components, others, *present = children
        return cls(components, present[0] if aux is None else aux, others)

    @property
    def kinds(self) -> tuple[tuple[Any, ...], ...]:
        """All values that it may hold, each kind for itself."""
        return () if self.components is None else (self.components, *self.others)

    def common_form(self, other: Optional) -> Optional:
        """Returns the form that both forms fit: see `tf2jax_lite.values.specs`.

        Raises:
          OpError: they hold values that cannot meet.
        """
        same = not self.is_traced and not other.is_traced and self.present == other.present
        present = self.present if same else jax.ShapeDtypeStruct((), np.dtype(bool))
        kinds = [_joined(kind, None) for kind in self.kinds]
        for kind in other.kinds:
            for place, mine in enumerate(kinds):
                joined = _joined(mine, kind)
                if joined is not None:
                    kinds[place] = joined
                    break
            else:
                kinds.append(_joined(kind, None))
        return Optional(kinds[0] if kinds else None, present, tuple(kinds[1:]))

    def fitted(self, form: Optional) -> Optional:
        """Returns the optional in a form that `common_form` gave."""
        mine: list[Any] = list(self.kinds)
        kinds = []
        for kind in form.kinds:
            place = next((i for i, values in enumerate(mine) if _joined(specs.form_of(values), kind) is not None), None)
            values = (None,) * len(kind) if place is None else mine.pop(place)
            kinds.append(tuple(specs.fitted(v, f) for v, f in zip(values, kind, strict=True)))
        present = jnp.asarray(self.present) if form.is_traced else self.present
        return Optional(kinds[0] if kinds else None, present, tuple(kinds[1:]))

    def zeros_like(self) -> Optional:
        """Returns zeros of what it holds; nothing of nothing. Gradients of gradients of branches begin with it."""
        zeros = [tuple(_zeros_like(v) for v in kind) for kind in self.kinds]
        return Optional(zeros[0] if zeros else None, self.present, tuple(zeros[1:]))

    def added(self, other: Any) -> Optional:
        """Returns the sum, value by value, as AddN does.

        Raises:
          OpError: one holds values that the other does not.
        """
        other = _is_optional(other)
        if not self.is_traced and not other.is_traced and self.present != other.present:
            raise OpError("cannot add optionals because one has a value and the other doesn't")
        if self.components is None or other.components is None:
            return other if self.components is None else self
        form = self.common_form(other)
        a, b = self.fitted(form), other.fitted(form)
        pairs = zip(a.kinds, b.kinds, strict=True)
        sums = [tuple(binary.add_n([x, y]) for x, y in zip(p, q, strict=True)) for p, q in pairs]
        return Optional(sums[0], a.present, tuple(sums[1:]))


def _joined(a: tuple[Any, ...], b: tuple[Any, ...] | None) -> Any:
    """Returns the form in which values of two forms meet, None if there is no such form."""
    if b is not None and len(a) != len(b):
        return None
    try:
        return tuple(specs.common_form(x, y) for x, y in zip(a, b or (None,) * len(a), strict=True))
    except OpError:
        return None


def _zeros_like(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return np.zeros(value.shape, value.dtype)
    return unary.zeros_like(value)


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
def optional_get_value(
    optional: Any, *, output_types: Sequence[Any] = (), output_shapes: Sequence[Any] = ()
) -> tuple[list[Any]]:
    """Returns what an optional holds, zeros where data decides that it is nothing. See tf.raw_ops.OptionalGetValue."""
    value = _is_optional(optional)
    found = known(value.present) if value.is_traced else value.present
    if value.components is None or (found is not None and not bool(found)):
        raise OpError("the value of an optional is read that holds none")
    if not value.others:
        return (list(value.components),)
    kinds = [kind for kind in value.kinds if _is_declared(kind, output_types, output_shapes)]
    if len(kinds) != 1:
        raise OpError(
            "data decides which values an optional holds, and "
            f"{'several' if kinds else 'none'} of those that it may hold are of the types and shapes that are read "
            f"({'; '.join(specs.shown(specs.form_of(kind)) for kind in value.kinds)})"
        )
    return (list(kinds[0]),)


def _is_declared(kind: tuple[Any, ...], types: Sequence[Any], shapes: Sequence[Any]) -> bool:
    if len(kind) != len(types):
        return False
    for value, dtype, shape in zip(kind, types, shapes, strict=True):
        is_array = isinstance(value, jax.Array | np.ndarray | np.generic)
        if is_array != isinstance(dtype, np.dtype):
            return False
        if is_array and (canonical(value.dtype) != canonical(dtype) or not _fits(value.shape, shape)):
            return False
    return True


def _fits(have: tuple[Any, ...], declared: Any) -> bool:
    if declared is None:
        return True
    return len(have) == len(declared) and all(d is None or d == h for h, d in zip(have, declared, strict=True))
