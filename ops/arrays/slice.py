"""Slice and StridedSlice (Python indexing), gradients, and updates of slices.

Bounds and dimensions may be symbolic or traced. A specification of StridedSlice (begin, end, strides and five masks, as
in tensorflow/core/util/strided_slice_op.cc) is resolved to one range for each dimension.

Kernels: slice_op.cc, strided_slice_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length, is_data_dependent, min_dim
from tf2jax_lite.dynamic_shapes.dim_expr import Constraint
from tf2jax_lite.dynamic_shapes.provenance import Entry, entries, name_of, value_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError, as_size, is_size
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim
from tf2jax_lite.ops.common.broadcasting import compatible, is_int, is_zero
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims

from .gather import take


def object_or_array(value: Any) -> Any:
    """Return an element that NumPy indexing returned as an array."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (np.generic, bool)):
        return np.asarray(value)
    if is_int(value):
        return np.asarray(value, np.int32)
    out = np.empty((), object)
    out[()] = value
    return out


def as_int32(entry: Entry) -> Any:
    """Return an entry of a vector of bounds as an int32 array."""
    return (jnp.asarray(entry.offset) if entry.is_known else value_of(entry)).astype(np.int32)


def static_slice(input: Any, low: list[Any], high: list[Any]) -> Any:
    """Slice by bounds that are static or symbolic."""
    # Bounds that JAX cannot compare with the size are assumed to be inside, as in TensorFlow.
    try:
        return lax.slice(input, low, high)
    except InconclusiveDimensionOperation:
        pass
    try:
        padded = input
        for axis, end in enumerate(high):
            padded = ensure_length(padded, axis, end) if is_data_dependent(end) else padded
        return lax.slice(padded, low, high)
    except InconclusiveDimensionOperation:
        pass
    at = [jnp.asarray(start, np.int32) for start in low]
    sizes = [end - start for start, end in zip(low, high, strict=True)]
    try:
        return lax.dynamic_slice(input, at, sizes, allow_negative_indices=False)
    except InconclusiveDimensionOperation as error:
        ends = zip(high, input.shape, strict=True)
        needed = [Constraint(full, end) for end, full in ends if is_int(full) and not is_int(end)]
        if not needed:
            raise
        text = f"a slice may not be longer than its operand: of symbolic dimensions, it has to hold that {needed[0]}"
        problem = OpError(text)
        problem.constraint = needed[0]
        raise problem from error


def dynamic_slice(input: Any, starts: list[Entry], sizes: list[Any], full: tuple[Any, ...]) -> Any:
    """Slice at traced starts, which count from the end of ``full`` if negative."""
    at = [np.int32(0) if s.is_known else wrapped(value_of(s), d) for s, d in zip(starts, full, strict=True)]
    wanted = [d if s.is_known else n for s, n, d in zip(starts, sizes, input.shape, strict=True)]
    for axis, (start, size) in enumerate(zip(starts, wanted, strict=True)):
        if not start.is_known and is_int(size):
            input = ensure_length(input, axis, int(size))
    return lax.dynamic_slice(input, one_dtype(at), wanted, allow_negative_indices=False)


def wrapped(index: Any, size: Any) -> Any:
    """Return a traced index, to which the size is added if it is negative."""
    if jnp.issubdtype(index.dtype, jnp.integer) and index.dtype.itemsize < 4:
        index = lax.convert_element_type(index, np.int32)
    zero = jnp.zeros((), index.dtype)
    return lax.select(lax.lt(index, zero), lax.add(index, jnp.asarray(size, index.dtype)), index)


def one_dtype(indices: list[Any]) -> list[Any]:
    """Return indices in their common dtype."""
    dtype = jnp.result_type(*(i.dtype for i in indices))
    return [i.astype(dtype) if isinstance(i, np.generic) else lax.convert_element_type(i, dtype) for i in indices]


def _box(shape: tuple[Any, ...], begin: list[Entry], size: tuple[Any, ...]) -> list[Any]:
    """Return the sizes of a slice, with -1 resolved; check static bounds."""
    if not len(shape) == len(begin) == len(size):
        raise OpError(f"begin and size must have {len(shape)} entries, got {len(begin)} and {len(size)}")
    out = []
    for i, (b, s, d) in enumerate(zip(begin, size, shape, strict=True)):
        if is_int(s) and s == -1:
            if not b.is_known:
                raise _DynamicBoxError(
                    f"size -1 in dimension {i} with a traced 'begin' gives a shape that depends on values"
                )
            s = d - b.offset
        if b.is_known and all(map(is_int, (b.offset, s, d))) and not (0 <= b.offset <= d and 0 <= s <= d - b.offset):
            raise OpError(f"slice of size {s} from {b.offset} reaches out of dimension {i} of size {d}")
        out.append(s)
    return out


def _fold_slice(input: Any, begin: Any, size: Any) -> Any:
    if np.asarray(input).dtype != object and not all(map(is_int, (*dims(begin), *dims(size)))):
        return slice_(as_array(np.asarray(input)), begin, size)
    starts = dims(begin)
    sizes = _box(np.shape(input), [Entry(None, b) for b in starts], dims(size))
    return np.asarray(input)[tuple(slice(b, b + s) for b, s in zip(starts, sizes, strict=True))]


class _DynamicBoxError(UnboundedError):
    """A slice has a data-dependent size."""


@op("Slice", int64="per_word", fold=_fold_slice, pattern=Pattern.INJECTIVE)
def slice_(input, begin, size, *, tracker: DynamicShapes | None = None):
    """Slice a box.

    Args:
      begin: ``[rank]``, ints: the first index in each dimension. If traced and out of range, an error in TensorFlow,
        the box is moved inside, or truncated where its size is data-dependent, too.
      size: ``[rank]``, ints: the number of elements, -1 for all up to the end.
    """
    input = jnp.asarray(input)
    starts, sizes = entries(begin, input.ndim), entries(size, input.ndim)
    if tracker is not None:
        input, starts, sizes = _dynamic_box(input, starts, sizes, tracker)
    if not all(s.is_known for s in sizes):
        raise _DynamicBoxError("the size of a slice depends on values")
    return _take_box(input, starts, _box(input.shape, starts, tuple(s.offset for s in sizes)))


def _dynamic_box(
    input: Any, starts: list[Entry], sizes: list[Entry], tracker: DynamicShapes
) -> tuple[Any, list[Entry], list[Entry]]:
    """Slice data-dependent sizes; the returned starts and sizes select all of them."""
    starts, sizes = list(starts), list(sizes)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        whole = input.shape[axis]
        to_end = size.is_known and is_int(size.offset) and size.offset == -1
        is_dynamic = size.is_known and is_data_dependent(size.offset) and size.offset != whole
        if not (
            not size.is_known or is_dynamic or (to_end and (not start.is_known or is_data_dependent(start.offset)))
        ):
            continue
        first = jnp.clip(as_int32(start), 0, jnp.asarray(whole).astype(np.int32))
        if is_dynamic:
            indices = lax.iota(np.int32, as_size(size.offset)) + first
        else:
            rest = jnp.asarray(whole).astype(np.int32) - first
            count = rest if to_end else as_int32(size)
            count = jnp.minimum(jnp.where(count == -1, rest, count), rest)
            key = (str(whole), *((name_of(e.base), str(e.offset)) for e in (start, size)))
            indices = tracker.prefix(lax.iota(np.int32, whole) + first, count, key, (start, size))
        input = take(input, indices, axis)
        starts[axis], sizes[axis] = Entry(None, 0), Entry(None, -1)
    return input, starts, sizes


def _take_box(input: Any, starts: list[Entry], sizes: list[Any]) -> Any:
    """Slice dimensions with static starts, then the others in one dynamic slice."""
    full = input.shape
    low = [s.offset if s.is_known else 0 for s in starts]
    high = [s.offset + n if s.is_known else d for s, n, d in zip(starts, sizes, full, strict=True)]
    if not all(map(is_zero, low)) or tuple(high) != full:
        input = static_slice(input, low, high)
    return input if all(s.is_known for s in starts) else dynamic_slice(input, starts, sizes, full)


@dataclasses.dataclass(frozen=True)
class Item:
    """An entry of a slice specification, in the order of the specification.

    Attributes:
      kind: "new" (a new dimension), "shrink" (an index, whose dimension is dropped) or "range".
      begin: the index, or the first element of a range; None if masked.
      end: the end of a range; None if masked.
      stride: step of a range.
    """

    kind: str
    begin: Entry | None = None
    end: Entry | None = None
    stride: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """A slice of resolved size, dimension by dimension.

    The elements of dimension i are the ``counts[i]`` numbers ``range(starts[i], limits[i], steps[i])``, in descending
    order if i is in ``reverse``. A traced start has step 1, and its limit is unused. ``layout`` has for each dimension
    of the result its dimension in the input, or None for a new one.
    """

    starts: list[Entry]
    limits: list[Any]
    counts: list[Any]
    steps: list[int]
    reverse: tuple[int, ...]
    layout: tuple[int | None, ...]

    @property
    def result(self) -> tuple[Any, ...]:
        """The shape of the result."""
        return self.shaped(self.counts)

    def shaped(self, sizes: Any) -> tuple[Any, ...]:
        """Return the shape of the result from sizes of the input's dimensions."""
        return tuple(1 if axis is None else sizes[axis] for axis in self.layout)

    @property
    def is_static(self) -> bool:
        """Whether no start is traced."""
        return all(s.is_known for s in self.starts)

    @property
    def is_contiguous(self) -> bool:
        """Whether all steps are 1."""
        return all(s == 1 for s in self.steps)


class Masks(NamedTuple):
    """Masks of a specification; bit i is that of entry i."""

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0


_MASKS = Masks()._asdict()


def spec_items(rank: int, begin: list[Entry], end: list[Entry], strides: tuple[Any, ...], masks: Masks) -> list[Item]:
    """Return the entries of a specification, with the ellipsis expanded."""
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask = masks
    count = len(strides)
    if not len(begin) == len(end) == count:
        raise OpError(f"begin, end and strides must have as many entries, got {len(begin)}, {len(end)} and {count}")
    if ellipsis_mask & (ellipsis_mask - 1):
        raise OpError("more than one ellipsis in a slice")
    taken = sum(1 for i in range(count) if not (new_axis_mask | ellipsis_mask) >> i & 1)
    if taken > rank:
        raise OpError(f"a slice of {taken} dimensions of a tensor of rank {rank}")
    rest = [Item("range")] * (rank - taken)
    items: list[Item] = []
    for i in range(count):
        stride = strides[i]
        if ellipsis_mask >> i & 1:
            items.extend(rest)
            continue
        if new_axis_mask >> i & 1:
            items.append(Item("new"))
            continue
        if not is_int(stride):
            raise OpError("strides must be static integers")
        if stride == 0:
            raise OpError("a slice with stride 0")
        if shrink_axis_mask >> i & 1:
            if stride < 0:
                raise OpError("only stride 1 allowed on non-range indexing")
            items.append(Item("shrink", begin[i]))
        else:
            masked = begin_mask >> i & 1, end_mask >> i & 1
            items.append(Item("range", None if masked[0] else begin[i], None if masked[1] else end[i], int(stride)))
    return items if ellipsis_mask & ((1 << count) - 1) else [*items, *rest]


def plan_of(shape: tuple[Any, ...], begin: list[Entry], end: list[Entry], strides: Any, masks: Masks) -> Plan:
    """Return the plan of a specification for an input of a shape."""
    return plan_of_items(shape, spec_items(len(shape), begin, end, dims(strides), masks))


def plan_of_items(shape: tuple[Any, ...], items: list[Item]) -> Plan:
    """Return the plan of specification entries for an input of a shape."""
    starts: list[Entry] = []
    limits: list[Any] = []
    counts: list[Any] = []
    steps: list[int] = []
    reverse: list[int] = []
    layout: list[int | None] = []
    for item in items:
        if item.kind == "new":
            layout.append(None)
            continue
        axis = len(starts)
        size = shape[axis]
        if item.kind == "shrink":
            start = _index(item.begin, size, axis)
            limit, count = start.offset + 1, 1
        else:
            layout.append(axis)
            start, limit, count = _range(item, size, axis)
            if item.stride < 0:
                reverse.append(axis)
        starts.append(start)
        limits.append(limit)
        counts.append(count)
        steps.append(abs(item.stride))
    return Plan(starts, limits, counts, steps, tuple(reverse), tuple(layout))


def _index(entry: Any, size: Any, axis: int) -> Entry:
    if not entry.is_known:
        return entry
    at = entry.offset
    if is_int(at) and is_int(size) and not -size <= at < size:
        raise OpError(f"slice index {at} of dimension {axis} out of bounds")
    return Entry(None, size + at if is_int(at) and at < 0 else at)


class _DynamicRangeError(UnboundedError):
    """A range has a data-dependent size."""

    def __init__(self, axis: int):
        problem = (
            f"a slice of dimension {axis} with traced bounds has a size that depends on values; use tf.slice with a "
            "static size, or pass the bounds as static arguments"
        )
        super().__init__(problem)


def _range(item: Item, size: Any, axis: int) -> tuple[Entry, Any, Any]:
    """Return a range's lowest element, exclusive upper end, and number of elements."""
    begin, end, stride = item.begin, item.end, item.stride
    if not ((begin is None or begin.is_known) and (end is None or end.is_known)):
        count = end.minus(begin) if begin is not None and end is not None else None
        if count is None or stride != 1:
            raise _DynamicRangeError(axis)
        assert begin is not None
        return begin, None, max_dim(min_dim(count, size), 0)
    first = None if begin is None else begin.offset
    last = None if end is None else end.offset
    if is_int(size) and all(v is None or is_int(v) for v in (first, last)):
        index = range(size)[slice(first, last, stride)]
        if not index:
            return Entry(None, 0), 0, 0
        return Entry(None, min(index[0], index[-1])), max(index[0], index[-1]) + 1, len(index)
    top = size if stride > 0 else size - 1
    bottom = 0 if stride > 0 else -1

    def bound(value: Any) -> Any:
        if is_int(value):
            if value >= 0:
                return top if value >= 2**31 - 1 else min_dim(value, top)
            return max_dim(size + value, bottom)
        return min_dim(value, top)  # a dimension expression: assumed to be non-negative

    if stride > 0:
        low = 0 if first is None else bound(first)
        high = top if last is None else bound(last)
        high = high if is_zero(low) else max_dim(high, low)
        return Entry(None, low), high, -(-(high - low) // stride)
    high = top if first is None else bound(first)
    low = bottom if last is None else bound(last)
    count = -(-max_dim(high - low, 0) // -stride)
    return Entry(None, high + (count - 1) * stride), high + 1, count


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


def _fold_strided_slice(input: Any, begin: Any, end: Any, strides: Any, **masks: int) -> Any:
    input = np.asarray(input)
    if input.dtype != object and not all(map(is_int, (*dims(begin), *dims(end)))):
        return strided_slice(input=as_array(input), begin=begin, end=end, strides=strides, **masks)
    begin, end = ([Entry(None, d) for d in dims(v)] for v in (begin, end))
    index: list[Any] = []
    for item in spec_items(input.ndim, begin, end, dims(strides), Masks(**masks)):
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


@op(
    "StridedSlice",
    inputs="input begin end strides:Static",
    attributes={"tracker:DynamicShapes": None, **_MASKS},
    int64="per_word",
    fold=_fold_strided_slice,
    pattern=Pattern.INJECTIVE,
)
def strided_slice(*, input, begin, end, strides, tracker=None, **masks):
    """Slice like Python.

    Traced bounds keep a static size for an index, and for a range whose ends are a static distance apart, such as
    ``x[i:i + 3]``. Out of range the slice is moved inside, where TensorFlow raises for an index, and truncates a range
    (to no elements if it starts below 0 and ends at 0 or above). Other traced ranges have a data-dependent size.

    Args:
      begin: ``[count]``, ints: an entry for each dimension, new axis or ellipsis of the specification.
    """
    input = jnp.asarray(input)
    count = np.shape(strides)[0]
    items = spec_items(input.ndim, entries(begin, count), entries(end, count), dims(strides), Masks(**masks))
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


@op(
    "StridedSliceGrad",
    inputs="shape:Static begin end strides:Static dy",
    attributes=_MASKS,
    pattern=Pattern.INJECTIVE,
)
def strided_slice_grad(*, shape, begin, end, strides, dy, **masks):
    """Return zeros with ``dy`` at the positions of a slice.

    ``shape`` is the shape of the result, a static vector; ``dy`` has the shape of the slice. Other arguments are those
    of `strided_slice`.
    """
    count = np.shape(strides)[0]
    wanted = dims(shape)
    plan = plan_of(wanted, entries(begin, count), entries(end, count), strides, Masks(**masks))
    dy = jnp.asarray(dy)
    if not compatible(dy.shape, plan.result):
        raise OpError(f"the value has shape {dy.shape}, the slice {plan.result}")
    zero = np.zeros((), dy.dtype)
    if plan.is_static:
        return _spread(_inserted(dy, plan), wanted, plan, zero)
    return _update(jnp.broadcast_to(zero, wanted), dy, plan)


@op(
    "TensorStridedSliceUpdate",
    inputs="input begin end strides:Static value",
    attributes=_MASKS,
    pattern=Pattern.INJECTIVE,
)
def tensor_strided_slice_update(*, input, begin, end, strides, value, **masks):
    """Replace a slice.

    ``value`` broadcasts to the shape of the slice. Other arguments are those of `strided_slice`, with strides of 1 if a
    bound is traced.
    """
    input = jnp.asarray(input)
    count = np.shape(strides)[0]
    plan = plan_of(input.shape, entries(begin, count), entries(end, count), strides, Masks(**masks))
    value = jnp.asarray(as_array(value))
    if value.shape != plan.result:
        try:
            value = jnp.broadcast_to(value, plan.result)
        except ValueError as error:
            raise OpError(f"a value of shape {value.shape} does not broadcast to the slice's {plan.result}") from error
    return _update(input, value, plan)


@op("ResourceStridedSliceAssign", inputs="ref:Update begin end strides:Static value", attributes=_MASKS)
def resource_strided_slice_assign(*, ref, **operands):
    """Replace a slice of a variable, as `tensor_strided_slice_update`."""
    return tensor_strided_slice_update(input=ref, **operands)
