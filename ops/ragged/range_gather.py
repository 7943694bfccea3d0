"""Ranges, repetition and gathering of ragged tensors: values with row splits.

The number of values must be static or bounded. Results padded to the config option ``dynamic_shape_bound`` have row
splits that end where their values end; padding is 0.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.row_bounds import range_length_bound, total_length_bound
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, inferred_bound, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.rows import array_module, row_of, search
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.sparse.coo import pick
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

_INT64 = np.dtype(np.int64)


def _host_counts(starts: Any, limits: Any, deltas: Any) -> np.ndarray:
    if (deltas == 0).any():
        raise OpError("a step must not be 0")
    if np.issubdtype(starts.dtype, np.integer):
        gap = np.where(deltas > 0, limits - starts, starts - limits).astype(np.int64)
        return np.maximum(-(-gap // np.abs(deltas).astype(np.int64)), 0)
    with np.errstate(invalid="ignore"):
        counts = np.ceil(np.abs((limits - starts) / deltas).astype(np.float64))
    empty = np.where(deltas > 0, starts >= limits, starts <= limits)
    if not np.isfinite(counts[~empty]).all():
        raise OpError("a range without end")
    return np.where(empty, 0, counts).astype(np.int64)


def _host_values(starts: Any, deltas: Any, counts: np.ndarray) -> np.ndarray:
    mask = np.arange(int(counts.max(initial=0))) < counts[:, None]
    # TensorFlow adds the step repeatedly; so the rounding is that of a cumulative sum.
    steps = np.empty(mask.shape, starts.dtype)
    steps[:] = deltas[:, None]
    steps[:, :1] = starts[:, None]
    return np.add.accumulate(steps, axis=1, dtype=starts.dtype)[mask]


@op("RaggedRange")
def ragged_range(starts, limits, deltas, *, Tsplits=_INT64, bound: Bound):
    """Return a row of numbers for each start, limit and step.

    TF: core/kernels/ragged_range_op.cc.

    Args:
      deltas: scalar or [rows], not 0.

    Returns:
      Row splits [rows + 1] and values.
    """
    sizes = {v.shape[0] for v in (starts, limits, deltas) if v.ndim == 1}
    if any(v.ndim > 1 for v in (starts, limits, deltas)) or len(sizes) > 1:
        raise OpError("starts, limits and deltas must be scalars or vectors of one length")
    rows = sizes.pop() if sizes else 1
    if array_module(starts, limits, deltas) is np:
        starts, limits, deltas = (np.broadcast_to(v, rows) for v in (starts, limits, deltas))
        counts = _host_counts(starts, limits, deltas)
        splits = np.concatenate([[0], np.cumsum(counts)]).astype(Tsplits)
        return splits, _host_values(starts, deltas, counts)
    of = (starts, limits, deltas)
    limit, steps, begin = None, static_value(deltas), static_value(starts)
    starts, limits, deltas = (jnp.broadcast_to(v, (rows,)) for v in of)
    if jnp.issubdtype(starts.dtype, jnp.integer):
        if begin is not None and not begin.any() and steps is not None and (steps > 0).all():
            limit = total_length_bound(limits)
        elif steps is not None and (steps > 0).all():
            limit = range_length_bound(starts, limits)
        elif steps is not None and (steps < 0).all():
            limit = range_length_bound(limits, starts)
        counts = -((starts - limits) // deltas)
    else:
        counts = jnp.ceil((limits - starts) / deltas)
    size = row_capacity(bound, limit, "the number of values depends on traced starts, limits or deltas")
    counts = jnp.maximum(counts, 0).astype(canonical(Tsplits))
    splits = _clamp_splits(jnp.concatenate([jnp.zeros(1, counts.dtype), jnp.cumsum(counts)]), limit, bound)
    row = row_of(splits, size)
    step = jnp.arange(size, dtype=splits.dtype) - take(splits, row, 0)
    values = take(starts, row, 0) + step.astype(starts.dtype) * take(deltas, row, 0)
    values = jnp.where(row < rows, values, jnp.zeros((), values.dtype))
    return splits, *truncate_rows(bound, lambda: splits[-1], values, of=of)


@op("_Repeat")
def repeat(data, repeats, likes, pairs, *, Tparams=None, bound: Bound):
    """Repeat each entry of ``data`` as often as ``repeats`` says.

    TF: `tf.repeat`; `passes.optimize.repeat_idiom` makes the node.

    Axes up to the last one of ``repeats`` are flattened. Padding is -1 for signed integers, which is in no segment and
    gathers zeros; else 0.
    """
    rank = repeats.ndim
    if data.shape[:rank] != repeats.shape:
        raise OpError(f"counts of shape {repeats.shape} do not fit data of shape {data.shape}")
    rest = data.shape[rank:]
    if isinstance(repeats, np.ndarray):
        indices = np.repeat(np.arange(repeats.size), np.maximum(repeats, 0).reshape(-1))
        flat = array_module(data).reshape(data, (repeats.size, *rest))
        return flat[indices] if isinstance(flat, np.ndarray) else take(flat, indices, 0)
    lengths = [like.shape[0] for like in likes if like.ndim]
    lengths += [a.shape[0] for a, b in _pairs(pairs) if rank == 1 and a.ndim == b.ndim > 0 and a.shape[0] != 1]
    problem = "how many values come out depends on traced counts"
    size = lengths[0] if lengths else row_capacity(bound, _sum_bound(repeats), problem)
    counts = jnp.maximum(jnp.reshape(jnp.asarray(repeats), (-1,)), 0)
    data = jnp.reshape(jnp.asarray(data), (counts.shape[0], *rest))
    fill = -1 if jnp.issubdtype(data.dtype, jnp.signedinteger) else 0
    data = jnp.concatenate([data, jnp.full((1, *rest), fill, data.dtype)])
    ends = jnp.cumsum(counts)
    indices = search(ends, lax.iota(counts.dtype, size), "right")
    if not lengths:
        (indices,) = truncate_rows(bound, lambda: jnp.sum(counts), indices, of=(repeats,))
    return take(data, indices, 0)


def _sum_bound(counts: Any) -> Any:
    """Return an upper bound of the sum of counts, None if there is none."""
    if counts.ndim == 1:
        return total_length_bound(counts)
    largest = inferred_bound(counts)
    return None if largest is None else largest * math.prod(counts.shape)


def _clamp_splits(splits: Any, limit: Any, bound: int | DynamicShapes | None) -> Any:
    """Return row splits clamped to a bound, so that interval analysis infers it."""
    is_tracked = isinstance(bound, DynamicShapes) and limit is not None
    return jnp.minimum(splits, jnp.asarray(limit, splits.dtype)) if is_tracked else splits


def _gathered_bound(splits: Any, rows: Any) -> Any:
    """Return an upper bound of the number of gathered values, or None."""
    total, found = inferred_bound(splits), static_value(rows)
    if total is None:
        return None
    times = rows.shape[0] if found is None else int(np.unique(found, return_counts=True)[1].max(initial=0))
    return total * times


def _pairs(flat: list[Any]) -> Any:
    return zip(flat[::2], flat[1::2], strict=True)


def _expand(splits: Any, rows: Any, bound: int | DynamicShapes | None) -> tuple[Any, Any]:
    """Return splits of gathered rows, and indices of their values (-1: padding)."""
    if array_module(splits, rows) is np:
        lengths = np.where(rows >= 0, (splits[1:] - splits[:-1])[rows], 0)
        begin = splits[:-1][rows]
        out = np.concatenate([[0], np.cumsum(lengths)]).astype(splits.dtype)
        inner = np.arange(int(out[-1])) + np.repeat(begin - out[:-1], lengths)
        return out, inner.astype(splits.dtype)
    splits = jnp.asarray(splits)
    limit = _gathered_bound(splits, rows)
    size = row_capacity(bound, limit, "how much is gathered depends on traced indices or splits")
    of = (splits, rows)
    lengths = pick(splits[1:] - splits[:-1], rows)
    out = jnp.concatenate([jnp.zeros(1, splits.dtype), jnp.cumsum(lengths, dtype=splits.dtype)])
    out = _clamp_splits(out, limit, bound)
    row = row_of(out, size)
    begin = take(pick(splits[:-1], rows), row, 0)
    inner = begin + jnp.arange(size, dtype=splits.dtype) - take(out, row, 0)
    return out, *truncate_rows(bound, lambda: out[-1], jnp.where(row < out.shape[0] - 1, inner, -1), of=of)


@op("RaggedGather")
def ragged_gather(params_nested_splits, params_dense_values, indices, *, OUTPUT_RAGGED_RANK, bound: Bound):
    """Gather rows of a ragged tensor.

    TF: core/kernels/ragged_gather_op.cc.

    Traced indices out of range give empty rows (an error in TensorFlow).
    """
    if len(params_nested_splits) + indices.ndim - 1 != OUTPUT_RAGGED_RANK:
        raise OpError(f"the ragged rank of the result cannot be {OUTPUT_RAGGED_RANK}")
    first = params_nested_splits[0]
    if first.shape[0] == 0:
        raise OpError("splits must not be empty")
    count = first.shape[0] - 1
    found = static_value(indices)
    if found is not None and found.size and not 0 <= found.min() <= found.max() < count:
        raise OpError(f"index {found.min() if found.min() < 0 else found.max()} is out of range [0, {count})")
    out: list[Any] = []
    # Dimensions of the indices are uniform; all but the last need splits.
    for i in range(indices.ndim - 1):
        size = int(np.prod(indices.shape[: i + 1]))
        out.append(np.arange(size + 1, dtype=canonical(first.dtype)) * indices.shape[i + 1])
    rows = indices.reshape(-1)
    if found is None:
        rows = jnp.where((rows >= 0) & (rows < count), rows, -1)
    for splits in params_nested_splits:
        inner_splits, rows = _expand(splits, rows, bound)
        out.append(inner_splits)
    if not indices.ndim:
        out = out[1:]  # a scalar index removes the dimension
    return out, pick(params_dense_values, rows)
