"""Stack, gather, scatter, split and concatenate tensor lists; list batches.

TF: core/kernels/list_kernels.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.common.variant_rows import VariantRows, VariantVector, is_unset, is_variant_row_list
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound, partial_fold
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import UNKNOWN, canonical, static_value
from tf2jax_lite.values.tensor_list import ListBatch, TensorList, extended_to, is_fully_defined, resized, zero_buffer

from .tensor_list import as_list, plain_dtype, resize_list, unset_element, unset_shape
from .tensor_list_elements import tensor_list_push_back

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
