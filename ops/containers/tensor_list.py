"""Ops that make and resize tensor lists, and return length and element shape.

TF: core/kernels/list_kernels.cc.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.variant_rows import VariantRows, VariantVector
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import partial_fold
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import UNKNOWN, canonical, dims, dims_array
from tf2jax_lite.values.tensor_list import ElementShape, TensorList, is_fully_defined, resized, zero_buffer


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
