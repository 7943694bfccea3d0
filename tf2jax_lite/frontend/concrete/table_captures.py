"""Lookup tables that a function captures from Python: their contents, read once at conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.ops.containers.lookup_table import Table, table_of

__all__ = ["captured_table", "table_dtypes"]

_FIND = frozenset({"LookupTableFind", "LookupTableFindV2"})
_WRITE = frozenset({"LookupTableInsert", "LookupTableImport", "LookupTableRemove"})


def table_dtypes(main: ir.Function, functions: Mapping[str, ir.Function]) -> list[tuple[Any, Any]]:
    """Returns the dtypes of keys and values with which a graph looks things up: a handle does not say its table's."""
    ops = main.ops.union(*[function.ops for function in functions.values()])
    if not ops & _FIND:
        return []
    nodes = [node for function in (main, *functions.values()) for node in function.nodes]
    if any(node.op.removesuffix("V2") in _WRITE for node in nodes):
        return []  # contents that change while the function runs could not be read now
    pairs = {(node.attrs.get("Tin"), node.attrs.get("Tout")): None for node in nodes if node.op in _FIND}
    return list(pairs)


def captured_table(handle: Any, pairs: list[tuple[Any, Any]]) -> Table | None:
    """Returns what a table holds now, or None if the handle is that of something else.

    Args:
      handle: a resource, as an eager tensor.
      pairs: dtypes of keys and values that the table may have.

    Tables of vectors are left out, and tables with strings, whose keys would have to come from outside: JAX has none.
    """
    for key_dtype, value_dtype in pairs:
        if not isinstance(key_dtype, np.dtype) or not isinstance(value_dtype, np.dtype):
            continue
        key_type, value_type = tf.as_dtype(key_dtype), tf.as_dtype(value_dtype)
        try:
            with tf.init_scope():
                # Looking up checks the dtypes. Exporting does not: with others than the table's, TensorFlow aborts.
                tf.raw_ops.LookupTableFindV2(
                    table_handle=handle, keys=tf.zeros([0], key_type), default_value=tf.zeros([], value_type)
                )
                keys, found = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=key_type, Tvalues=value_type)
                size = int(tf.raw_ops.LookupTableSizeV2(table_handle=handle))
        except tf.errors.OpError:  # a table of other dtypes, or no table at all
            continue
        return _without_empty_buckets(keys.numpy(), found.numpy(), size)
    return None


def _without_empty_buckets(keys: np.ndarray, found: np.ndarray, size: int) -> Table | None:
    """Returns the table, or None if it cannot be told from its empty buckets.

    A DenseHashTable is exported with all its buckets, as columns. The keys that stand for empty ones repeat.
    """
    if keys.size != len(keys) or found.size != len(found):
        return None
    keys, found = keys.reshape(-1), found.reshape(-1)
    if len(keys) != size:
        distinct, counts = np.unique(keys, return_counts=True)
        once = np.isin(keys, distinct[counts == 1])
        keys, found = keys[once], found[once]
    return table_of(keys, found) if len(keys) == size else None
