"""Tensor maps: variants that map static tensors (keys) to values.

TF: core/kernels/map_kernels.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from tf2jax_lite.ops.math import binary
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical
from tf2jax_lite.values.variant import Variant

Key = tuple[str, tuple[int, ...], Any]


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class TensorMap(Variant):
    """An immutable map whose keys are tree structure and whose values are leaves.

    Insertion makes a new one.

    Attributes:
      keys: dtype, shape and elements of each key, in order of insertion.
      values: the values, in the same order.
    """

    keys: tuple[Key, ...] = ()
    values: tuple[Any, ...] = ()

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return the values as children and the keys as auxiliary data."""
        return self.values, self.keys

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> TensorMap:
        """Undo `tree_flatten`."""
        return cls(aux, tuple(children))

    def zeros_like(self) -> TensorMap:
        """Return an empty map: in a sum of maps, missing values are zeros."""
        return TensorMap()

    def add(self, other: Any) -> TensorMap:
        """Return the sum: all keys of both, and the sums of values that both have."""
        more = _is_map(other)
        total = dict(zip(self.keys, self.values, strict=True))
        for key, value in zip(more.keys, more.values, strict=True):
            total[key] = binary.add_n([total[key], value]) if key in total else value
        return TensorMap(tuple(total), tuple(total.values()))


def _is_map(value: Any) -> TensorMap:
    if not isinstance(value, TensorMap):
        raise OpError(f"expected a tensor map, got {type(value).__name__}")
    return value


def _key(value: Any) -> Key:
    array = np.asarray(value)
    if array.dtype.kind != "O":
        array = array.astype(canonical(array.dtype))
        # Zeros of either sign are one key, NaNs none; bytes alone would tell them apart.
        return str(array.dtype), array.shape, tuple(array.reshape(-1).tolist())
    return "string", array.shape, tuple(array.reshape(-1))


def _array(key: Key) -> np.ndarray:
    kind, shape, items = key
    out = np.empty(len(items), object if kind == "string" else np.dtype(kind))
    out[:] = items
    return out.reshape(shape)


@op("EmptyTensorMap")
def empty_tensor_map():
    """Make an empty map."""
    return TensorMap()


@op("TensorMapInsert")
def tensor_map_insert(input_handle, key: Static, value):
    """Set the value of a key."""
    old, name = _is_map(input_handle), _key(key)
    if name in old.keys:
        position = old.keys.index(name)
        return TensorMap(old.keys, (*old.values[:position], value, *old.values[position + 1 :]))
    return TensorMap((*old.keys, name), (*old.values, value))


def _position(source: TensorMap, key: Any) -> int:
    try:
        return source.keys.index(_key(key))
    except ValueError:
        raise OpError(f"the map has no key {np.asarray(key).tolist()!r}") from None


@op("TensorMapLookup")
def tensor_map_lookup(input_handle, key: Static):
    """Return the value of a key."""
    source = _is_map(input_handle)
    return source.values[_position(source, key)]


@op("TensorMapErase")
def tensor_map_erase(input_handle, key: Static):
    """Remove a key."""
    source = _is_map(input_handle)
    position = _position(source, key)
    keys, values = ((*v[:position], *v[position + 1 :]) for v in (source.keys, source.values))
    return TensorMap(keys, values)


@op("TensorMapHasKey")
def tensor_map_has_key(input_handle, key: Static):
    """Return whether there is such a key."""
    return np.asarray(_key(key) in _is_map(input_handle).keys)


@op("TensorMapSize")
def tensor_map_size(input_handle):
    """Return the number of keys, a static int32."""
    return np.asarray(len(_is_map(input_handle).keys), np.int32)


@op("TensorMapStackKeys")
def tensor_map_stack_keys(input_handle, *, key_dtype):
    """Stack the keys, in order of insertion (TensorFlow: in any)."""
    keys = [_array(key) for key in _is_map(input_handle).keys]
    if not keys:
        raise OpError("an empty map has no keys to stack")
    if len({key.shape for key in keys}) > 1 or any(key.dtype != keys[0].dtype for key in keys):
        raise OpError("keys of different shapes or dtypes cannot be stacked")
    del key_dtype
    return np.stack(keys)
