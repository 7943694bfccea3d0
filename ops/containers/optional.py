"""Optionals: variants of some tensors, or of none, in gradients of conditionals.

TF: core/kernels/data/optional_ops.cc.
"""

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
from tf2jax_lite.values.static import canonical, static_value
from tf2jax_lite.values.variant import Variant


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Optional(Variant):
    """An optional.

    Attributes:
      components: the values, or None while their specs are unknown.
      present: whether it has a value: a bool, or a traced bool scalar. If not, the components are zeros.
      others: alternatives of other specs, if they differ between branches. TensorFlow stores values of two branches of
        one conditional in one optional: a predicate in one branch, an optional of a predicate in the other. Each
        branch of the gradient reads the alternative of its own types.
    """

    components: tuple[Any, ...] | None
    present: Any
    others: tuple[tuple[Any, ...], ...] = ()

    @property
    def is_traced(self) -> bool:
        """Whether the presence of a value is traced."""
        return not isinstance(self.present, bool)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return children and auxiliary data: a static flag is not a child."""
        if self.is_traced:
            return (self.components, self.others, self.present), None
        return (self.components, self.others), self.present

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Optional:
        """Undo `tree_flatten`."""
        components, others, *present = children
        return cls(components, present[0] if aux is None else aux, others)

    @property
    def kinds(self) -> tuple[tuple[Any, ...], ...]:
        """All alternatives: values of different specs."""
        return () if self.components is None else (self.components, *self.others)

    def common_spec(self, other: Optional) -> Optional:
        """Return the spec that both specs coerce to; alternatives that do not join."""
        same = not self.is_traced and not other.is_traced and self.present == other.present
        present = self.present if same else jax.ShapeDtypeStruct((), np.dtype(bool))
        kinds = [_joined(kind, None) for kind in self.kinds]
        for kind in other.kinds:
            for position, mine in enumerate(kinds):
                joined = _joined(mine, kind)
                if joined is not None:
                    kinds[position] = joined
                    break
            else:
                kinds.append(_joined(kind, None))
        return Optional(kinds[0] if kinds else None, present, tuple(kinds[1:]))

    def coerce(self, spec: Optional) -> Optional:
        """Return the optional in a spec that `common_spec` returned."""
        mine: list[Any] = list(self.kinds)
        kinds = []
        for kind in spec.kinds:
            matches = (i for i, values in enumerate(mine) if _joined(specs.spec_of(values), kind) is not None)
            position = next(matches, None)
            values = (None,) * len(kind) if position is None else mine.pop(position)
            kinds.append(tuple(specs.coerce(v, f) for v, f in zip(values, kind, strict=True)))
        present = jnp.asarray(self.present) if spec.is_traced else self.present
        return Optional(kinds[0] if kinds else None, present, tuple(kinds[1:]))

    def zeros_like(self) -> Optional:
        """Return zeros of its values; second derivatives of conditionals start with them."""
        zeros = [tuple(_zeros_like(v) for v in kind) for kind in self.kinds]
        return Optional(zeros[0] if zeros else None, self.present, tuple(zeros[1:]))

    def add(self, other: Any) -> Optional:
        """Return the sum, value by value."""
        other = _is_optional(other)
        if not self.is_traced and not other.is_traced and self.present != other.present:
            raise OpError("cannot add optionals because one has a value and the other doesn't")
        if self.components is None or other.components is None:
            return other if self.components is None else self
        spec = self.common_spec(other)
        a, b = self.coerce(spec), other.coerce(spec)
        pairs = zip(a.kinds, b.kinds, strict=True)
        sums = [tuple(binary.add_n([x, y]) for x, y in zip(p, q, strict=True)) for p, q in pairs]
        return Optional(sums[0], a.present, tuple(sums[1:]))


def _joined(a: tuple[Any, ...], b: tuple[Any, ...] | None) -> Any:
    """Return the join of the specs of two alternatives, None if there is none."""
    if b is not None and len(a) != len(b):
        return None
    try:
        return tuple(specs.common_spec(x, y) for x, y in zip(a, b or (None,) * len(a), strict=True))
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
def optional_from_value(components):
    """Make an optional of some values."""
    return Optional(tuple(components), True)


@op("OptionalNone")
def optional_none():
    """Make an optional without a value."""
    return Optional(None, False)


@op("OptionalHasValue")
def optional_has_value(optional):
    """Return whether an optional has a value."""
    value = _is_optional(optional)
    return value.present if value.is_traced else np.asarray(value.present)


@op("OptionalGetValue")
def optional_get_value(optional, *, output_types=(), output_shapes=()):
    """Return the values of an optional; zeros if it turns out to have none."""
    value = _is_optional(optional)
    found = static_value(value.present) if value.is_traced else value.present
    if value.components is None or (found is not None and not bool(found)):
        raise OpError("the value of an optional is read that holds none")
    if not value.others:
        return (list(value.components),)
    kinds = [kind for kind in value.kinds if _is_declared(kind, output_types, output_shapes)]
    if len(kinds) != 1:
        raise OpError(
            "which values an optional holds depends on data, and "
            f"{'several' if kinds else 'none'} of those that it may hold are of the types and shapes that are read "
            f"({'; '.join(specs.format_spec(specs.spec_of(kind)) for kind in value.kinds)})"
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
