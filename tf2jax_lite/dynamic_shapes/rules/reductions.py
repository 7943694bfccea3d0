"""Rules for reductions, scans, sorts, contractions, windows: padding is neutral.

Of convolutions and poolings, dynamic padding is window padding.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.evaluator import Evaluator, is_symbolic, rule, unsupported
from tf2jax_lite.jaxprs.compat import bind

from .shapes import extended, is_sure, take_clipped


def _is_bool(dtype: Any) -> bool:
    return np.dtype(dtype).kind == "b"


def lowest(dtype: Any) -> Any:
    """Return the lowest value of a dtype."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return -np.inf
    return False if _is_bool(dtype) else jnp.iinfo(dtype).min


def highest(dtype: Any) -> Any:
    """Return the highest value of a dtype."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.inf
    return True if _is_bool(dtype) else jnp.iinfo(dtype).max


_NEUTRAL = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "max": lowest,
    "min": highest,
    "and": lambda dtype: True if _is_bool(dtype) else -1,
    "or": lambda dtype: 0,
    "xor": lambda dtype: 0,
}


@rule(*(f"reduce_{name}" for name in _NEUTRAL), "argmax", "argmin")
def _reduced(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    (var,) = eqn.invars
    neutral = _NEUTRAL[eqn.primitive.name.removeprefix("reduce_").removeprefix("arg")](var.aval.dtype)
    return bind(eqn, ev.sizes.filled(jnp.asarray(args[0]), var.aval.shape, neutral, eqn.params["axes"]))


@rule("reduce")
def _reduce(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    operands, starts = args[: len(args) // 2], args[len(args) // 2 :]
    axes = eqn.params["dimensions"]
    filled = [
        ev.sizes.filled(jnp.asarray(x), v.aval.shape, start, axes)
        for x, v, start in zip(operands, eqn.invars, starts, strict=False)
    ]
    return bind(eqn, *filled, *starts)


_CUMULATIVE = {
    "cumsum": lambda dtype: 0,
    "cumprod": lambda dtype: 1,
    "cummax": lowest,
    "cummin": highest,
    "cumlogsumexp": lowest,
}


@rule(*_CUMULATIVE, bounded=True)
def _cumulative(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    (var,) = eqn.invars
    x, axes = jnp.asarray(args[0]), [eqn.params["axis"]]
    if eqn.params["reverse"] or eqn.primitive.name == "cumlogsumexp":
        x = ev.sizes.filled(x, var.aval.shape, _CUMULATIVE[eqn.primitive.name](var.aval.dtype), axes)
    return bind(eqn, x)


@rule("sort")
def _sorted(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    axis, shape = eqn.params["dimension"], eqn.invars[0].aval.shape
    if not is_data_dependent(shape[axis]):
        return bind(eqn, *args)
    # Padding comes last, after NaN, too.
    padding = jnp.broadcast_to(~ev.sizes.valid(shape, [axis]), args[0].shape)
    keys = eqn.params["num_keys"] + 1
    return list(lax.sort((padding, *args), dimension=axis, is_stable=eqn.params["is_stable"], num_keys=keys)[1:])


@rule("top_k", bounded=True)
def _largest(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    (var,) = eqn.invars
    axes = [eqn.params.get("axis", -1) % len(var.aval.shape)]
    k = ev.sizes.capacity(eqn.params["k"])
    x = ev.sizes.filled(jnp.asarray(args[0]), var.aval.shape, lowest(var.aval.dtype), axes)
    x = extended(x, axes[0], k)
    return list(lax.top_k(x, k) if axes[0] == x.ndim - 1 else lax.top_k(x, k, axis=axes[0]))


@rule("dot_general", bounded=True)
def _product(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    (left, right), _ = eqn.params["dimension_numbers"]
    both = [
        ev.sizes.filled(jnp.asarray(x), v.aval.shape, 0, axes)
        for x, v, axes in zip(args, eqn.invars, (left, right), strict=True)
    ]
    return bind(eqn, *both)


def _with_identity(ev: Evaluator, x: Any, shape: Any) -> Any:
    """Return matrices padded by an identity: the other factors do not change."""
    x = jnp.asarray(x)
    valid = ev.sizes.valid(shape)
    return x if valid is None else jnp.where(valid, x, jnp.eye(x.shape[-1], dtype=x.dtype))


@rule("cholesky", bounded=True)
def _cholesky(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    return bind(eqn, _with_identity(ev, args[0], eqn.invars[0].aval.shape))


@rule("triangular_solve", bounded=True)
def _triangular_solve(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    shapes = [v.aval.shape for v in eqn.invars]
    return bind(eqn, _with_identity(ev, args[0], shapes[0]), ev.sizes.filled(jnp.asarray(args[1]), shapes[1], 0))


@rule(
    *("eig", "eigh", "lu", "lu_pivots_to_permutation", "qr", "geqrf", "householder_product", "svd"),
    *("tridiagonal_solve", "schur", "hessenberg"),
)
def _matrices(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    if any(is_symbolic(v.aval.shape[-2:]) for v in (*eqn.invars, *eqn.outvars)):
        raise unsupported(eqn)
    return bind(eqn, *args)


@rule("fft")
def _fourier(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    if is_symbolic(eqn.invars[0].aval.shape[-len(eqn.params["fft_lengths"]) :]):
        raise unsupported(eqn)
    return bind(eqn, *args)


_WINDOW_NEUTRAL = {"reduce_window_max": lowest, "reduce_window_min": highest, "reduce_window_sum": lambda dtype: 0}


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


@rule(*_WINDOW_NEUTRAL, "reduce_window", "select_and_gather_add", "select_and_scatter_add", bounded=True)
def _windows(ev: Evaluator, eqn: Any, args: list[Any]) -> list[Any]:
    shape, params = eqn.invars[0].aval.shape, eqn.params
    moving = [axis for axis, dim in enumerate(shape) if is_data_dependent(dim) and not _is_trivial(params, axis)]
    if not moving:
        return bind(eqn, *args)
    if eqn.primitive.name not in _WINDOW_NEUTRAL:
        raise unsupported(eqn)
    neutral = _WINDOW_NEUTRAL[eqn.primitive.name](eqn.invars[0].aval.dtype)
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
