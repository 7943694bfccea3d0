"""Ops on one element of a tensor list, and those that make lists and tell about them.

Each has a numpy twin, so that counting a loop's iterations knows how long its lists are even where the elements are
traced: such a list is "forgotten", its length alone remains.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import Extents, at_least, most
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.variant_rows import VariantRows, VariantVector
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import UNKNOWN, as_array, canonical, dims, dims_array, known
from tf2jax_lite.values.tensor_list import ElementShape, TensorList, is_full, resized, zeros

__all__ = [
    "EmptyListError",
    "ListNeedsRoomError",
    "as_list",
    "plain_dtype",
    "resize_list",
    "tensor_list_get_item",
    "tensor_list_length",
    "tensor_list_pop_back",
    "tensor_list_push_back",
    "tensor_list_set_item",
    "unset_element",
    "unset_shape",
]

# Elements of a list of known numbers that are looked at, whether all rows are alike: shapes, not data.
_MOST_COMPARED = 1 << 12


class EmptyListError(OpError):
    """An element is taken from a list that is known to have none: what is being traced cannot run."""


class ListNeedsRoomError(OpError):
    """A list is written past an end that is not known: loops make room for that beforehand."""


def as_list(value: Any) -> TensorList:
    """Returns a list, its length settled.

    Raises:
      OpError: the value is none.
    """
    if isinstance(value, VariantRows):
        return value.as_list()
    if not isinstance(value, TensorList):
        raise OpError(f"expected a tensor list, got {type(value).__name__}")
    return value.settled()


def plain_dtype(dtype: Any) -> Any:
    """Returns a dtype, or None for what is not one (variant)."""
    return dtype if isinstance(dtype, np.dtype) else None


def _element_shape(value: Any) -> ElementShape:
    array = np.asarray(value)
    if array.ndim == 0:
        return None
    return tuple(None if isinstance(d, int) and d < 0 else d for d in dims(array))


def unset_shape(lst: TensorList, element_shape: Any) -> ElementShape:
    """Returns what is known of an unset element's shape, from the list and from the node that reads it."""
    a, b = lst.shape, _element_shape(element_shape)
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        return b
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def unset_element(lst: TensorList, element_shape: Any, dtype: Any) -> Any:
    """Returns zeros for an element that was never set.

    Raises:
      OpError: its shape is not known.
    """
    shape = unset_shape(lst, element_shape)
    if shape is None or not is_full(shape) or not isinstance(dtype, np.dtype):
        raise OpError(f"reading an element that was never set, and whose shape is not known ({shape})")
    if all(isinstance(d, int) for d in shape):
        return np.zeros(shape, canonical(dtype))
    return jnp.zeros(shape, canonical(dtype))


def _like(count: Any, element: Any) -> Any:
    """Returns a buffer of zeros with room for ``count`` elements like ``element``, in the form that is put into it."""
    form = specs.joint_form([specs.form_of(element)])  # of a list: without what is said of its elements
    if isinstance(form, TensorList):
        form = form.with_buffer(form.buffer)  # the lists that follow may be longer
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), form)


def _set(lst: TensorList, index: Any, element: Any) -> Any:
    """Returns the buffer of a packed list with an element set."""
    row, place = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), lst.buffer), known(index)
    if isinstance(row, TensorList):
        element = _fitting(element, row)
    if hasattr(row, "fitted"):
        element = specs.fitted(element, row)
    if jax.tree.structure(row) != jax.tree.structure(element):
        raise OpError("an element does not have the structure of the others in its list")

    def one(leaf: Any, value: Any) -> Any:
        if tuple(leaf.shape[1:]) != tuple(jnp.shape(value)):
            raise OpError(f"an element of shape {list(jnp.shape(value))} does not fit a list of {list(leaf.shape[1:])}")
        value = jnp.asarray(value).astype(leaf.dtype)
        if leaf.shape[0] == 1 and place is not None and not place:
            return value[None]
        return jnp.asarray(leaf).at[index].set(value, mode="drop", indices_are_sorted=True)

    return jax.tree.map(one, lst.buffer, element)


def _fitting(element: Any, row: TensorList) -> Any:
    """Returns a list that is put into a list, if it has room there."""
    if not isinstance(element, TensorList):
        return element
    element = element.packed().checked()
    missing = element.spare_of(row.capacity)
    if row.buffer is not None and missing is not None and missing < 0:
        raise OpError(f"a list of up to {element.longest} elements is put into a list of lists of {row.capacity}")
    return element


def _get(lst: TensorList, index: Any) -> Any:
    """Returns an element of a packed list at a place that is not known."""
    if not lst.is_traced or lst.spare is not None:
        return jax.tree.map(lambda leaf: _row(leaf, index), lst.checked().buffer)
    over = index >= lst.capacity

    def one(leaf: Any) -> Any:
        value = lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False)
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return value
        return jnp.where(over, jnp.asarray(jnp.nan, leaf.dtype), value)

    return jax.tree.map(one, lst.buffer)


def _row(leaf: Any, index: Any) -> Any:
    """Returns a row at a place that is not known: numbers that are known stay so where all rows are alike."""
    if isinstance(leaf, np.ndarray):
        if leaf.dtype == object:
            raise OpError(
                "an element of a list of strings is taken at a place that is not known while tracing, as in a loop of "
                "so many iterations that it is not unrolled; JAX has no string arrays"
            )
        if leaf.dtype.kind in "iu" and 0 < leaf.size <= _MOST_COMPARED and (leaf == leaf[:1]).all():
            return leaf[0, ...]
    return lax.dynamic_index_in_dim(at_least(leaf, 0, 1), index, 0, keepdims=False)


# ---- numpy twins ----


def _host_empty(element_shape: Any, max_num_elements: Any, *, element_dtype: Any) -> Any:
    return tensor_list_empty(element_shape, max_num_elements, element_dtype=element_dtype)


def _host_reserve(element_shape: Any, num_elements: Any, *, element_dtype: Any) -> Any:
    return tensor_list_reserve(element_shape, num_elements, element_dtype=element_dtype)


def _host_from_tensor(tensor: Any, element_shape: Any, *, element_dtype: Any) -> Any:
    return tensor_list_from_tensor(tensor, element_shape, element_dtype=element_dtype)


def _host_get(handle: Any, index: Any, element_shape: Any, *, element_dtype: Any, **options: Any) -> Any:
    if handle is UNKNOWN or index is UNKNOWN or element_shape is UNKNOWN or handle.buffer is UNKNOWN:
        return UNKNOWN
    return tensor_list_get_item(handle, index, element_shape, element_dtype=element_dtype, **options)


def _host_element_shape(handle: Any, *, shape_type: Any) -> Any:
    return UNKNOWN if handle is UNKNOWN else tensor_list_element_shape(handle, shape_type=shape_type)


def _host_push(handle: Any, tensor: Any, *, element_dtype: Any) -> Any:
    if handle is UNKNOWN:
        return UNKNOWN
    if tensor is UNKNOWN or handle.buffer is UNKNOWN:
        return handle.forgotten(handle.length + 1)
    return tensor_list_push_back(handle, tensor, element_dtype=element_dtype)


def _host_pop(handle: Any, element_shape: Any, *, element_dtype: Any) -> Any:
    if handle is UNKNOWN:
        return UNKNOWN, UNKNOWN
    if handle.buffer is UNKNOWN:
        return handle.forgotten(handle.length - 1), UNKNOWN
    if element_shape is UNKNOWN:
        element_shape = np.asarray(-1)
    return tensor_list_pop_back(handle, element_shape, element_dtype=element_dtype)


def host_set(
    handle: Any, index: Any, item: Any, *, element_dtype: Any, resize_if_index_out_of_bounds: bool = False
) -> Any:
    """Sets an element of a list of which only the length may be known."""
    if handle is UNKNOWN or (index is UNKNOWN and resize_if_index_out_of_bounds):
        return UNKNOWN
    if index is UNKNOWN or item is UNKNOWN or handle.buffer is UNKNOWN:
        more = int(index) + 1 if resize_if_index_out_of_bounds else 0
        return handle.forgotten(max(handle.length, more))
    return tensor_list_set_item(
        handle,
        index,
        item,
        element_dtype=element_dtype,
        resize_if_index_out_of_bounds=resize_if_index_out_of_bounds,
    )


def _host_length(handle: Any) -> Any:
    return UNKNOWN if handle is UNKNOWN else np.asarray(handle.length, np.int32)


def _host_resize(handle: Any, size: Any) -> Any:
    if handle is UNKNOWN or size is UNKNOWN:
        return UNKNOWN
    return handle.forgotten(int(size)) if handle.buffer is UNKNOWN else tensor_list_resize(handle, size)


# ---- making lists ----


@op("EmptyTensorList", host=_host_empty)
def tensor_list_empty(element_shape: Static, max_num_elements: Static, *, element_dtype: Any) -> TensorList:
    """Makes an empty list. See tf.raw_ops.EmptyTensorList."""
    (size,) = dims(max_num_elements)
    limit = most(size)  # of a size that data decides; of one that the caller decides nothing is known
    limit = -1 if limit is None else limit
    return TensorList(None, 0, plain_dtype(element_dtype), _element_shape(element_shape), limit, items=())


@op("TensorListReserve", host=_host_reserve, elements=result_size.count(1))
def tensor_list_reserve(element_shape: Static, num_elements: Static, *, element_dtype: Any) -> TensorList:
    """Makes a list of ``num_elements`` unset elements, read as zeros. See tf.raw_ops.TensorListReserve."""
    (count,) = dims(num_elements)
    shape, dtype = _element_shape(element_shape), plain_dtype(element_dtype)
    if isinstance(count, int):
        return TensorList(None, count, dtype, shape, items=(None,) * count)
    buffer = zeros(count, shape, dtype) if is_full(shape) and dtype is not None else None
    return TensorList(buffer, count, dtype, shape)


@op("TensorListFromTensor", host=_host_from_tensor)
def tensor_list_from_tensor(tensor: Any, element_shape: Static, *, element_dtype: Any) -> TensorList:
    """Makes a list of the slices along the first axis. See tf.raw_ops.TensorListFromTensor."""
    if isinstance(tensor, VariantRows):
        return tensor.listed()
    if isinstance(tensor, VariantVector):
        return tensor.rows
    return TensorList(tensor, tensor.shape[0], plain_dtype(element_dtype), tuple(tensor.shape[1:]))


# ---- one element ----


@op("TensorListPushBack", host=_host_push, lazy=True)
def tensor_list_push_back(input_handle: Any, tensor: Any, *, element_dtype: Any) -> TensorList:
    """Appends an element. See tf.raw_ops.TensorListPushBack."""
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
    """Returns a packed list of traced length with an element more; it grows where no place is known to be free."""
    lst = _with_rows(lst, element)
    spare = lst.spare
    if spare is not None and spare <= 0 and isinstance(lst.capacity, int) and 0 <= lst.limit <= lst.capacity:
        spare = 1  # TensorFlow refuses what goes past the limit
    elif spare is not None and spare <= 0 and not lst.roomy:
        lst, spare = lst.with_capacity(lst.capacity + 1), spare + 1
    longer = lst.with_buffer(_set(lst, lst.length, element), lst.length + 1)
    return longer.with_spare(None if spare is None else spare - 1)


def _with_rows(lst: TensorList, element: Any) -> TensorList:
    """Returns a packed list of traced length with a buffer, if only from now on its elements are known."""
    if lst.buffer is not None:
        return lst
    return lst.with_buffer(_like(max(lst.places, 1), element)).with_spare(lst.spare_of(max(lst.places, 1)))


def _is_row(buffer: Any, element: Any) -> bool:
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), buffer)
    return specs.same_form(row, element)


@op("TensorListPopBack", host=_host_pop, lazy=True)
def tensor_list_pop_back(input_handle: Any, element_shape: Static, *, element_dtype: Any) -> tuple[Any, Any]:
    """Removes the last element and returns it. See tf.raw_ops.TensorListPopBack."""
    lst = as_list(input_handle)
    if lst.is_traced:
        lst = lst.packed()
        length = lst.length - 1
        if lst.buffer is None:
            return lst.with_buffer(None, length), unset_element(lst, element_shape, element_dtype)
        if lst.alike is not None:
            return dataclasses.replace(lst, length=length), lst.alike
        spare = None if lst.spare is None else lst.spare + 1
        shorter = dataclasses.replace(lst.with_buffer(lst.buffer, length), spare=spare, stale=True)
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


@op("TensorListSetItem", host=host_set, lazy=True)
def tensor_list_set_item(
    input_handle: Any, index: Any, item: Any, *, element_dtype: Any, resize_if_index_out_of_bounds: bool = False
) -> TensorList:
    """Sets an element. See tf.raw_ops.TensorListSetItem."""
    lst = as_list(input_handle)
    position = known(index)
    if position is not None and not lst.is_traced and isinstance(lst.length, int):
        place = int(position)
        if place >= lst.length and resize_if_index_out_of_bounds:
            lst = resize_list(lst, place + 1)
        elif not 0 <= place < lst.length:
            raise OpError(f"index {place} is out of range for a list of {lst.length} elements")
        if lst.items is None and (lst.is_host or lst.buffer is None or not _is_row(lst.buffer, item)):
            lst = lst.unpacked()
        if lst.items is not None:
            return lst.with_items((*lst.items[:place], item, *lst.items[place + 1 :]))
    elif resize_if_index_out_of_bounds:
        if not lst.is_traced:
            raise ListNeedsRoomError(
                "a list of dynamic size is written at an index that is not known while tracing; give the TensorArray "
                "its size and dynamic_size=False"
            )
        if index is lst.length:
            return _appended(lst.packed(), item)
        return _set_or_extend(lst.packed(), as_array(index), item)
    lst = lst.packed()
    if lst.buffer is None:
        lst = _with_rows(lst, item) if lst.is_traced else lst.with_buffer(_like(lst.length, item))
    return lst.with_buffer(_set(lst, as_array(index), item)).with_spare(lst.spare)


def _set_or_extend(lst: TensorList, index: Any, item: Any) -> TensorList:
    """Sets an element that may lie past the end: the length follows; loops have made room.

    Elsewhere there is room for one element more. A write further out is lost, and is NaN, where it can be.
    """
    lst = _with_rows(lst, item).cleared()
    place, spare = known(index), lst.spare
    if spare is not None and place is not None and isinstance(lst.capacity, int):
        lst = lst.with_capacity(max(lst.capacity, int(place) + 1))
        spare = min(lst.spare or 0, lst.capacity - int(place) - 1)
    elif spare is not None:
        lst = lst if lst.roomy or spare > 0 else lst.with_capacity(lst.capacity + 1)
        spare = None
    index = jnp.asarray(index, np.int32)
    length = jnp.maximum(jnp.asarray(lst.length, np.int32), index + 1)
    return lst.with_buffer(_set(lst, index, item), length).with_spare(spare)


@op(
    "TensorListGetItem",
    host=_host_get,
    lazy=True,
    options=("disable_assert_in_tensor_list_get_item",),
)
def tensor_list_get_item(
    input_handle: Any,
    index: Any,
    element_shape: Static,
    *,
    element_dtype: Any,
    disable_assert_in_tensor_list_get_item: bool = False,
) -> Any:
    """Returns an element. See tf.raw_ops.TensorListGetItem."""
    if isinstance(input_handle, VariantRows):
        return input_handle.row(index)
    lst = as_list(input_handle)
    if not disable_assert_in_tensor_list_get_item and lst.dtype is not None and element_dtype != lst.dtype:
        raise OpError(
            f"the list holds {lst.dtype} and the node reads {element_dtype}; "
            "config option disable_assert_in_tensor_list_get_item turns this check off"
        )
    position = known(index)
    if position is not None and not lst.is_traced and isinstance(lst.length, int):
        place = int(position)
        if not 0 <= place < lst.length:
            raise OpError(f"index {place} is out of range for a list of {lst.length} elements")
        if lst.items is not None and lst.items[place] is not None:
            return lst.items[place]
        if lst.items is not None or lst.buffer is None:
            return unset_element(_with_shape_of_others(lst), element_shape, element_dtype)
    lst = lst.packed()
    if lst.buffer is None:
        return unset_element(lst, element_shape, element_dtype)
    if lst.alike is not None:
        return lst.alike
    if position is not None and (not lst.is_traced or lst.spare is not None):
        place, lst = int(position), lst.checked()
        return jax.tree.map(
            lambda leaf: (
                leaf[place, ...] if isinstance(leaf, np.ndarray) else lax.index_in_dim(leaf, place, 0, keepdims=False)
            ),
            lst.buffer,
        )
    return _get(lst, as_array(index))


def _with_shape_of_others(lst: TensorList) -> TensorList:
    """An unset element whose shape nothing declares is read as zeros like the elements that are set."""
    if is_full(lst.shape) or not lst.items:
        return lst
    shapes = {jnp.shape(v) for v in lst.items if isinstance(v, jax.Array | np.ndarray | np.generic)}
    return dataclasses.replace(lst, shape=shapes.pop()) if len(shapes) == 1 else lst


# ---- what is known of a list ----


@op("TensorListLength", host=_host_length, lazy=True, sized=True)
def tensor_list_length(input_handle: Any, *, extents: Extents | None = None) -> Any:
    """Returns the number of elements. See tf.raw_ops.TensorListLength."""
    if isinstance(input_handle, VariantRows):
        length = input_handle.count
    else:
        lst = as_list(input_handle)
        length = lst.length
        if isinstance(length, jax.Array):
            # What is made as long as the list has room for as many as that has.
            fits = extents is not None and lst.spare is not None and isinstance(lst.capacity, int)
            return jnp.minimum(length, np.asarray(lst.capacity, length.dtype)) if fits else length
    return np.asarray(length, np.int32) if isinstance(length, int) else jnp.asarray(length, np.int32)


@op("TensorListElementShape", host=_host_element_shape, lazy=True)
def tensor_list_element_shape(input_handle: Any, *, shape_type: Any) -> Any:
    """Returns the declared element shape, -1 where unknown. See tf.raw_ops.TensorListElementShape."""
    shape = None if isinstance(input_handle, VariantRows) else as_list(input_handle).shape
    if shape is None:
        return np.asarray(-1, shape_type)
    return dims_array([-1 if d is None else d for d in shape], shape_type)


def resize_list(lst: TensorList, size: Any) -> TensorList:
    """Returns a list cut, or extended with unset elements."""
    if lst.is_traced:
        lst = lst.packed().checked().cleared()
    if lst.items is not None:
        return lst.with_items(lst.items[:size] + (None,) * (size - len(lst.items)))
    return lst.with_buffer(None if lst.buffer is None else resized(lst, size), size)


@op("TensorListResize", host=_host_resize, lazy=True, elements=result_size.count(1))
def tensor_list_resize(input_handle: Any, size: Static) -> TensorList:
    """Cuts the list, or extends it with unset elements. See tf.raw_ops.TensorListResize."""
    return resize_list(as_list(input_handle), int(size))
