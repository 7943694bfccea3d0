"""Feature crosses: products of each row's features of columns (sparse.cross).

The number of features of a row must be static, as it is for dense columns. Integers, and strings formatted from them,
may be traced.

TF: core/kernels/sparse_cross_op.cc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.strings import hashing
from tf2jax_lite.ops.strings.string_ops import as_rows, from_u64, is_text
from tf2jax_lite.ops.traits import Unconverted
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import U64, number, to_u32_pair, wrapping
from tf2jax_lite.values.static import is_static, static_value

_INT64 = np.dtype(np.int64)
_LARGEST = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column: its features, and the row splits of the rows."""

    features: Any
    starts: np.ndarray


def _static(value: Any, what: str) -> np.ndarray:
    found = static_value(value)
    if found is None:
        raise OpError(
            f"{what} must be known while tracing for a feature cross; dense columns, or calls outside jit, may be data"
        )
    return found


def _dense(values: Any) -> _Column:
    if values.ndim != 2:
        raise OpError(f"dense columns are matrices, got shape {tuple(values.shape)}")
    rows, count = values.shape
    if not isinstance(rows, int) or not isinstance(count, int):
        raise OpError(f"the shape {tuple(values.shape)} of a column must be known while tracing for a feature cross")
    return _Column(_flat(values), np.arange(rows + 1) * count)


def _flat(values: Any) -> Any:
    return (
        values.reshape(-1)
        if hasattr(values, "reshape")
        else values.with_data(values.data.reshape(-1, values.data.shape[-1]))
    )


def _sparse(indices: Any, values: Any, shape: Any) -> _Column:
    shape = _static(shape, "the shape of a sparse column")
    if shape.shape != (2,):
        raise OpError(f"sparse columns are matrices, got the shape {shape.tolist()}")
    rows = _static(indices, "the indices of a sparse column")
    if rows.ndim != 2 or rows.shape[-1] != 2 or rows.shape[0] != values.shape[0]:
        raise OpError(f"indices of shape {rows.shape} for values of shape {tuple(values.shape)}")
    return _Column(values, np.searchsorted(rows[:, 0], np.arange(int(shape[0]) + 1)))


def _ragged(values: Any, splits: Any) -> _Column:
    return _Column(values, _static(splits, "the row splits of a ragged column"))


@dataclasses.dataclass(frozen=True)
class _Crosses:
    """Each cross's feature indices, by column, and the number of crosses by row."""

    picks: list[np.ndarray]
    counts: np.ndarray


def _crosses(columns: list[_Column]) -> _Crosses:
    """Enumerate the crosses row by row; the last column's features vary fastest."""
    if not columns:
        raise OpError("there are no columns to cross")
    rows = {len(column.starts) for column in columns}
    if len(rows) > 1:
        raise OpError(f"columns have different numbers of rows: {sorted(n - 1 for n in rows)}")
    sizes = np.stack([np.diff(column.starts) for column in columns], axis=-1).astype(np.int64)
    counts = sizes.prod(axis=-1)
    row = np.repeat(np.arange(len(counts)), counts)
    left = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    picks: list[np.ndarray] = []
    for c in reversed(range(len(columns))):
        mine = np.maximum(sizes[row, c], 1)
        picks.insert(0, columns[c].starts[row] + left % mine)
        left = left // mine
    return _Crosses(picks, counts)


def _hashes(values: Any, salt: tuple[int, int] | None) -> U64:
    """Return the features of a column as 64-bit integers: strings by their hash."""
    if is_text(values):
        rows = as_rows(values)
        return hashing.farm(rows) if salt is None else hashing.sip(rows, salt)
    if salt is not None:  # TensorFlow's kernel reads integers as strings, and crashes
        raise OpError("strong_hash is for columns of strings; make strings of integers (tf.strings.as_string)")
    if is_static(values) and values.dtype.itemsize < 8:
        values = values.astype(np.int64)
    words = to_u32_pair(values)
    return U64(words[..., 0], words[..., 1])


def _picked(value: U64, indices: np.ndarray) -> U64:
    return U64(_rows(value.low, indices), _rows(value.high, indices))


def _rows(value: Any, indices: np.ndarray) -> Any:
    return value[indices] if isinstance(value, np.ndarray) else take(value, indices, 0)


def _hashed(
    columns: list[_Column], crosses: _Crosses, buckets: int, start: int | None, salt: tuple[int, int] | None = None
) -> Any:
    with wrapping():
        features = [_picked(_hashes(c.features, salt), p) for c, p in zip(columns, crosses.picks, strict=True)]
        value = features[0] if start is None else hashing.joined(number(start), features[0])
        for more in features[1:]:
            value = hashing.joined(value, more)
        zero = features[0].low * np.uint32(0)
        return from_u64(U64(value.low + zero, value.high + zero) % (buckets if buckets > 0 else _LARGEST))


def _text(columns: list[_Column], crosses: _Crosses, separator: bytes) -> Any:
    """Return the features of each cross joined as strings, in an object array."""
    parts = []
    for column, picks in zip(columns, crosses.picks, strict=True):
        values = column.features if is_text(column.features) else static_value(column.features)
        if not isinstance(values, np.ndarray):
            raise OpError(
                "columns must be known while tracing for a feature cross into strings; for hashes they may be data"
            )
        parts.append([v if isinstance(v, bytes) else str(int(v)).encode() for v in values[picks]])
    out = np.empty(len(crosses.picks[0]), object)
    out[:] = [separator.join(row) for row in zip(*parts, strict=True)]
    return out


def _as_sparse(values: Any, crosses: _Crosses) -> tuple[Any, Any, Any]:
    """Return indices, values and dense shape."""
    counts = crosses.counts
    row = np.repeat(np.arange(len(counts)), counts)
    order = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([row, order], axis=-1).astype(np.int64), values, np.array([len(counts), max(counts, default=0)])


def _columns(indices: list[Any], values: list[Any], shapes: list[Any], dense_inputs: list[Any]) -> list[_Column]:
    return [*map(_sparse, indices, values, shapes), *map(_dense, dense_inputs)]


@op("SparseCross", int64="pair")
def sparse_cross(
    indices: Unconverted,
    values: Unconverted,
    shapes: Unconverted,
    dense_inputs: Unconverted,
    *,
    hashed_output,
    num_buckets,
    hash_key,
):
    """Cross columns, sparse ones before dense ones, into hashes or strings."""
    columns = _columns(indices, values, shapes, dense_inputs)
    crosses = _crosses(columns)
    if not hashed_output:
        return _as_sparse(_text(columns, crosses, b"_X_"), crosses)
    return _as_sparse(_hashed(columns, crosses, num_buckets, hash_key), crosses)


@op("SparseCrossHashed", int64="pair")
def sparse_cross_hashed(
    indices: Unconverted,
    values: Unconverted,
    shapes: Unconverted,
    dense_inputs: Unconverted,
    num_buckets: Static,
    strong_hash: Static,
    salt: Static,
):
    """Cross columns into hashes; strings by a keyed hash if ``strong_hash``.

    Args:
      num_buckets: scalar, static: hashes are taken modulo this, or 2**63 - 1 if 0.
      strong_hash: scalar bool, static: SipHash instead of FarmHash.
      salt: [2], static: the key of SipHash.
    """
    columns = _columns(indices, values, shapes, dense_inputs)
    crosses = _crosses(columns)
    key = (int(salt[0]), int(salt[1])) if bool(strong_hash) else None
    return _as_sparse(_hashed(columns, crosses, int(num_buckets), None, key), crosses)


@op("SparseCrossV2", int64="pair")
def sparse_cross_v2(
    indices: Unconverted, values: Unconverted, shapes: Unconverted, dense_inputs: Unconverted, sep: Static
):
    """Cross columns into strings, with a separator."""
    columns = _columns(indices, values, shapes, dense_inputs)
    crosses = _crosses(columns)
    return _as_sparse(_text(columns, crosses, sep[()]), crosses)


@op("RaggedCross", int64="pair")
def ragged_cross(
    ragged_values: Unconverted,
    ragged_row_splits: Unconverted,
    sparse_indices: Unconverted,
    sparse_values: Unconverted,
    sparse_shape: Unconverted,
    dense_inputs: Unconverted,
    *,
    input_order,
    hashed_output,
    num_buckets,
    hash_key,
    out_row_splits_type=_INT64,
):
    """Cross columns into ragged rows.

    TF: core/kernels/ragged_cross_op.cc.
    """
    kinds = {
        "R": map(_ragged, ragged_values, ragged_row_splits),
        "S": map(_sparse, sparse_indices, sparse_values, sparse_shape),
        "D": map(_dense, dense_inputs),
    }
    columns = [next(kinds[kind]) for kind in input_order]
    crosses = _crosses(columns)
    splits = np.concatenate([[0], np.cumsum(crosses.counts)]).astype(np.dtype(out_row_splits_type))
    if hashed_output:
        return _hashed(columns, crosses, num_buckets, hash_key), splits
    return _text(columns, crosses, b"_X_"), splits
