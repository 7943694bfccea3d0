"""Scatters, into tensors and into variables; stitching and partitioning."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.provenance import name_of
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.nonzero import places
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims, is_static, static_value

from .gather import _check_policy, nd_in_range, take

# TensorFlow on CPU fails for an index out of range; its GPU kernels drop it, and so do we inside a trace.
_DROP = lax.GatherScatterMode.FILL_OR_DROP
_SAFE = lax.GatherScatterMode.PROMISE_IN_BOUNDS


def _numbers(operand: Any, indices: Any, updates: Any) -> lax.ScatterDimensionNumbers:
    depth, batch = indices.shape[-1], indices.ndim - 1
    del operand
    return lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(batch, updates.ndim)),
        inserted_window_dims=tuple(range(depth)),
        scatter_dims_to_operand_dims=tuple(range(depth)),
    )


def _call(fn: Any, operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    return fn(operand, indices, updates, _numbers(operand, indices, updates), mode=mode)


# ---- the kinds of update ----


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _put(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    return _call(lax.scatter, operand, indices, updates, mode)


@_put.defjvp
def _put_jvp(mode: Any, primals: Any, tangents: Any) -> Any:
    # The transpose of this is TensorFlow's gradient, also for duplicates: every update gets the gradient of its place.
    operand, indices, updates = primals
    d_operand, _, d_updates = tangents
    lead = operand.shape[: indices.shape[-1]]
    hit = _call(lax.scatter, jnp.zeros(lead, bool), indices, jnp.ones(indices.shape[:-1], bool), mode)
    hit = lax.broadcast_in_dim(hit, operand.shape, tuple(range(len(lead))))
    zeros = jnp.zeros_like(d_operand)
    moved = _call(lax.scatter_add, zeros, indices, d_updates, mode)
    return _put(operand, indices, updates, mode), lax.add(lax.select(hit, zeros, d_operand), moved)


def _update(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    if jnp.issubdtype(operand.dtype, jnp.inexact):
        return _put(operand, indices, updates, mode)
    return _call(lax.scatter, operand, indices, updates, mode)


def _add(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    if operand.dtype == bool:  # addition of booleans is "or"
        wide = lax.convert_element_type(operand, jnp.uint8)
        return _call(lax.scatter_max, wide, indices, lax.convert_element_type(updates, jnp.uint8), mode).astype(bool)
    return _call(lax.scatter_add, operand, indices, updates, mode)


def _sub(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    return _call(lax.scatter_add, operand, indices, lax.neg(updates), mode)


def _mul(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    return _call(lax.scatter_mul, operand, indices, updates, mode)


def _div(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    # One division by the product of an element's divisors: the same but for rounding where indices repeat.
    return lax.div(operand, _call(lax.scatter_mul, lax.full_like(operand, 1), indices, updates, mode))


def _extreme(operand: Any, indices: Any, updates: Any, mode: Any, largest: bool) -> Any:
    if jnp.issubdtype(operand.dtype, jnp.floating):
        # std::max(old, new) keeps the old value if the new one is NaN.
        worst = lax.full_like(updates, -np.inf if largest else np.inf)
        updates = lax.select(lax.ne(updates, updates), worst, updates)
    return _call(lax.scatter_max if largest else lax.scatter_min, operand, indices, updates, mode)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _max_min(operand: Any, indices: Any, updates: Any, mode: Any, largest: bool) -> Any:
    return _extreme(operand, indices, updates, mode, largest)


@_max_min.defjvp
def _max_min_jvp(mode: Any, largest: bool, primals: Any, tangents: Any) -> Any:
    # As in TensorFlow, all that reach the extreme share its gradient.
    operand, indices, updates = primals
    d_operand, _, d_updates = tangents
    out = _max_min(operand, indices, updates, mode, largest)
    mine = lax.convert_element_type(lax.eq(operand, out), out.dtype)
    own = _read(out, indices, mode)
    theirs = lax.convert_element_type(lax.eq(updates, own), out.dtype)
    count = _call(lax.scatter_add, mine, indices, theirs, mode)
    moved = _call(lax.scatter_add, jnp.zeros_like(out), indices, lax.mul(d_updates, theirs), mode)
    return out, lax.div(lax.add(lax.mul(d_operand, mine), moved), count)


def _read(operand: Any, indices: Any, mode: Any) -> Any:
    depth, batch = indices.shape[-1], indices.ndim - 1
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(batch, batch + operand.ndim - depth)),
        collapsed_slice_dims=tuple(range(depth)),
        start_index_map=tuple(range(depth)),
    )
    sizes = (*(1,) * depth, *operand.shape[depth:])
    return lax.gather(operand, indices, numbers, sizes, mode=mode, fill_value=None if mode is _SAFE else 0)


def _max(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    if jnp.issubdtype(operand.dtype, jnp.floating):
        return _max_min(operand, indices, updates, mode, True)
    return _extreme(operand, indices, updates, mode, True)


def _min(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    if jnp.issubdtype(operand.dtype, jnp.floating):
        return _max_min(operand, indices, updates, mode, False)
    return _extreme(operand, indices, updates, mode, False)


# ---- scatters with index vectors ----


def _check(shape: Any, indices: Any, updates: Any) -> None:
    """Checks ranks and shapes the way TensorFlow's kernels do."""
    if indices.ndim == 0 or updates.ndim == 0:
        raise OpError("indices and updates must have at least one dimension")
    depth = indices.shape[-1]
    if not isinstance(depth, (int, np.integer)):
        raise OpError("the last dimension of indices must be known")
    if depth == 0 and 0 not in shape:  # TensorFlow lets nothing be written into nothing
        raise OpError("index vectors are empty")
    if depth > len(shape):
        raise OpError(f"index vectors of length {depth} for a tensor of rank {len(shape)}")
    expected = (*indices.shape[:-1], *shape[depth:])
    fits = len(expected) == updates.ndim and all(
        a == b or not (isinstance(a, (int, np.integer)) and isinstance(b, (int, np.integer)))
        for a, b in zip(expected, updates.shape, strict=True)
    )
    if not fits:
        raise OpError(f"updates must have shape {expected}, not {updates.shape}")


def scatter(kind: Callable[..., Any], operand: Any, indices: Any, updates: Any, policy: str = "") -> Any:
    """Combines updates into a tensor with one of the kinds above.

    An index out of range raises `OpError` if it is known while tracing (and is not to be ignored), and is dropped
    otherwise. Where indices repeat, an update overwrites in order on CPU, in any order on other devices.
    """
    ignore = _check_policy(policy)
    operand, updates = jnp.asarray(as_array(operand)), jnp.asarray(as_array(updates))
    _check(operand.shape, indices, updates)
    if any(d == 0 for d in operand.shape):
        if is_static(indices) and indices.size and updates.ndim == 1 and not ignore:
            raise OpError("indices into an empty tensor")
        return operand
    safe = nd_in_range(indices, operand.shape, ignore)
    return kind(operand, jnp.asarray(as_array(indices)), updates, _SAFE if safe else _DROP)


def _host_scatter(kind: str, operand: np.ndarray, indices: Any, updates: Any, policy: str) -> np.ndarray:
    indices, updates = np.asarray(indices), np.asarray(updates)
    _check(operand.shape, indices, updates)
    if not nd_in_range(indices, operand.shape, _check_policy(policy)):
        inside = np.all((indices >= 0) & (indices < np.asarray(operand.shape[: indices.shape[-1]])), axis=-1)
        indices, updates = indices[inside], updates[inside]
    out = operand.astype(object) if updates.dtype == object else operand.copy()
    place = tuple(np.moveaxis(indices, -1, 0))
    if kind == "update":
        out[place] = updates
    else:
        {"add": np.add, "sub": np.subtract}[kind].at(out, place, updates)
    return out


def _host_tensor_scatter(kind: str) -> Callable[..., np.ndarray]:
    def host(tensor: Any, indices: Any, updates: Any, *, bad_indices_policy: str = "") -> np.ndarray:
        return _host_scatter(kind, np.asarray(tensor), indices, updates, bad_indices_policy)

    return host


def _host_scatter_nd(indices: Any, updates: Any, shape: Any, *, bad_indices_policy: str = "") -> np.ndarray:
    updates = np.asarray(updates)
    zeros = np.zeros(np.asarray(shape).astype(np.int64), updates.dtype)
    return _host_scatter("add", zeros, indices, updates, bad_indices_policy)


@op("ScatterNd", elements=result_size.from_sizes(2), stored=True)
def scatter_nd(indices: Any, updates: Any, shape: Static, *, bad_indices_policy: str = "") -> Any:
    """Adds updates into zeros. See tf.raw_ops.ScatterNd, and `scatter` for indices out of range."""
    updates = jnp.asarray(as_array(updates))
    return scatter(_add, jnp.zeros(dims(shape), updates.dtype), indices, updates, bad_indices_policy)


@op("TensorScatterUpdate", host=_host_tensor_scatter("update"), stored=True)
def tensor_scatter_update(tensor: Any, indices: Any, updates: Any, *, bad_indices_policy: str = "") -> Any:
    """Overwrites slices of a tensor. See tf.raw_ops.TensorScatterUpdate and `scatter`."""
    return scatter(_update, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterAdd", "ScatterNdNonAliasingAdd", host=_host_tensor_scatter("add"), stored=True)
def tensor_scatter_add(tensor: Any, indices: Any, updates: Any, *, bad_indices_policy: str = "") -> Any:
    """Adds updates into a tensor. See tf.raw_ops.TensorScatterAdd and `scatter`."""
    return scatter(_add, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterSub", host=_host_tensor_scatter("sub"), stored=True)
def tensor_scatter_sub(tensor: Any, indices: Any, updates: Any, *, bad_indices_policy: str = "") -> Any:
    """Subtracts updates from a tensor. See tf.raw_ops.TensorScatterSub and `scatter`."""
    return scatter(_sub, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterMax", stored=True)
def tensor_scatter_max(tensor: Any, indices: Any, updates: Any, *, bad_indices_policy: str = "") -> Any:
    """Raises a tensor to updates. See tf.raw_ops.TensorScatterMax and `scatter`."""
    return scatter(_max, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterMin", stored=True)
def tensor_scatter_min(tensor: Any, indices: Any, updates: Any, *, bad_indices_policy: str = "") -> Any:
    """Lowers a tensor to updates. See tf.raw_ops.TensorScatterMin and `scatter`."""
    return scatter(_min, tensor, indices, updates, bad_indices_policy)


# ---- scatters into variables ----

_KINDS = {"Add": _add, "Sub": _sub, "Mul": _mul, "Div": _div, "Max": _max, "Min": _min, "Update": _update}


def _register_variable_scatters(name: str) -> None:
    kind = _KINDS[name]

    def resource_scatter(resource: Any, indices: Any, updates: Any) -> Any:
        resource = jnp.asarray(resource)
        if resource.ndim == 0:
            raise OpError("the variable must have at least one dimension")
        shape = (*indices.shape, *resource.shape[1:])
        updates = jnp.asarray(updates)
        if updates.ndim == 0 and len(shape) > 0:
            updates = jnp.broadcast_to(updates, shape)
        if updates.ndim == 0:  # one index, one element: give both the dimension that index vectors come along
            return scatter(kind, resource, indices[None, None], updates[None])
        return scatter(kind, resource, indices[..., None], updates)

    resource_scatter.__doc__ = f"""Combines updates into rows of a variable. See tf.raw_ops.ResourceScatter{name}."""
    op(f"ResourceScatter{name}", reads=("resource",), writes=("resource",))(resource_scatter)

    if name in ("Mul", "Div"):
        return

    def resource_scatter_nd(ref: Any, indices: Any, updates: Any, *, bad_indices_policy: str = "") -> Any:
        return scatter(kind, ref, indices, updates, bad_indices_policy)

    resource_scatter_nd.__doc__ = f"""Combines updates into a variable. See tf.raw_ops.ResourceScatterNd{name}."""
    op(f"ResourceScatterNd{name}", reads=("ref",), writes=("ref",))(resource_scatter_nd)


for _name in _KINDS:
    _register_variable_scatters(_name)


# ---- stitching and partitioning ----


def _flat_data(indices: list[Any], data: list[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Returns the shape of a row, and the data as lists of rows."""
    rows = []
    element: tuple[Any, ...] | None = None
    for index, value in zip(indices, data, strict=True):
        if tuple(value.shape[: index.ndim]) != tuple(index.shape):
            raise OpError(f"data of shape {value.shape} does not start with the shape {index.shape} of its indices")
        inner = tuple(value.shape[index.ndim :])
        if element is not None and inner != element:
            raise OpError(f"data has rows of shapes {element} and {inner}")
        element = inner
        rows.append(value if index.ndim == 1 else value.reshape((math.prod(index.shape), *inner)))
    return element or (), rows


def _host_stitch(indices: Any, data: Any, *, bound: int | None = None) -> np.ndarray:
    del bound
    indices = [np.asarray(i) for i in indices]
    element, rows = _flat_data(indices, [np.asarray(d) for d in data])
    where = np.concatenate([i.reshape(-1) for i in indices])
    if where.size and where.min() < 0:
        raise OpError(f"index {where.min()} is out of range")
    dtype = object if any(r.dtype == object for r in rows) else rows[0].dtype
    is_text = any(isinstance(v, bytes) for r in rows if r.dtype == object for v in r.flat)
    out = np.full((int(where.max(initial=-1)) + 1, *element), b"" if is_text else 0, dtype)
    for index, row in zip(indices, rows, strict=True):
        out[index.reshape(-1)] = row  # numpy assigns in order: the last one stays
    return out


@op("DynamicStitch", "ParallelDynamicStitch", host=_host_stitch, dynamic_shape="prefix", elements=result_size.stitched)
def dynamic_stitch(indices: list[Any], data: list[Any], *, bound: int | DynamicShapes | None) -> Any:
    """Interleaves rows; a later one replaces an earlier one. See tf.raw_ops.DynamicStitch.

    Rows that no index names are zeros. With traced indices the result has ``bound`` rows (with `DynamicShapes`, up to
    the largest index), and indices beyond it, or negative ones (`dynamic_partition` pads with them), are dropped.
    """
    data = [jnp.asarray(as_array(d)) for d in data]
    element, rows = _flat_data(indices, data)
    values = lax.concatenate(rows, 0) if len(rows) > 1 else rows[0]
    found, is_open = [static_value(i) for i in indices], False
    if all(i is not None for i in found):
        where = np.concatenate([np.asarray(i).reshape(-1) for i in found])
        if where.size and where.min() < 0:
            raise OpError(f"index {where.min()} is out of range")
        size = int(where.max(initial=-1)) + 1
        if where.size == 0:
            return jnp.zeros((0, *element), values.dtype)
        if where.size == size and np.unique(where).size == size:  # a permutation: gather with its inverse
            return take(values, np.argsort(where), 0)
    else:
        where = lax.concatenate([jnp.ravel(i) for i in indices], 0)
        rows_given = [math.prod(i.shape) for i in indices]
        size = bound.split_total(rows_given) if isinstance(bound, DynamicShapes) else None
        if is_open := size is None:
            size = row_capacity(bound, sum(rows_given), "the number of rows depends on traced indices")
    zeros = jnp.zeros((size, *element), values.dtype)
    out = _update(zeros, jnp.asarray(where)[:, None], values, _DROP)
    if isinstance(bound, DynamicShapes) and is_open:
        rows = jnp.max(where, initial=-1) + 1
        return bound.prefix(out, rows, ("stitch", *map(name_of, indices)), indices, is_sure=False)
    if isinstance(bound, DynamicShapes) and jnp.issubdtype(out.dtype, jnp.inexact):
        # More rows than are given: what TensorFlow leaves undefined shows.
        out = jnp.where(jnp.max(where, initial=-1) < size, out, jnp.asarray(jnp.nan, out.dtype))
    return out


@op("DynamicPartition", dynamic_shape="prefix")
def dynamic_partition(data: Any, partitions: Any, *, num_partitions: int, bound: int | DynamicShapes | None) -> Any:
    """Splits rows by a number that each has. See tf.raw_ops.DynamicPartition.

    With traced partitions each result has ``bound`` rows, padded with zeros (-1 for signed integers, so that row
    numbers partitioned alongside drop out of a `dynamic_stitch`); rows with a number out of range are dropped.
    """
    rank = partitions.ndim
    if tuple(data.shape[:rank]) != tuple(partitions.shape):
        raise OpError(f"data of shape {data.shape} does not start with the shape {partitions.shape} of partitions")
    found = static_value(partitions)
    data = jnp.asarray(as_array(data))
    element = data.shape[rank:]
    count = int(found.size) if found is not None else -1
    rows = data if rank == 1 else data.reshape((count if 0 in data.shape else -1, *element))
    if found is not None:
        flat = found.reshape(-1)
        if flat.size and not 0 <= flat.min() <= flat.max() < num_partitions:
            raise OpError(f"partitions must be in [0, {num_partitions}), got {flat.min()} to {flat.max()}")
        return [take(rows, np.flatnonzero(flat == p).astype(np.int32), 0) for p in range(num_partitions)]
    flat = jnp.ravel(partitions)
    sizes: list[Any] = []
    size = row_capacity(bound, flat.shape[0], "the sizes of the partitions depend on traced values")
    out = []
    for p in range(num_partitions):
        where = places(flat == p, size, flat.shape[0])
        (where,) = truncate_rows(bound, functools.partial(jnp.count_nonzero, flat == p), where, of=(partitions, p))
        sizes.append(where.shape[0])
        part = take(rows, where, 0)
        if jnp.issubdtype(part.dtype, jnp.signedinteger):
            pad = (where >= flat.shape[0]).reshape((-1,) + (1,) * len(element))
            part = jnp.where(pad, jnp.asarray(-1, part.dtype), part)
        out.append(part)
    if isinstance(bound, DynamicShapes) and size is flat.shape[0]:
        bound.record_split(sizes, flat.shape[0])
    return out
