"""Rules for gather and scatter."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.dynamic_shapes.actual_sizes import is_symbolic
from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.evaluator import Evaluator, rule, unsupported
from tf2jax_lite.jaxprs.compat import bind

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
