"""tf.raw_ops.Slice (tensorflow/core/kernels/slice_op.cc)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.provenance import Entry, entries, name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError, as_size
from tf2jax_lite.ops.common.static_shape import is_int, is_zero
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims

from ._slicing import as_int32, dynamic_slice, static_slice
from .gather import take


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
