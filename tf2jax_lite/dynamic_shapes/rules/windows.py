"""Rules for convolutions and poolings: dynamic padding is window padding."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.actual_sizes import is_symbolic
from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.evaluator import Evaluator, rule, unsupported
from tf2jax_lite.jaxprs.compat import bind

from .reductions import highest, lowest
from .shapes import extended, is_sure, take_clipped

_NEUTRAL = {"reduce_window_max": lowest, "reduce_window_min": highest, "reduce_window_sum": lambda dtype: 0}


@rule("conv_general_dilated", bounded=True)
def _convolution(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    images, kernel = (v.aval.shape for v in eqn.invars)
    params = eqn.params
    _, channels, *axes = params["dimension_numbers"].lhs_spec
    if is_symbolic(kernel) or is_data_dependent(images[channels]) or params["batch_group_count"] != 1:
        raise unsupported(eqn)
    if is_symbolic([size for pair in params["padding"] for size in pair]):
        raise unsupported(eqn)
    found = [axis for axis in axes if is_data_dependent(images[axis])]
    x = ev.sizes.filled(jnp.asarray(args[0]), images, 0, found)
    return [_with_result_shape(ev, eqn, result) for result in bind(eqn, x, *args[1:])]


@rule(*_NEUTRAL, "reduce_window", "select_and_gather_add", "select_and_scatter_add", bounded=True)
def _windows(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    shape, params = eqn.invars[0].aval.shape, eqn.params
    moving = [axis for axis, dim in enumerate(shape) if is_data_dependent(dim) and not _is_trivial(params, axis)]
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
    return [_with_result_shape(ev, eqn, result)]


def _padded(ev: Evaluator, x: Any, size: Any, padding: Any, axis: int, value: Any) -> Any:
    """Return an array padded along an axis by data-dependent amounts."""
    low, high = padding
    indices = lax.iota(np.int32, ev.sizes.capacity(low + size + high)) - ev.sizes.actual(low)
    valid = (indices >= 0) & (indices < ev.sizes.actual(size))
    valid = valid.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return jnp.where(valid, take_clipped(x, indices, axis), jnp.asarray(value, x.dtype))


def _is_trivial(params: Any, axis: int) -> bool:
    """Return whether windows have one element, stride 1 and no padding along an axis."""
    is_one = params["window_dimensions"][axis] == 1 and params["window_strides"][axis] == 1
    return is_one and tuple(params["padding"][axis]) == (0, 0)


def _with_result_shape(ev: Evaluator, eqn: Any, x: Any) -> Any:
    """Return a result with its capacity: the last windows may start in padding."""
    for axis, dim in enumerate(eqn.outvars[0].aval.shape):
        if not is_data_dependent(dim):
            continue
        capacity = ev.sizes.capacity(dim)
        x = extended(x, axis, capacity)
        if not is_sure(lambda x=x, axis=axis, capacity=capacity: x.shape[axis] <= capacity):
            x = lax.slice_in_dim(x, 0, capacity, axis=axis)
    return x
