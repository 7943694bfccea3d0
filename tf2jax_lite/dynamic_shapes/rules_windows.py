"""Convolutions and poolings along axes whose size data decides: what is not there is as what pads."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import bind

from .actual_sizes import is_symbolic
from .evaluator import Evaluator, rule, unsupported
from .rules_reductions import least, most
from .rules_shapes import is_sure, longer, taken
from .tracker import is_found

_NEUTRAL = {"reduce_window_max": least, "reduce_window_min": most, "reduce_window_sum": lambda dtype: 0}


@rule("conv_general_dilated", bounded=True)
def _convolution(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    images, kernel = (v.aval.shape for v in eqn.invars)
    params = eqn.params
    _, channels, *axes = params["dimension_numbers"].lhs_spec
    if is_symbolic(kernel) or is_found(images[channels]) or params["batch_group_count"] != 1:
        raise unsupported(eqn)
    if is_symbolic([size for pair in params["padding"] for size in pair]):
        raise unsupported(eqn)
    found = [axis for axis in axes if is_found(images[axis])]
    x = ev.sizes.filled(jnp.asarray(args[0]), images, 0, found)
    return [_fitted(ev, eqn, result) for result in bind(eqn, x, *args[1:])]


@rule(*_NEUTRAL, "reduce_window", "select_and_gather_add", "select_and_scatter_add", bounded=True)
def _windows(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    shape, params = eqn.invars[0].aval.shape, eqn.params
    moving = [axis for axis, dim in enumerate(shape) if is_found(dim) and not _stands(params, axis)]
    if not moving:
        return bind(eqn, *args)
    if eqn.primitive.name not in _NEUTRAL:
        raise unsupported(eqn)
    neutral = _NEUTRAL[eqn.primitive.name](eqn.invars[0].aval.dtype)
    x, padding = ev.sizes.filled(jnp.asarray(args[0]), shape, neutral, moving), list(params["padding"])
    for axis in moving:
        if is_symbolic(padding[axis]):
            x = _padded(ev, x, shape[axis], padding[axis], axis, neutral)
            padding[axis] = (0, 0)
    result = eqn.primitive.bind(x, *args[1:], **{**params, "padding": tuple(padding)})
    return [_fitted(ev, eqn, result)]


def _padded(ev: Evaluator, x: Any, size: Any, padding: Any, axis: int, value: Any) -> Any:
    """Returns an array padded along an axis by as much as data decides."""
    low, high = padding
    places = lax.iota(np.int32, ev.sizes.most(low + size + high)) - ev.sizes.actual(low)
    there = (places >= 0) & (places < ev.sizes.actual(size))
    there = there.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return jnp.where(there, taken(x, places, axis), jnp.asarray(value, x.dtype))


def _stands(params: Any, axis: int) -> bool:
    """Whether windows are of one element along an axis."""
    alone = params["window_dimensions"][axis] == 1 and params["window_strides"][axis] == 1
    return alone and tuple(params["padding"][axis]) == (0, 0)


def _fitted(ev: Evaluator, eqn: Any, x: Any) -> Any:
    """Returns a result with as much room as its sizes need: windows may end beyond the last one that counts."""
    for axis, dim in enumerate(eqn.outvars[0].aval.shape):
        if not is_found(dim):
            continue
        room = ev.sizes.most(dim)
        x = longer(x, axis, room)
        if not is_sure(lambda x=x, axis=axis, room=room: x.shape[axis] <= room):
            x = lax.slice_in_dim(x, 0, room, axis=axis)
    return x
