"""Levenshtein distance of sequences in sparse tensors."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound, is_data_dependent
from tf2jax_lite.dynamic_shapes.provenance import entries, value_of
from tf2jax_lite.dynamic_shapes.tracker import inferred_bound
from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError

from .coo import check_indices


def _sequences(indices: Any, values: Any, width: Any, groups: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the sequences of a sparse tensor as dense rows, and their lengths."""
    total = math.prod(groups)
    flat = jnp.zeros(indices.shape[0], np.int32)
    for axis in range(len(groups)):
        flat = flat * jnp.asarray(groups[axis]).astype(np.int32) + indices[:, axis].astype(np.int32)
    flat = jnp.where(indices[:, 0] < 0, jnp.asarray(total).astype(np.int32), flat)
    lengths = jnp.zeros(total, np.int32).at[flat].add(1, mode="drop")
    # The order of a sequence's entries matters, their column indices do not.
    before = jnp.cumsum(lengths) - lengths
    position = lax.iota(np.int32, indices.shape[0]) - jnp.take(before, flat, mode="fill", fill_value=0)
    rows = jnp.zeros((total, width), values.dtype).at[flat, position].set(values, mode="drop")
    return rows, lengths


def _width(shape: Any, values: Any) -> Any:
    """Return an upper bound of the length of a sequence of a sparse tensor."""
    (last,) = entries(shape, shape.shape[0])[-1:]
    limits = [last.offset if last.is_known else inferred_bound(value_of(last)), values.shape[0]]
    limits = [dim_upper_bound(n) if is_data_dependent(n) else n for n in limits if n is not None]
    limits = [n for n in limits if n is not None]
    if not limits:
        raise OpError("the lengths of the sequences have no upper bound")
    return next((n for n in limits if not isinstance(n, int)), None) or min(limits)


def _groups(*shapes: Any) -> tuple[Any, ...]:
    """Return the leading sizes of sparse tensors of sequences."""
    found = []
    for column in zip(*(entries(shape, shape.shape[0])[:-1] for shape in shapes), strict=True):
        sizes = [entry.offset for entry in column if entry.is_known and not is_data_dependent(entry.offset)]
        if not sizes:
            raise OpError("how many sequences there are must be known while tracing")
        found.append(functools.reduce(max_dim, sizes))
    return tuple(found)


def _levenshtein(a: Any, length_a: Any, b: Any, length_b: Any) -> Any:
    """Return edit distances of rows; a scan over ``a`` updates one table row."""
    width = b.shape[1]
    first = jnp.broadcast_to(lax.iota(np.float32, width + 1), (b.shape[0], width + 1))

    def step(row: Any, given: Any) -> Any:
        i, symbol = given
        changed = row[:, :-1] + (symbol[:, None] != b)
        best = jnp.minimum(row[:, 1:] + 1, changed)
        best = jnp.concatenate([jnp.broadcast_to((i + 1).astype(row.dtype), (b.shape[0], 1)), best], 1)
        # Insertions: the minimum over i <= j of best[i] + (j - i) is a cumulative minimum.
        columns = lax.iota(row.dtype, width + 1)
        new = lax.cummin(best - columns, axis=1) + columns
        new = jnp.where((i < length_a)[:, None], new, row)
        return new, None

    last, _ = scan(step, first, (lax.iota(np.int32, a.shape[1]), a.T))
    return jnp.take_along_axis(last, length_b[:, None], axis=1)[:, 0]


@op("EditDistance")
def edit_distance(
    hypothesis_indices,
    hypothesis_values,
    hypothesis_shape,
    truth_indices,
    truth_values,
    truth_shape,
    *,
    normalize=True,
    bound: Bound,
):
    """Return the Levenshtein distance of pairs of sequences.

    TF: core/kernels/edit_distance_op.cc.

    The number of sequences must be static, their lengths need not be.
    """
    del bound
    check_indices(hypothesis_indices, hypothesis_values, hypothesis_shape)
    check_indices(truth_indices, truth_values, truth_shape)
    ranks = hypothesis_shape.shape[0], truth_shape.shape[0]
    if ranks[0] != ranks[1] or ranks[0] < 1:
        raise OpError(f"sequences of ranks {ranks[0]} and {ranks[1]}")
    groups = _groups(hypothesis_shape, truth_shape)
    hypothesis_values, truth_values = _comparable(hypothesis_values, truth_values)
    widths = _width(hypothesis_shape, hypothesis_values), _width(truth_shape, truth_values)
    a, length_a = _sequences(hypothesis_indices, hypothesis_values, widths[0], groups)
    b, length_b = _sequences(truth_indices, truth_values, widths[1], groups)
    out = _levenshtein(a, length_a, b, length_b)
    if normalize:
        empty = length_b == 0
        scaled = out / jnp.where(empty, 1, length_b)
        out = jnp.where(empty, jnp.where(length_a == 0, 0.0, jnp.inf), scaled)
    return out.astype(np.float32).reshape(groups)


def _comparable(a: Any, b: Any) -> tuple[Any, Any]:
    """Return values as numbers: static strings by rank, as JAX cannot compare them."""
    if getattr(a, "dtype", None) != np.dtype(object):
        return a, b
    _, numbers = np.unique(np.concatenate([a, b]), return_inverse=True)
    return numbers[: len(a)].astype(np.int32), numbers[len(a) :].astype(np.int32)
