"""Equations that make, bring and join elements: what is there stays first along each axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, bind, max_dim

from .actual_sizes import Sizes, is_symbolic
from .assumptions import is_constant
from .evaluator import Evaluator, rule, unsupported
from .tracker import is_found

__all__ = ["is_sure", "longer", "taken"]


@rule("prefix")
def _prefix(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    data, count = jnp.asarray(args[0]), args[1]
    name, dim, room = eqn.params["name"], eqn.params["dim"], data.shape[0]
    if not eqn.params["is_sure"]:
        room = jnp.asarray(room).astype(np.int32)
        ev.sizes.checks.append(count <= room)
        count = jnp.minimum(count, room)
    if name:
        ev.sizes.define(name, data.shape[0] + 1, count + 1)
        return [data]
    if not is_constant(eqn):
        ev.sizes.checks.append(count == ev.sizes.actual(dim))
    return [_with_room(data, ev.sizes.most(dim))]


def _with_room(x: Any, size: Any) -> Any:
    return x if _same(x.shape[0], size) else lax.slice_in_dim(longer(x, 0, size), 0, size)


@rule("longer")
def _longer(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return [longer(jnp.asarray(args[0]), eqn.params["axis"], ev.sizes.most(eqn.params["least"]))]


def longer(x: Any, axis: int, least: Any) -> Any:
    """Returns an array that has room for ``least`` along an axis, at least."""
    if is_sure(lambda: x.shape[axis] >= least):
        return x
    more = max_dim(least - x.shape[axis], 0)
    return lax.pad(x, np.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])


def is_sure(comparison: Callable[[], bool]) -> bool:
    """Whether sizes compare so, whatever given dimensions come to."""
    try:
        return bool(comparison())
    except InconclusiveDimensionOperation:
        return False


@rule("dim_as_value")
def _size(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return [jnp.asarray(ev.sizes.actual(eqn.params["dim"]), eqn.outvars[0].aval.dtype)]


@rule("iota")
def _iota(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    return [lax.broadcasted_iota(params["dtype"], ev.sizes.shape(params["shape"]), params["dimension"])]


@rule("broadcast_in_dim", bounded=True)
def _broadcast(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    return [lax.broadcast_in_dim(args[0], ev.sizes.shape(params["shape"]), params["broadcast_dimensions"])]


@rule("tile", bounded=True)
def _tiled(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, before, after = jnp.asarray(args[0]), eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for axis, (old, new) in enumerate(zip(before, after, strict=True)):
        if not _same(old, new):
            x = taken(x, lax.iota(np.int32, ev.sizes.most(new)) % jnp.maximum(ev.sizes.actual(old), 1), axis)
    return [x]


@rule("unstack")
def _unstacked(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    if is_found(eqn.invars[0].aval.shape[eqn.params["axis"]]):
        raise unsupported(eqn)
    return bind(eqn, *args)


@rule("random_bits")
def _bits(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    return [eqn.primitive.bind(*args, bit_width=params["bit_width"], shape=ev.sizes.shape(params["shape"]))]


def taken(x: Any, places: Any, axis: int) -> Any:
    """Returns slices along an axis; places outside give the first or the last one."""
    if x.shape[axis] == 0:
        shape = (*x.shape[:axis], places.shape[0], *x.shape[axis + 1 :])
        return jnp.zeros(shape, x.dtype)
    return jnp.take(x, jnp.clip(places, 0, x.shape[axis] - 1), axis=axis, mode="clip")


@rule("rev", bounded=True)
def _reversed(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, shape = jnp.asarray(args[0]), eqn.invars[0].aval.shape
    for axis in eqn.params["dimensions"]:
        size = ev.sizes.actual(shape[axis])
        x = taken(x, size - 1 - lax.iota(np.int32, x.shape[axis]), axis)
    return [x]


# --- Reshapes


@rule("reshape", bounded=True)
def _reshaped(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, before, after = jnp.asarray(args[0]), eqn.invars[0].aval.shape, eqn.params["new_sizes"]
    if eqn.params["dimensions"] is not None:
        raise unsupported(eqn)
    room = ev.sizes.shape(after)
    if _keeps_places(before, after) and math.prod(room) == x.size:
        return [x.reshape(room)]
    return [_renumbered(ev.sizes, x, before, after)]


@rule("reshaped", bounded=True)
def _reshaped_to_products(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    before, after = eqn.invars[0].aval.shape, eqn.params["real"]
    for name, dim in zip(eqn.params["names"], after, strict=True):
        if name:
            ev.sizes.define(name, ev.sizes.most(dim) + 1, ev.sizes.actual(dim) + 1)
    return [_renumbered(ev.sizes, jnp.asarray(args[0]), before, after)]


def _keeps_places(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether elements stay where they are if there is room for more: each group's first axis alone is symbolic."""
    a, b = [list(reversed([d for d in shape if not _is_one(d)])) for shape in (before, after)]
    while a or b:
        left, right = [a.pop()] if a else [], [b.pop()] if b else []
        while not _same(math.prod(left), math.prod(right)):
            # The group with fewer elements takes one more axis; a symbolic product counts as what it is made of.
            if a and (not b or len(left) <= len(right)):
                left.append(a.pop())
            elif b:
                right.append(b.pop())
            else:
                return False
        if is_symbolic(left[1:]) or is_symbolic(right[1:]):
            return False
    return True


def _is_one(dim: Any) -> bool:
    return isinstance(dim, int) and dim == 1


def _same(a: Any, b: Any) -> bool:
    return bool(a == b)


def _renumbered(sizes: Sizes, x: Any, before: Sequence[Any], after: Sequence[Any]) -> Any:
    """Reshapes by finding for each place after where it was before."""
    if not x.size:
        return jnp.zeros(sizes.shape(after), x.dtype)
    number = jnp.zeros((), np.int32)
    for axis, dim in enumerate(after):
        place = lax.broadcasted_iota(np.int32, sizes.shape(after), axis)
        number = number * sizes.actual(dim) + place
    where = jnp.zeros((), np.int32)
    stride = 1
    for axis in reversed(range(len(before))):
        size = jnp.maximum(sizes.actual(before[axis]), 1)
        where = where + jnp.minimum(number % size, x.shape[axis] - 1) * stride
        number, stride = number // size, stride * x.shape[axis]
    return x.reshape(-1)[where]


# --- Parts


@rule("slice", bounded=True)
def _part(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, params = jnp.asarray(args[0]), eqn.params
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    strides = params["strides"] or (1,) * x.ndim
    for axis, (start, stride) in enumerate(zip(params["start_indices"], strides, strict=True)):
        if not is_symbolic((before[axis], after[axis], start)):
            x = lax.slice_in_dim(x, start, params["limit_indices"][axis], stride, axis)
            continue
        room = ev.sizes.most(after[axis])
        end = start + (room - 1) * stride + 1
        if not is_found(start) and is_sure(lambda: room > 0 and end <= x.shape[axis]):  # noqa: B023
            x = lax.slice_in_dim(x, start, end, stride, axis)
        else:
            x = taken(x, ev.sizes.actual(start) + lax.iota(np.int32, room) * stride, axis)
    return [x]


@rule("split", bounded=True)
def _split(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, axis = jnp.asarray(args[0]), eqn.params["axis"]
    if not is_symbolic((eqn.invars[0].aval.shape[axis], *eqn.params["sizes"])):
        return bind(eqn, x)
    start, out = 0, []
    for dim in eqn.params["sizes"]:
        out.append(taken(x, start + lax.iota(np.int32, ev.sizes.most(dim)), axis))
        start = start + ev.sizes.actual(dim)
    return out


@rule("dynamic_slice", bounded=True)
def _part_at(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, starts = jnp.asarray(args[0]), args[1 : 1 + args[0].ndim]
    before, wanted = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    for axis, (start, dim) in enumerate(zip(starts, wanted, strict=True)):
        first = jnp.clip(jnp.asarray(start, np.int32), 0, ev.sizes.actual(before[axis]) - ev.sizes.actual(dim))
        if not is_symbolic((before[axis], dim)):
            x = lax.dynamic_slice_in_dim(x, first, dim, axis)
        else:
            x = taken(x, first + lax.iota(np.int32, ev.sizes.most(dim)), axis)
    return [x]


@rule("dynamic_update_slice", bounded=True)
def _part_set(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, update, *starts = args
    shape, part = (eqn.invars[i].aval.shape for i in (0, 1))
    inside = None
    for axis, start in enumerate(starts):
        size = ev.sizes.actual(part[axis])
        first = jnp.clip(jnp.asarray(start, np.int32), 0, ev.sizes.actual(shape[axis]) - size)
        place = lax.iota(np.int32, x.shape[axis]) - first
        update = taken(update, place, axis)
        here = ((place >= 0) & (place < size)).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        inside = here if inside is None else inside & here
    return [update if inside is None else jnp.where(inside, update, x)]


@rule("pad", bounded=True)
def _padded(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, value = jnp.asarray(args[0]), args[1]
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for axis, (low, high, inner) in enumerate(eqn.params["padding_config"]):
        if not is_symbolic((before[axis], low, high)):
            x = lax.pad(x, value, [(low, high, inner) if i == axis else (0, 0, 0) for i in range(x.ndim)])
            continue
        place = lax.iota(np.int32, ev.sizes.most(after[axis])) - ev.sizes.actual(low)
        there = (place >= 0) & (place < ev.sizes.actual(before[axis]) * (inner + 1)) & (place % (inner + 1) == 0)
        there = there.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        x = jnp.where(there, taken(x, place // (inner + 1), axis), value)
    return [x]


@rule("concatenate")
def _joined(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    axis = eqn.params["dimension"]
    dims = [v.aval.shape[axis] for v in eqn.invars]
    args = [jnp.asarray(x) for x in args]
    if not is_symbolic(dims[:-1]):
        return [lax.concatenate(args, axis)]
    # Each is written over what the one before has room for beyond its size.
    shape = list(args[0].shape)
    shape[axis] = sum(x.shape[axis] for x in args)
    out, start = jnp.zeros(shape, args[0].dtype), 0
    for x, dim in zip(args, dims, strict=True):
        out = lax.dynamic_update_slice_in_dim(out, x, start, axis)
        start = start + ev.sizes.actual(dim)
    room = ev.sizes.most(eqn.outvars[0].aval.shape[axis])
    return [lax.slice_in_dim(out, 0, room, axis=axis) if is_sure(lambda: room < shape[axis]) else out]
