"""Scatters into tensors and variables.

TensorFlow raises on CPU for an index out of range; its GPU kernels drop the update. Static indices out of range raise
here, traced ones are dropped. Kernels: scatter_nd_op.cc, resource_variable_ops.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common import result_size
from tf2jax_lite.ops.common.broadcasting import compatible, is_int
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern, Update
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import as_array, dims, is_static

from .gather import _check_policy, nd_in_range

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


# --- Kinds of updates: functions of operand, index vectors, updates and mode


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _put(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    return _call(lax.scatter, operand, indices, updates, mode)


@_put.defjvp
def _put_jvp(mode: Any, primals: Any, tangents: Any) -> Any:
    # Its transpose is TensorFlow's gradient, also for duplicates: each update gets the gradient of its position.
    operand, indices, updates = primals
    d_operand, _, d_updates = tangents
    lead = operand.shape[: indices.shape[-1]]
    hit = _call(lax.scatter, jnp.zeros(lead, bool), indices, jnp.ones(indices.shape[:-1], bool), mode)
    hit = lax.broadcast_in_dim(hit, operand.shape, tuple(range(len(lead))))
    zeros = jnp.zeros_like(d_operand)
    moved = _call(lax.scatter_add, zeros, indices, d_updates, mode)
    return _put(operand, indices, updates, mode), lax.add(lax.select(hit, zeros, d_operand), moved)


def overwrite_rows(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    """Overwrite slices at index vectors."""
    # Where indices repeat, each update gets the gradient of its position, as in TensorFlow.
    if jnp.issubdtype(operand.dtype, jnp.inexact):
        return _put(operand, indices, updates, mode)
    return _call(lax.scatter, operand, indices, updates, mode)


def _add(operand: Any, indices: Any, updates: Any, mode: Any) -> Any:
    if operand.dtype == bool:  # addition of booleans is "or"
        integers = lax.convert_element_type(operand, jnp.uint8)
        return _call(lax.scatter_max, integers, indices, lax.convert_element_type(updates, jnp.uint8), mode).astype(
            bool
        )
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
    # As in TensorFlow, all elements equal to the extreme share its gradient.
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


# --- Scatters with index vectors


def _check(shape: Any, indices: Any, updates: Any) -> None:
    """Check ranks and shapes as TensorFlow's kernels do."""
    if indices.ndim == 0 or updates.ndim == 0:
        raise OpError("indices and updates must have at least one dimension")
    depth = indices.shape[-1]
    if not is_int(depth):
        raise OpError("the last dimension of indices must be static")
    if depth == 0 and 0 not in shape:  # TensorFlow accepts them for an empty tensor
        raise OpError("index vectors are empty")
    if depth > len(shape):
        raise OpError(f"index vectors of length {depth} for a tensor of rank {len(shape)}")
    expected = (*indices.shape[:-1], *shape[depth:])
    if not compatible(expected, updates.shape):
        raise OpError(f"updates must have shape {expected}, not {updates.shape}")


def scatter(kind: Callable[..., Any], operand: Any, indices: Any, updates: Any, policy: str = "") -> Any:
    """Combine updates into a tensor.

    Where indices repeat, updates overwrite in order on CPU, in any order on other devices.

    Args:
      kind: one of the functions above.
      updates: ``indices.shape[:-1] + operand.shape[depth:]``, of the operand's dtype.
      policy: "IGNORE": static indices out of range are dropped, as traced ones are.
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


def _fold_scatter(kind: str, operand: np.ndarray, indices: Any, updates: Any, policy: str) -> np.ndarray:
    indices, updates = np.asarray(indices), np.asarray(updates)
    _check(operand.shape, indices, updates)
    if not nd_in_range(indices, operand.shape, _check_policy(policy)):
        inside = np.all((indices >= 0) & (indices < np.asarray(operand.shape[: indices.shape[-1]])), axis=-1)
        indices, updates = indices[inside], updates[inside]
    out = operand.astype(object) if updates.dtype == object else operand.copy()
    at = tuple(np.moveaxis(indices, -1, 0))
    if kind == "update":
        out[at] = updates
    else:
        {"add": np.add, "sub": np.subtract}[kind].at(out, at, updates)
    return out


def _fold_tensor_scatter(kind: str) -> Callable[..., np.ndarray]:
    def host(tensor: Any, indices: Any, updates: Any, *, bad_indices_policy: str) -> np.ndarray:
        return _fold_scatter(kind, np.asarray(tensor), indices, updates, bad_indices_policy)

    return host


@op("ScatterNd", result_size=result_size.from_sizes(2), pattern=Pattern.MATERIALIZED)
def scatter_nd(indices, updates, shape: Static, *, bad_indices_policy=""):
    """Add updates into zeros.

    Args:
      indices: ``[..., depth]``, integers; out of range see `scatter`.
      updates: ``indices.shape[:-1] + shape[depth:]``; repeated indices add up.
      shape: ``[rank]``, the shape of the result, ``depth <= rank``.
      bad_indices_policy: "IGNORE": static indices out of range are dropped instead of an error.
    """
    updates = jnp.asarray(as_array(updates))
    return scatter(_add, jnp.zeros(dims(shape), updates.dtype), indices, updates, bad_indices_policy)


@op("TensorScatterUpdate", fold=_fold_tensor_scatter("update"), pattern=Pattern.MATERIALIZED)
def tensor_scatter_update(tensor, indices, updates, *, bad_indices_policy=""):
    """Overwrite slices of a tensor.

    Args:
      indices: ``[..., depth]``, integers; out of range see `scatter`.
      updates: ``indices.shape[:-1] + tensor.shape[depth:]``, of the same dtype.
      bad_indices_policy: "IGNORE": static indices out of range are dropped instead of an error.
    """
    return scatter(overwrite_rows, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterAdd", "ScatterNdNonAliasingAdd", fold=_fold_tensor_scatter("add"), pattern=Pattern.MATERIALIZED)
def tensor_scatter_add(tensor, indices, updates, *, bad_indices_policy=""):
    """Add updates to slices of a tensor.

    Arguments: see `tensor_scatter_update`.
    """
    return scatter(_add, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterSub", fold=_fold_tensor_scatter("sub"), pattern=Pattern.MATERIALIZED)
def tensor_scatter_sub(tensor, indices, updates, *, bad_indices_policy=""):
    """Subtract updates from slices of a tensor.

    Arguments: see `tensor_scatter_update`.
    """
    return scatter(_sub, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterMax", pattern=Pattern.MATERIALIZED)
def tensor_scatter_max(tensor, indices, updates, *, bad_indices_policy=""):
    """Take the maximum of slices and updates.

    Arguments: see `tensor_scatter_update`.

    NaN updates are dropped (``std::max(old, NaN)``); equal maxima share the gradient.
    """
    return scatter(_max, tensor, indices, updates, bad_indices_policy)


@op("TensorScatterMin", pattern=Pattern.MATERIALIZED)
def tensor_scatter_min(tensor, indices, updates, *, bad_indices_policy=""):
    """Take the minimum of slices and updates.

    Arguments: see `tensor_scatter_update`.

    NaN updates are dropped (``std::min(old, NaN)``); equal minima share the gradient.
    """
    return scatter(_min, tensor, indices, updates, bad_indices_policy)


# --- Scatters into variables

_KINDS = {"Add": _add, "Sub": _sub, "Mul": _mul, "Div": _div, "Max": _max, "Min": _min, "Update": overwrite_rows}


def _register_variable_scatters(name: str) -> None:
    kind = _KINDS[name]

    def resource_scatter(resource: Update, indices, updates):
        resource = jnp.asarray(resource)
        if resource.ndim == 0:
            raise OpError("the variable must have at least one dimension")
        shape = (*indices.shape, *resource.shape[1:])
        updates = jnp.asarray(updates)
        if updates.ndim == 0 and len(shape) > 0:
            updates = jnp.broadcast_to(updates, shape)
        if updates.ndim == 0:  # one index, one element: add the dimension of index vectors to both
            return scatter(kind, resource, indices[None, None], updates[None])
        return scatter(kind, resource, indices[..., None], updates)

    resource_scatter.__doc__ = (
        f"Combine updates with rows of a variable ({name}). TF: tf.raw_ops.ResourceScatter{name}."
    )
    op(f"ResourceScatter{name}")(resource_scatter)

    if name in ("Mul", "Div"):
        return

    def resource_scatter_nd(ref: Update, indices, updates, *, bad_indices_policy=""):
        return scatter(kind, ref, indices, updates, bad_indices_policy)

    resource_scatter_nd.__doc__ = (
        f"Combine updates with slices of a variable ({name}). TF: tf.raw_ops.ResourceScatterNd{name}."
    )
    op(f"ResourceScatterNd{name}")(resource_scatter_nd)


for _name in _KINDS:
    _register_variable_scatters(_name)
