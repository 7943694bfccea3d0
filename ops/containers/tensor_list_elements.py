"""Ops on one element of a tensor list: push, pop, set, get.

Each has a host evaluation for trip-count inference: there a list whose elements are traced is abstracted to its length.

TF: core/kernels/list_kernels.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length
from tf2jax_lite.ops.common.variant_rows import VariantRows
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import partial_fold
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import UNKNOWN, as_array, static_value
from tf2jax_lite.values.tensor_list import TensorList, is_fully_defined

from .tensor_list import as_list, resize_list, unset_element

# Maximum size of a static integer buffer (shapes, not data) whose rows are compared for equality.
_MAX_COMPARED = 1 << 12


class EmptyListError(OpError):
    """An element is popped from a list of static length 0.

    The traced branch cannot run.
    """


class ListGrowthError(OpError):
    """A list of dynamic size is written at a traced index.

    The surrounding loop has to add capacity first.
    """


def _like(count: Any, element: Any) -> Any:
    """Return a buffer of ``count`` zeros of the spec of ``element``."""
    form = specs.join_specs([specs.spec_of(element)])  # of a list: without metadata about its elements
    if isinstance(form, TensorList):
        form = form.with_buffer(form.buffer)  # later lists may be longer
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), form)


def _set(lst: TensorList, index: Any, element: Any) -> Any:
    """Return the buffer of a packed list with an element set."""
    static_index = static_value(index)
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), lst.buffer)
    if isinstance(row, TensorList):
        element = _fitting(element, row)
    if hasattr(row, "coerce"):
        element = specs.coerce(element, row)
    if jax.tree.structure(row) != jax.tree.structure(element):
        raise OpError("an element does not have the structure of the others in its list")

    def one(leaf: Any, value: Any) -> Any:
        if tuple(leaf.shape[1:]) != tuple(jnp.shape(value)):
            raise OpError(f"an element of shape {list(jnp.shape(value))} does not fit a list of {list(leaf.shape[1:])}")
        value = jnp.asarray(value).astype(leaf.dtype)
        if leaf.shape[0] == 1 and static_index is not None and not static_index:
            return value[None]
        return jnp.asarray(leaf).at[index].set(value, mode="drop", indices_are_sorted=True)

    return jax.tree.map(one, lst.buffer, element)


def _fitting(element: Any, row: TensorList) -> Any:
    """Return a list as an element; raise OpError if it may exceed the capacity."""
    if not isinstance(element, TensorList):
        return element
    element = element.packed().checked()
    missing = element.free_slots_at(row.capacity)
    if row.buffer is not None and missing is not None and missing < 0:
        raise OpError(f"a list of up to {element.length_bound} elements is put into a list of lists of {row.capacity}")
    return element


def _get(lst: TensorList, index: Any) -> Any:
    """Return an element of a packed list at a traced index."""
    if not lst.is_traced or lst.free_slots is not None:
        return jax.tree.map(lambda leaf: _row(leaf, index), lst.checked().buffer)
    over = index >= lst.capacity

    def one(leaf: Any) -> Any:
        value = lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False)
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return value
        return jnp.where(over, jnp.asarray(jnp.nan, leaf.dtype), value)

    return jax.tree.map(one, lst.buffer)


def _row(leaf: Any, index: Any) -> Any:
    """Return a row at a traced index; equal static integers stay static."""
    if isinstance(leaf, np.ndarray):
        if leaf.dtype == object:
            raise OpError(
                "an element of a list of strings is taken at an index that is not known while tracing, as in a loop of "
                "so many iterations that it is not unrolled; JAX has no string arrays"
            )
        if leaf.dtype.kind in "iu" and 0 < leaf.size <= _MAX_COMPARED and (leaf == leaf[:1]).all():
            return leaf[0, ...]
    return lax.dynamic_index_in_dim(ensure_length(leaf, 0, 1), index, 0, keepdims=False)


def _host_get(handle: Any, index: Any, element_shape: Any, *, element_dtype: Any, **options: Any) -> Any:
    if handle is UNKNOWN or index is UNKNOWN or element_shape is UNKNOWN or handle.buffer is UNKNOWN:
        return UNKNOWN
    return tensor_list_get_item(handle, index, element_shape, element_dtype=element_dtype, **options)


def _host_push(handle: Any, tensor: Any, *, element_dtype: Any) -> Any:
    if handle is UNKNOWN:
        return UNKNOWN
    if tensor is UNKNOWN or handle.buffer is UNKNOWN:
        return handle.abstracted(handle.length + 1)
    return tensor_list_push_back(handle, tensor, element_dtype=element_dtype)


def _host_pop(handle: Any, element_shape: Any, *, element_dtype: Any) -> Any:
    if handle is UNKNOWN:
        return UNKNOWN, UNKNOWN
    if handle.buffer is UNKNOWN:
        return handle.abstracted(handle.length - 1), UNKNOWN
    if element_shape is UNKNOWN:
        element_shape = np.asarray(-1)
    return tensor_list_pop_back(handle, element_shape, element_dtype=element_dtype)


def host_set(
    handle: Any, index: Any, item: Any, *, element_dtype: Any, resize_if_index_out_of_bounds: bool = False
) -> Any:
    """Set an element of a list that may be abstracted to its length."""
    if handle is UNKNOWN or (index is UNKNOWN and resize_if_index_out_of_bounds):
        return UNKNOWN
    if index is UNKNOWN or item is UNKNOWN or handle.buffer is UNKNOWN:
        more = int(index) + 1 if resize_if_index_out_of_bounds else 0
        return handle.abstracted(max(handle.length, more))
    return tensor_list_set_item(
        handle,
        index,
        item,
        element_dtype=element_dtype,
        resize_if_index_out_of_bounds=resize_if_index_out_of_bounds,
    )


# ---- ops ----


@op("TensorListPushBack", fold=partial_fold(_host_push))
def tensor_list_push_back(input_handle, tensor, *, element_dtype):
    """Append an element."""
    lst = as_list(input_handle)
    if lst.is_traced:
        return _appended(lst.packed(), tensor)
    if 0 <= lst.limit <= lst.length:
        raise OpError(f"an element is pushed on a list that is full ({lst.limit} elements)")
    if lst.items is None and isinstance(lst.length, int) and (lst.buffer is None or not _is_row(lst.buffer, tensor)):
        lst = lst.unpacked()
    if lst.items is not None:
        return lst.with_items((*lst.items, tensor))
    if lst.buffer is None:
        buffer = _like(lst.length, tensor)
    else:
        buffer = lst.buffer
    row = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tensor)
    joined = jax.tree.map(lambda a, b: lax.concatenate([jnp.asarray(a), b], 0), buffer, row)
    return lst.with_buffer(joined, lst.length + 1)


def _appended(lst: TensorList, element: Any) -> TensorList:
    """Append to a packed list; capacity grows unless a slot is certainly free."""
    lst = _with_rows(lst, element)
    free_slots = lst.free_slots
    if free_slots is not None and free_slots <= 0 and isinstance(lst.capacity, int) and 0 <= lst.limit <= lst.capacity:
        free_slots = 1  # TensorFlow raises if the limit is exceeded
    elif free_slots is not None and free_slots <= 0 and not lst.has_capacity:
        lst, free_slots = lst.with_capacity(lst.capacity + 1), free_slots + 1
    longer = lst.with_buffer(_set(lst, lst.length, element), lst.length + 1)
    return longer.with_free_slots(None if free_slots is None else free_slots - 1)


def _with_rows(lst: TensorList, element: Any) -> TensorList:
    """Return a packed list with a buffer, allocated like ``element`` if missing."""
    if lst.buffer is not None:
        return lst
    return lst.with_buffer(_like(max(lst.required_capacity, 1), element)).with_free_slots(
        lst.free_slots_at(max(lst.required_capacity, 1))
    )


def _is_row(buffer: Any, element: Any) -> bool:
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), buffer)
    return specs.same_spec(row, element)


@op("TensorListPopBack", fold=partial_fold(_host_pop))
def tensor_list_pop_back(input_handle, element_shape: Static, *, element_dtype):
    """Remove the last element and return it.

    Args:
      element_shape: static shape of the element if it is unset.

    Raises:
      OpError: the list is empty (EmptyListError), or the shape of an unset element is unknown.
    """
    lst = as_list(input_handle)
    if lst.is_traced:
        lst = lst.packed()
        length = lst.length - 1
        if lst.buffer is None:
            return lst.with_buffer(None, length), unset_element(lst, element_shape, element_dtype)
        if lst.uniform_element is not None:
            return dataclasses.replace(lst, length=length), lst.uniform_element
        free_slots = None if lst.free_slots is None else lst.free_slots + 1
        shorter = dataclasses.replace(
            lst.with_buffer(lst.buffer, length), free_slots=free_slots, uninitialized_tail=True
        )
        return shorter, _get(lst, length)
    if isinstance(lst.length, int) and lst.length == 0:
        raise EmptyListError("trying to pop from an empty list")
    if lst.items is None and lst.buffer is None:
        lst = lst.unpacked()
    if lst.items is not None:
        element = lst.items[-1]
        if element is None:
            element = unset_element(lst, element_shape, element_dtype)
        return lst.with_items(lst.items[:-1]), element
    element = jax.tree.map(lambda leaf: leaf[-1], lst.buffer)
    return lst.with_buffer(jax.tree.map(lambda leaf: leaf[:-1], lst.buffer), lst.length - 1), element


@op("TensorListSetItem", fold=partial_fold(host_set))
def tensor_list_set_item(input_handle, index, item, *, element_dtype, resize_if_index_out_of_bounds=False):
    """Set an element.

    Args:
      index: scalar.

    Raises:
      OpError: a static index is out of range, or a list of static length would grow by a traced index
        (ListGrowthError).
    """
    lst = as_list(input_handle)
    static_index = static_value(index)
    if static_index is not None and not lst.is_traced and isinstance(lst.length, int):
        position = int(static_index)
        if position >= lst.length and resize_if_index_out_of_bounds:
            lst = resize_list(lst, position + 1)
        elif not 0 <= position < lst.length:
            raise OpError(f"index {position} is out of range for a list of {lst.length} elements")
        if lst.items is None and (lst.is_foldable or lst.buffer is None or not _is_row(lst.buffer, item)):
            lst = lst.unpacked()
        if lst.items is not None:
            return lst.with_items((*lst.items[:position], item, *lst.items[position + 1 :]))
    elif resize_if_index_out_of_bounds:
        if not lst.is_traced:
            raise ListGrowthError(
                "a list of dynamic size is written at an index that is not known while tracing; give the TensorArray "
                "its size and dynamic_size=False"
            )
        if index is lst.length:
            return _appended(lst.packed(), item)
        return _set_or_extend(lst.packed(), as_array(index), item)
    lst = lst.packed()
    if lst.buffer is None:
        lst = _with_rows(lst, item) if lst.is_traced else lst.with_buffer(_like(lst.length, item))
    return lst.with_buffer(_set(lst, as_array(index), item)).with_free_slots(lst.free_slots)


def _set_or_extend(lst: TensorList, index: Any, item: Any) -> TensorList:
    """Set an element that may be past the end, and extend the list to it.

    Loops have added capacity.

    Outside of loops one slot is added. A write further out is dropped, and reads of it are NaN (for inexact dtypes).
    """
    lst = _with_rows(lst, item).cleared()
    static_index, free_slots = static_value(index), lst.free_slots
    if free_slots is not None and static_index is not None and isinstance(lst.capacity, int):
        lst = lst.with_capacity(max(lst.capacity, int(static_index) + 1))
        free_slots = min(lst.free_slots or 0, lst.capacity - int(static_index) - 1)
    elif free_slots is not None:
        lst = lst if lst.has_capacity or free_slots > 0 else lst.with_capacity(lst.capacity + 1)
        free_slots = None
    index = jnp.asarray(index, np.int32)
    length = jnp.maximum(jnp.asarray(lst.length, np.int32), index + 1)
    return lst.with_buffer(_set(lst, index, item), length).with_free_slots(free_slots)


@op("TensorListGetItem", fold=partial_fold(_host_get))
def tensor_list_get_item(input_handle, index, element_shape: Static, *, element_dtype):
    """Return an element.

    Args:
      index: scalar.
      element_shape: static shape of the element if it is unset.

    Returns:
      The element; zeros if it is unset.

    Raises:
      OpError: a static index is out of range, dtypes differ, or the shape of an unset element is unknown.
    """
    if isinstance(input_handle, VariantRows):
        return input_handle.row(index)
    lst = as_list(input_handle)
    if lst.dtype is not None and element_dtype != lst.dtype:
        raise OpError(f"the list holds {lst.dtype} and the node reads {element_dtype}")
    static_index = static_value(index)
    if static_index is not None and not lst.is_traced and isinstance(lst.length, int):
        position = int(static_index)
        if not 0 <= position < lst.length:
            raise OpError(f"index {position} is out of range for a list of {lst.length} elements")
        if lst.items is not None and lst.items[position] is not None:
            return lst.items[position]
        if lst.items is not None or lst.buffer is None:
            return unset_element(_with_shape_of_others(lst), element_shape, element_dtype)
    lst = lst.packed()
    if lst.buffer is None:
        return unset_element(lst, element_shape, element_dtype)
    if lst.uniform_element is not None:
        return lst.uniform_element
    if static_index is not None and (not lst.is_traced or lst.free_slots is not None):
        position = int(static_index)

        def element(leaf: Any) -> Any:
            return leaf[position, ...] if isinstance(leaf, np.ndarray) else lax.index_in_dim(leaf, position, 0, False)

        return jax.tree.map(element, lst.checked().buffer)
    return _get(lst, as_array(index))


def _with_shape_of_others(lst: TensorList) -> TensorList:
    """Return the list with the common shape of its set elements for unset ones."""
    if is_fully_defined(lst.shape) or not lst.items:
        return lst
    shapes = {jnp.shape(v) for v in lst.items if isinstance(v, jax.Array | np.ndarray | np.generic)}
    return dataclasses.replace(lst, shape=shapes.pop()) if len(shapes) == 1 else lst
