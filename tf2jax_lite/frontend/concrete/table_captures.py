"""Contents of lookup tables captured from Python, read once at conversion."""

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
    """Return the dtypes of keys and values of a graph's lookups.

    The handle of a table does not have them.
    """
    ops = main.ops.union(*[function.ops for function in functions.values()])
    if not ops & _FIND:
        return []
    nodes = [node for function in (main, *functions.values()) for node in function.nodes]
    if any(node.op.removesuffix("V2") in _WRITE for node in nodes):
        return []  # contents that change while the function runs cannot be constants
    pairs = {(node.attrs.get("Tin"), node.attrs.get("Tout")): None for node in nodes if node.op in _FIND}
    return list(pairs)


def captured_table(handle: Any, pairs: list[tuple[Any, Any]]) -> Table | None:
    """Return the current contents of a table; None for a handle of another resource.

    Args:
      handle: a resource, as an eager tensor.
      pairs: dtypes of keys and values that the table may have.

    Tables of vectors and of strings are not supported: JAX has no string keys.
    """
    for key_dtype, value_dtype in pairs:
        if not isinstance(key_dtype, np.dtype) or not isinstance(value_dtype, np.dtype):
            continue
        key_type, value_type = tf.as_dtype(key_dtype), tf.as_dtype(value_dtype)
        try:
            with tf.init_scope():
                # A lookup checks the dtypes. An export does not: TensorFlow aborts if they are not the table's.
                tf.raw_ops.LookupTableFindV2(
                    table_handle=handle, keys=tf.zeros([0], key_type), default_value=tf.zeros([], value_type)
                )
                keys, found = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=key_type, Tvalues=value_type)
                size = int(tf.raw_ops.LookupTableSizeV2(table_handle=handle))
        except tf.errors.OpError:  # a table of other dtypes, or another resource
            continue
        return _without_empty_buckets(keys.numpy(), found.numpy(), size)
    return None


def _without_empty_buckets(keys: np.ndarray, found: np.ndarray, size: int) -> Table | None:
    """Return the table; None if its keys and empty buckets cannot be distinguished.

    The export of a DenseHashTable has all its buckets, as columns. The keys that mark empty ones repeat.
    """
    if keys.size != len(keys) or found.size != len(found):
        return None
    keys, found = keys.reshape(-1), found.reshape(-1)
    if len(keys) != size:
        distinct, counts = np.unique(keys, return_counts=True)
        once = np.isin(keys, distinct[counts == 1])
        keys, found = keys[once], found[once]
    return table_of(keys, found) if len(keys) == size else None
