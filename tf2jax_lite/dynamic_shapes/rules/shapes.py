"""Rules for elementwise ops, iota, reshape, slice, pad, concatenate.

Valid elements come first. Elementwise primitives get safe values in padding, for gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.evaluator import Evaluator, Sizes, is_symbolic, rule, unsupported
from tf2jax_lite.dynamic_shapes.unification import is_constant
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, Literal, bind, max_dim
from tf2jax_lite.jaxprs.independence import ELEMENTWISE


@rule("truncate")
def _truncate(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    data, count = jnp.asarray(args[0]), args[1]
    name, dim, capacity = eqn.params["name"], eqn.params["dim"], data.shape[0]
    if not eqn.params["is_sure"]:
        capacity = jnp.asarray(capacity).astype(np.int32)
        ev.sizes.checks.append(count <= capacity)
        count = jnp.minimum(count, capacity)
    if name:
        ev.sizes.define(name, data.shape[0] + 1, count + 1)
        return [data]
    if not is_constant(eqn):
        ev.sizes.checks.append(count == ev.sizes.actual(dim))
    return [_with_capacity(data, ev.sizes.capacity(dim))]


def _with_capacity(x: Any, size: Any) -> Any:
    return x if _same(x.shape[0], size) else lax.slice_in_dim(extended(x, 0, size), 0, size)


@rule("extend")
def _extend(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return [extended(jnp.asarray(args[0]), eqn.params["axis"], ev.sizes.capacity(eqn.params["least"]))]


def extended(x: Any, axis: int, least: Any) -> Any:
    """Return an array padded with zeros to at least ``least`` along an axis."""
    if is_sure(lambda: x.shape[axis] >= least):
        return x
    more = max_dim(least - x.shape[axis], 0)
    return lax.pad(x, np.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])


def is_sure(comparison: Callable[[], bool]) -> bool:
    """Return whether a comparison of sizes holds for all symbolic values."""
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
    return [lax.broadcasted_iota(params["dtype"], ev.sizes.padded_shape(params["shape"]), params["dimension"])]


@rule("broadcast_in_dim", bounded=True)
def _broadcast(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    return [lax.broadcast_in_dim(args[0], ev.sizes.padded_shape(params["shape"]), params["broadcast_dimensions"])]


@rule("tile", bounded=True)
def _tiled(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, before, after = jnp.asarray(args[0]), eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    for axis, (old, new) in enumerate(zip(before, after, strict=True)):
        if not _same(old, new):
            x = take_clipped(x, lax.iota(np.int32, ev.sizes.capacity(new)) % jnp.maximum(ev.sizes.actual(old), 1), axis)
    return [x]


@rule("unstack")
def _unstacked(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    if is_data_dependent(eqn.invars[0].aval.shape[eqn.params["axis"]]):
        raise unsupported(eqn)
    return bind(eqn, *args)


@rule("random_bits")
def _bits(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    params = eqn.params
    return [eqn.primitive.bind(*args, bit_width=params["bit_width"], shape=ev.sizes.padded_shape(params["shape"]))]


def take_clipped(x: Any, indices: Any, axis: int) -> Any:
    """Return slices along an axis at clipped indices; zeros if the axis is empty."""
    if x.shape[axis] == 0:
        shape = (*x.shape[:axis], indices.shape[0], *x.shape[axis + 1 :])
        return jnp.zeros(shape, x.dtype)
    return jnp.take(x, jnp.clip(indices, 0, x.shape[axis] - 1), axis=axis, mode="clip")


@rule("rev", bounded=True)
def _reversed(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, shape = jnp.asarray(args[0]), eqn.invars[0].aval.shape
    for axis in eqn.params["dimensions"]:
        size = ev.sizes.actual(shape[axis])
        x = take_clipped(x, size - 1 - lax.iota(np.int32, x.shape[axis]), axis)
    return [x]


# --- Reshapes


@rule("reshape", bounded=True)
def _reshaped(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, before, after = jnp.asarray(args[0]), eqn.invars[0].aval.shape, eqn.params["new_sizes"]
    if eqn.params["dimensions"] is not None:
        raise unsupported(eqn)
    padded = ev.sizes.padded_shape(after)
    if _keeps_positions(before, after) and math.prod(padded) == x.size:
        return [x.reshape(padded)]
    return [_renumbered(ev.sizes, x, before, after)]


@rule("dynamic_reshape", bounded=True)
def _reshaped_to_products(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    before, after = eqn.invars[0].aval.shape, eqn.params["real"]
    for name, dim in zip(eqn.params["names"], after, strict=True):
        if name:
            ev.sizes.define(name, ev.sizes.capacity(dim) + 1, ev.sizes.actual(dim) + 1)
    return [_renumbered(ev.sizes, jnp.asarray(args[0]), before, after)]


def _keeps_positions(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Return whether a plain reshape of the padded array keeps positions."""
    # It does if only the first axis of each group is dynamic.
    #
    # A group is a minimal run of axes with the same product before and after.
    a, b = [list(reversed([d for d in shape if not _is_one(d)])) for shape in (before, after)]
    while a or b:
        left, right = [a.pop()] if a else [], [b.pop()] if b else []
        while not _same(math.prod(left), math.prod(right)):
            # The side with fewer axes takes one more; symbolic products cannot be compared by size.
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
    """Reshape by a gather at each output index's flat index in the operand."""
    if not x.size:
        return jnp.zeros(sizes.padded_shape(after), x.dtype)
    number = jnp.zeros((), np.int32)
    for axis, dim in enumerate(after):
        index = lax.broadcasted_iota(np.int32, sizes.padded_shape(after), axis)
        number = number * sizes.actual(dim) + index
    position = jnp.zeros((), np.int32)
    stride = 1
    for axis in reversed(range(len(before))):
        size = jnp.maximum(sizes.actual(before[axis]), 1)
        position = position + jnp.minimum(number % size, x.shape[axis] - 1) * stride
        number, stride = number // size, stride * x.shape[axis]
    return x.reshape(-1)[position]


# --- Slices, padding, concatenation


@rule("slice", bounded=True)
def _slice(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, params = jnp.asarray(args[0]), eqn.params
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    strides = params["strides"] or (1,) * x.ndim
    for axis, (start, stride) in enumerate(zip(params["start_indices"], strides, strict=True)):
        if not is_symbolic((before[axis], after[axis], start)):
            x = lax.slice_in_dim(x, start, params["limit_indices"][axis], stride, axis)
            continue
        capacity = ev.sizes.capacity(after[axis])
        end = start + (capacity - 1) * stride + 1
        if not is_data_dependent(start) and is_sure(lambda: capacity > 0 and end <= x.shape[axis]):  # noqa: B023
            x = lax.slice_in_dim(x, start, end, stride, axis)
        else:
            x = take_clipped(x, ev.sizes.actual(start) + lax.iota(np.int32, capacity) * stride, axis)
    return [x]


@rule("split", bounded=True)
def _split(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, axis = jnp.asarray(args[0]), eqn.params["axis"]
    if not is_symbolic((eqn.invars[0].aval.shape[axis], *eqn.params["sizes"])):
        return bind(eqn, x)
    start, out = 0, []
    for dim in eqn.params["sizes"]:
        out.append(take_clipped(x, start + lax.iota(np.int32, ev.sizes.capacity(dim)), axis))
        start = start + ev.sizes.actual(dim)
    return out


@rule("dynamic_slice", bounded=True)
def _dynamic_slice(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, starts = jnp.asarray(args[0]), args[1 : 1 + args[0].ndim]
    before, wanted = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    for axis, (start, dim) in enumerate(zip(starts, wanted, strict=True)):
        first = jnp.clip(jnp.asarray(start, np.int32), 0, ev.sizes.actual(before[axis]) - ev.sizes.actual(dim))
        if not is_symbolic((before[axis], dim)):
            x = lax.dynamic_slice_in_dim(x, first, dim, axis)
        else:
            x = take_clipped(x, first + lax.iota(np.int32, ev.sizes.capacity(dim)), axis)
    return [x]


@rule("dynamic_update_slice", bounded=True)
def _dynamic_update_slice(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, update, *starts = args
    shape, update_shape = (eqn.invars[i].aval.shape for i in (0, 1))
    inside = None
    for axis, start in enumerate(starts):
        size = ev.sizes.actual(update_shape[axis])
        first = jnp.clip(jnp.asarray(start, np.int32), 0, ev.sizes.actual(shape[axis]) - size)
        index = lax.iota(np.int32, x.shape[axis]) - first
        update = take_clipped(update, index, axis)
        here = ((index >= 0) & (index < size)).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
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
        index = lax.iota(np.int32, ev.sizes.capacity(after[axis])) - ev.sizes.actual(low)
        valid = (index >= 0) & (index < ev.sizes.actual(before[axis]) * (inner + 1)) & (index % (inner + 1) == 0)
        valid = valid.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        x = jnp.where(valid, take_clipped(x, index // (inner + 1), axis), value)
    return [x]


@rule("concatenate")
def _concatenate(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    axis = eqn.params["dimension"]
    dims = [v.aval.shape[axis] for v in eqn.invars]
    args = [jnp.asarray(x) for x in args]
    if not is_symbolic(dims[:-1]):
        return [lax.concatenate(args, axis)]
    # Each operand overwrites the padding of the one before.
    shape = list(args[0].shape)
    shape[axis] = sum(x.shape[axis] for x in args)
    out, start = jnp.zeros(shape, args[0].dtype), 0
    for x, dim in zip(args, dims, strict=True):
        out = lax.dynamic_update_slice_in_dim(out, x, start, axis)
        start = start + ev.sizes.actual(dim)
    capacity = ev.sizes.capacity(eqn.outvars[0].aval.shape[axis])
    return [lax.slice_in_dim(out, 0, capacity, axis=axis) if is_sure(lambda: capacity < shape[axis]) else out]


_MODES = lax.GatherScatterMode


@rule("gather", bounded=True)
def _gathered(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, indices = jnp.asarray(args[0]), jnp.asarray(args[1])
    params, mode = eqn.params, eqn.params["mode"]
    numbers, shape = params["dimension_numbers"], eqn.invars[0].aval.shape
    for column, axis in enumerate(numbers.start_index_map):
        if not is_data_dependent(shape[axis]) or mode == _MODES.PROMISE_IN_BOUNDS:
            continue
        # The padded array is longer: indices beyond the actual size are moved out of bounds, or clipped.
        last = ev.sizes.actual(shape[axis]) - ev.sizes.actual(params["slice_sizes"][axis])
        at = indices[..., column]
        at = jnp.clip(at, 0, last) if mode == _MODES.CLIP else jnp.where(at > last, x.shape[axis], at)
        indices = indices.at[..., column].set(at.astype(indices.dtype))
    sizes = ev.sizes.padded_shape(params["slice_sizes"])
    return [lax.gather(x, indices, numbers, sizes, mode=mode, fill_value=params["fill_value"])]


@rule(
    "scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max", "scatter_add", "scatter_mul"
)
def _scattered(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    x, indices, updates = (jnp.asarray(v) for v in args)
    shape, index_shape, update_shape = (v.aval.shape for v in eqn.invars)
    params = dict(eqn.params)
    numbers = params["dimension_numbers"]
    skipped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = [d for axis, d in enumerate(shape) if axis not in skipped]
    written = [update_shape[i] for i in numbers.update_window_dims]
    if any(a != b for a, b in zip(windows, written, strict=True) if is_symbolic((a, b))):
        raise unsupported(eqn)
    if not is_symbolic(index_shape):
        return bind(eqn, x, indices, updates)
    if params["mode"] == _MODES.CLIP:
        raise unsupported(eqn)
    valid = ev.sizes.valid(index_shape)
    indices = jnp.where(valid, indices, jnp.iinfo(indices.dtype).max)
    params.update(mode=_MODES.FILL_OR_DROP, unique_indices=False, indices_are_sorted=False)
    if jnp.issubdtype(updates.dtype, jnp.inexact):
        updates = ev.sizes.filled(updates, update_shape, 0)
    return [eqn.primitive.bind(x, indices, updates, **params)]


# Not elementwise, but padding stays behind the other elements.
_MOVES = frozenset({"bitcast_convert_type", "debug_callback", "loop_start", "squeeze", "stack", "transpose"})
# Operand values with finite derivatives. Padding gets these, since 0 times infinity there would make gradients of valid
# elements NaN. One value per operand; None: the operand stays.
_FINITE_AT: dict[str, tuple[float | None, ...]] = {
    "acos": (0,),
    "acosh": (2,),
    "asin": (0,),
    "atan2": (1, 1),
    "atanh": (0,),
    "cbrt": (1,),
    "digamma": (1,),
    "div": (None, 1),
    "erf_inv": (0,),
    "exp": (0,),
    "exp2": (0,),
    "expm1": (0,),
    "igamma": (1, 1),
    "igamma_grad_a": (1, 1),
    "igammac": (1, 1),
    "integer_pow": (1,),
    "lgamma": (1,),
    "log": (1,),
    "log1p": (0,),
    "polygamma": (1, 1),
    "pow": (1, 1),
    "regularized_incomplete_beta": (1, 1, 0),
    "rem": (None, 1),
    "rsqrt": (1,),
    "sqrt": (1,),
    "tan": (0,),
    "zeta": (2, 1),
}


@rule(*(ELEMENTWISE - _FINITE_AT.keys()), *_MOVES)
def _plain(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return bind(eqn, *_broadcast_scalars(ev, eqn, args))


def _broadcast_scalars(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    """Return operands with scalars broadcast to the result, and 0 in its padding."""
    # The gradient of a scalar is a sum over all elements, and the gradient of padding may be NaN.
    shape = eqn.outvars[0].aval.shape if len(eqn.outvars) == 1 else ()
    if not is_symbolic(shape):
        return args
    out = list(args)
    for i, var in enumerate(eqn.invars):
        if not isinstance(var, Literal) and var.aval.shape == () and jnp.issubdtype(var.aval.dtype, jnp.inexact):
            out[i] = ev.sizes.filled(jnp.broadcast_to(args[i], ev.sizes.padded_shape(shape)), shape, 0)
    return out


@rule(*_FINITE_AT)
def _guarded(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    values, args, shape = _FINITE_AT[eqn.primitive.name], _broadcast_scalars(ev, eqn, args), eqn.outvars[0].aval.shape
    for i, (var, value) in enumerate(zip(eqn.invars, values, strict=False)):
        if value is not None and not isinstance(var, Literal) and jnp.issubdtype(var.aval.dtype, jnp.inexact):
            args[i] = ev.sizes.filled(jnp.asarray(args[i]), var.aval.shape or shape, value)
    return bind(eqn, *args)
