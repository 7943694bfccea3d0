"""Tensor lists: make, resize, push, pop, set, get, stack, gather, scatter, split.

Ops on one element have a host evaluation for trip-count inference: there a list whose elements are traced is abstracted
to its length.

The contents of a stack resource, as TF1's gradients of loops use them, are a tensor list in the state, beside the
values of variables; `tf2jax_lite.lowering.op_lowerings.variable_ops` has StackV2, which makes the handle.

TF: core/kernels/list_kernels.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound, ensure_length
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.variant_rows import VariantRows, VariantVector, is_unset, is_variant_row_list
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound, Option, Read, Update, partial_fold
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import UNKNOWN, as_array, canonical, dims, dims_array, static_value
from tf2jax_lite.values.tensor_list import (
    ElementShape,
    ListBatch,
    TensorList,
    extended_to,
    is_fully_defined,
    resized,
    zero_buffer,
)


def as_list(value: Any) -> TensorList:
    """Return a value that is a tensor list, with its length resolved."""
    if isinstance(value, VariantRows):
        return value.as_list()
    if not isinstance(value, TensorList):
        raise OpError(f"expected a tensor list, got {type(value).__name__}")
    return value.resolved()


def plain_dtype(dtype: Any) -> Any:
    """Return a dtype, or None for a type without one (variant)."""
    return dtype if isinstance(dtype, np.dtype) else None


def _element_shape(value: Any) -> ElementShape:
    array = np.asarray(value)
    if array.ndim == 0:
        return None
    return tuple(None if isinstance(d, int) and d < 0 else d for d in dims(array))


def unset_shape(lst: TensorList, element_shape: Any) -> ElementShape:
    """Return an unset element's shape, merged from the list and the reading node."""
    a, b = lst.shape, _element_shape(element_shape)
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        return b
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def unset_element(lst: TensorList, element_shape: Any, dtype: Any) -> Any:
    """Return zeros for an element that was never set."""
    shape = unset_shape(lst, element_shape)
    if shape is None or not is_fully_defined(shape) or not isinstance(dtype, np.dtype):
        raise OpError(f"reading an element that was never set, and whose shape is not known ({shape})")
    if all(isinstance(d, int) for d in shape):
        return np.zeros(shape, canonical(dtype))
    return jnp.zeros(shape, canonical(dtype))


# ---- host evaluation ----


def _host_empty(element_shape: Any, max_num_elements: Any, *, element_dtype: Any) -> Any:
    return tensor_list_empty(element_shape, max_num_elements, element_dtype=element_dtype)


def _host_reserve(element_shape: Any, num_elements: Any, *, element_dtype: Any) -> Any:
    return tensor_list_reserve(element_shape, num_elements, element_dtype=element_dtype)


def _host_from_tensor(tensor: Any, element_shape: Any, *, element_dtype: Any) -> Any:
    return tensor_list_from_tensor(tensor, element_shape, element_dtype=element_dtype)


def _host_element_shape(handle: Any, *, shape_type: Any) -> Any:
    return UNKNOWN if handle is UNKNOWN else tensor_list_element_shape(handle, shape_type=shape_type)


def _host_length(handle: Any) -> Any:
    return UNKNOWN if handle is UNKNOWN else np.asarray(handle.length, np.int32)


def _host_resize(handle: Any, size: Any) -> Any:
    if handle is UNKNOWN or size is UNKNOWN:
        return UNKNOWN
    return handle.abstracted(int(size)) if handle.buffer is UNKNOWN else tensor_list_resize(handle, size)


# ---- making lists ----


@op("EmptyTensorList", fold=_host_empty)
def tensor_list_empty(element_shape: Static, max_num_elements: Static, *, element_dtype):
    """Make an empty list.

    Args:
      max_num_elements: scalar, static; -1: no limit. A symbolic size without an upper bound sets no limit.
    """
    (size,) = dims(max_num_elements)
    limit = dim_upper_bound(size)  # the upper bound of a dynamic size; None of a symbolic one
    limit = -1 if limit is None else limit
    return TensorList(None, 0, plain_dtype(element_dtype), _element_shape(element_shape), limit, items=())


@op("TensorListReserve", fold=_host_reserve, result_size=result_size.count(1))
def tensor_list_reserve(element_shape: Static, num_elements: Static, *, element_dtype):
    """Make a list of unset elements, which are read as zeros."""
    (count,) = dims(num_elements)
    shape, dtype = _element_shape(element_shape), plain_dtype(element_dtype)
    if isinstance(count, int):
        return TensorList(None, count, dtype, shape, items=(None,) * count)
    buffer = zero_buffer(count, shape, dtype) if is_fully_defined(shape) and dtype is not None else None
    return TensorList(buffer, count, dtype, shape)


@op("TensorListFromTensor", fold=_host_from_tensor)
def tensor_list_from_tensor(tensor, element_shape: Static, *, element_dtype):
    """Make a list of the slices along the first axis.

    Args:
      tensor: [n, ...], or a vector of variants.
    """
    if isinstance(tensor, VariantRows):
        return tensor.from_tensor()
    if isinstance(tensor, VariantVector):
        return tensor.rows
    return TensorList(tensor, tensor.shape[0], plain_dtype(element_dtype), tuple(tensor.shape[1:]))


# ---- length and shape ----


@op("TensorListLength", fold=partial_fold(_host_length))
def tensor_list_length(input_handle, *, tracker: DynamicShapes | None = None):
    """Return the number of elements, int32."""
    if isinstance(input_handle, VariantRows):
        length = input_handle.count
    else:
        lst = as_list(input_handle)
        length = lst.length
        if isinstance(length, jax.Array):
            # Interval analysis bounds dimensions of this length by the capacity.
            fits = tracker is not None and lst.free_slots is not None and isinstance(lst.capacity, int)
            return jnp.minimum(length, np.asarray(lst.capacity, length.dtype)) if fits else length
    return np.asarray(length, np.int32) if isinstance(length, int) else jnp.asarray(length, np.int32)


@op("TensorListElementShape", fold=partial_fold(_host_element_shape))
def tensor_list_element_shape(input_handle, *, shape_type):
    """Return the declared element shape, -1 where unknown."""
    shape = None if isinstance(input_handle, VariantRows) else as_list(input_handle).shape
    if shape is None:
        return np.asarray(-1, shape_type)
    return dims_array([-1 if d is None else d for d in shape], shape_type)


def resize_list(lst: TensorList, size: Any) -> TensorList:
    """Return a list truncated, or extended with unset elements."""
    if lst.is_traced:
        lst = lst.packed().checked().cleared()
    if lst.items is not None:
        return lst.with_items(lst.items[:size] + (None,) * (size - len(lst.items)))
    return lst.with_buffer(None if lst.buffer is None else resized(lst, size), size)


@op("TensorListResize", fold=partial_fold(_host_resize), result_size=result_size.count(1))
def tensor_list_resize(input_handle, size: Static):
    """Truncate the list, or extend it with unset elements."""
    return resize_list(as_list(input_handle), int(size))


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
    """Set an element."""
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
    """Set an element that may be past the end, and extend the list to it."""
    # Loops have added capacity. Outside of loops one slot is added. A write further out is dropped, and reads of it are
    # NaN (for inexact dtypes).
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
def tensor_list_get_item(
    input_handle,
    index,
    element_shape: Static,
    *,
    element_dtype,
    disable_assert_in_tensor_list_get_item: Option[bool] = False,
):
    """Return an element.

    Args:
      element_shape: static shape of the element if it is unset.

    Returns:
      The element; zeros if it is unset.
    """
    if isinstance(input_handle, VariantRows):
        return input_handle.row(index)
    lst = as_list(input_handle)
    if not disable_assert_in_tensor_list_get_item and lst.dtype is not None and element_dtype != lst.dtype:
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


_PROBLEM = "the length of a list that is stacked depends on data; give the TensorArray a size"


def _host_stack(
    handle: Any,
    element_shape: Any,
    *,
    element_dtype: Any,
    num_elements: int = -1,
    bound: int | DynamicShapes | None = None,
) -> Any:
    if handle is UNKNOWN or element_shape is UNKNOWN or handle.buffer is UNKNOWN:
        return UNKNOWN
    return tensor_list_stack(handle, element_shape, element_dtype=element_dtype, num_elements=num_elements)


@op("TensorListStack", fold=partial_fold(_host_stack))
def tensor_list_stack(input_handle, element_shape: Static, *, element_dtype, num_elements=-1, bound: Bound = None):
    """Stack all elements on a new first axis.

    If the length is dynamic, the result has ``bound`` elements, zeros past the length. With a tracker of dynamic shapes
    it has a dynamic dimension with the capacity of the list.

    Args:
      num_elements: the length, or -1.

    Returns:
      [length, ...], or a vector of variants.
    """
    if isinstance(input_handle, VariantRows):
        return input_handle
    if is_variant_row_list(input_handle) or (plain_dtype(element_dtype) is None and is_unset(input_handle)):
        return VariantVector(input_handle)
    lst = as_list(input_handle).packed().checked()
    if lst.is_traced and num_elements < 0:
        size = row_capacity(bound, lst.capacity, _PROBLEM)
        buffer = _filled(lst, element_shape, element_dtype, size)
        if isinstance(bound, DynamicShapes):
            return truncate_rows(bound, lambda: lst.length, buffer, of=(lst.length,))[0]
        return _cleared(lst.with_buffer(buffer), size)
    if lst.is_traced:
        return _filled(lst, element_shape, element_dtype, num_elements)
    if num_elements >= 0 and lst.length != num_elements:
        raise OpError(f"the list has {lst.length} elements where {num_elements} are expected")
    return _filled(lst, element_shape, element_dtype, lst.length)


def _filled(lst: TensorList, element_shape: Any, dtype: Any, count: Any) -> Any:
    """Return ``count`` elements of a packed list."""
    if lst.buffer is not None:
        return resized(lst, count)
    shape = unset_shape(lst, element_shape)
    if not is_fully_defined(shape):
        raise OpError(f"the elements of a list are read that were never set, and whose shape is not known ({shape})")
    return zero_buffer(count, shape, dtype)


def _cleared(lst: TensorList, count: int) -> Any:
    inside = jnp.arange(count) < lst.length
    mask = inside.reshape(count, *[1] * (lst.buffer.ndim - 1))
    return jnp.where(mask, lst.buffer, jnp.zeros((), lst.buffer.dtype))


@op("TensorListGather")
def tensor_list_gather(input_handle, indices, element_shape: Static, *, element_dtype):
    """Stack the elements at ``indices``."""
    lst = as_list(input_handle)
    positions = static_value(indices)
    if lst.items is not None and positions is not None and positions.size:
        if positions.min() < 0 or positions.max() >= lst.length:
            raise OpError(f"an index is out of range for a list of {lst.length} elements ({positions.tolist()})")
        lst = lst.with_items(tuple(lst.items[int(i)] for i in positions))
        return _filled(lst.packed(), element_shape, element_dtype, lst.length)
    lst = lst.packed().checked()
    if lst.buffer is None:
        return _filled(lst, element_shape, element_dtype, jnp.shape(indices)[0])
    return jax.tree.map(lambda leaf: jnp.take(leaf, indices, axis=0, mode="clip"), lst.buffer)


def _scattered(count: Any, tensor: Any, indices: Any, base: Any = None) -> Any:
    start = jnp.zeros((count, *tensor.shape[1:]), tensor.dtype) if base is None else base
    return jnp.asarray(start).at[jnp.asarray(indices)].set(tensor, mode="drop")


@op("TensorListScatter")
def tensor_list_scatter(tensor, indices, element_shape: Static, *, element_dtype):
    """Make a list whose element ``indices[i]`` is ``tensor[i]``."""
    return tensor_list_scatter_v2(tensor, indices, element_shape, np.int32(-1), element_dtype=element_dtype)


@op("TensorListScatterV2")
def tensor_list_scatter_v2(tensor, indices, element_shape: Static, num_elements: Static, *, element_dtype):
    """Make a list whose element ``indices[i]`` is ``tensor[i]``.

    Args:
      num_elements: scalar, static: the length; -1: up to the largest index.
    """
    tensor = jnp.asarray(tensor)
    count = int(num_elements)
    if count < 0:
        positions = static_value(indices)
        if positions is None:
            raise OpError("the length of the list depends on indices that are not known while tracing")
        count = int(positions.max(initial=-1)) + 1
    return TensorList(_scattered(count, tensor, indices), count, plain_dtype(element_dtype), tuple(tensor.shape[1:]))


@op("TensorListScatterIntoExistingList")
def tensor_list_scatter_into_existing_list(input_handle, tensor, indices, *, element_dtype):
    """Set the elements at ``indices``."""
    lst = as_list(input_handle)
    tensor = jnp.asarray(tensor)
    positions = static_value(indices)
    if positions is not None and not lst.is_traced and isinstance(lst.length, int) and positions.size:
        lst = resize_list(lst, max(lst.length, int(positions.max()) + 1))
    lst = lst.packed()
    if lst.is_traced and tensor.shape[0] != 0:
        if lst.buffer is None:
            lst = lst.with_buffer(jnp.zeros((lst.required_capacity, *tensor.shape[1:]), tensor.dtype)).with_free_slots(
                lst.free_slots
            )
        lst = extended_to(lst, indices)
    return lst.with_buffer(_scattered(lst.capacity, tensor, indices, lst.buffer)).with_free_slots(lst.free_slots)


@op("TensorListSplit")
def tensor_list_split(tensor, element_shape: Static, lengths: Static, *, element_dtype):
    """Split a tensor along its first axis into elements of a list.

    Args:
      lengths: static sizes of the elements; their sum is n.
    """
    sizes = [int(n) for n in np.asarray(lengths)]
    if sum(sizes) != tensor.shape[0]:
        raise OpError(f"the lengths {sizes} do not add up to the first dimension ({tensor.shape[0]})")
    dtype, rest = plain_dtype(element_dtype), tuple(tensor.shape[1:])
    if len(set(sizes)) > 1:
        ends = np.cumsum(sizes)
        items = tuple(tensor[end - size : end] for size, end in zip(sizes, ends.tolist(), strict=True))
        return TensorList(None, len(items), dtype, (None, *rest), items=items)
    size = sizes[0] if sizes else 0
    return TensorList(tensor.reshape((len(sizes), size, *rest)), len(sizes), dtype, (size, *rest))


@op("TensorListConcatV2")
def tensor_list_concat_v2(
    input_handle, element_shape: Static, leading_dims, *, element_dtype, shape_type=None, bound: Bound = None
):
    """Concatenate the elements along their first axis.

    For a dynamic length, see `tensor_list_stack`.
    """
    lst = as_list(input_handle)
    if lst.items:
        return _concatenated(lst, element_shape, leading_dims, element_dtype)
    if lst.buffer is None and not lst.is_traced and lst.length == 0:
        shape = unset_shape(lst, element_shape)
        if not shape or not is_fully_defined(shape[1:]):
            raise OpError(f"all but the first dimension of an empty list's elements must be known, not {shape}")
        return zero_buffer(0, shape[1:], element_dtype), np.zeros(0, np.int64)
    stacked = tensor_list_stack(lst, element_shape, element_dtype=element_dtype, bound=bound)
    if stacked.ndim < 2:
        raise OpError("concatenating a list of scalars")
    count, size, *rest = stacked.shape
    if not lst.is_traced:
        return stacked.reshape((-1, *rest)), np.full(count, size, np.int64)
    lengths = jnp.full(count, size, canonical(np.int64))
    if isinstance(bound, DynamicShapes):
        return bound.reshape(stacked, (count * size, *rest)), lengths
    return stacked.reshape((-1, *rest)), jnp.where(jnp.arange(count) < lst.length, lengths, 0)


def _concatenated(lst: TensorList, element_shape: Any, leading_dims: Any, dtype: Any) -> tuple[Any, Any]:
    leading = static_value(leading_dims) if leading_dims is not None else None
    assert lst.items is not None
    shape = _shape_from_others(lst.items, unset_shape(lst, element_shape))
    parts: list[Any] = []
    for index, item in enumerate(lst.items):
        if item is None and shape and leading is not None and index < leading.size:
            item = unset_element(lst, np.asarray([int(leading[index]), *shape[1:]]), dtype)
        elif item is None:
            item = unset_element(lst, np.asarray(shape) if is_fully_defined(shape) else element_shape, dtype)
        if not item.ndim:
            raise OpError("concatenating a list of scalars")
        parts.append(jnp.asarray(item))
    if len({part.shape[1:] for part in parts}) > 1:
        raise OpError(f"elements of shapes {[list(part.shape) for part in parts]} cannot be concatenated")
    return lax.concatenate(parts, 0), np.asarray([part.shape[0] for part in parts], np.int64)


def _shape_from_others(items: tuple[Any, ...], shape: Any) -> Any:
    """Return the shape of unset elements, completed by that of set ones if equal."""
    shapes = {jnp.shape(item) for item in items if item is not None}
    if is_fully_defined(shape) or not shapes or () in shapes:
        return shape
    first, rest = {s[0] for s in shapes}, next(iter(shapes))[1:]
    given = None if not shape else shape[0]
    leading = given if given is not None else first.pop() if len(first) == 1 else None
    return (leading, *rest)


@op("TensorListConcat")
def tensor_list_concat(input_handle, *, element_dtype, element_shape=None, bound: Bound = None):
    """Concatenate the elements along their first axis."""
    return tensor_list_concat_v2(as_list(input_handle), np.asarray(-1), None, element_dtype=element_dtype, bound=bound)


@op("TensorListConcatLists")
def tensor_list_concat_lists(input_a, input_b, *, element_dtype):
    """Append the elements of one list to another."""
    a, b = as_list(input_a), as_list(input_b)
    if a.is_traced or b.is_traced:
        raise OpError("joining lists whose length depends on data")
    empty = (a.buffer is None and a.items is None) or (b.buffer is None and b.items is None)
    if empty or (a.items is not None and b.items is not None):
        a, b = a.unpacked(), b.unpacked()
        return a.with_items((*(a.items or ()), *(b.items or ())))
    a, b = a.packed(), b.packed()
    if a.buffer is None or b.buffer is None:
        filled = a if a.buffer is not None else b
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), filled.buffer)
        blank = specs.coerce(None, row)
        parts = [
            x.buffer if x.buffer is not None else jax.tree.map(lambda leaf, n=x.length: jnp.stack([leaf] * n), blank)
            for x in (a, b)
            if x.length
        ]
    else:
        parts = [a.buffer, b.buffer]
    joined = jax.tree.map(lambda *leaves: lax.concatenate([jnp.asarray(leaf) for leaf in leaves], 0), *parts)
    return a.with_buffer(joined, a.length + b.length)


@op("TensorListPushBackBatch")
def tensor_list_push_back_batch(input_handles, tensor, *, element_dtype):
    """Append a row of a tensor to each list of a batch."""
    if not isinstance(input_handles, ListBatch):
        raise OpError(f"expected a batch of tensor lists, got {type(input_handles).__name__}")
    tensor = jnp.asarray(tensor)
    if tensor.shape[:1] != (input_handles.count,):
        raise OpError(f"a tensor of shape {tensor.shape} has no row for each of {input_handles.count} lists")
    pushed = tensor_list_push_back(input_handles.stacked, tensor, element_dtype=element_dtype)
    return dataclasses.replace(input_handles, stacked=pushed)


_ANY = np.asarray(-1)  # an element shape of unknown rank


@op("StackPushV2")
def stack_push(handle: Update, elem, *, swap_memory=False):
    """Push an element and return it."""
    return tensor_list_push_back(handle, elem, element_dtype=handle.dtype), elem


@op("StackPopV2")
def stack_pop(handle: Update, *, elem_type):
    """Pop the element pushed last."""
    return tensor_list_pop_back(handle, _ANY, element_dtype=elem_type)


@op("StackCloseV2")
def stack_close(handle: Read):
    """Do nothing: memory is not managed here."""
    return ()
