"""Ragged tensors as variants, as loops over their rows use them, and conversions.

A vector of them is `RaggedRows`, the components of one ragged tensor, or a `VariantVector`: a list of `Ragged`, as a
loop builds it (`tf.map_fn`). Rows of static length have that size. Where the splits are traced, or one loop runs over
rows of different lengths, the size is dynamic (docs/sizes.md).

TF: core/kernels/ragged_tensor_to_variant_op.cc.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_upper_bound
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common.rows import from_lengths, row_of
from tf2jax_lite.ops.common.variant_rows import (
    VariantRow,
    VariantRows,
    VariantVector,
    concatenate,
    is_variant_row_list,
    pad_or_truncate,
)
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Bound
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import specs
from tf2jax_lite.values.static import as_array, canonical, dims, is_string, static_value
from tf2jax_lite.values.tensor_list import TensorList

from .conversion import check_splits


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class Ragged(VariantRow):
    """One ragged tensor, or a dense one.

    Attributes:
      parts: row splits, outermost first, and the values.
    """

    kind = "ragged tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Return its arrays."""
        return (self.parts, self.counts), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Ragged:
        """Undo `tree_flatten`."""
        del aux
        return cls(*children)

    def zeros_like(self) -> Ragged:
        """Return zeros with the same splits."""
        return Ragged((*self.parts[:-1], jnp.zeros_like(self.parts[-1])), self.counts)

    def add(self, other: Ragged) -> Ragged:
        """Return the sum of two of the same splits; an unset one counts as zeros."""
        a, b = specs.coerce_all([self, other])
        splits = (
            x if static_value(x) is not None else jnp.maximum(x, y) for x, y in zip(a.parts[:-1], b.parts, strict=False)
        )
        counts = None if a.counts is None else tuple(map(jnp.maximum, a.counts, b.counts))
        return Ragged((*splits, jnp.asarray(a.parts[-1]) + b.parts[-1]), counts)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class RaggedRows(VariantRows):
    """The rows of a ragged tensor: a vector of variants, and the list made of it.

    Attributes:
      splits: row splits, outermost first, at least one.
      values: the values.
    """

    splits: tuple[Any, ...]
    values: Any
    kind = "ragged tensor"

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Return its arrays."""
        return (self.splits, self.values), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> RaggedRows:
        """Undo `tree_flatten`."""
        del aux
        return cls(*children)

    @property
    def count(self) -> Any:
        """Number of rows."""
        return self.splits[0].shape[0] - 1

    def row(self, index: Any) -> Ragged:
        """Return a row: not padded if its boundaries are static."""
        position = self.static_index(index)
        splits = [static_value(s) for s in self.splits]
        if position is not None and all(s is not None for s in splits):
            return self._static_row(position, splits)
        index = jnp.asarray(index)
        first, *rest = map(jnp.asarray, self.splits)
        begin, end = (take(first, index + i, 0) for i in (0, 1))
        parts, counts = [], []
        for above, inner in zip(self.splits, rest, strict=False):
            size = _longest(above, inner.shape[0] - 1) + 1
            step = lax.iota(inner.dtype, size)
            from_begin = take(inner, begin, 0)
            parts.append(jnp.where(step <= end - begin, take(inner, begin + step, 0) - from_begin, 0))
            counts.append((end - begin + 1).astype(np.int32))
            begin, end = from_begin, take(inner, end, 0)
        step = lax.iota(begin.dtype, _longest(self.splits[-1], self.values.shape[0]))
        parts.append(take(self.values, jnp.where(step < end - begin, begin + step, -1), 0))
        return Ragged(tuple(parts), (*counts, (end - begin).astype(np.int32)))

    def _static_row(self, position: int, splits: list[Any]) -> Ragged:
        first, *rest = splits
        begin, end = int(first[position]), int(first[position + 1])
        parts = []
        for inner in rest:
            parts.append(inner[begin : end + 1] - inner[begin])
            begin, end = int(inner[begin]), int(inner[end])
        values = self.values
        if isinstance(values, np.ndarray):
            row = values[begin:end]
        elif is_traced(values):
            row = lax.slice_in_dim(values, begin, end)
        else:  # compiled once for all rows of a length
            row = lax.dynamic_slice_in_dim(values, begin, end - begin)
        return Ragged((*parts, row))

    def as_list(self) -> TensorList:
        """Return its rows as a list, packed if their lengths are static and equal."""
        return (self._uniform() if isinstance(self.count, int) else None) or super().as_list()

    def _uniform(self) -> TensorList | None:
        """Return its rows as a packed list if their lengths are static and equal, or None."""
        splits = static_value(self.splits[0])
        if len(self.splits) > 1 or splits is None or len(splits) < 2 or not isinstance(self.values.shape[0], int):
            return None
        sizes = set(np.diff(splits).tolist())
        if len(sizes) > 1:
            return None
        buffer = self.values.reshape((self.count, *sizes, *self.values.shape[1:]))
        return TensorList(Ragged((buffer,)), self.count)

    def from_tensor(self) -> Any:
        """Return TensorListFromTensor: a packed list if its rows have equal lengths."""
        return self._uniform() or self


def _longest(splits: Any, total: Any) -> Any:
    """Return an upper bound of the length of a row, of ``total`` values in all rows."""
    found = static_value(splits)
    return total if found is None else int(np.diff(found).max(initial=0))


_INT64 = np.dtype(np.int64)
_PROBLEM = "how long a row of a ragged tensor is depends on data, or on which iteration of a loop it is"


def _host_to_variant(rt_nested_splits: list[Any], rt_dense_values: Any, *, batched_input: bool) -> Any:
    values = rt_dense_values if is_string(rt_dense_values) else as_array(rt_dense_values)
    return ragged_tensor_to_variant(list(map(as_array, rt_nested_splits)), values, batched_input=batched_input)


@op("RaggedTensorToVariant", fold=_host_to_variant)
def ragged_tensor_to_variant(rt_nested_splits, rt_dense_values, *, batched_input):
    """Make a variant of a ragged tensor, or of each of its rows."""
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


@op("RaggedTensorFromVariant")
def ragged_tensor_from_variant(
    encoded_ragged, *, input_ragged_rank, output_ragged_rank, Tvalues, Tsplits=_INT64, bound: Bound
):
    """Make a ragged tensor of a variant, or of a vector of variants.

    TF: core/kernels/ragged_tensor_from_variant_op.cc.

    Args:
      input_ragged_rank: ragged rank of one variant, or -1.
    """
    rank = _rank(encoded_ragged)
    if input_ragged_rank not in (-1, output_ragged_rank - rank) or output_ragged_rank < rank:
        raise OpError(
            f"a ragged tensor of ragged rank {output_ragged_rank} is to be made of variants of rank {rank} "
            f"that hold ragged rank {input_ragged_rank}"
        )
    inner, dtype = output_ragged_rank - rank, canonical(Tsplits)
    if isinstance(encoded_ragged, Ragged):
        *splits, values = _truncated_parts(encoded_ragged.resolved(), bound)
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
    """Return the rank of a tensor of variants."""
    if isinstance(encoded, Ragged):
        return 0
    if isinstance(encoded, RaggedRows):
        return 1
    if isinstance(encoded, VariantVector) and isinstance(encoded.element, Ragged | None):
        return 1
    raise OpError(f"expected a ragged tensor as a variant, got {type(encoded).__name__}")


def _truncated_parts(value: Ragged, bound: int | DynamicShapes | None) -> list[Any]:
    """Return the parts of a variant truncated to their counts."""
    if value.counts is None:
        return list(value.parts)
    *splits, values = value.parts
    out = []
    for part, count in zip(splits, value.counts, strict=False):
        out.append(from_lengths(_truncate_to_count(part[1:] - part[:-1], count - 1, count, bound)))
    return [*out, _truncate_to_count(values, value.counts[-1], value.counts[-1], bound)]


def _truncate_to_count(x: Any, count: Any, of: Any, bound: int | DynamicShapes | None) -> Any:
    size = row_capacity(bound, x.shape[0], _PROBLEM)
    (x,) = truncate_rows(bound, lambda: count, pad_or_truncate(jnp.asarray(x), size), of=(of,))
    return x


def _joined(vector: TensorList, inner: int, dtype: Any, bound: int | DynamicShapes | None) -> tuple[list[Any], Any]:
    """Return splits and values of the ragged tensor with a list's elements as rows."""
    vector = vector.resolved()
    if vector.is_traced:
        raise OpError("a ragged tensor is made of a list whose length depends on data; give the TensorArray its size")
    if vector.items is None:
        return _from_packed(vector.buffer, vector.length, bound)
    if not vector.items:
        empty = np.zeros(1, canonical(_INT64))
        return [empty] * (inner + 1), np.zeros(0, canonical(dtype))
    if any(item is None for item in vector.items):
        raise OpError("a ragged tensor is made of a list of which elements were never set")
    items = [item.resolved() for item in vector.items if item is not None]
    if any(item.counts is not None for item in items):
        packed = vector.packed()
        return _from_packed(packed.buffer, packed.length, bound)
    if len({len(item.parts) for item in items}) > 1:
        raise OpError("a ragged tensor is made of variants of different ragged ranks")
    columns = list(zip(*(item.parts for item in items), strict=True))
    *columns, values = columns
    if any(not v.ndim for v in values):
        raise OpError("values of a ragged tensor must have a first dimension")
    if len({v.shape[1:] for v in values}) > 1:
        raise OpError(f"rows of values of shapes {[list(v.shape) for v in values]} make no ragged tensor")
    sizes = [len(s) - 1 for s in columns[0]] if columns else [v.shape[0] for v in values]
    splits = [from_lengths(np.asarray(sizes, canonical(_INT64)))]
    splits += [from_lengths(concatenate([s[1:] - s[:-1] for s in column])) for column in columns]
    return splits, concatenate(list(values))


def _from_packed(stacked: Any, length: Any, bound: int | DynamicShapes | None) -> tuple[list[Any], Any]:
    """Return the result of `_joined` for stacked rows."""
    if not isinstance(stacked, Ragged):
        raise OpError("a ragged tensor is made of a list of which elements were never set")
    *columns, values = stacked.parts
    counts = stacked.counts
    if values.ndim < 2:
        raise OpError("values of a ragged tensor must have a first dimension")
    if counts is None:
        sizes = [p.shape[1] - (i < len(columns)) for i, p in enumerate(stacked.parts)]
        if isinstance(length, int) and isinstance(sizes[0], int):
            first: Any = np.arange(length + 1, dtype=canonical(_INT64)) * sizes[0]
        else:
            first = jnp.arange(length + 1) * sizes[0]
        inner = [from_lengths((s[:, 1:] - s[:, :-1]).reshape(-1)) for s in columns]
        return [first, *inner], values.reshape((length * sizes[-1], *values.shape[2:]))
    rows = [count - (i < len(columns)) for i, count in enumerate(counts)]
    inner = [from_lengths(_compacted(s[:, 1:] - s[:, :-1], n, bound)) for s, n in zip(columns, rows, strict=False)]
    return [from_lengths(rows[0]), *inner], _compacted(values, rows[-1], bound)


def _compacted(padded: Any, counts: Any, bound: int | DynamicShapes | None) -> Any:
    """Return the first ``counts`` elements of each padded row, concatenated."""
    rows, width = padded.shape[:2]
    flat = jnp.reshape(padded, (rows * width, *padded.shape[2:]))
    found = static_value(counts)
    if found is not None:
        within = np.arange(width) < found[:, None]
        return take(flat, np.flatnonzero(within), 0)
    size = row_capacity(bound, rows * width, _PROBLEM)
    splits = from_lengths(counts)
    row = row_of(splits, size)
    index = row * width + lax.iota(splits.dtype, size) - take(splits, row, 0)
    values = take(flat, jnp.where(row < rows, index, -1), 0)
    return truncate_rows(bound, lambda: splits[-1], values, of=(counts,))[0]


@op("RaggedTensorToVariantGradient")
def ragged_tensor_to_variant_gradient(encoded_ragged_grad, row_splits, dense_values_shape: Static, *, Tvalues):
    """Return the values of variants that are gradients.

    Elements that were never set are gradients of 0.

    Args:
      dense_values_shape: static shape of its values.
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
    if not is_variant_row_list(encoded):
        return jnp.zeros(shape, dtype)
    splits = static_value(row_splits)
    items = None if encoded.items is None else [item and item.resolved() for item in encoded.items]
    if items is not None and splits is not None and all(item is None or item.counts is None for item in items):
        sizes = np.diff(splits).tolist()
        blanks = (jnp.zeros((size, *shape[1:]), dtype) for size in sizes)
        parts = [v if item is None else item.parts[-1] for item, v in zip(items, blanks, strict=True)]
        return _shaped(concatenate(parts), shape)
    stacked = encoded.packed().checked().buffer
    values = stacked.parts[-1]
    if len(stacked.parts) == 1:
        # The splits give the position of each row, whether it was set or not.
        splits = jnp.asarray(row_splits)
        row = row_of(splits, shape[0])
        index = row * values.shape[1] + lax.iota(splits.dtype, shape[0]) - take(splits, row, 0)
        return take(jnp.reshape(values, (math.prod(values.shape[:2]), *values.shape[2:])), index, 0)
    if stacked.counts is None:
        return jnp.reshape(values, shape)
    size = shape[0] if isinstance(shape[0], int) else dim_upper_bound(shape[0])
    return _shaped(_compacted(values, stacked.counts[-1], size), shape)


def _shaped(values: Any, shape: tuple[Any, ...]) -> Any:
    """Return gradients truncated or padded to the shape of the values."""
    if values.shape[1:] != tuple(shape[1:]) or len(values.shape) != len(shape):
        raise OpError(f"gradients of shape {list(values.shape)} for values of shape {list(shape)}")
    return pad_or_truncate(values, shape[0]) if shape else values
