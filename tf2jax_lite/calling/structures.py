"""Structures of arguments and results: nests with tensors as leaves."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tree

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


def traverse(visit: Callable[[Any], Any], structure: Any) -> Any:
    """Rebuild a structure top down, with the parts that ``visit`` returns.

    Where it returns None, dm-tree rebuilds a container of its type from its parts, visited in TensorFlow's order. What
    dm-tree cannot rebuild stands here: dicts whose keys have no order, such as ``{1: x, "a": y}``, and ranges, whose
    constructor takes no items. Objects of attrs classes, whose constructor may not take each field, are `Record`s.

    Args:
      visit: takes each part; ``tree.MAP_TO_NONE`` as its result stands for None.
    """

    def visited(part: Any) -> Any:
        found = visit(part)
        if found is None and isinstance(part, Mapping) and sorted_keys(part) is None:
            return {key: traverse(visit, item) for key, item in part.items()}
        return part if found is None and isinstance(part, range) else found

    return tree.traverse(visited, structure)


def sorted_keys(mapping: Mapping[Any, Any]) -> list[Any] | None:
    """Return a mapping's sorted keys, or None if they have no order."""
    try:
        return sorted(mapping)
    except TypeError:
        return None


def is_leaf(structure: Any) -> bool:
    """Return whether a value is a tensor, None or a literal such as ``range(3)``."""
    return isinstance(structure, range) or not tree.is_nested(structure)


def map_structure(fn: Callable[[Any], Any], structure: Any) -> Any:
    """Apply ``fn`` to the leaves of nested containers, keeping their types."""

    def visit(part: Any) -> Any:
        if not is_leaf(part):
            return None
        found = fn(part)
        return tree.MAP_TO_NONE if found is None else found

    return traverse(visit, structure)


def walk(structure: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the leaves that `map_structure` visits, after their keys and positions.

    Items of mappings come in the order of insertion, which users see: that of names of arguments.
    """
    if is_leaf(structure):
        yield path, structure
        return
    if hasattr(structure, "__attrs_attrs__"):
        structure = {attribute.name: getattr(structure, attribute.name) for attribute in structure.__attrs_attrs__}
    for key, item in structure.items() if isinstance(structure, Mapping) else enumerate(structure):
        yield from walk(item, (*path, key))


class Record(tuple):
    """Base of named tuples that stand for objects, such as those of attrs classes.

    Attributes:
      kind: the class; None if objects do not come back as results.
    """

    __slots__ = ()
    kind: type | None = None


@functools.lru_cache(maxsize=256)
def record_type(name: str, fields: tuple[str, ...], kind: type | None = None) -> Any:
    """Return a class of named tuples that are `Record`s."""
    fields_only = collections.namedtuple(name, fields, rename=True)
    return type(name, (fields_only, Record), {"__slots__": (), "kind": kind})


def with_objects(structure: Any) -> Any:
    """Return results with objects of attrs classes in place of their records.

    JAX has to see into them, as they may leave `jax.jit`: a class that is no pytree becomes one.
    """

    def visit(part: Any) -> Any:
        kind = part.kind if isinstance(part, Record) else None
        return None if kind is None else _attrs_object(kind, list(map(with_objects, part)))

    return traverse(visit, structure)


def _attrs_object(kind: type, values: Sequence[Any]) -> Any:
    names = [attribute.name for attribute in kind.__attrs_attrs__]  # type: ignore[attr-defined]
    try:
        found = kind(**dict(zip(names, values, strict=True)))
    except Exception:  # it does not take a field, or converts values to tensors
        found = _with_fields(kind, names, values)
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(found)):
        jax.tree_util.register_pytree_node(
            kind,
            lambda item: ([getattr(item, name) for name in names], None),
            lambda _, items: _with_fields(kind, names, items),
        )
    return found


def _with_fields(kind: type, names: Sequence[str], values: Iterable[Any]) -> Any:
    found = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(found, name, value)  # also if it is frozen
    return found


def by_name(structure: Any, wanted: Callable[[Any], bool]) -> dict[str, Any]:
    """Return the leaves of a structure by their paths as text, such as ``scores/0``."""
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
