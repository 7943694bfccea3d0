"""TensorArrays of TF1: a resource handle and a ``flow`` that orders its uses.

In TensorFlow the handle refers to the contents, and the flow is a dummy scalar. Here the flow is the contents, a tensor
list, so that loops and branches carry them; the handle is a symbol.

A gradient array (TensorArrayGradV3) starts as zeros, and writes to it accumulate. TensorFlow's gradient code starts
each of them from the flow of the *forward* array and adds the resulting flows; so a flow stores its owner.

Not checked: that an element is read once only (``clear_after_read``) and, in arrays that are not gradients, written
once only. Correct programs do not depend on it.

TF: core/kernels/tensor_array_ops.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.variant_rows import VariantRows, VariantVector, is_unset
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound, partial_fold
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import UNKNOWN, Resource, as_array, canonical, dims, static_value
from tf2jax_lite.values.tensor_list import TensorList, extended_to, resized

from . import tensor_list as lists
from .tensor_list import as_list, plain_dtype, tensor_list_length


@dataclasses.dataclass(frozen=True)
class ArrayHandle(Resource):
    """The resource handle of a TensorArray.

    Attributes:
      dtype: element dtype, None for variants (the rows of a ragged tensor).
      shape: element shape, None for unknown dimensions or rank.
      size: initial number of elements.
      dynamic: whether writes past the end extend it.
      sources: names of the gradient computations that it belongs to, outermost last; empty for a forward array.
    """

    dtype: np.dtype | None
    shape: tuple[Any, ...] | None
    size: Any
    dynamic: bool = False
    sources: tuple[str, ...] = ()

    @property
    def is_foldable(self) -> bool:
        """Whether NumPy can evaluate its ops: the written indices state the length."""
        return isinstance(self.size, int)

    def contents(self, flow: Any) -> Any:
        """Return a flow's contents: unset elements if it is a number or another array's."""
        # They are a `TensorList`, or the `VariantRows` that an array was filled with.
        if isinstance(flow, TensorList) and flow.owner == self.sources:
            return flow
        if isinstance(flow, VariantRows) and not self.sources:
            return flow
        length = self.size
        if self.dtype is None:
            items = (None,) * length if isinstance(length, int) else None
            return TensorList(None, length, None, self.shape, items=items, owner=self.sources)
        full = self.shape is not None and all(d is not None for d in self.shape)
        buffer = jnp.zeros((length, *self.shape), canonical(self.dtype)) if full and self.shape is not None else None
        return TensorList(buffer, length, self.dtype, self.shape, owner=self.sources)


def _handle(value: Any) -> ArrayHandle:
    if not isinstance(value, ArrayHandle):
        raise OpError(f"expected a TensorArray's handle, got {type(value).__name__}")
    return value


def _vector(shape: Any) -> np.ndarray:
    """Return an element shape as an operand of tensor list ops."""
    if shape is None:
        return np.asarray(-1)
    out = np.empty(len(shape), object)
    out[:] = [-1 if d is None else d for d in shape]
    return out


@op("TensorArrayV3", result_size=result_size.count(0))
def tensor_array(
    size: Static,
    *,
    dtype,
    element_shape=None,
    dynamic_size=False,
    clear_after_read=True,
    identical_element_shapes=False,
    tensor_array_name="",
):
    """Make an array of unset elements."""
    (count,) = dims(size)
    handle = ArrayHandle(plain_dtype(dtype), element_shape, count, dynamic_size)
    return handle, handle.contents(None)


def _gradient(handle: Any, flow_in: Any, source: str, prepend: tuple[Any, ...]) -> tuple[ArrayHandle, Any]:
    array = _handle(handle)
    forward = array.contents(flow_in)
    if array.dtype is None:
        count = forward.count if isinstance(forward, VariantRows) else forward.length
        return ArrayHandle(None, None, count, False, (*array.sources, source)), flow_in
    shape = array.shape
    if forward.buffer is not None:
        shape = tuple(forward.buffer.shape[1:])
    elif len(found := {tuple(v.shape) for v in forward.items or () if v is not None}) == 1:
        shape = found.pop()
    shape = None if shape is None else (*prepend, *shape)
    size = forward.capacity if forward.is_traced else forward.length
    return ArrayHandle(array.dtype, shape, size, False, (*array.sources, source)), flow_in


@op("TensorArrayGradV3")
def tensor_array_grad(handle, flow_in, *, source):
    """Make the array that accumulates gradients of an array's elements."""
    return _gradient(handle, flow_in, source, ())


@op("TensorArrayGradWithShape")
def tensor_array_grad_with_shape(handle, flow_in, shape_to_prepend: Static, *, source):
    """Make a gradient array with dimensions before the elements'.

    Args:
      shape_to_prepend: static dimensions before those of the elements.
    """
    return _gradient(handle, flow_in, source, dims(shape_to_prepend))


def _host_write(handle: Any, index: Any, value: Any, flow_in: Any) -> Any:
    if not isinstance(handle, ArrayHandle) or flow_in is UNKNOWN:
        return UNKNOWN
    return lists.host_set(
        handle.contents(flow_in),
        index,
        UNKNOWN,
        element_dtype=handle.dtype,
        resize_if_index_out_of_bounds=handle.dynamic,
    )


@op("TensorArrayWriteV3", fold=partial_fold(_host_write))
def tensor_array_write(handle, index, value, flow_in):
    """Set an element; add to it in a gradient array."""
    array = _handle(handle)
    contents, value = array.contents(flow_in), value if array.dtype is None else jnp.asarray(value)
    if array.sources and not _is_unset(contents, index):
        old = lists.tensor_list_get_item(contents, index, _vector(None), element_dtype=array.dtype)
        value = old.add(value) if array.dtype is None else old + value
    return lists.tensor_list_set_item(
        contents, index, value, element_dtype=array.dtype, resize_if_index_out_of_bounds=array.dynamic
    )


def _is_unset(contents: TensorList, index: Any) -> bool:
    position = static_value(index)
    if contents.items is not None and position is not None:
        return int(position) >= len(contents.items) or contents.items[int(position)] is None
    return contents.packed().buffer is None


@op("TensorArrayReadV3")
def tensor_array_read(handle, index, flow_in, *, dtype):
    """Return an element."""
    array = _handle(handle)
    return lists.tensor_list_get_item(array.contents(flow_in), index, _vector(array.shape), element_dtype=dtype)


@op("TensorArrayGatherV3")
def tensor_array_gather(handle, indices, flow_in, *, dtype, element_shape=None):
    """Stack the elements at ``indices``."""
    array = _handle(handle)
    contents = array.contents(flow_in)
    positions = static_value(indices)
    if array.dtype is None:
        return _gather_rows(contents, positions)
    if positions is not None and not contents.is_traced and isinstance(contents.length, int):
        if positions.size and not (positions.min() >= 0 and positions.max() < contents.length):
            raise OpError(f"index {int(positions.max())} is out of range for an array of {contents.length} elements")
        if contents.buffer is not None and np.array_equal(positions, np.arange(contents.length)):
            return contents.buffer
    shape = element_shape if array.shape is None else array.shape
    return lists.tensor_list_gather(contents, as_array(indices), _vector(shape), element_dtype=dtype)


def _gather_rows(contents: Any, positions: Any) -> Any:
    """Return a vector of variants: all without copies, or single ones."""
    count = contents.count if isinstance(contents, VariantRows) else contents.length
    if positions is None:
        raise OpError("which variants of a TensorArray are gathered depends on data")
    if isinstance(count, int) and np.array_equal(positions, np.arange(count)):
        return lists.tensor_list_stack(contents, _vector(None), element_dtype=None)
    if positions.size and not (positions.min() >= 0 and (not isinstance(count, int) or positions.max() < count)):
        raise OpError(f"index {int(positions.max())} is out of range for an array of {count} elements")
    rows = [lists.tensor_list_get_item(contents, p, _vector(None), element_dtype=None) for p in positions]
    return VariantVector(TensorList(None, len(rows), items=tuple(rows)))


@op("_TensorArrayStack")
def tensor_array_stack(handle, flow_in, *, dtype, element_shape=None, bound: Bound = None):
    """Stack all elements. TF: tf.raw_ops.TensorArrayGatherV3 at ``range(size)``.

    For a dynamic size, see `tensor_list_stack`.

    Returns:
      [size, ...], or a vector of variants.
    """
    array = _handle(handle)
    shape = element_shape if array.shape is None else array.shape
    return lists.tensor_list_stack(array.contents(flow_in), _vector(shape), element_dtype=dtype, bound=bound)


@op("TensorArrayScatterV3")
def tensor_array_scatter(handle, indices, value, flow_in):
    """Set the elements at ``indices``; add to them in a gradient array."""
    array = _handle(handle)
    if isinstance(value, VariantRows | VariantVector):
        return _scatter_rows(array, indices, value, array.contents(flow_in))
    contents, value = array.contents(flow_in).packed().resolved(), jnp.asarray(value)
    if contents.buffer is None:
        empty = jnp.zeros((contents.capacity, *value.shape[1:]), value.dtype)
        contents = contents.with_buffer(empty)
    positions = static_value(indices)
    if positions is not None and positions.size and not contents.is_traced and isinstance(contents.length, int):
        needed = int(positions.max()) + 1
        if positions.min() < 0 or (needed > contents.length and not array.dynamic):
            raise OpError(f"index {needed - 1} is out of range for an array of {contents.length} elements")
        if needed > contents.length:
            contents = contents.with_buffer(resized(contents, needed), needed)
    elif contents.is_traced and array.dynamic and value.shape[0] != 0:
        contents = extended_to(contents, indices)
    if tuple(value.shape[1:]) != tuple(contents.buffer.shape[1:]):
        raise OpError(
            f"elements of shape {list(value.shape[1:])} do not fit an array of {list(contents.buffer.shape[1:])}"
        )
    rows = jnp.asarray(contents.buffer).at[jnp.asarray(indices)]
    rows = rows.add(value, mode="drop") if array.sources else rows.set(value, mode="drop")
    return contents.with_buffer(rows).with_free_slots(contents.free_slots)


def _scatter_rows(array: ArrayHandle, indices: Any, rows: Any, contents: Any) -> Any:
    """Set elements to the rows of a tensor; all of them without copies."""
    positions, count = static_value(indices), rows.shape[0]
    is_all = positions is not None and count == array.size and np.array_equal(positions, np.arange(count))
    if is_all and isinstance(rows, VariantRows) and not array.sources:
        rows = rows.from_tensor()
    else:
        rows = as_list(rows) if isinstance(rows, VariantRows) else rows.rows
    if is_all and (not array.sources or is_unset(contents)):
        return dataclasses.replace(rows, owner=array.sources) if isinstance(rows, TensorList) else rows
    if positions is None:
        raise OpError("variants are put at indices of a TensorArray that depend on data")
    for row, position in enumerate(positions):
        element = lists.tensor_list_get_item(rows, np.int32(row), _vector(None), element_dtype=None)
        contents = tensor_array_write(array, position, element, contents)
    return contents


@op("TensorArrayUnpack")
def tensor_array_unpack(handle, value, flow_in):
    """Set all elements to the rows of a tensor.

    TF: the OpDef TensorArrayUnpack of early TF1 (core/kernels/tensor_array_ops.cc).
    """
    (count,) = np.shape(value)[:1]
    return tensor_array_scatter(handle, np.arange(count, dtype=np.int32), value, flow_in)


@op("TensorArraySplitV3")
def tensor_array_split(handle, value, lengths: Static, flow_in):
    """Set all elements to parts of a tensor, split along its first axis.

    Args:
      lengths: static sizes of the elements; their sum is n.
    """
    array = _handle(handle)
    parts = lists.tensor_list_split(value, _vector(None), lengths, element_dtype=array.dtype)
    contents = array.contents(flow_in)
    if not contents.is_traced and contents.length != parts.length and not array.dynamic:
        raise OpError(f"{parts.length} parts do not fit an array of {contents.length} elements")
    if parts.items is not None:  # of different lengths
        return contents.with_items(parts.items)
    return tensor_array_scatter(array, np.arange(parts.length), parts.buffer, contents)


@op("TensorArrayConcatV3")
def tensor_array_concat(handle, flow_in, *, dtype, element_shape_except0=None):
    """Concatenate the elements along their first axis.

    Returns the elements as one array, and the first dimension of each.
    """
    array = _handle(handle)
    return lists.tensor_list_concat_v2(
        array.contents(flow_in), _vector(array.shape), np.zeros(0, np.int64), element_dtype=dtype
    )


@op("TensorArraySizeV3")
def tensor_array_size(handle, flow_in):
    """Return the number of elements, int32."""
    return tensor_list_length(_handle(handle).contents(flow_in))


@op("TensorArrayCloseV3")
def tensor_array_close(handle):
    """Do nothing: memory is not managed here."""
    return ()
