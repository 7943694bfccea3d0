"""StridedSlice (Python indexing), its gradient, and updates of slices.

Kernel: strided_slice_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length
from tf2jax_lite.dynamic_shapes.provenance import Entry, entries, name_of, value_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, is_size
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.ops.common.static_shape import compatible, is_int, is_zero
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern, Update
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims

from ._slicing import as_int32, dynamic_slice, object_or_array, one_dtype, static_slice, wrapped
from ._strided_spec import Item, Plan, plan_of, plan_of_items, spec_items
from .gather import take


def _padded_for(input: Any, plan: Plan) -> tuple[Any, Plan]:
    """Pad dimensions that may be too short for an index of the plan."""
    starts, limits = list(plan.starts), list(plan.limits)
    for axis, (start, limit) in enumerate(zip(starts, limits, strict=True)):
        size = input.shape[axis]
        if is_int(size) or not start.is_known:
            continue
        if is_int(limit):
            input = ensure_length(input, axis, int(limit))
        elif is_int(size - start.offset):  # a static distance from the end
            more = int(size - start.offset)
            if not _is_positive(start.offset):
                input = lax.pad(
                    input, np.zeros((), input.dtype), [(more if i == axis else 0, 0, 0) for i in range(input.ndim)]
                )
                starts[axis], limits[axis] = Entry(None, start.offset + more), limit + more
    return input, dataclasses.replace(plan, starts=starts, limits=limits)


def _is_positive(start: Any) -> bool:
    try:
        return start >= 0
    except InconclusiveDimensionOperation:
        return False


def _take(input: Any, plan: Plan) -> Any:
    input, plan = _padded_for(input, plan)
    # One slice with the steps and all static bounds; traced starts have step 1.
    full = input.shape
    whole = [not s.is_known or is_zero(n) for s, n in zip(plan.starts, plan.counts, strict=True)]
    low = [0 if w else s.offset for w, s in zip(whole, plan.starts, strict=True)]
    high = [d if w else limit for w, limit, d in zip(whole, plan.limits, full, strict=True)]
    high = [0 if is_zero(n) else limit for n, limit in zip(plan.counts, high, strict=True)]
    if not all(map(is_zero, low)) or tuple(high) != full or not plan.is_contiguous:
        input = static_slice(input, low, high) if plan.is_contiguous else lax.slice(input, low, high, plan.steps)
    if not plan.is_static:
        input = dynamic_slice(input, plan.starts, plan.counts, full)
    if plan.reverse:
        input = lax.rev(input, plan.reverse)
    shape = plan.shaped(input.shape)
    return input if input.shape == shape else lax.reshape(input, shape)


def _fold_strided_slice(
    input: Any,
    begin: Any,
    end: Any,
    strides: Any,
    *,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Any:
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    input = np.asarray(input)
    if input.dtype != object and not all(map(is_int, (*dims(begin), *dims(end)))):
        return strided_slice(
            as_array(input),
            begin,
            end,
            strides,
            begin_mask=begin_mask,
            end_mask=end_mask,
            ellipsis_mask=ellipsis_mask,
            new_axis_mask=new_axis_mask,
            shrink_axis_mask=shrink_axis_mask,
        )
    begin, end = ([Entry(None, d) for d in dims(v)] for v in (begin, end))
    index: list[Any] = []
    for item in spec_items(input.ndim, begin, end, dims(strides), masks):
        first, last = (None if e is None else e.offset for e in (item.begin, item.end))
        if item.kind == "new":
            index.append(None)
        elif item.kind == "shrink":
            index.append(first)
        else:
            index.append(slice(first, last, item.stride))
    try:
        return object_or_array(input[tuple(index)])
    except IndexError as error:
        raise OpError(f"slice index out of bounds: {error}") from error


def _slice_dynamic_ranges(input: Any, items: list[Item], tracker: DynamicShapes) -> tuple[Any, list[Item]]:
    """Slice ranges of data-dependent size; the returned entries select all of them."""
    axis, rest = 0, []
    for item in items:
        begin, end = item.begin, item.end
        is_dynamic = item.kind == "range" and any(e is not None and not e.is_known for e in (begin, end))
        if is_dynamic and not (begin is not None and end is not None and end.minus(begin) is not None):
            if item.stride != 1:
                raise OpError(f"a slice of dimension {axis} with traced bounds and stride {item.stride}")
            input = _slice_dynamic_range(input, axis, begin, end, tracker)
            item = Item("range")
        rest.append(item)
        axis += item.kind != "new"
    return input, rest


def _slice_dynamic_range(input: Any, axis: int, begin: Entry | None, end: Entry | None, tracker: DynamicShapes) -> Any:
    size = input.shape[axis]
    whole = jnp.asarray(size).astype(np.int32)

    def edge(entry: Entry | None, default: Any) -> Any:
        if entry is None:
            return default
        at = as_int32(entry)
        return jnp.clip(jnp.where(at < 0, at + whole, at), 0, whole)

    first, last = edge(begin, np.int32(0)), edge(end, whole)
    low = 0 if begin is None else tracker.dim_of(begin)
    high = size if end is None else tracker.dim_of(end)
    if low is not None and high is not None and all(map(is_size, (low, high - low, size - high))):
        return take(input, lax.iota(np.int32, high - low) + first, axis)
    names = [None if e is None else (name_of(e.base), str(e.offset)) for e in (begin, end)]
    indices = lax.iota(np.int32, size) + first
    return take(input, tracker.prefix(indices, last - first, (str(size), *names), (begin, end)), axis)


@op("StridedSlice", int64="per_word", fold=_fold_strided_slice, pattern=Pattern.INJECTIVE)
def strided_slice(
    input,
    begin,
    end,
    strides: Static,
    *,
    tracker: DynamicShapes | None = None,
    begin_mask=0,
    end_mask=0,
    ellipsis_mask=0,
    new_axis_mask=0,
    shrink_axis_mask=0,
):
    """Slice like Python.

    Traced bounds keep a static size for an index, and for a range whose ends are a static distance apart, such as
    ``x[i:i + 3]``. Out of range the slice is moved inside, where TensorFlow raises for an index, and truncates a range
    (to no elements if it starts below 0 and ends at 0 or above). Other traced ranges have a data-dependent size.

    Args:
      begin: ``[count]``, ints: an entry for each dimension, new axis or ellipsis of the specification.
    """
    input = jnp.asarray(input)
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    count = np.shape(strides)[0]
    items = spec_items(input.ndim, entries(begin, count), entries(end, count), dims(strides), masks)
    if tracker is not None:
        input, items = _slice_dynamic_ranges(input, items, tracker)
    return _take(input, plan_of_items(input.shape, items))


def _inserted(value: Any, plan: Plan) -> Any:
    """Return the value of a slice with the rank and order of the input."""
    value = lax.reshape(value, plan.counts) if value.shape != tuple(plan.counts) else value
    return lax.rev(value, plan.reverse) if plan.reverse else value


def _spread(value: Any, shape: tuple[Any, ...], plan: Plan, fill: Any) -> Any:
    """Return an array of ``fill`` with the value of a static slice at its positions."""
    config = []
    for start, count, step, size in zip(plan.starts, plan.counts, plan.steps, shape, strict=True):
        span = (count - 1) * step + 1 if step > 1 and not is_zero(count) else count
        config.append((start.offset, size - start.offset - span, step - 1))
    return lax.pad(value, fill, config)


def _update(input: Any, value: Any, plan: Plan) -> Any:
    """Return ``input`` with the slice replaced by ``value`` of the slice's shape."""
    if any(map(is_zero, plan.counts)):
        return input
    value = _inserted(value, plan)
    if plan.is_contiguous:
        if tuple(plan.counts) == input.shape and plan.is_static:
            return value
        starts = [
            np.int32(s.offset) if s.is_known and is_int(s.offset) else _traced_start(s, d)
            for s, d in zip(plan.starts, input.shape, strict=True)
        ]
        return lax.dynamic_update_slice(input, value, one_dtype(starts), allow_negative_indices=False)
    if not plan.is_static:
        raise OpError("an update with traced bounds must have stride 1 everywhere")
    inside = _spread(jnp.ones(value.shape, bool), input.shape, plan, np.False_)
    return lax.select(inside, _spread(value, input.shape, plan, np.zeros((), value.dtype)), input)


def _traced_start(entry: Entry, size: Any) -> Any:
    return jnp.asarray(entry.offset, np.int32) if entry.is_known else wrapped(value_of(entry), size)


@op("StridedSliceGrad", pattern=Pattern.INJECTIVE)
def strided_slice_grad(
    shape: Static,
    begin,
    end,
    strides: Static,
    dy,
    *,
    begin_mask=0,
    end_mask=0,
    ellipsis_mask=0,
    new_axis_mask=0,
    shrink_axis_mask=0,
):
    """Return zeros with ``dy`` at the positions of a slice.

    ``shape`` is the shape of the result, a static vector; ``dy`` has the shape of the slice. Other arguments are those
    of `strided_slice`.
    """
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    count = np.shape(strides)[0]
    wanted = dims(shape)
    plan = plan_of(wanted, entries(begin, count), entries(end, count), strides, masks)
    dy = jnp.asarray(dy)
    if not compatible(dy.shape, plan.result):
        raise OpError(f"the value has shape {dy.shape}, the slice {plan.result}")
    zero = np.zeros((), dy.dtype)
    if plan.is_static:
        return _spread(_inserted(dy, plan), wanted, plan, zero)
    return _update(jnp.broadcast_to(zero, wanted), dy, plan)


@op("TensorStridedSliceUpdate", pattern=Pattern.INJECTIVE)
def tensor_strided_slice_update(
    input,
    begin,
    end,
    strides: Static,
    value,
    *,
    begin_mask=0,
    end_mask=0,
    ellipsis_mask=0,
    new_axis_mask=0,
    shrink_axis_mask=0,
):
    """Replace a slice.

    ``value`` broadcasts to the shape of the slice. Other arguments are those of `strided_slice`, with strides of 1 if a
    bound is traced.
    """
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    input = jnp.asarray(input)
    count = np.shape(strides)[0]
    plan = plan_of(input.shape, entries(begin, count), entries(end, count), strides, masks)
    value = jnp.asarray(as_array(value))
    if value.shape != plan.result:
        try:
            value = jnp.broadcast_to(value, plan.result)
        except ValueError as error:
            raise OpError(f"a value of shape {value.shape} does not broadcast to the slice's {plan.result}") from error
    return _update(input, value, plan)


@op("ResourceStridedSliceAssign")
def resource_strided_slice_assign(
    ref: Update,
    begin,
    end,
    strides: Static,
    value,
    *,
    begin_mask=0,
    end_mask=0,
    ellipsis_mask=0,
    new_axis_mask=0,
    shrink_axis_mask=0,
):
    """Replace a slice of a variable.

    ``ref`` is the value of the variable. Other arguments are those of `tensor_strided_slice_update`.
    """
    return tensor_strided_slice_update(
        ref,
        begin,
        end,
        strides,
        value,
        begin_mask=begin_mask,
        end_mask=end_mask,
        ellipsis_mask=ellipsis_mask,
        new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
    )
