"""Structures of arguments and results: nests with tensors as leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.support.errors import InputError


class _Opaque:
    """A literal that TensorFlow does not record; every value is equal to it."""

    def __repr__(self) -> str:
        return "..."

    def __reduce__(self) -> str:
        return "OPAQUE"


OPAQUE = _Opaque()


@dataclasses.dataclass(frozen=True)
class TensorArgument:
    """A tensor among the arguments.

    Attributes:
      index: its position among the flat inputs of the main function.
      name: the name that TensorFlow gave it.
      dtype: numpy dtype, or None for strings and other things that JAX cannot hold.
      shape: with None for unknown dimensions; None for unknown rank.
      value: the only value that the function was converted for, a vector: the dense shape of a sparse tensor (-1 for
        any size), the row splits of rows of one length; None for any value.
      composite: the ``tf.TypeSpec`` of the composite tensor whose first component it is, if it is one.
      ragged_rank: number of row-split vectors, outermost first, that follow a ragged tensor's flat values.
    """

    index: int
    name: str
    dtype: np.dtype | None
    shape: tuple[int | None, ...] | None
    value: tuple[int, ...] | None = None
    composite: Any = dataclasses.field(default=None, compare=False, repr=False)
    ragged_rank: int = dataclasses.field(default=0, compare=False, repr=False)

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ",".join("None" if d is None else str(d) for d in self.shape)
        return f"{self.dtype or 'string'}[{shape}]"


@dataclasses.dataclass(frozen=True)
class OutputRef:
    """A tensor among the results: position in the main function's flat outputs."""

    index: int


def map_structure(fn: Callable[[Any], Any], structure: Any) -> Any:
    """Apply ``fn`` to the leaves of nested containers, keeping their types.

    Anything else is a leaf: None, and literals such as ``range(3)``. Libraries differ: ``jax.tree.map`` and dm-tree
    refuse dicts whose keys have no order, such as ``{1: x, "a": y}``; dm-tree cannot rebuild a range, nor an attrs
    object with a field that its constructor does not take.
    """
    if isinstance(structure, Mapping):
        items = [(key, map_structure(fn, item)) for key, item in structure.items()]
        return type(structure)(items) if isinstance(structure, dict) else dict(items)
    if is_namedtuple(structure):
        return type(structure)(*(map_structure(fn, item) for item in structure))
    if isinstance(structure, (list, tuple)):
        return type(structure)(map_structure(fn, item) for item in structure)
    return fn(structure)


def walk(structure: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the leaves that `map_structure` visits, after their keys and positions."""
    if isinstance(structure, Mapping):
        items: Any = structure.items()
    elif isinstance(structure, (list, tuple)):
        items = enumerate(structure)
    else:
        yield path, structure
        return
    for key, item in items:
        yield from walk(item, (*path, key))


def by_name(structure: Any, wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """Return the leaves of a structure by their paths as text, such as ``scores/0``.

    Raises:
      InputError: two have the same, such as those of ``{"a/b": x, "a": {"b": y}}``.
    """
    found: dict[str, Any] = {}
    for path, leaf in walk(structure):
        name = "/".join(map(str, path))
        if not wanted(leaf):
            continue
        if name in found:
            raise InputError(
                f"two arrays of {describe(structure)[:300]} have the name {name[:100]!r}, which is made of keys and "
                'positions with "/" between them. Give them keys that differ.'
            )
        found[name] = leaf
    return found


def iter_arguments(structure: Any) -> Iterator[TensorArgument]:
    """Yield the tensor arguments of a structure, in its order."""
    return (leaf for _, leaf in walk(structure) if isinstance(leaf, TensorArgument))


def is_namedtuple(value: Any) -> bool:
    """Whether a value is a namedtuple."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def same_literal(spec: Any, value: Any) -> bool:
    """Whether a value may stand for the literal that a function was converted with."""
    if spec is value:
        return True
    if spec is OPAQUE:
        return not isinstance(value, (np.ndarray, np.generic, jax.Array))
    if is_traced(value):
        return False
    try:
        if isinstance(value, (np.ndarray, np.generic, jax.Array)) or isinstance(spec, (np.ndarray, np.generic)):
            return np.shape(value) == np.shape(spec) and bool(np.all(np.asarray(value) == np.asarray(spec)))
        # True == 1, but a function traced for one may differ from that for the other.
        return bool(spec == value) and isinstance(spec, bool) == isinstance(value, bool)
    except Exception:  # an object whose == raises
        return False


def describe(spec: Any) -> str:
    """Return a structure as text for messages."""
    if isinstance(spec, Mapping):
        return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in spec.items()) + "}"
    if is_namedtuple(spec):
        inner = ", ".join(f"{name}={describe(item)}" for name, item in zip(type(spec)._fields, spec, strict=True))
        return f"{type(spec).__name__}({inner})"
    if isinstance(spec, (list, tuple)):
        inner = ", ".join(map(describe, spec))
        return f"[{inner}]" if isinstance(spec, list) else f"({inner}{',' if len(spec) == 1 else ''})"
    return str(spec) if isinstance(spec, TensorArgument) else repr(spec)
