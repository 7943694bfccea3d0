"""Ops that make, move and cut arrays, and those whose shapes are worked out while tracing."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, dims_array

from .core import Iota, Site, Spread, Vector, forced, is_splat, is_static, rule, scalar_of

__all__ = ["dims_of"]

# Vectors of indices are no longer than arrays have dimensions.
_MAX_VECTOR = 16


def dims_of(site: Site, value: Any, what: str) -> tuple[Any, ...]:
    """Returns a vector of dimensions as a tuple of ints and dimension expressions."""
    return dims(site.static(value, what))


# ---- constants ----


@rule("stablehlo.constant", lazy=True)
def _constant(site: Site) -> Any:
    value = site.attr("value")
    dtype = canonical(value.dtype)
    if dtype == value.dtype:
        return value
    return np.broadcast_to(scalar_of(value).astype(dtype), value.shape) if is_splat(value) else value.astype(dtype)


@rule("stablehlo.iota", lazy=True)
def _iota(site: Site) -> Any:
    return _make_iota(site, site.type.shape)


@rule("stablehlo.dynamic_iota", lazy=True)
def _dynamic_iota(site: Site, shape: Any) -> Any:
    return _make_iota(site, dims_of(site, shape, "the shape of an iota"))


def _make_iota(site: Site, shape: tuple[Any, ...]) -> Any:
    if shape == (1,):
        return np.zeros(shape, site.dtype)
    return Iota(site.dtype, shape, site.attr("iota_dimension"))


@rule("stablehlo.get_dimension_size", lazy=True)
def _get_dimension_size(site: Site, x: Any) -> Any:
    return dims_array(x.shape[site.attr("dimension") : site.attr("dimension") + 1], site.dtype).reshape(())


@rule("stablehlo.set_dimension_size", lazy=True)
def _set_dimension_size(site: Site, x: Any, size: Any) -> Any:
    (size,) = dims_of(site, size, "the size of a dimension")
    axis = site.attr("dimension")
    return x if x.shape[axis] == size else lax.slice_in_dim(forced(x), 0, size, axis=axis)


# ---- broadcasts and reshapes ----


def _broadcast(x: Any, shape: tuple[Any, ...], axes: tuple[int, ...]) -> Any:
    if isinstance(x, Spread):
        inner = np.ndim(x.value)
        if inner == 0:
            return Spread(x.value, shape)
        if axes == tuple(range(len(shape))) and len(shape) == inner:
            return Spread(x.value, shape)
        x = forced(x)
    if tuple(x.shape) == shape:
        return x
    if isinstance(x, Iota):
        if x.shape[x.axis] == shape[axes[x.axis]]:
            return Iota(x.dtype, shape, axes[x.axis])
        x = forced(x)
    if is_splat(x):
        scalar = scalar_of(x)
        if all(isinstance(d, (int, np.integer)) for d in shape):
            return np.broadcast_to(scalar, shape)
        return Spread(scalar, shape)
    if x.ndim == 0 or (x.ndim == len(shape) and axes == tuple(range(len(shape)))):
        return Spread(forced(x), shape)
    return lax.broadcast_in_dim(forced(x), shape, axes)


def _broadcast_host(site: Site, x: Any) -> Any:
    shape: Any = site.type.shape
    if x.dtype == object and x.size != 1:
        raise TypeError
    spread = np.reshape(x, _placed(x.shape, shape, site.attr("broadcast_dimensions", ())))
    return np.broadcast_to(spread, shape)


def _placed(shape: tuple[Any, ...], target: tuple[Any, ...], axes: tuple[int, ...]) -> list[int]:
    placed = [1] * len(target)
    for size, axis in zip(shape, axes, strict=True):
        placed[axis] = int(size)
    return placed


@rule("stablehlo.broadcast_in_dim", host=_broadcast_host, exact=True, lazy=True)
def _broadcast_in_dim(site: Site, x: Any) -> Any:
    return _broadcast(x, site.type.shape, tuple(site.attr("broadcast_dimensions", ())))


@rule("stablehlo.broadcast", lazy=True)
def _broadcast_leading(site: Site, x: Any) -> Any:
    sizes = tuple(site.attr("broadcast_sizes", ()))
    return _broadcast(x, (*sizes, *x.shape), tuple(range(len(sizes), len(sizes) + len(x.shape))))


@rule("stablehlo.dynamic_broadcast_in_dim", lazy=True)
def _dynamic_broadcast_in_dim(site: Site, x: Any, shape: Any) -> Any:
    sizes = dims_of(site, shape, "the shape of a broadcast")
    return _broadcast(x, sizes, tuple(site.attr("broadcast_dimensions", ())))


def _reshape(x: Any, shape: tuple[Any, ...]) -> Any:
    if tuple(x.shape) == shape:
        return x
    if isinstance(x, Spread) and np.ndim(x.value) == 0:
        return Spread(x.value, shape)
    if isinstance(x, Vector) and shape == () and len(x.items) == 1:
        return x.items[0]
    if is_splat(x):
        return _broadcast(scalar_of(x), shape, ())
    if shape == (1,) and not is_static(x) and x.shape == () and np.dtype(x.dtype).kind == "i":
        return Vector((forced(x),), x.dtype)  # mostly an index, to be joined with others
    if isinstance(x, np.ndarray) and x.dtype != object:
        return np.reshape(x, shape)
    return lax.reshape(forced(x), shape)


@rule("stablehlo.reshape", host=lambda site, x: _host_reshape(x, site.type.shape), exact=True, lazy=True)
def _reshape_static(site: Site, x: Any) -> Any:
    return _reshape(x, site.type.shape)


def _host_reshape(x: Any, shape: Any) -> Any:
    return np.broadcast_to(scalar_of(x), shape) if is_splat(x) else np.reshape(x, shape)


@rule("stablehlo.dynamic_reshape", lazy=True)
def _dynamic_reshape(site: Site, x: Any, shape: Any) -> Any:
    return _reshape(x, dims_of(site, shape, "the shape of a reshape"))


@rule("stablehlo.transpose", host=lambda site, x: np.transpose(x, site.attr("permutation")), exact=True)
def _transpose(site: Site, x: Any) -> Any:
    permutation = tuple(site.attr("permutation"))
    return x if permutation == tuple(range(len(permutation))) else lax.transpose(x, permutation)


@rule("stablehlo.reverse", host=lambda site, x: np.flip(x, site.attr("dimensions")), exact=True)
def _reverse(site: Site, x: Any) -> Any:
    return lax.rev(x, tuple(site.attr("dimensions")))


# ---- cuts and joins ----


def _slices(site: Site) -> tuple[slice, ...]:
    bounds = zip(site.attr("start_indices"), site.attr("limit_indices"), site.attr("strides"), strict=True)
    return tuple(slice(*bound) for bound in bounds)


@rule("stablehlo.slice", host=lambda site, x: x[_slices(site)], exact=True)
def _slice(site: Site, x: Any) -> Any:
    start, limit = tuple(site.attr("start_indices")), tuple(site.attr("limit_indices"))
    strides = tuple(site.attr("strides"))
    if not any(start) and limit == tuple(x.shape) and set(strides) <= {1}:
        return x
    return lax.slice(x, start, limit, strides)


@rule("stablehlo.real_dynamic_slice", lazy=True)
def _real_dynamic_slice(site: Site, x: Any, start: Any, limit: Any, strides: Any) -> Any:
    steps = dims_of(site, strides, "the strides of a slice")
    if not isinstance(start, Vector) and is_static(start):
        return lax.slice(forced(x), dims(start), dims_of(site, limit, "the bounds of a slice"), steps)
    # Where it starts is data: then its sizes are known.
    starts, limits = _items(start), _items(limit)
    if starts is None or limits is None or set(steps) != {1}:
        raise OpError("the bounds of a slice must be known while tracing, and depend on data")
    sizes = []
    for first, last, size in zip(starts, limits, site.type.shape, strict=True):
        if size is None and not (is_static(first) and is_static(last)):
            raise OpError("the size of a slice must be known while tracing, and depends on data")
        sizes.append(dims(last)[0] - dims(first)[0] if size is None else size)
    return lax.dynamic_slice(
        forced(x), [scalar_of(v) if is_splat(v) else forced(v) for v in starts], sizes, allow_negative_indices=False
    )


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, Vector):
        return list(value.items)
    return [np.asarray(n) for n in value] if is_static(value) else None


@rule("stablehlo.concatenate", host=lambda site, *xs: _host_concatenate(site, xs), exact=True, lazy=True)
def _concatenate(site: Site, *xs: Any) -> Any:
    parts = [_items(v) for v in xs] if any(isinstance(v, Vector) for v in xs) else [None]
    if None not in parts and sum(v.shape[0] for v in xs) <= _MAX_VECTOR:
        return Vector(tuple(n for part in parts for n in part or ()), xs[0].dtype)
    xs = tuple(forced(v, t.dtype) for v, t in zip(xs, site.op.operand_types, strict=True))
    return xs[0] if len(xs) == 1 else lax.concatenate(xs, site.attr("dimension"))


def _host_concatenate(site: Site, xs: tuple[Any, ...]) -> Any:
    return np.concatenate(xs, site.attr("dimension"))


@rule("stablehlo.pad", lazy=True)
def _pad(site: Site, x: Any, value: Any) -> Any:
    config = zip(
        site.attr("edge_padding_low"), site.attr("edge_padding_high"), site.attr("interior_padding"), strict=True
    )
    return _padded(x, value, list(config))


@rule("stablehlo.dynamic_pad", lazy=True)
def _dynamic_pad(site: Site, x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    parts = [dims_of(site, v, "the amount of padding") for v in (low, high, interior)]
    return _padded(x, value, list(zip(*parts, strict=True)))


def _padded(x: Any, value: Any, config: list[tuple[Any, ...]]) -> Any:
    if all(isinstance(n, int) and n == 0 for entry in config for n in entry):
        return x
    return lax.pad(forced(x), forced(value), config)


@rule("stablehlo.optimization_barrier")
def _barrier(site: Site, *xs: Any) -> Any:
    return lax.optimization_barrier(tuple(xs))


@rule("stablehlo.tuple", lazy=True)
def _tuple(site: Site, *xs: Any) -> Any:
    return [tuple(xs)]


@rule("stablehlo.get_tuple_element", lazy=True)
def _get_tuple_element(site: Site, xs: Any) -> Any:
    if not isinstance(xs, tuple):
        raise OpError("a tuple was expected")
    return [xs[site.attr("index")]]
