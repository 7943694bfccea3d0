"""Ops that make, move and cut arrays, also of computed shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, dims_array

from .core import Iota, LazyBroadcast, OpContext, Vector, is_splat, is_static, materialize, rule, scalar_of

# Vectors of indices are no longer than arrays have dimensions.
_MAX_VECTOR = 16


def dims_of(ctx: OpContext, value: Any, what: str) -> tuple[Any, ...]:
    """Return a vector of dimensions as a tuple of ints and dimension expressions."""
    return dims(ctx.static(value, what))


# ---- constants ----


@rule("stablehlo.constant", lazy=True)
def _constant(ctx: OpContext) -> Any:
    value = ctx.attr("value")
    dtype = canonical(value.dtype)
    if dtype == value.dtype:
        return value
    return np.broadcast_to(scalar_of(value).astype(dtype), value.shape) if is_splat(value) else value.astype(dtype)


@rule("stablehlo.iota", lazy=True)
def _iota(ctx: OpContext) -> Any:
    return _make_iota(ctx, ctx.type.shape)


@rule("stablehlo.dynamic_iota", lazy=True)
def _dynamic_iota(ctx: OpContext, shape: Any) -> Any:
    return _make_iota(ctx, dims_of(ctx, shape, "the shape of an iota"))


def _make_iota(ctx: OpContext, shape: tuple[Any, ...]) -> Any:
    if shape == (1,):
        return np.zeros(shape, ctx.dtype)
    return Iota(ctx.dtype, shape, ctx.attr("iota_dimension"))


@rule("stablehlo.get_dimension_size", lazy=True)
def _get_dimension_size(ctx: OpContext, x: Any) -> Any:
    return dims_array(x.shape[ctx.attr("dimension") : ctx.attr("dimension") + 1], ctx.dtype).reshape(())


@rule("stablehlo.set_dimension_size", lazy=True)
def _set_dimension_size(ctx: OpContext, x: Any, size: Any) -> Any:
    (size,) = dims_of(ctx, size, "the size of a dimension")
    axis = ctx.attr("dimension")
    return x if x.shape[axis] == size else lax.slice_in_dim(materialize(x), 0, size, axis=axis)


# ---- broadcasts and reshapes ----


def _broadcast(x: Any, shape: tuple[Any, ...], axes: tuple[int, ...]) -> Any:
    if isinstance(x, LazyBroadcast):
        inner = np.ndim(x.value)
        if inner == 0:
            return LazyBroadcast(x.value, shape)
        if axes == tuple(range(len(shape))) and len(shape) == inner:
            return LazyBroadcast(x.value, shape)
        x = materialize(x)
    if tuple(x.shape) == shape:
        return x
    if isinstance(x, Iota):
        if x.shape[x.axis] == shape[axes[x.axis]]:
            return Iota(x.dtype, shape, axes[x.axis])
        x = materialize(x)
    if is_splat(x):
        scalar = scalar_of(x)
        if all(isinstance(d, (int, np.integer)) for d in shape):
            return np.broadcast_to(scalar, shape)
        return LazyBroadcast(scalar, shape)
    if x.ndim == 0 or (x.ndim == len(shape) and axes == tuple(range(len(shape)))):
        return LazyBroadcast(materialize(x), shape)
    return lax.broadcast_in_dim(materialize(x), shape, axes)


def _fold_broadcast(ctx: OpContext, x: Any) -> Any:
    shape: Any = ctx.type.shape
    if x.dtype == object and x.size != 1:
        raise TypeError
    expanded = np.reshape(x, _with_unit_axes(x.shape, shape, ctx.attr("broadcast_dimensions", ())))
    return np.broadcast_to(expanded, shape)


def _with_unit_axes(shape: tuple[Any, ...], target: tuple[Any, ...], axes: tuple[int, ...]) -> list[int]:
    sizes = [1] * len(target)
    for size, axis in zip(shape, axes, strict=True):
        sizes[axis] = int(size)
    return sizes


@rule("stablehlo.broadcast_in_dim", fold=_fold_broadcast, exact=True, lazy=True)
def _broadcast_in_dim(ctx: OpContext, x: Any) -> Any:
    return _broadcast(x, ctx.type.shape, tuple(ctx.attr("broadcast_dimensions", ())))


@rule("stablehlo.broadcast", lazy=True)
def _broadcast_leading(ctx: OpContext, x: Any) -> Any:
    sizes = tuple(ctx.attr("broadcast_sizes", ()))
    return _broadcast(x, (*sizes, *x.shape), tuple(range(len(sizes), len(sizes) + len(x.shape))))


@rule("stablehlo.dynamic_broadcast_in_dim", lazy=True)
def _dynamic_broadcast_in_dim(ctx: OpContext, x: Any, shape: Any) -> Any:
    sizes = dims_of(ctx, shape, "the shape of a broadcast")
    return _broadcast(x, sizes, tuple(ctx.attr("broadcast_dimensions", ())))


def _reshape(x: Any, shape: tuple[Any, ...]) -> Any:
    if tuple(x.shape) == shape:
        return x
    if isinstance(x, LazyBroadcast) and np.ndim(x.value) == 0:
        return LazyBroadcast(x.value, shape)
    if isinstance(x, Vector) and shape == () and len(x.items) == 1:
        return x.items[0]
    if is_splat(x):
        return _broadcast(scalar_of(x), shape, ())
    if shape == (1,) and not is_static(x) and x.shape == () and np.dtype(x.dtype).kind == "i":
        return Vector((materialize(x),), x.dtype)  # mostly an index, to be joined with others
    if isinstance(x, np.ndarray) and x.dtype != object:
        return np.reshape(x, shape)
    return lax.reshape(materialize(x), shape)


@rule("stablehlo.reshape", fold=lambda ctx, x: _fold_reshape(x, ctx.type.shape), exact=True, lazy=True)
def _reshape_static(ctx: OpContext, x: Any) -> Any:
    return _reshape(x, ctx.type.shape)


def _fold_reshape(x: Any, shape: Any) -> Any:
    return np.broadcast_to(scalar_of(x), shape) if is_splat(x) else np.reshape(x, shape)


@rule("stablehlo.dynamic_reshape", lazy=True)
def _dynamic_reshape(ctx: OpContext, x: Any, shape: Any) -> Any:
    return _reshape(x, dims_of(ctx, shape, "the shape of a reshape"))


@rule("stablehlo.transpose", fold=lambda ctx, x: np.transpose(x, ctx.attr("permutation")), exact=True)
def _transpose(ctx: OpContext, x: Any) -> Any:
    permutation = tuple(ctx.attr("permutation"))
    return x if permutation == tuple(range(len(permutation))) else lax.transpose(x, permutation)


@rule("stablehlo.reverse", fold=lambda ctx, x: np.flip(x, ctx.attr("dimensions")), exact=True)
def _reverse(ctx: OpContext, x: Any) -> Any:
    return lax.rev(x, tuple(ctx.attr("dimensions")))


# ---- slices, concatenation, padding ----


def _slices(ctx: OpContext) -> tuple[slice, ...]:
    bounds = zip(ctx.attr("start_indices"), ctx.attr("limit_indices"), ctx.attr("strides"), strict=True)
    return tuple(slice(*bound) for bound in bounds)


@rule("stablehlo.slice", fold=lambda ctx, x: x[_slices(ctx)], exact=True)
def _slice(ctx: OpContext, x: Any) -> Any:
    start, limit = tuple(ctx.attr("start_indices")), tuple(ctx.attr("limit_indices"))
    strides = tuple(ctx.attr("strides"))
    if not any(start) and limit == tuple(x.shape) and set(strides) <= {1}:
        return x
    return lax.slice(x, start, limit, strides)


@rule("stablehlo.real_dynamic_slice", lazy=True)
def _real_dynamic_slice(ctx: OpContext, x: Any, start: Any, limit: Any, strides: Any) -> Any:
    steps = dims_of(ctx, strides, "the strides of a slice")
    if not isinstance(start, Vector) and is_static(start):
        return lax.slice(materialize(x), dims(start), dims_of(ctx, limit, "the bounds of a slice"), steps)
    # With a traced start, the sizes must be static.
    starts, limits = _items(start), _items(limit)
    if starts is None or limits is None or set(steps) != {1}:
        raise OpError("the bounds of a slice must be known while tracing, and depend on data")
    sizes = []
    for first, last, size in zip(starts, limits, ctx.type.shape, strict=True):
        if size is None and not (is_static(first) and is_static(last)):
            raise OpError("the size of a slice must be known while tracing, and depends on data")
        sizes.append(dims(last)[0] - dims(first)[0] if size is None else size)
    return lax.dynamic_slice(
        materialize(x),
        [scalar_of(v) if is_splat(v) else materialize(v) for v in starts],
        sizes,
        allow_negative_indices=False,
    )


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, Vector):
        return list(value.items)
    return [np.asarray(n) for n in value] if is_static(value) else None


@rule("stablehlo.concatenate", fold=lambda ctx, *xs: _fold_concatenate(ctx, xs), exact=True, lazy=True)
def _concatenate(ctx: OpContext, *xs: Any) -> Any:
    parts = [_items(v) for v in xs] if any(isinstance(v, Vector) for v in xs) else [None]
    if None not in parts and sum(v.shape[0] for v in xs) <= _MAX_VECTOR:
        return Vector(tuple(n for part in parts for n in part or ()), xs[0].dtype)
    xs = tuple(materialize(v, t.dtype) for v, t in zip(xs, ctx.op.operand_types, strict=True))
    return xs[0] if len(xs) == 1 else lax.concatenate(xs, ctx.attr("dimension"))


def _fold_concatenate(ctx: OpContext, xs: tuple[Any, ...]) -> Any:
    return np.concatenate(xs, ctx.attr("dimension"))


@rule("stablehlo.pad", lazy=True)
def _pad(ctx: OpContext, x: Any, value: Any) -> Any:
    config = zip(ctx.attr("edge_padding_low"), ctx.attr("edge_padding_high"), ctx.attr("interior_padding"), strict=True)
    return _padded(x, value, list(config))


@rule("stablehlo.dynamic_pad", lazy=True)
def _dynamic_pad(ctx: OpContext, x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    parts = [dims_of(ctx, v, "the amount of padding") for v in (low, high, interior)]
    return _padded(x, value, list(zip(*parts, strict=True)))


def _padded(x: Any, value: Any, config: list[tuple[Any, ...]]) -> Any:
    if all(isinstance(n, int) and n == 0 for entry in config for n in entry):
        return x
    return lax.pad(materialize(x), materialize(value), config)


@rule("stablehlo.optimization_barrier")
def _barrier(ctx: OpContext, *xs: Any) -> Any:
    return lax.optimization_barrier(tuple(xs))


@rule("stablehlo.tuple", lazy=True)
def _tuple(ctx: OpContext, *xs: Any) -> Any:
    return [tuple(xs)]


@rule("stablehlo.get_tuple_element", lazy=True)
def _get_tuple_element(ctx: OpContext, xs: Any) -> Any:
    if not isinstance(xs, tuple):
        raise OpError("a tuple was expected")
    return [xs[ctx.attr("index")]]
