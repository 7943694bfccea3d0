"""StridedSlice and its relatives."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.errors import OpError

from .registry import Static, op
from .values import Mixed, dims, is_static, known


@dataclasses.dataclass(frozen=True)
class _Item:
    """One entry of a slice specification, in the order of the specification."""

    kind: str  # "new", "shrink", "range", "all"
    begin: Any = None
    end: Any = None
    stride: int = 1


def _items(rank: int, begin: Any, end: Any, strides: Any, masks: tuple[int, int, int, int, int]) -> list[_Item]:
    """Reads a specification; begin and end are sequences of ints, dimension expressions or traced scalars."""
    begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask = masks
    count = len(strides)
    used = sum(1 for i in range(count) if not (new_axis_mask >> i & 1) and not (ellipsis_mask >> i & 1))
    if ellipsis_mask & (ellipsis_mask - 1):
        raise OpError("more than one ellipsis in a slice")
    items: list[_Item] = []
    for i in range(count):
        if ellipsis_mask >> i & 1:
            # New axes that stand after the ellipsis do not take a dimension.
            items.extend([_Item("all")] * (rank - used))
        elif new_axis_mask >> i & 1:
            items.append(_Item("new"))
        elif shrink_axis_mask >> i & 1:
            items.append(_Item("shrink", begin[i]))
        else:
            stride = strides[i]
            if isinstance(stride, int) and stride == 0:
                raise OpError("a slice with stride 0")
            items.append(
                _Item("range", None if begin_mask >> i & 1 else begin[i], None if end_mask >> i & 1 else end[i], stride)
            )
    taken = sum(1 for item in items if item.kind != "new")
    if taken > rank:
        raise OpError(f"a slice of {taken} dimensions of a tensor of rank {rank}")
    return [*items, *[_Item("all")] * (rank - taken)]


def _entries(value: Any) -> Any:
    """Returns the elements of a vector: ints and dimension expressions where they are known, else traced scalars."""
    if isinstance(value, Mixed):
        return tuple(dims(item)[0] if is_static(item) else item for item in value.items)
    found = known(value)
    return value if found is None else dims(found)


def _host(
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
    index: list[Any] = []
    input = np.asarray(input)
    for item in _items(input.ndim, dims(begin), dims(end), dims(strides), masks):
        if item.kind == "new":
            index.append(None)
        elif item.kind == "all":
            index.append(slice(None))
        elif item.kind == "shrink":
            index.append(item.begin)
        else:
            index.append(slice(item.begin, item.end, item.stride))
    try:
        return np.asarray(input[tuple(index)]) if input.dtype != object else _object(input[tuple(index)])
    except IndexError as error:
        raise OpError(f"slice index out of bounds: {error}") from error


def _object(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    out = np.empty((), object)
    out[()] = value
    return out if not isinstance(value, (int, np.integer)) else np.asarray(value, np.int32)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


@op("StridedSlice", host=_host, partial=("begin", "end"))
def strided_slice(
    input: Any,
    begin: Any,
    end: Any,
    strides: Static,
    *,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Any:
    """Slices like Python. A traced index takes one element (clamped into the range). See tf.raw_ops.StridedSlice."""
    input = jnp.asarray(input)
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    items = _items(input.ndim, _entries(begin), _entries(end), dims(strides), masks)
    starts: list[Any] = []
    limits: list[Any] = []
    steps: list[int] = []
    reverse: list[int] = []
    dynamic: list[tuple[int, Any, int]] = []
    axis = 0
    for item in items:
        if item.kind == "new":
            continue
        size = input.shape[axis]
        start, limit, step = 0, size, 1
        if item.kind == "shrink":
            if not isinstance(item.begin, jax.Array):
                if _is_int(size) and _is_int(item.begin) and not -size <= item.begin < size:
                    raise OpError(f"slice index {item.begin} of dimension {axis} out of bounds ({size})")
                at: Any = item.begin
                start = size + at if _is_int(at) and at < 0 else at
                limit = start + 1
            else:
                dynamic.append((axis, item.begin, 1))
        elif item.kind == "range":
            start, limit, step, flipped = _range(item, size, axis, dynamic)
            if flipped:
                reverse.append(axis)
        starts.append(start)
        limits.append(limit)
        steps.append(step)
        axis += 1
    out = input
    if any(not (_is_int(s) and s == 0) for s in starts) or any(s != 1 for s in steps) or limits != list(input.shape):
        out = lax.slice(input, starts, limits, steps)
    for where, first, size in dynamic:
        first = jnp.asarray(first)
        first = jnp.where(first < 0, first + input.shape[where], first)
        out = lax.dynamic_slice_in_dim(out, first, size, where)
    if reverse:
        out = lax.rev(out, reverse)
    shape: list[Any] = []
    axis = 0
    for item in items:
        if item.kind == "new":
            shape.append(1)
            continue
        if item.kind != "shrink":
            shape.append(out.shape[axis])
        axis += 1
    return out if tuple(shape) == out.shape else lax.reshape(out, shape)


def _range(item: _Item, size: Any, axis: int, dynamic: list[Any]) -> tuple[Any, Any, int, bool]:
    begin, end, stride = item.begin, item.end, int(item.stride)
    traced = [v for v in (begin, end) if isinstance(v, jax.Array)]
    if traced:
        raise OpError(
            f"a slice of dimension {axis} with traced bounds has a size that depends on values; use tf.slice with a "
            "known size, or pass the bounds as static arguments"
        )
    if not all(v is None or _is_int(v) for v in (begin, end)) or not _is_int(size):
        return (*_symbolic_range(begin, end, stride, size), False)
    index = range(size)[slice(begin, end, stride)]
    if not len(index):
        return 0, 0, 1, False
    if stride > 0:
        return index[0], index[-1] + 1, stride, False
    return index[-1], index[0] + 1, -stride, True


def _symbolic_range(begin: Any, end: Any, stride: int, size: Any) -> tuple[Any, Any, int]:
    if stride < 0:
        raise OpError("a slice with a negative stride of a symbolic dimension")
    start = 0 if begin is None else (size + begin if _is_int(begin) and begin < 0 else begin)
    limit = size if end is None else (size + end if _is_int(end) and end < 0 else end)
    if isinstance(end, int) and end >= 2**31 - 1:
        limit = size
    return start, limit, stride
