"""Xla* ops with a function argument, and collectives on a single device.

A function is a Python callable of arrays that returns a list of results. If its jaxpr is one primitive, JAX's
specialized op is used, which is faster and differentiable.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Option, Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims, static_value

from .protos import fields, scatter_fields

Function = Callable[..., list[Any]]

_WRAPPERS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
_COMMUTATIVE = ("add", "mul", "max", "min", "and", "or")


def plain_name(fn: Function, *dtypes: Any) -> str:
    """Return the primitive of arguments in order, or the argument, of a function."""
    scalars = [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]
    try:
        jaxpr = jax.make_jaxpr(lambda *args: [jnp.asarray(v) for v in fn(*args)])(*scalars).jaxpr
    except Exception:  # its error is raised, with the position in the graph, where it is called
        return ""
    return _plain_name(jaxpr)


def _plain_name(jaxpr: Any) -> str:
    if len(jaxpr.outvars) != 1 or len(jaxpr.invars) < 2:
        return ""
    out, given = jaxpr.outvars[0], list(jaxpr.invars[:2])
    if not jaxpr.eqns:
        return "first" if out is given[0] else "second" if out is given[1] else ""
    if len(jaxpr.eqns) != 1:
        return ""
    (eqn,) = jaxpr.eqns
    if len(eqn.outvars) != 1 or eqn.outvars[0] is not out:
        return ""
    name = eqn.primitive.name
    ordered = [v is g for v, g in zip(eqn.invars, given, strict=False)] == [True, True] and len(eqn.invars) == 2
    if name in _WRAPPERS:
        inner = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in eqn.params), None)
        return _plain_name(getattr(inner, "jaxpr", inner)) if inner is not None and ordered else ""
    swapped = name in _COMMUTATIVE and len(eqn.invars) == 2 and set(map(id, eqn.invars)) == set(map(id, given))
    return name if ordered or swapped else ""


_FOLD: dict[str, Any] = {
    "add": lax.add,
    "mul": lax.mul,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
}


def _identity(name: str, dtype: Any) -> np.ndarray | None:
    """Return the identity element of a reduction, None if it has none."""
    dtype = np.dtype(dtype)
    if name in ("add", "mul"):
        return np.asarray(0 if name == "add" else 1, dtype)
    if name in ("and", "or"):
        if dtype == np.bool_:
            return np.asarray(name == "and")
        return np.asarray(-1 if name == "and" and dtype.kind == "i" else 0 if name == "or" else ~dtype.type(0), dtype)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return None
    if dtype == np.bool_:
        return np.asarray(name == "min")
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(-np.inf if name == "max" else np.inf, dtype)
    info = np.iinfo(dtype)
    return np.asarray(info.min if name == "max" else info.max, dtype)


def _same(a: Any, b: np.ndarray) -> bool:
    found = static_value(a)
    return found is not None and bool(found == b)


# ---- reductions ----


def _check_reduction(operands: list[Any], inits: list[Any], axes: tuple[int, ...]) -> None:
    rank = operands[0].ndim
    if any(v.ndim for v in inits):
        raise OpError("initial values must be scalars")
    if any(not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
        raise OpError(f"cannot reduce dimensions {list(axes)} of a tensor of rank {rank}")


@op("XlaReduce", pattern=Pattern.MATERIALIZED)
def xla_reduce(input, init_value, *, dimensions_to_reduce, reducer):
    """Reduce dimensions by a function.

    TF: compiler/tf2xla/kernels/xla_reduce_op.cc.
    """
    axes = tuple(dimensions_to_reduce)
    _check_reduction([input], [init_value], axes)
    x, init = jnp.asarray(input), jnp.asarray(init_value)
    name = plain_name(reducer, x.dtype, x.dtype)
    start = _identity(name, x.dtype) if name in _FOLD else None
    if start is None:
        return lax.reduce(x, init, lambda a, b: reducer(a, b)[0], axes)
    out = lax.reduce(x, start, _FOLD[name], axes)
    return out if _same(init_value, start) else _FOLD[name](out, jnp.broadcast_to(init, out.shape))


def _variadic_reduce(
    inputs: list[Any], init_values: list[Any], dimensions_to_reduce: list[int], reducer: Function
) -> list[Any]:
    axes = tuple(dimensions_to_reduce)
    _check_reduction(inputs, init_values, axes)
    arrays, inits = [jnp.asarray(v) for v in inputs], [jnp.asarray(v) for v in init_values]
    out = lax.reduce(tuple(arrays), tuple(inits), lambda a, b: tuple(reducer(*a, *b)), axes)
    return list(out)


@op("XlaVariadicReduce", pattern=Pattern.MATERIALIZED)
def xla_variadic_reduce(input, init_value, *, dimensions_to_reduce, reducer):
    """Reduce several tensors together by a function."""
    return _variadic_reduce(input, init_value, dimensions_to_reduce, reducer)


@op("XlaVariadicReduceV2", pattern=Pattern.MATERIALIZED)
def xla_variadic_reduce_v2(inputs, init_values, *, dimensions_to_reduce, reducer):
    """Reduce several tensors together by a function."""
    return _variadic_reduce(inputs, init_values, dimensions_to_reduce, reducer)


_CUMULATIVE: dict[str, Any] = {"add": lax.cumsum, "mul": lax.cumprod, "max": lax.cummax, "min": lax.cummin}


def _pairs(padding: Any) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in np.asarray(padding).reshape(-1, 2)]


def _cumulative(shape: Any, window: Any, strides: Any, dilated: bool, padding: Any) -> tuple[int, bool] | None:
    """Return axis and direction if a window is a cumulative reduction, else None."""
    extended = [i for i, w in enumerate(window) if w != 1]
    if dilated or len(extended) != 1 or any(s != 1 for s in strides):
        return None
    (axis,) = extended
    if any(p != (0, 0) for i, p in enumerate(padding) if i != axis) or shape[axis] != window[axis]:
        return None
    if padding[axis] == (window[axis] - 1, 0):
        return axis, False
    return (axis, True) if padding[axis] == (0, window[axis] - 1) else None


@op("XlaReduceWindow", pattern=Pattern.MATERIALIZED)
def xla_reduce_window(
    input,
    init_value,
    window_dimensions: Static,
    window_strides: Static,
    base_dilations: Static,
    window_dilations: Static,
    padding: Static,
    *,
    computation,
    infer_cumulative_reduction_from_jax2tf: Option[bool] = True,
):
    """Reduce windows by a function.

    TF: compiler/tf2xla/kernels/reduce_window_op.cc.
    """
    x, init = jnp.asarray(input), jnp.asarray(init_value)
    window, strides = dims(window_dimensions), dims(window_strides)
    base, inner, pads = dims(base_dilations), dims(window_dilations), _pairs(padding)
    if not len(window) == len(strides) == len(base) == len(inner) == len(pads) == x.ndim:
        raise OpError(f"windows of rank {len(window)} for a tensor of rank {x.ndim}")
    name = plain_name(computation, x.dtype, x.dtype)
    start = _identity(name, x.dtype) if name in _FOLD else None
    if start is None:
        return lax.reduce_window(x, init, lambda a, b: computation(a, b)[0], window, strides, pads, base, inner)
    if not _same(init_value, start):
        # Each window starts with the initial value; XLA omits padding and dilation.
        out = lax.reduce_window(x, start, _FOLD[name], window, strides, pads, base, inner)
        return _FOLD[name](out, jnp.broadcast_to(init, out.shape))
    if infer_cumulative_reduction_from_jax2tf and name in _CUMULATIVE:
        found = _cumulative(x.shape, window, strides, any(d != 1 for d in (*base, *inner)), pads)
        if found is not None:
            return _CUMULATIVE[name](x, axis=found[0], reverse=found[1])
    return lax.reduce_window(x, start, _FOLD[name], window, strides, pads, base, inner)


# ---- select and scatter ----


def _window_indices(shape: tuple[int, ...], window: Any, strides: Any, pads: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return flat indices of each window (windows, size), padding -1, and the grid."""
    grid = tuple((d + lo + hi - w) // s + 1 for d, w, s, (lo, hi) in zip(shape, window, strides, pads, strict=True))
    flat = np.zeros((), np.int64)
    valid = np.ones((), bool)
    rank = len(shape)
    for i, (d, w, s, (lo, _)) in enumerate(zip(shape, window, strides, pads, strict=True)):
        own = np.arange(grid[i])[:, None] * s + np.arange(w) - lo
        shape_of_axis = [1] * (2 * rank)
        shape_of_axis[i], shape_of_axis[rank + i] = own.shape
        own = own.reshape(shape_of_axis)
        flat = flat * d + own
        valid = valid & (own >= 0) & (own < d)
    covered = np.where(valid, flat, -1)
    return covered.reshape(math.prod(grid), math.prod(window)), grid


@op("XlaSelectAndScatter")
def xla_select_and_scatter(
    operand, window_dimensions: Static, window_strides: Static, padding: Static, source, init_value, *, select, scatter
):
    """Select an element of each window and scatter the source there."""
    x, updates, init = jnp.asarray(operand), jnp.asarray(source), jnp.asarray(init_value)
    window, strides, pads = dims(window_dimensions), dims(window_strides), _pairs(padding)
    indices, grid = _window_indices(x.shape, window, strides, pads)
    if updates.shape != grid:
        raise OpError(f"a source of shape {updates.shape} for windows in a grid of {grid}")
    flat = x.reshape(-1)
    best = jnp.full(len(indices), -1, np.int32)
    choose = jax.vmap(lambda a, b: select(a, b)[0])
    # Windows are small: one step for each of their elements.
    for column in np.asarray(indices, np.int32).T:
        kept = choose(flat[jnp.maximum(best, 0)], flat[np.maximum(column, 0)]) & (best >= 0)
        best = jnp.where((column < 0) | kept, best, column)
    name = plain_name(scatter, x.dtype, x.dtype)
    start = jnp.broadcast_to(init, flat.shape)
    to = jnp.where(best < 0, flat.shape[0], best)
    if name == "add":
        return start.at[to].add(updates.reshape(-1), mode="drop").reshape(x.shape)

    def step(i: Any, out: Any) -> Any:
        return out.at[to[i]].set(scatter(out[to[i]], updates.reshape(-1)[i])[0], mode="drop")

    return fori_loop(0, len(indices), step, start).reshape(x.shape)


# ---- scatter ----

_SCATTER: dict[str, Any] = {
    "add": lax.scatter_add,
    "mul": lax.scatter_mul,
    "max": lax.scatter_max,
    "min": lax.scatter_min,
    "second": lax.scatter,
}


def last_axis(indices: Any, axis: int) -> Any:
    """Return indices with the dimension of index vectors last."""
    indices = jnp.asarray(indices)
    return indices[..., None] if axis == indices.ndim else jnp.moveaxis(indices, axis, -1)


def _scatter_one_by_one(
    operand: Any, indices: Any, updates: Any, numbers: lax.ScatterDimensionNumbers, fn: Function
) -> Any:
    if numbers.operand_batching_dims:
        raise OpError("scatter with batching dimensions and a function that is no plain operation")
    lead = [i for i in range(updates.ndim) if i not in numbers.update_window_dims]
    count = math.prod(updates.shape[i] for i in lead)
    window = [updates.shape[i] for i in numbers.update_window_dims]
    updates = jnp.transpose(updates, (*lead, *numbers.update_window_dims)).reshape(count, *window)
    sizes = [1 if i in numbers.inserted_window_dims else None for i in range(operand.ndim)]
    rest = iter(window)
    shape = [next(rest) if s is None else s for s in sizes]
    indices = indices.reshape(count, -1)
    apply: Any = lambda a, b: fn(a, b)[0]  # noqa: E731
    for _ in range(operand.ndim):
        apply = jax.vmap(apply)

    def step(i: Any, out: Any) -> Any:
        start: list[Any] = [jnp.zeros((), indices.dtype)] * operand.ndim
        for column, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            start[axis] = indices[i, column]
        fits = jnp.stack([(s >= 0) & (s + n <= d) for s, n, d in zip(start, shape, out.shape, strict=True)]).all()
        old = lax.dynamic_slice(out, start, shape, allow_negative_indices=False)
        new = jnp.where(fits, apply(old, updates[i].reshape(shape)), old)
        return lax.dynamic_update_slice(out, new, start, allow_negative_indices=False)

    return fori_loop(0, count, step, operand) if count and operand.ndim else operand


@op("XlaScatter", pattern=Pattern.MATERIALIZED)
def xla_scatter(operand, scatter_indices, updates, *, update_computation, dimension_numbers, indices_are_sorted):
    """Scatter windows by a function; those not inside are dropped.

    TF: compiler/tf2xla/kernels/gather_scatter_ops.cc.
    """
    numbers, axis = scatter_fields(dimension_numbers)
    indices = last_axis(scatter_indices, axis)
    operand, updates = jnp.asarray(operand), jnp.asarray(updates)
    name = plain_name(update_computation, operand.dtype, operand.dtype)
    if operand.dtype == np.bool_ and name in ("or", "and"):
        name = {"or": "max", "and": "min"}[name]
    if name not in _SCATTER:
        return _scatter_one_by_one(operand, indices, updates, numbers, update_computation)
    mode = lax.GatherScatterMode.FILL_OR_DROP
    return _SCATTER[name](operand, indices, updates, numbers, indices_are_sorted=indices_are_sorted, mode=mode)


# ---- sort ----


def _ranks(comparator: Function, row: tuple[Any, ...]) -> Any:
    """Return each element's rank: the number of smaller ones and equal earlier ones."""
    count = row[0].shape[0]
    args = [v for x in row for v in (x[:, None], x[None, :])]
    over = jax.vmap(jax.vmap(lambda *a: comparator(*a)[0]))
    before = over(*(jnp.broadcast_to(a, (count, count)) for a in args))
    ahead = np.arange(count)[:, None] < np.arange(count)[None, :]
    return jnp.sum(before | (~before.T & ahead), axis=0, dtype=np.int32)


@op("XlaVariadicSort", pattern=Pattern.MATERIALIZED)
def xla_variadic_sort(inputs, dimension: Static, *, comparator, is_stable):
    """Sort tensors together along a dimension, by a comparator.

    Sorting is always stable. A comparator other than less-than or greater-than of the first tensor compares all pairs,
    which takes quadratic memory.
    """
    del is_stable
    arrays = tuple(jnp.asarray(v) for v in inputs)
    axis = int(np.asarray(dimension).reshape(()))
    axis = axis + arrays[0].ndim if axis < 0 else axis
    if not 0 <= axis < arrays[0].ndim:
        raise OpError(f"cannot sort along dimension {axis} of a tensor of rank {arrays[0].ndim}")
    name = plain_name(comparator, *(a.dtype for a in arrays for _ in range(2)))
    if name in ("lt", "lt_to"):
        return list(lax.sort(arrays, dimension=axis, num_keys=1))
    moved = tuple(jnp.moveaxis(a, axis, -1) for a in arrays)
    lead = moved[0].shape[:-1]
    ranks: Any = functools.partial(_ranks, comparator)
    for _ in lead:
        ranks = jax.vmap(ranks)
    order = jnp.argsort(ranks(moved), axis=-1)
    return [jnp.moveaxis(jnp.take_along_axis(a, order, axis=-1), -1, axis) for a in moved]


@op("XlaReplicaId")
def xla_replica_id():
    """Return 0, the only replica.

    TF: compiler/tf2xla/kernels/replica_id_op.cc.
    """
    return np.asarray(0, np.int32)


@op("XlaSharding", fold=lambda input: input)
def xla_sharding(input, *, sharding="", unspecified_dims=()):
    """Return the input: JAX shards arrays."""
    return input


def _check_unsharded(sharding: str) -> None:
    """Raise OpError if a sharding gives a device less than the whole tensor."""
    found = fields(sharding, 1, 3, 6)
    tiles = found.get(3, [])
    if found.get(6, [0])[-1]:
        tiles = tiles[:-1]
    if math.prod(tiles) > 1:
        raise OpError(f"the sharding splits the tensor into {tiles} parts; only one device is supported")


@op("XlaSpmdFullToShardShape")
def xla_spmd_full_to_shard_shape(input, *, manual_sharding, dim=-1, unspecified_dims=()):
    """Return the input: a single device has the whole tensor."""
    _check_unsharded(manual_sharding)
    return input


@op("XlaSpmdShardToFullShape")
def xla_spmd_shard_to_full_shape(input, *, manual_sharding, full_shape, dim=-1, unspecified_dims=()):
    """Return the input: a single device has the whole tensor."""
    _check_unsharded(manual_sharding)
    return input


def _check_single_replica(groups: Any) -> None:
    if np.ndim(groups) != 2 or np.shape(groups)[1] > 1:
        raise OpError(f"a collective over {np.shape(groups)} replicas; only groups of one are supported")


@op("XlaAllReduce")
def xla_all_reduce(input, group_assignment: Static, *, reduce_op, mode):
    """Return the input where groups have one replica."""
    _check_single_replica(group_assignment)
    return input


@op("XlaReduceScatter")
def xla_reduce_scatter(input, group_assignment: Static, scatter_dimension: Static, *, reduce_op):
    """Return the input where groups have one replica."""
    _check_single_replica(group_assignment)
    return input
