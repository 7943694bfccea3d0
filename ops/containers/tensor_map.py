"""Tensor maps: variant tensors that map tensors to tensors. Keys must be known while tracing."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from tf2jax_lite.ops.math import binary
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

__all__ = ["TensorMap"]

Key = tuple[str, tuple[int, ...], Any]


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class TensorMap:
    """A map, immutable: inserting makes a new one. Keys are part of the tree's structure, values its leaves.

    Attributes:
      keys: dtype, shape and elements of each key, in order of insertion.
      values: the values, in the same order.
    """

    keys: tuple[Key, ...] = ()
    values: tuple[Any, ...] = ()
    is_pytree_handle = True

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns the values as children and the keys as auxiliary data."""
        return self.values, self.keys

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> TensorMap:
        """Undoes `tree_flatten`."""
        return cls(aux, tuple(children))

    def zeros_like(self) -> TensorMap:
        """Returns an empty map, as TensorFlow does: what a sum of maps lacks counts as zero."""
        return TensorMap()

    def added(self, other: Any) -> TensorMap:
        """Returns the sum, as AddN does: all keys of both, and the sums of values that both have."""
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
def empty_tensor_map() -> TensorMap:
    """Makes an empty map. See tf.raw_ops.EmptyTensorMap."""
    return TensorMap()


@op("TensorMapInsert")
def tensor_map_insert(input_handle: Any, key: Static, value: Any) -> TensorMap:
    """Sets the value of a key. See tf.raw_ops.TensorMapInsert."""
    old, name = _is_map(input_handle), _key(key)
    if name in old.keys:
        place = old.keys.index(name)
        return TensorMap(old.keys, (*old.values[:place], value, *old.values[place + 1 :]))
    return TensorMap((*old.keys, name), (*old.values, value))


def _place(source: TensorMap, key: Any) -> int:
    try:
        return source.keys.index(_key(key))
    except ValueError:
        raise OpError(f"the map has no key {np.asarray(key).tolist()!r}") from None


@op("TensorMapLookup")
def tensor_map_lookup(input_handle: Any, key: Static) -> Any:
    """Returns the value of a key, which must be there. See tf.raw_ops.TensorMapLookup."""
    source = _is_map(input_handle)
    return source.values[_place(source, key)]


@op("TensorMapErase")
def tensor_map_erase(input_handle: Any, key: Static) -> TensorMap:
    """Removes a key, which must be there. See tf.raw_ops.TensorMapErase."""
    source = _is_map(input_handle)
    place = _place(source, key)
    return TensorMap(
        (*source.keys[:place], *source.keys[place + 1 :]), (*source.values[:place], *source.values[place + 1 :])
    )


@op("TensorMapHasKey")
def tensor_map_has_key(input_handle: Any, key: Static) -> Any:
    """Whether there is such a key; known while tracing. See tf.raw_ops.TensorMapHasKey."""
    return np.asarray(_key(key) in _is_map(input_handle).keys)


@op("TensorMapSize")
def tensor_map_size(input_handle: Any) -> Any:
    """Returns the number of keys, known while tracing. See tf.raw_ops.TensorMapSize."""
    return np.asarray(len(_is_map(input_handle).keys), np.int32)


@op("TensorMapStackKeys")
def tensor_map_stack_keys(input_handle: Any, *, key_dtype: Any) -> Any:
    """Stacks the keys, in order of insertion (TensorFlow leaves it open). See tf.raw_ops.TensorMapStackKeys."""
    keys = [_array(key) for key in _is_map(input_handle).keys]
    if not keys:
        raise OpError("an empty map has no keys to stack")
    if len({key.shape for key in keys}) > 1 or any(key.dtype != keys[0].dtype for key in keys):
        raise OpError("keys of different shapes or dtypes cannot be stacked")
    del key_dtype
    return np.stack(keys)
