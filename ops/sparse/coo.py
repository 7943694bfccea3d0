"""Sparse tensors in coordinate form: indices of shape (entries, rank), values, dense shape.

The number of entries has to be known while tracing; so most ops that choose entries need indices that are known while
tracing (values may be traced), or the config option ``dynamic_shape_bound``; those that merge them do not, where only
what is computed of the result is returned. Results padded to the bound hold -1
in all indices and 0 in the values of what is past the last entry; ops that scatter or gather skip such entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.provenance import entries
from tf2jax_lite.ops.arrays.gather import take
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, canonical, dims, dims_array, known, normalize_axis

_INT64 = np.dtype(np.int64)


def pick(values: Any, places: Any) -> Any:
    """Gathers along the first axis; gives zeros where the place is negative."""
    if isinstance(places, np.ndarray):
        if isinstance(values, np.ndarray):
            out = np.zeros((*places.shape, *values.shape[1:]), values.dtype)
            out[places >= 0] = values[places[places >= 0]]
            return out
        if not (places < 0).any():
            return take(values, places, 0)
    return take(values, jnp.asarray(places), 0)


def check_indices(indices: Any, values: Any, shape: Any) -> None:
    """Refuses a sparse tensor whose parts do not fit each other, as far as they are known."""
    if indices.ndim != 2:
        raise OpError(f"indices must be a matrix, not of rank {indices.ndim}")
    if values is not None and values.ndim != 1:
        raise OpError(f"values must be a vector, not of rank {values.ndim}")
    if values is not None and values.shape[0] != indices.shape[0]:
        raise OpError(f"{indices.shape[0]} indices for {values.shape[0]} values")
    if shape is None:
        return
    limits = dims(shape) if known(shape) is not None else None
    if shape.shape[0] != indices.shape[1]:
        raise OpError(f"indices of rank {indices.shape[1]} in a shape of rank {shape.shape[0]}")
    check_range(indices, limits)


def check_range(indices: Any, limits: Any) -> None:
    """Refuses known index vectors outside of a known shape; rows of padding (-1) are let through."""
    found = known(indices)
    if found is None or limits is None or not found.size or not all(isinstance(d, int) for d in limits):
        return
    bad = np.any((found < 0) | (found >= np.asarray(limits)), axis=1) & ~np.all(found == -1, axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        raise OpError(f"indices[{row}] = {found[row].tolist()} is out of bounds: shape is {list(limits)}")


def _canonical_dims(shape: Any) -> Any:
    """Returns a shape vector in the dtype that shapes have here."""
    found = known(shape)
    return shape if found is None else found.astype(canonical(_INT64)) if found.dtype != object else found


def _inside(indices: Any) -> Any:
    """Tells entries from padding."""
    return indices[:, 0] >= 0 if indices.shape[1] else jnp.ones(indices.shape[0], bool)


def order_of(indices: Any) -> Any:
    """Returns the permutation that puts index vectors in lexicographic order, padding last."""
    found = known(indices)
    if found is not None:
        if found.shape[1] == 0:
            return np.arange(found.shape[0])
        padding = found[:, 0] < 0
        return np.lexsort((*found.T[::-1], padding))
    count, rank = indices.shape
    largest = jnp.iinfo(indices.dtype).max
    first = jnp.where(_inside(indices), indices[:, 0], largest)
    keys = [first, *(indices[:, i] for i in range(1, rank))]
    return lax.sort((*keys, lax.iota(np.int32, count)), num_keys=rank, is_stable=True)[-1]


def scatter_entries(start: Any, indices: Any, updates: Any, kind: str) -> Any:
    """Sets, adds or maximizes entries of a dense array; indices outside of it are dropped."""
    start, updates = jnp.asarray(start), jnp.asarray(updates)
    depth = indices.shape[1]
    if depth == 0 or any(isinstance(d, int) and d == 0 for d in (*start.shape, *updates.shape)):
        if depth == 0 and updates.shape[0] != 0:
            return {"set": lambda: updates[-1], "add": lambda: start + updates.sum(0)}[kind]()
        return start
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, updates.ndim)),
        inserted_window_dims=tuple(range(depth)),
        scatter_dims_to_operand_dims=tuple(range(depth)),
    )
    fold: Any = {"set": lax.scatter, "add": lax.scatter_add, "max": lax.scatter_max}[kind]
    return fold(start, jnp.asarray(indices), updates, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


# ---- products and sums with dense arrays ----


@op("SparseTensorDenseMatMul")
def sparse_tensor_dense_mat_mul(
    a_indices: Any, a_values: Any, a_shape: Static, b: Any, *, adjoint_a: bool = False, adjoint_b: bool = False
) -> Any:
    """Multiplies a sparse matrix by a dense one. See tf.raw_ops.SparseTensorDenseMatMul.

    Traced indices out of range are skipped (an error in TensorFlow on CPU).
    """
    shape = dims(a_shape)
    if len(shape) != 2 or b.ndim != 2:
        raise OpError(f"two matrices are expected, not ranks {len(shape)} and {b.ndim}")
    check_indices(a_indices, a_values, a_shape)
    b = lax.conj(b.T) if adjoint_b and jnp.iscomplexobj(b) else b.T if adjoint_b else b
    a_values = lax.conj(a_values) if adjoint_a and jnp.iscomplexobj(a_values) else a_values
    row, column = (1, 0) if adjoint_a else (0, 1)
    if isinstance(shape[column], int) and isinstance(b.shape[0], int) and shape[column] != b.shape[0]:
        raise OpError(f"cannot multiply: the inner dimensions are {shape[column]} and {b.shape[0]}")
    dtype = jnp.asarray(b).dtype
    # TensorFlow, too, sums 16-bit floats in float32.
    wide = jnp.float32 if dtype in (jnp.bfloat16, jnp.float16) else dtype
    rows = lax.convert_element_type(take(b, jnp.asarray(a_indices[:, column]), 0), wide)
    parts = lax.convert_element_type(a_values, wide)[:, None] * rows
    out = scatter_entries(jnp.zeros((shape[row], b.shape[1]), wide), a_indices[:, row : row + 1], parts, "add")
    return lax.convert_element_type(out, dtype)


@op("SparseTensorDenseAdd")
def sparse_tensor_dense_add(a_indices: Any, a_values: Any, a_shape: Any, b: Any) -> Any:
    """Adds a sparse to a dense tensor. See tf.raw_ops.SparseTensorDenseAdd.

    Traced indices out of range are skipped (an error in TensorFlow).
    """
    check_indices(a_indices, a_values, a_shape)
    found = known(a_shape)
    if a_indices.shape[1] != b.ndim or (
        found is not None and any(isinstance(d, int) and d != s for d, s in zip(b.shape, dims(found), strict=True))
    ):
        raise OpError(f"a dense tensor of shape {b.shape} and a sparse one of shape {found}")
    return scatter_entries(b, a_indices, a_values, "add")


def _dense_parts(sparse_indices: Any, sparse_values: Any, output_shape: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    shape = dims(output_shape)
    indices, values = sparse_indices, sparse_values
    if indices.ndim > 2 or values.ndim > 1 or np.ndim(output_shape) != 1:
        raise OpError("indices must be at most a matrix, values at most a vector, and output_shape a vector")
    if indices.ndim < 2:
        indices = indices.reshape((1, 1) if indices.ndim == 0 else (-1, 1))
    if indices.shape[1] != len(shape):
        raise OpError(f"indices of rank {indices.shape[1]} in a shape of rank {len(shape)}")
    count = indices.shape[0]
    if values.ndim and values.shape[0] != count:
        raise OpError(f"{count} indices for {values.shape[0]} values")
    return indices, values, shape


def _check_unique(indices: Any, validate: bool) -> None:
    """Checks what TensorFlow checks of indices that are known: that they increase."""
    found = known(indices)
    if not validate or found is None or found.shape[0] < 2:
        return
    step = found[1:] - found[:-1]
    first = np.argmax(step != 0, axis=1) if step.shape[1] else np.zeros(len(step), int)
    sign = np.take_along_axis(step, first[:, None], axis=1)[:, 0] if step.shape[1] else first
    if (sign <= 0).any():
        row = int(np.argmax(sign <= 0)) + 1
        raise OpError(f"indices[{row}] = {found[row].tolist()} is repeated or out of order")


def _host_sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any, *, validate_indices: bool = True
) -> Any:
    indices, values, shape = _dense_parts(sparse_indices, sparse_values, output_shape)
    if not all(isinstance(d, int) for d in shape):
        return sparse_to_dense(
            *(as_array(v) for v in (sparse_indices, output_shape, sparse_values, default_value)),
            validate_indices=validate_indices,
        )
    check_range(indices, shape)
    _check_unique(indices, validate_indices)
    out = np.full(shape, default_value, dtype=np.asarray(values).dtype)
    out[tuple(indices.T)] = values
    return out


@op("SparseToDense", host=_host_sparse_to_dense, elements=result_size.from_sizes(1))
def sparse_to_dense(
    sparse_indices: Any, output_shape: Static, sparse_values: Any, default_value: Any, *, validate_indices: bool = True
) -> Any:
    """Makes a dense tensor. See tf.raw_ops.SparseToDense.

    Traced indices are not checked: those out of range are skipped, and a repeated one leaves one of its values.
    """
    indices, values, shape = _dense_parts(sparse_indices, sparse_values, output_shape)
    check_range(indices, shape)
    _check_unique(indices, validate_indices)
    values = jnp.broadcast_to(values, (indices.shape[0],))
    return scatter_entries(jnp.broadcast_to(default_value, shape), indices, values, "set")


def _dense_at(indices: Any, values: Any, shape: Any, dense: Any) -> tuple[Any, Any]:
    """Returns the values, and those of the dense tensor, broadcast, at the same places."""
    check_indices(indices, values, shape)
    rank = indices.shape[1]
    if dense.ndim > rank:
        raise OpError(f"a dense tensor of rank {dense.ndim} does not broadcast to a sparse one of rank {rank}")
    found = known(shape)
    skipped = rank - dense.ndim
    for i, size in enumerate(dense.shape):
        if found is not None and size != 1 and isinstance(size, int) and size != dims(found)[skipped + i]:
            raise OpError(f"a dense tensor of shape {dense.shape} does not broadcast to {list(found)}")
    stretched = np.array([d == 1 for d in dense.shape], bool)
    own = indices[:, skipped:]
    # Padding (-1) must stay out of range.
    places = jnp.where(stretched & (jnp.asarray(own) >= 0), 0, own) if stretched.any() else own
    if dense.ndim == 0:
        return jnp.asarray(values), jnp.broadcast_to(dense, values.shape)
    from tf2jax_lite.ops.arrays.gather import take_nd

    return jnp.asarray(values), take_nd(dense, jnp.asarray(places))


@op("SparseDenseCwiseAdd")
def sparse_dense_cwise_add(sp_indices: Any, sp_values: Any, sp_shape: Any, dense: Any) -> Any:
    """Adds a dense tensor, broadcast, at the entries of a sparse one. See tf.raw_ops.SparseDenseCwiseAdd."""
    return lax.add(*_dense_at(sp_indices, sp_values, sp_shape, dense))


@op("SparseDenseCwiseMul")
def sparse_dense_cwise_mul(sp_indices: Any, sp_values: Any, sp_shape: Any, dense: Any) -> Any:
    """Multiplies the entries of a sparse tensor by a dense one. See tf.raw_ops.SparseDenseCwiseMul."""
    return lax.mul(*_dense_at(sp_indices, sp_values, sp_shape, dense))


@op("SparseDenseCwiseDiv")
def sparse_dense_cwise_div(sp_indices: Any, sp_values: Any, sp_shape: Any, dense: Any) -> Any:
    """Divides the entries of a sparse tensor by a dense one. See tf.raw_ops.SparseDenseCwiseDiv.

    A traced zero gives what division gives (TensorFlow fails for a zero anywhere in the dense tensor).
    """
    found = known(dense)
    if found is not None and (found == 0).any():
        raise OpError("cannot divide by zero, but the dense tensor contains zero")
    return lax.div(*_dense_at(sp_indices, sp_values, sp_shape, dense))


# ---- order and shape ----


def _host_sparse_reorder(input_indices: Any, input_values: Any, input_shape: Any) -> Any:
    check_indices(input_indices, input_values, input_shape)
    order = order_of(input_indices)
    return input_indices[order], input_values[order]


@op("SparseReorder", host=_host_sparse_reorder)
def sparse_reorder(input_indices: Any, input_values: Any, input_shape: Any) -> tuple[Any, Any]:
    """Sorts entries by their index vectors. See tf.raw_ops.SparseReorder."""
    check_indices(input_indices, input_values, input_shape)
    order = order_of(input_indices)
    if isinstance(order, np.ndarray):
        return np.asarray(input_indices)[order], take(input_values, order, 0)
    return take(input_indices, order, 0), take(input_values, order, 0)


def _strides(shape: Any) -> list[Any]:
    """Returns the row-major strides of a shape, as Python numbers if they are known, dimension by dimension."""
    strides: list[Any] = [1]
    for d in reversed(shape[1:]):
        strides.insert(0, strides[0] * d)
    return strides[: len(shape)]


def _product(shape: Iterable[Any]) -> Any:
    total: Any = 1
    for d in shape:
        total = total * d
    return total


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """Returns the entries of a shape: numbers where they are known, traced scalars otherwise."""
    found = known(shape)
    if found is not None:
        return dims(found)
    parts = enumerate(entries(shape, shape.shape[0]))
    return tuple(part.offset if part.is_known else shape[i] for i, part in parts)


def shape_of(sizes: Sequence[Any]) -> Any:
    """Returns a shape as a vector: static if all of its entries are known."""
    dtype = canonical(_INT64)
    if any(isinstance(size, jax.Array) for size in sizes):
        return jnp.stack([_number(size, dtype) for size in sizes])
    return dims_array(sizes, dtype)


def _reshaped(input_shape: Any, new_shape: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if input_shape.ndim != 1 or new_shape.ndim != 1:
        raise OpError("shapes must be vectors")
    old, new = sizes_of(input_shape), list(sizes_of(new_shape))
    unknown = [i for i, d in enumerate(new) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise OpError(f"only one dimension of the new shape may be -1, got {new}")
    total = _product(old)
    if unknown:
        others = _product(d for i, d in enumerate(new) if i != unknown[0])
        if isinstance(others, int) and others == 0:
            raise OpError(f"cannot infer the -1 in {new}: the other dimensions hold no element")
        if isinstance(others, int) and isinstance(total, int) and total % others:
            raise OpError(f"cannot reshape {list(old)} to {new}")
        new[unknown[0]] = total // others
    elif isinstance(total, int) and all(isinstance(d, int) for d in new) and _product(new) != total:
        raise OpError(f"cannot reshape {list(old)} ({total} elements) to {new}")
    elif known(new_shape) is None:
        sizes = jnp.asarray(new_shape)
        others = jnp.prod(jnp.where(sizes == -1, 1, sizes), dtype=sizes.dtype)
        sizes = jnp.where(sizes == -1, _number(total, sizes.dtype) // jnp.maximum(others, 1), sizes)
        new = [d if isinstance(d, int) else sizes[i] for i, d in enumerate(new)]
    return old, tuple(new)


def _number(value: Any, dtype: Any) -> Any:
    return jnp.asarray(value, dtype)


def _host_sparse_reshape(input_indices: Any, input_shape: Any, new_shape: Any) -> Any:
    old, new = _reshaped(input_shape, new_shape)
    if not all(isinstance(d, int) for d in (*old, *new)):
        return sparse_reshape(as_array(input_indices), input_shape, new_shape)
    check_indices(input_indices, None, input_shape)
    flat = input_indices @ np.array(_strides(old), np.int64) if old else np.zeros(len(input_indices), np.int64)
    columns = [flat // s % d for s, d in zip(_strides(new), new, strict=True)] if flat.size else []
    indices = np.stack(columns, 1) if columns else np.zeros((flat.size, len(new)), np.int64)
    indices[input_indices[:, :1].min(1, initial=0) < 0] = -1
    return indices.astype(input_indices.dtype), np.array(new, np.int64)


@op("SparseReshape", host=_host_sparse_reshape, partial=("input_shape", "new_shape"))
def sparse_reshape(input_indices: Any, input_shape: Any, new_shape: Any) -> tuple[Any, Any]:
    """Gives the entries the indices that they have in another shape. See tf.raw_ops.SparseReshape.

    Without ``jax_enable_x64`` the tensor may not have more than 2**31 elements.
    """
    input_shape, new_shape = (v if known(v) is not None else as_array(v) for v in (input_shape, new_shape))
    old, new = _reshaped(input_shape, new_shape)
    check_indices(input_indices, None, input_shape)
    indices = jnp.asarray(input_indices)
    dtype = indices.dtype
    flat = jnp.zeros(indices.shape[0], dtype)
    for i, s in enumerate(_strides(old)):
        flat = flat + indices[:, i] * _number(s, dtype)
    columns = []
    for s, d in zip(_strides(new), new, strict=True):
        # Of a shape without elements there are no entries; only a division by zero has to be kept away.
        stride, size = (jnp.maximum(_number(v, dtype), 1) for v in (s, d))
        columns.append(lax.rem(lax.div(flat, jnp.broadcast_to(stride, flat.shape)), jnp.broadcast_to(size, flat.shape)))
    out = jnp.stack(columns, 1) if columns else jnp.zeros((indices.shape[0], 0), dtype)
    out = jnp.where(_inside(indices)[:, None], out, -1)
    return out, shape_of(new)


def _concat_parts(indices: list[Any], values: list[Any], shapes: list[Any], axis: int) -> tuple[int, list[Any], Any]:
    """Checks; returns the axis, where each part starts along it, and the resulting dimensions."""
    for i, v, s in zip(indices, values, shapes, strict=True):
        check_indices(i, v, s)
    sizes = [sizes_of(s) for s in shapes]
    axis = normalize_axis(axis, len(sizes[0]))
    for other in sizes[1:]:
        if len(other) != len(sizes[0]):
            raise OpError(f"shapes of ranks {len(sizes[0])} and {len(other)}")
        for i, (a, b) in enumerate(zip(sizes[0], other, strict=True)):
            if i != axis and isinstance(a, int) and isinstance(b, int) and a != b:
                raise OpError(f"shapes {list(sizes[0])} and {list(other)} differ outside of dimension {axis}")
    starts: list[Any] = []
    total: Any = 0
    for size in sizes:
        starts.append(total)
        total = total + size[axis]
    return axis, starts, tuple(total if i == axis else d for i, d in enumerate(sizes[0]))


def _host_sparse_concat(indices: list[Any], values: list[Any], shapes: list[Any], *, concat_dim: int) -> Any:
    axis, starts, shape = _concat_parts(indices, values, shapes, concat_dim)
    if not all(isinstance(d, int) for d in (*starts, *shape)):
        return sparse_concat([as_array(i) for i in indices], [as_array(v) for v in values], shapes, concat_dim=axis)
    moved = [i + np.where(np.arange(len(shape)) == axis, s, 0) for i, s in zip(indices, starts, strict=True)]
    joined, flat = np.concatenate(moved).astype(indices[0].dtype), np.concatenate(values)
    order = order_of(joined) if axis else np.arange(len(joined))
    return joined[order], flat[order], np.array(shape, np.int64)


@op("SparseConcat", host=_host_sparse_concat, partial=("shapes",))
def sparse_concat(indices: list[Any], values: list[Any], shapes: list[Any], *, concat_dim: int) -> Any:
    """Joins sparse tensors along a dimension. See tf.raw_ops.SparseConcat."""
    shapes = [s if known(s) is not None else as_array(s) for s in shapes]
    axis, starts, shape = _concat_parts(indices, values, shapes, concat_dim)
    moved = []
    for i, start in zip(indices, starts, strict=True):
        i = jnp.asarray(i)
        own = jnp.arange(i.shape[1]) == axis
        moved.append(i + jnp.where(own & _inside(i)[:, None], _number(start, i.dtype), 0).astype(i.dtype))
    joined, flat = jnp.concatenate(moved), jnp.concatenate([jnp.asarray(v) for v in values])
    order = order_of(joined)
    if axis or any(known(i) is None for i in indices):
        joined, flat = take(joined, order, 0), take(flat, order, 0)
    if any(isinstance(d, jax.Array) for d in shape):
        return joined, flat, jnp.stack([_number(d, canonical(_INT64)) for d in shape])
    return joined, flat, dims_array(shape, canonical(_INT64))
