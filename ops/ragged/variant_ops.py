"""Ops that put ragged tensors into variants and take them out again, as `tf.map_fn` over ragged tensors does.

Where it is known how long a row is, it has that size. Where the splits depend on data, and where one loop goes over
rows of different lengths, a row has a size that data decides (docs/sizes.md).
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import Extents, cut, most, room
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.row_splits import row_of
from tf2jax_lite.ops.common.variant_rows import VariantVector, is_variant_list, resize
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, is_string, known
from tf2jax_lite.values.tensor_list import TensorList

from .conversion import check_splits
from .variant import Ragged, RaggedRows

__all__: list[str] = []

_INT64 = np.dtype(np.int64)
_PROBLEM = "how long a row of a ragged tensor is depends on data, or on which iteration of a loop it is"


def _host_to_variant(rt_nested_splits: list[Any], rt_dense_values: Any, *, batched_input: bool) -> Any:
    values = rt_dense_values if is_string(rt_dense_values) else as_array(rt_dense_values)
    return ragged_tensor_to_variant(list(map(as_array, rt_nested_splits)), values, batched_input=batched_input)


@op("RaggedTensorToVariant", host=_host_to_variant)
def ragged_tensor_to_variant(rt_nested_splits: list[Any], rt_dense_values: Any, *, batched_input: bool) -> Any:
    """Makes a variant of a ragged tensor, or of each of its rows. See tf.raw_ops.RaggedTensorToVariant."""
    values = rt_dense_values
    if (batched_input or rt_nested_splits) and not values.ndim:
        raise OpError("values of a ragged tensor must have a first dimension")
    check_splits(rt_nested_splits, values.shape[0] if values.ndim else 0)
    if not batched_input:
        return Ragged((*rt_nested_splits, values)).bounded()
    if rt_nested_splits:
        return RaggedRows(tuple(rt_nested_splits), values)
    if values.ndim < 2:
        raise OpError(f"values of rank {values.ndim} have no rows")
    return VariantVector(TensorList(Ragged((values,)), values.shape[0]))


@op("RaggedTensorFromVariant", dynamic_shape="prefix")
def ragged_tensor_from_variant(
    encoded_ragged: Any,
    *,
    input_ragged_rank: int,
    output_ragged_rank: int,
    Tvalues: Any,
    Tsplits: Any = _INT64,
    bound: int | Extents | None,
) -> tuple[list[Any], Any]:
    """Makes a ragged tensor of a variant, or of a vector of them. See tf.raw_ops.RaggedTensorFromVariant."""
    rank = _rank(encoded_ragged)
    if input_ragged_rank not in (-1, output_ragged_rank - rank) or output_ragged_rank < rank:
        raise OpError(
            f"a ragged tensor of ragged rank {output_ragged_rank} is to be made of variants of rank {rank} "
            f"that hold ragged rank {input_ragged_rank}"
        )
    inner, dtype = output_ragged_rank - rank, canonical(Tsplits)
    if isinstance(encoded_ragged, Ragged):
        *splits, values = _cut_parts(encoded_ragged.settled(), bound)
    elif isinstance(encoded_ragged, RaggedRows):
        splits, values = list(encoded_ragged.splits), encoded_ragged.values
    else:
        splits, values = _joined(encoded_ragged.rows, inner, Tvalues, bound)
    if len(splits) != output_ragged_rank:
        raise OpError(f"a ragged tensor of ragged rank {len(splits) - rank} is read as one of {inner}")
    if isinstance(Tvalues, np.dtype) and Tvalues.kind != "O" and canonical(Tvalues) != values.dtype:
        raise OpError(f"a ragged tensor of {values.dtype} is read as one of {canonical(Tvalues)}")
    return [s.astype(dtype) for s in splits], values


def _rank(encoded: Any) -> int:
    """Returns the rank of a tensor of variants."""
    if isinstance(encoded, Ragged):
        return 0
    if isinstance(encoded, RaggedRows):
        return 1
    if isinstance(encoded, VariantVector) and isinstance(encoded.element, Ragged | None):
        return 1
    raise OpError(f"expected a ragged tensor as a variant, got {type(encoded).__name__}")


def _cut_parts(value: Ragged, bound: int | Extents | None) -> list[Any]:
    """Returns the parts of a variant in the sizes that they have."""
    if value.counts is None:
        return list(value.parts)
    *splits, values = value.parts
    out = []
    for part, count in zip(splits, value.counts, strict=False):
        out.append(_splits(_cut_to_count(part[1:] - part[:-1], count - 1, count, bound)))
    return [*out, _cut_to_count(values, value.counts[-1], value.counts[-1], bound)]


def _cut_to_count(x: Any, count: Any, of: Any, bound: int | Extents | None) -> Any:
    size = room(bound, x.shape[0], _PROBLEM)
    (x,) = cut(bound, lambda: count, resize(jnp.asarray(x), size), of=(of,))
    return x


def _splits(lengths: Any) -> Any:
    """Returns the splits of rows of these lengths."""
    if known(lengths) is not None:
        return np.concatenate([[0], np.cumsum(np.asarray(lengths))])
    zero = jnp.zeros(1, lengths.dtype)
    return lax.concatenate([zero, jnp.cumsum(lengths, dtype=lengths.dtype)], 0)


# ---- one ragged tensor of many ----


def _joined(vector: TensorList, inner: int, dtype: Any, bound: int | Extents | None) -> tuple[list[Any], Any]:
    """Returns the splits and values of a ragged tensor whose rows the elements of a list are."""
    vector = vector.settled()
    if vector.is_traced:
        raise OpError("a ragged tensor is made of a list whose length depends on data; give the TensorArray its size")
    if vector.items is None:
        return _of_packed(vector.buffer, vector.length, bound)
    if not vector.items:
        empty = np.zeros(1, canonical(_INT64))
        return [empty] * (inner + 1), np.zeros(0, canonical(dtype))
    if any(item is None for item in vector.items):
        raise OpError("a ragged tensor is made of a list of which elements were never set")
    items = [item.settled() for item in vector.items if item is not None]
    if any(item.counts is not None for item in items):
        packed = vector.packed()
        return _of_packed(packed.buffer, packed.length, bound)
    if len({len(item.parts) for item in items}) > 1:
        raise OpError("a ragged tensor is made of variants of different ragged ranks")
    columns = list(zip(*(item.parts for item in items), strict=True))
    *columns, values = columns
    if any(not v.ndim for v in values):
        raise OpError("values of a ragged tensor must have a first dimension")
    if len({v.shape[1:] for v in values}) > 1:
        raise OpError(f"rows of values of shapes {[list(v.shape) for v in values]} make no ragged tensor")
    sizes = [len(s) - 1 for s in columns[0]] if columns else [v.shape[0] for v in values]
    splits = [_splits(np.asarray(sizes, canonical(_INT64)))]
    splits += [_splits(_concatenated([s[1:] - s[:-1] for s in column])) for column in columns]
    return splits, _concatenated(list(values))


def _concatenated(arrays: list[Any]) -> Any:
    if all(known(v) is not None for v in arrays):
        return np.concatenate(arrays)
    return lax.concatenate([jnp.asarray(v) for v in arrays], 0)


def _of_packed(stacked: Any, length: Any, bound: int | Extents | None) -> tuple[list[Any], Any]:
    """Returns the splits and values of a ragged tensor whose rows are stacked."""
    if not isinstance(stacked, Ragged):
        raise OpError("a ragged tensor is made of a list of which elements were never set")
    *columns, values = stacked.parts
    counts = stacked.counts
    if values.ndim < 2:
        raise OpError("values of a ragged tensor must have a first dimension")
    if counts is None:
        sizes = [p.shape[1] - (i < len(columns)) for i, p in enumerate(stacked.parts)]
        outer = np.arange(length + 1, dtype=canonical(_INT64)) * sizes[0] if _ints(length, sizes[0]) else None
        first = jnp.arange(length + 1) * sizes[0] if outer is None else outer
        inner = [_splits((s[:, 1:] - s[:, :-1]).reshape(-1)) for s in columns]
        return [first, *inner], values.reshape((length * sizes[-1], *values.shape[2:]))
    rows = [count - (i < len(columns)) for i, count in enumerate(counts)]
    inner = [_splits(_compacted(s[:, 1:] - s[:, :-1], n, bound)) for s, n in zip(columns, rows, strict=False)]
    return [_splits(rows[0]), *inner], _compacted(values, rows[-1], bound)


def _ints(*sizes: Any) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _compacted(padded: Any, counts: Any, bound: int | Extents | None) -> Any:
    """Returns the first ``counts`` of each row of a padded array, one after the other."""
    rows, width = padded.shape[:2]
    flat = jnp.reshape(padded, (rows * width, *padded.shape[2:]))
    found = known(counts)
    if found is not None:
        within = np.arange(width) < found[:, None]
        return take(flat, np.flatnonzero(within), 0)
    size = room(bound, rows * width, _PROBLEM)
    splits = _splits(counts)
    row = row_of(splits, size)
    place = row * width + lax.iota(splits.dtype, size) - take(splits, row, 0)
    values = take(flat, jnp.where(row < rows, place, -1), 0)
    return cut(bound, lambda: splits[-1], values, of=(counts,))[0]


# ---- gradients ----


@op("RaggedTensorToVariantGradient")
def ragged_tensor_to_variant_gradient(
    encoded_ragged_grad: Any, row_splits: Any, dense_values_shape: Static, *, Tvalues: Any
) -> Any:
    """Returns the values of variants that are gradients. See tf.raw_ops.RaggedTensorToVariantGradient.

    Elements that were never set are gradients of 0.
    """
    shape, dtype = dims(dense_values_shape), canonical(Tvalues)
    encoded = encoded_ragged_grad
    if isinstance(encoded, Ragged):
        return _shaped(encoded.parts[-1], shape)
    if isinstance(encoded, RaggedRows):
        return _shaped(encoded.values, shape)
    if not isinstance(encoded, VariantVector) or not isinstance(encoded.element, Ragged | None):
        raise OpError(f"expected a vector of ragged tensors, got {type(encoded).__name__}")
    encoded = encoded.rows
    if not is_variant_list(encoded):
        return jnp.zeros(shape, dtype)
    splits = known(row_splits)
    items = None if encoded.items is None else [item and item.settled() for item in encoded.items]
    if items is not None and splits is not None and all(item is None or item.counts is None for item in items):
        sizes = np.diff(splits).tolist()
        blanks = (jnp.zeros((size, *shape[1:]), dtype) for size in sizes)
        parts = [v if item is None else item.parts[-1] for item, v in zip(items, blanks, strict=True)]
        return _shaped(_concatenated(parts), shape)
    stacked = encoded.packed().checked().buffer
    values = stacked.parts[-1]
    if len(stacked.parts) == 1:
        # Rows are where the splits say, whether they were set or not.
        splits = jnp.asarray(row_splits)
        row = row_of(splits, shape[0])
        place = row * values.shape[1] + lax.iota(splits.dtype, shape[0]) - take(splits, row, 0)
        return take(jnp.reshape(values, (math.prod(values.shape[:2]), *values.shape[2:])), place, 0)
    if stacked.counts is None:
        return jnp.reshape(values, shape)
    size = shape[0] if isinstance(shape[0], int) else most(shape[0])
    return _shaped(_compacted(values, stacked.counts[-1], size), shape)


def _shaped(values: Any, shape: tuple[Any, ...]) -> Any:
    """Returns gradients of values in their shape."""
    if values.shape[1:] != tuple(shape[1:]) or len(values.shape) != len(shape):
        raise OpError(f"gradients of shape {list(values.shape)} for values of shape {list(shape)}")
    return resize(values, shape[0]) if shape else values
