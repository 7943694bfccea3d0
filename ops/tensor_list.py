"""Tensor lists: variant tensors that hold a growing list of equal-shaped tensors.

A list is a pytree. With a *static* length its buffer holds exactly that many elements and pushing makes a longer
buffer. With a *traced* length (inside loops and after data-dependent branches) the buffer is a fixed capacity and
elements past the length are zeros or stale.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.errors import OpError

from .registry import Static, op
from .values import as_array, canonical, dims, known

__all__ = ["TensorList", "add_lists", "align_lists", "resized", "zeros_like_list"]

ElementShape = tuple[Any, ...] | None


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class TensorList:
    """A list of elements.

    Attributes:
      buffer: the elements stacked on a new first axis (a pytree of arrays, so that elements may be lists
        themselves), or None as long as nothing is known of an element's shape.
      length: number of elements: an int, or a traced int32 scalar.
      dtype: element dtype as the graph declares it (None for lists of lists).
      shape: element shape as the graph declares it, None for unknown dimensions or rank.
      limit: most elements it may hold, or -1.
      owner: which TensorArray's contents these are (ops/tensor_array.py), or None.
    """

    buffer: Any
    length: Any
    dtype: Any = None
    shape: ElementShape = None
    limit: int = -1
    owner: Any = None

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns children and auxiliary data: a static length is not a child."""
        if isinstance(self.length, jax.Array | jax.ShapeDtypeStruct | np.ndarray):
            return (self.buffer, self.length), (True, None, self.dtype, self.shape, self.limit, self.owner)
        return (self.buffer,), (False, self.length, self.dtype, self.shape, self.limit, self.owner)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> TensorList:
        """Undoes `tree_flatten`."""
        traced, length, dtype, shape, limit, owner = aux
        return cls(children[0], children[1] if traced else length, dtype, shape, limit, owner)

    @property
    def capacity(self) -> Any:
        """Elements that the buffer has room for."""
        leaves = jax.tree.leaves(self.buffer)
        return leaves[0].shape[0] if leaves else (0 if self.is_traced else self.length)

    @property
    def is_traced(self) -> bool:
        """Whether the length is a traced value."""
        return isinstance(self.length, jax.Array | jax.ShapeDtypeStruct | np.ndarray)

    def with_buffer(self, buffer: Any, length: Any = None) -> TensorList:
        """Returns the list with another buffer, and another length if given."""
        return dataclasses.replace(self, buffer=buffer, length=self.length if length is None else length)


def _is_list(value: Any) -> TensorList:
    if not isinstance(value, TensorList):
        raise OpError(f"expected a tensor list, got {type(value).__name__}")
    return value


def _element_shape(value: Any) -> ElementShape:
    array = np.asarray(value)
    if array.ndim == 0:
        return None
    return tuple(None if isinstance(d, int) and d < 0 else d for d in dims(array))


def _is_full(shape: ElementShape) -> bool:
    return shape is not None and all(d is not None for d in shape)


def _merged(a: ElementShape, b: ElementShape) -> ElementShape:
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        return b
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def _zeros(count: Any, shape: ElementShape, dtype: Any) -> Any:
    assert shape is not None
    return jnp.zeros((count, *shape), canonical(dtype))


def _like(count: Any, element: Any) -> Any:
    """Returns a buffer of zeros with room for ``count`` elements like ``element``."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *jnp.shape(leaf)), jnp.result_type(leaf)), element)


def resized(target: TensorList, capacity: Any) -> Any:
    """Returns the buffer of a list cut or padded with zeros to ``capacity`` elements."""

    def one(leaf: Any) -> Any:
        have = leaf.shape[0]
        if have == capacity:
            return leaf
        if isinstance(have, int) and isinstance(capacity, int) and have > capacity:
            return leaf[:capacity]
        return jnp.concatenate([jnp.asarray(leaf), jnp.zeros((capacity - have, *leaf.shape[1:]), leaf.dtype)])

    return jax.tree.map(one, target.buffer)


def align_lists(value: TensorList, other: TensorList, *, template_only: bool = False) -> TensorList:
    """Returns ``value`` in a form that both lists fit: capacity, element shape, traced length if lengths differ.

    With ``template_only`` the arrays may be `jax.ShapeDtypeStruct`s and only the form of the result counts.
    """
    same = not value.is_traced and not other.is_traced and value.length == other.length
    capacity = max(value.capacity, other.capacity)
    buffer = value.buffer
    if template_only:
        source = value.buffer if value.buffer is not None else other.buffer
        buffer = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((capacity, *leaf.shape[1:]), leaf.dtype), source)
        length = value.length if same else jax.ShapeDtypeStruct((), np.dtype(np.int32))
        return value.with_buffer(buffer, length)
    if buffer is None and other.buffer is not None:
        buffer = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype), other.buffer)
    elif buffer is not None:
        buffer = resized(value, capacity)
    length = value.length if same else jnp.asarray(value.length, np.int32)
    return dataclasses.replace(
        value, buffer=buffer, length=length, dtype=other.dtype, shape=other.shape, limit=other.limit
    )


def add_lists(items: list[Any]) -> TensorList:
    """Returns the element by element sum of lists (and of numbers, which count for nothing), as AddN does."""
    total, *more = [item for item in items if isinstance(item, TensorList)]
    for other in more:
        if other.buffer is None:
            continue
        if total.buffer is None:
            total = other
            continue
        total, other = align_lists(total, other), align_lists(other, total)
        total = total.with_buffer(jax.tree.map(lambda a, b: jnp.asarray(a) + b, total.buffer, other.buffer))
    return total


def zeros_like_list(value: TensorList) -> TensorList:
    """Returns a list of as many zeros."""
    return value.with_buffer(jax.tree.map(jnp.zeros_like, value.buffer))


@op("EmptyTensorList")
def empty_tensor_list(element_shape: Static, max_num_elements: Static, *, element_dtype: Any) -> TensorList:
    """Makes an empty list. See tf.raw_ops.EmptyTensorList."""
    return TensorList(None, 0, _plain(element_dtype), _element_shape(element_shape), int(max_num_elements))


@op("TensorListReserve")
def tensor_list_reserve(element_shape: Static, num_elements: Static, *, element_dtype: Any) -> TensorList:
    """Makes a list of ``num_elements`` unset elements, read as zeros. See tf.raw_ops.TensorListReserve."""
    (count,) = dims(num_elements)
    shape = _element_shape(element_shape)
    dtype = _plain(element_dtype)
    buffer = _zeros(count, shape, dtype) if _is_full(shape) and dtype is not None else None
    return TensorList(buffer, count, dtype, shape)


def _plain(dtype: Any) -> Any:
    return dtype if isinstance(dtype, np.dtype) else None


@op("TensorListPushBack")
def tensor_list_push_back(input_handle: Any, tensor: Any, *, element_dtype: Any) -> TensorList:
    """Appends an element. See tf.raw_ops.TensorListPushBack."""
    lst = _is_list(input_handle)
    tensor = jax.tree.map(jnp.asarray, tensor)
    if not lst.is_traced:
        row = jax.tree.map(lambda leaf: leaf[None], tensor)
        if lst.buffer is None:
            buffer = row if lst.length == 0 else _joined(_like(lst.length, tensor), row)
        else:
            buffer = _joined(lst.buffer, row)
        return lst.with_buffer(buffer, lst.length + 1)
    buffer = _like(1, tensor) if lst.buffer is None else lst.buffer
    return lst.with_buffer(_set(buffer, lst.length, tensor), lst.length + 1)


def _joined(a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: lax.concatenate([jnp.asarray(x), jnp.asarray(y)], 0), a, b)


def _set(buffer: Any, index: Any, element: Any) -> Any:
    def one(leaf: Any, value: Any) -> Any:
        if tuple(leaf.shape[1:]) != tuple(value.shape):
            raise OpError(f"an element of shape {list(value.shape)} does not fit a list of {list(leaf.shape[1:])}")
        return jnp.asarray(leaf).at[index].set(value.astype(leaf.dtype), mode="drop", indices_are_sorted=True)

    return jax.tree.map(one, buffer, element)


def _get(buffer: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False), buffer)


@op("TensorListPopBack")
def tensor_list_pop_back(input_handle: Any, element_shape: Static, *, element_dtype: Any) -> tuple[Any, Any]:
    """Removes the last element and returns it. See tf.raw_ops.TensorListPopBack."""
    lst = _is_list(input_handle)
    if not lst.is_traced:
        if isinstance(lst.length, int) and lst.length == 0:
            raise OpError("trying to pop from an empty list")
        if lst.buffer is None:
            element = _unset(lst, element_shape, element_dtype)
            return lst.with_buffer(None, lst.length - 1), element
        element = jax.tree.map(lambda leaf: leaf[-1], lst.buffer)
        return lst.with_buffer(jax.tree.map(lambda leaf: leaf[:-1], lst.buffer), lst.length - 1), element
    length = lst.length - 1
    return lst.with_buffer(lst.buffer, length), _get(lst.buffer, length)


def _unset(lst: TensorList, element_shape: Any, dtype: Any) -> Any:
    shape = _merged(lst.shape, _element_shape(element_shape))
    if not _is_full(shape) or not isinstance(dtype, np.dtype):
        raise OpError(f"reading an element that was never set, and whose shape is not known ({shape})")
    return jnp.zeros(shape, canonical(dtype))


@op("TensorListSetItem")
def tensor_list_set_item(
    input_handle: Any, index: Any, item: Any, *, element_dtype: Any, resize_if_index_out_of_bounds: bool = False
) -> TensorList:
    """Sets an element. See tf.raw_ops.TensorListSetItem."""
    lst = _is_list(input_handle)
    item = jax.tree.map(jnp.asarray, item)
    position = known(index)
    if position is not None and not lst.is_traced and isinstance(lst.length, int):
        position = int(position)
        if position >= lst.length and resize_if_index_out_of_bounds:
            lst = _resize(lst, position + 1)
        elif not 0 <= position < lst.length:
            raise OpError(f"index {position} is out of range for a list of {lst.length} elements")
    elif resize_if_index_out_of_bounds and not lst.is_traced:
        raise OpError(
            "a list of dynamic size is written at an index that is not known while tracing; give the TensorArray its "
            "size and dynamic_size=False, or make the loop's trip count known"
        )
    buffer = _like(lst.length if not lst.is_traced else 1, item) if lst.buffer is None else lst.buffer
    return lst.with_buffer(_set(buffer, as_array(index), item))


@op("TensorListGetItem", options=("disable_assert_in_tensor_list_get_item",))
def tensor_list_get_item(
    input_handle: Any,
    index: Any,
    element_shape: Static,
    *,
    element_dtype: Any,
    disable_assert_in_tensor_list_get_item: bool = False,
) -> Any:
    """Returns an element. See tf.raw_ops.TensorListGetItem."""
    lst = _is_list(input_handle)
    if not disable_assert_in_tensor_list_get_item and lst.dtype is not None and element_dtype != lst.dtype:
        raise OpError(
            f"the list holds {lst.dtype} and the node reads {element_dtype}; "
            "config option disable_assert_in_tensor_list_get_item turns this check off"
        )
    if lst.buffer is None:
        return _unset(lst, element_shape, element_dtype)
    position = known(index)
    if position is not None:
        if not lst.is_traced and isinstance(lst.length, int) and not 0 <= int(position) < lst.length:
            raise OpError(f"index {int(position)} is out of range for a list of {lst.length} elements")
        return jax.tree.map(lambda leaf: lax.index_in_dim(leaf, int(position), 0, keepdims=False), lst.buffer)
    return _get(lst.buffer, index)


@op("TensorListStack")
def tensor_list_stack(input_handle: Any, element_shape: Static, *, element_dtype: Any, num_elements: int = -1) -> Any:
    """Stacks all elements on a new first axis. See tf.raw_ops.TensorListStack."""
    lst = _is_list(input_handle)
    if lst.is_traced:
        if num_elements >= 0:
            lst = lst.with_buffer(resized(lst, num_elements), num_elements)
        else:
            raise OpError("stacking a list whose length depends on data; its shape cannot be known while tracing")
    if num_elements >= 0 and lst.length != num_elements:
        raise OpError(f"the list has {lst.length} elements where {num_elements} are expected")
    if lst.buffer is None:
        shape = _merged(lst.shape, _element_shape(element_shape))
        if not _is_full(shape):
            raise OpError(f"stacking a list whose element shape is not known ({shape})")
        return _zeros(lst.length, shape, element_dtype)
    return lst.buffer


@op("TensorListFromTensor")
def tensor_list_from_tensor(tensor: Any, element_shape: Static, *, element_dtype: Any) -> TensorList:
    """Makes a list of the slices along the first axis. See tf.raw_ops.TensorListFromTensor."""
    tensor = jnp.asarray(tensor)
    return TensorList(tensor, tensor.shape[0], _plain(element_dtype), tuple(tensor.shape[1:]))


@op("TensorListLength")
def tensor_list_length(input_handle: Any) -> Any:
    """Returns the number of elements. See tf.raw_ops.TensorListLength."""
    lst = _is_list(input_handle)
    if lst.is_traced:
        return lst.length
    return np.asarray(lst.length, np.int32) if isinstance(lst.length, int) else jnp.asarray(lst.length, np.int32)


@op("TensorListElementShape")
def tensor_list_element_shape(input_handle: Any, *, shape_type: Any) -> Any:
    """Returns the declared element shape, -1 where unknown. See tf.raw_ops.TensorListElementShape."""
    lst = _is_list(input_handle)
    shape = lst.shape
    if shape is None:
        return np.asarray(-1, shape_type)
    return np.asarray([-1 if d is None else d for d in shape], shape_type)


def _resize(lst: TensorList, size: Any) -> TensorList:
    if lst.buffer is None:
        return lst.with_buffer(None, size)
    return lst.with_buffer(resized(lst, size), size)


@op("TensorListResize")
def tensor_list_resize(input_handle: Any, size: Static) -> TensorList:
    """Cuts the list, or extends it with unset elements. See tf.raw_ops.TensorListResize."""
    return _resize(_is_list(input_handle), int(size))


@op("TensorListGather")
def tensor_list_gather(input_handle: Any, indices: Any, element_shape: Static, *, element_dtype: Any) -> Any:
    """Stacks the elements at ``indices``. See tf.raw_ops.TensorListGather."""
    lst = _is_list(input_handle)
    if lst.buffer is None:
        shape = _merged(lst.shape, _element_shape(element_shape))
        if not _is_full(shape):
            raise OpError(f"gathering from a list whose element shape is not known ({shape})")
        return _zeros(jnp.shape(indices)[0], shape, element_dtype)
    return jax.tree.map(lambda leaf: jnp.take(leaf, indices, axis=0, mode="clip"), lst.buffer)


def _scattered(buffer_length: Any, tensor: Any, indices: Any, base: Any = None) -> Any:
    start = jnp.zeros((buffer_length, *tensor.shape[1:]), tensor.dtype) if base is None else base
    return start.at[jnp.asarray(indices)].set(tensor, mode="drop")


@op("TensorListScatter")
def tensor_list_scatter(tensor: Any, indices: Any, element_shape: Static, *, element_dtype: Any) -> TensorList:
    """Makes a list whose element ``indices[i]`` is ``tensor[i]``. See tf.raw_ops.TensorListScatter."""
    return tensor_list_scatter_v2(tensor, indices, element_shape, np.int32(-1), element_dtype=element_dtype)


@op("TensorListScatterV2")
def tensor_list_scatter_v2(
    tensor: Any, indices: Any, element_shape: Static, num_elements: Static, *, element_dtype: Any
) -> TensorList:
    """Like TensorListScatter, for a list of ``num_elements`` (-1: as many as needed)."""
    tensor = jnp.asarray(tensor)
    count = int(num_elements)
    if count < 0:
        positions = known(indices)
        if positions is None:
            raise OpError("the length of the list depends on indices that are not known while tracing")
        count = int(positions.max(initial=-1)) + 1
    return TensorList(_scattered(count, tensor, indices), count, _plain(element_dtype), tuple(tensor.shape[1:]))


@op("TensorListScatterIntoExistingList")
def tensor_list_scatter_into_existing_list(
    input_handle: Any, tensor: Any, indices: Any, *, element_dtype: Any
) -> TensorList:
    """Sets the elements at ``indices``. See tf.raw_ops.TensorListScatterIntoExistingList."""
    lst = _is_list(input_handle)
    tensor = jnp.asarray(tensor)
    positions = known(indices)
    if positions is not None and not lst.is_traced and isinstance(lst.length, int) and positions.size:
        needed = int(positions.max()) + 1
        if needed > lst.length:
            lst = _resize(lst, needed)
    return lst.with_buffer(_scattered(lst.capacity, tensor, indices, lst.buffer))


@op("TensorListSplit")
def tensor_list_split(tensor: Any, element_shape: Static, lengths: Static, *, element_dtype: Any) -> TensorList:
    """Splits a tensor along its first axis into the elements of a list. See tf.raw_ops.TensorListSplit.

    JAX arrays have one shape, so the lengths must be equal.
    """
    tensor = jnp.asarray(tensor)
    sizes = [int(n) for n in np.asarray(lengths)]
    if len(set(sizes)) > 1:
        raise OpError(f"splitting into elements of different lengths ({sizes}); a list here holds one element shape")
    if sum(sizes) != tensor.shape[0]:
        raise OpError(f"the lengths {sizes} do not add up to the first dimension ({tensor.shape[0]})")
    size = sizes[0] if sizes else 0
    shape = (size, *tensor.shape[1:])
    return TensorList(tensor.reshape((len(sizes), *shape)), len(sizes), _plain(element_dtype), shape)


@op("TensorListConcatV2")
def tensor_list_concat_v2(
    input_handle: Any, element_shape: Static, leading_dims: Any, *, element_dtype: Any, shape_type: Any = None
) -> tuple[Any, Any]:
    """Concatenates the elements along their first axis, and gives their lengths. See tf.raw_ops.TensorListConcatV2."""
    lst = _is_list(input_handle)
    stacked = tensor_list_stack(lst, element_shape, element_dtype=element_dtype)
    if stacked.ndim < 2:
        raise OpError("concatenating a list of scalars")
    lengths = np.full(stacked.shape[0], stacked.shape[1], np.int64)
    return stacked.reshape((-1, *stacked.shape[2:])), lengths


@op("TensorListConcat")
def tensor_list_concat(input_handle: Any, *, element_dtype: Any, element_shape: Any = None) -> tuple[Any, Any]:
    """Concatenates the elements along their first axis, and gives their lengths. See tf.raw_ops.TensorListConcat."""
    lst = _is_list(input_handle)
    return tensor_list_concat_v2(lst, np.asarray(-1), None, element_dtype=element_dtype)


@op("TensorListConcatLists")
def tensor_list_concat_lists(input_a: Any, input_b: Any, *, element_dtype: Any) -> TensorList:
    """Appends the elements of one list to another. See tf.raw_ops.TensorListConcatLists."""
    a, b = _is_list(input_a), _is_list(input_b)
    if a.is_traced or b.is_traced:
        raise OpError("joining lists whose length depends on data")
    if a.buffer is None or b.buffer is None:
        if a.length and b.length and (a.buffer is None) != (b.buffer is None):
            known_one = a if a.buffer is not None else b
            fill = jax.tree.map(
                lambda leaf: jnp.zeros((a.length + b.length - known_one.length, *leaf.shape[1:]), leaf.dtype),
                known_one.buffer,
            )
            parts = (a.buffer, fill) if known_one is a else (fill, b.buffer)
            return a.with_buffer(_joined(*parts), a.length + b.length)
        return a.with_buffer(a.buffer if a.buffer is not None else b.buffer, a.length + b.length)
    return a.with_buffer(_joined(a.buffer, b.buffer), a.length + b.length)
