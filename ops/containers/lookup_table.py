"""Lookup tables, read only: tables are initialized before the function runs.

The loader makes a `Table` of the contents of TensorFlow's table. Numeric keys are looked up by binary search; strings,
which JAX has no arrays for, at trace time.

TF: core/kernels/lookup_table_op.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Unconverted
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import exceeds_32_bits
from tf2jax_lite.values.static import Resource, as_array, canonical, is_static, static_value


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Table(Resource):
    """The contents of a lookup table.

    Attributes:
      keys: [n], increasing: static or traced. Strings are an object array of bytes.
      values: [n, ...], static or traced; an object array of bytes for strings.
    """

    keys: Any
    values: Any
    is_pytree_handle = True

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return numeric keys and values as children; strings are auxiliary data."""
        parts = (self.keys, self.values)
        children = tuple(p for p in parts if not _holds_strings(p))
        return children, tuple(_Strings(p) if _holds_strings(p) else None for p in parts)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Table:
        """Undo `tree_flatten`."""
        numeric = iter(children)
        return cls(*(next(numeric) if strings is None else strings.array for strings in aux))

    @property
    def size(self) -> int:
        """Number of keys."""
        return self.keys.shape[0]


def _holds_strings(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.dtype(object)


class _Strings:
    """An array of strings with equality and hash, for auxiliary data of pytrees."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Strings) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.shape, tuple(self.array.reshape(-1))))


def table_of(keys: Any, values: Any) -> Table:
    """Return a table of static keys, in any order; the last value of a key counts."""
    keys, values = np.asarray(keys), values if isinstance(values, jax.Array) else np.asarray(values)
    if keys.ndim != 1 or values.ndim < 1 or values.shape[0] != keys.shape[0]:
        raise OpError(f"keys of shape {keys.shape} and values of shape {values.shape}")
    order = np.argsort(keys, kind="stable")
    last = np.ones(len(order), bool)
    last[:-1] = keys[order][1:] != keys[order][:-1]
    order = order[last]
    return Table(keys[order], values[order])


def _is_table(value: Any) -> Table:
    if not isinstance(value, Table):
        raise OpError(f"expected a lookup table, got {type(value).__name__}")
    return value


def _operand(value: Any) -> Any:
    return value if is_static(value) else as_array(value)


def _within_32_bits(table: Table) -> Table:
    """Return a table without keys beyond 32 bits."""
    # No traced query equals them, and truncated they are unsorted.
    if jax.config.jax_enable_x64 or not exceeds_32_bits(table.keys):
        return table
    fits = table.keys == table.keys.astype(canonical(table.keys.dtype))
    return Table(table.keys[fits], table.values[np.flatnonzero(fits)])


@op("LookupTableFindV2")
def lookup_table_find_v2(table_handle, keys: Unconverted, default_value: Unconverted):
    """Return the values of keys, the default for other keys.

    Args:
      keys: of any shape; static if keys or values of the table are strings.
    """
    table = _is_table(table_handle)
    query, default = _operand(keys), _operand(default_value)
    element = table.values.shape[1:]
    found = static_value(query)
    if found is None and (_holds_strings(table.keys) or _holds_strings(table.values)):
        raise OpError("a table of strings can only be asked for keys that are known while tracing")
    static = static_value(table.keys)
    if found is not None and static is not None:
        position = np.searchsorted(static, found)
        position = np.asarray(np.minimum(position, max(len(static) - 1, 0)))
        hit = np.asarray(static[position] == found) if len(static) else np.zeros(found.shape, bool)
    else:
        table = _within_32_bits(table)
        position = jnp.searchsorted(jnp.asarray(table.keys), jnp.asarray(query, canonical(table.keys.dtype)))
        position = jnp.minimum(position, max(table.size - 1, 0))
        hit = take(table.keys, position, 0) == query if table.size else jnp.zeros(query.shape, bool)
    mask: Any = hit.reshape(hit.shape + (1,) * len(element)) if element else hit
    values, fallback = static_value(table.values), static_value(default)
    if isinstance(position, np.ndarray) and values is not None and fallback is not None:
        rows = values[position] if len(values) else np.empty((*position.shape, *element), values.dtype)
        out = np.empty(rows.shape, rows.dtype)
        out[...] = np.where(mask, rows, np.asarray(fallback, values.dtype))
        return out if _holds_strings(out) else out.astype(canonical(out.dtype))
    rows = take(table.values, position, 0) if table.size else jnp.zeros((*position.shape, *element), table.values.dtype)
    return jnp.where(mask, rows, jnp.asarray(default, rows.dtype))


@op("LookupTableSizeV2")
def lookup_table_size_v2(table_handle):
    """Return the number of keys, int64."""
    return np.asarray(_is_table(table_handle).size, canonical(np.int64))


@op("LookupTableExportV2")
def lookup_table_export_v2(table_handle):
    """Return all keys in order and their values (TensorFlow: in any order)."""
    table = _is_table(table_handle)
    return table.keys, table.values
