"""Optimizer steps on rows of variables (``ResourceSparseApply*``).

TensorFlow's CPU kernels update the rows in the given order; a repeated row is updated repeatedly. Here unique rows are
updated in one scatter; repeated ones in a loop, as in the kernels. An index out of range is an error in TensorFlow;
under ``jit`` its row is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Update
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value
from tf2jax_lite.values.types import Array

from . import optimizers as dense

Step = Callable[..., Any]


def _rows(step: Step, variables: tuple[Any, ...], grad: Any, indices: Any) -> tuple[Any, ...]:
    """Apply a step to rows of variables.

    Args:
      step: a function of rows of each variable and of the gradient; returns a tuple of new rows.
      variables: [rows, ...] each.
      grad: [n, ...], one row for each index.
      indices: [n], integers.
    """
    variables = tuple(jnp.asarray(v) for v in variables)
    grad, count = jnp.asarray(grad), variables[0].shape[0]
    found = static_value(indices)
    if found is not None and isinstance(count, int) and ((found < 0) | (found >= count)).any():
        raise OpError(f"an index is out of range for a variable of {count} rows")
    indices = jnp.asarray(indices)
    # Negative indices are out of range too, and must not index from the end.
    indices = jnp.where(indices < 0, jnp.asarray(count, indices.dtype), indices)

    def at_once(variables: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = step(*(v.at[indices].get(mode="clip") for v in variables), grad)
        return tuple(v.at[indices].set(r.astype(v.dtype), mode="drop") for v, r in zip(variables, rows, strict=True))

    def one_by_one(variables: tuple[Any, ...]) -> tuple[Any, ...]:
        def body(variables: tuple[Any, ...], item: Any) -> Any:
            index, row = item
            rows = step(*(v.at[index].get(mode="clip") for v in variables), row)
            updated = (v.at[index].set(r.astype(v.dtype), mode="drop") for v, r in zip(variables, rows, strict=True))
            return tuple(updated), None

        return scan(body, variables, (indices, grad))[0]

    if found is not None:
        return (at_once if np.unique(found).size == found.size else one_by_one)(variables)
    ordered = lax.sort(indices)
    # Skipped rows may share an index. Their number may be dynamic: slices would differ in size.
    before = lax.pad(ordered, np.asarray(-1, ordered.dtype), [(1, -1, 0)])
    repeated = (ordered == before) & (ordered < count)
    return lax.cond(jnp.any(repeated), one_by_one, at_once, variables)


def _tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


@op("ResourceSparseApplyProximalGradientDescent")
def sparse_proximal_gradient_descent(
    var: Update, alpha: Array, l1: Array, l2: Array, grad: Array, indices: Array
) -> Any:
    """Take a step of proximal gradient descent (FOBOS) on rows.

    TF: tf.raw_ops.ResourceSparseApplyProximalGradientDescent (core/kernels/training_ops.cc).
    """
    return _rows(lambda v, g: _tuple(dense.proximal_gradient_descent(v, alpha, l1, l2, g)), (var,), grad, indices)


@op("ResourceSparseApplyMomentum")
def sparse_momentum(
    var: Update, accum: Update, lr: Array, grad: Array, indices: Array, momentum: Array, *, use_nesterov: bool = False
) -> Any:
    """Take a step of gradient descent with momentum on rows.

    TF: tf.raw_ops.ResourceSparseApplyMomentum (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, a, g: dense.momentum(v, a, lr, g, momentum, use_nesterov=use_nesterov), (var, accum), grad, indices
    )


@op("ResourceSparseApplyKerasMomentum")
def sparse_keras_momentum(
    var: Update, accum: Update, lr: Array, grad: Array, indices: Array, momentum: Array, *, use_nesterov: bool = False
) -> Any:
    """Take a step of gradient descent with momentum, as Keras defines it on rows.

    TF: tf.raw_ops.ResourceSparseApplyKerasMomentum (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, a, g: dense.keras_momentum(v, a, lr, g, momentum, use_nesterov=use_nesterov),
        (var, accum),
        grad,
        indices,
    )


@op("ResourceSparseApplyAdagrad")
def sparse_adagrad(
    var: Update, accum: Update, lr: Array, grad: Array, indices: Array, *, update_slots: bool = True
) -> Any:
    """Take a step of Adagrad on rows.

    TF: tf.raw_ops.ResourceSparseApplyAdagrad (core/kernels/training_ops.cc).
    """
    return _rows(lambda v, a, g: dense.adagrad(v, a, lr, g, update_slots=update_slots), (var, accum), grad, indices)


@op("ResourceSparseApplyAdagradV2")
def sparse_adagrad_v2(
    var: Update, accum: Update, lr: Array, epsilon: Array, grad: Array, indices: Array, *, update_slots: bool = True
) -> Any:
    """Take a step of Adagrad with epsilon on rows.

    TF: tf.raw_ops.ResourceSparseApplyAdagradV2 (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, a, g: dense.adagrad_v2(v, a, lr, epsilon, g, update_slots=update_slots), (var, accum), grad, indices
    )


@op("ResourceSparseApplyProximalAdagrad")
def sparse_proximal_adagrad(
    var: Update, accum: Update, lr: Array, l1: Array, l2: Array, grad: Array, indices: Array
) -> Any:
    """Take a step of proximal Adagrad (FOBOS) on rows.

    TF: tf.raw_ops.ResourceSparseApplyProximalAdagrad (core/kernels/training_ops.cc).
    """
    return _rows(lambda v, a, g: dense.proximal_adagrad(v, a, lr, l1, l2, g), (var, accum), grad, indices)


@op("ResourceSparseApplyAdagradDA")
def sparse_adagrad_da(
    var: Update,
    gradient_accumulator: Update,
    gradient_squared_accumulator: Update,
    grad: Array,
    indices: Array,
    lr: Array,
    l1: Array,
    l2: Array,
    global_step: Array,
) -> Any:
    """Take a step of Adagrad dual averaging on rows.

    TF: tf.raw_ops.ResourceSparseApplyAdagradDA (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, a, s, g: dense.adagrad_da(v, a, s, g, lr, l1, l2, global_step),
        (var, gradient_accumulator, gradient_squared_accumulator),
        grad,
        indices,
    )


@op("ResourceSparseApplyAdadelta")
def sparse_adadelta(
    var: Update, accum: Update, accum_update: Update, lr: Array, rho: Array, epsilon: Array, grad: Array, indices: Array
) -> Any:
    """Take a step of Adadelta on rows.

    TF: tf.raw_ops.ResourceSparseApplyAdadelta (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, a, u, g: dense.adadelta(v, a, u, lr, rho, epsilon, g), (var, accum, accum_update), grad, indices
    )


@op("ResourceSparseApplyRMSProp")
def sparse_rms_prop(
    var: Update,
    ms: Update,
    mom: Update,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
    indices: Array,
) -> Any:
    """Take a step of RMSProp on rows.

    TF: tf.raw_ops.ResourceSparseApplyRMSProp (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, s, m, g: dense.rms_prop(v, s, m, lr, rho, momentum, epsilon, g), (var, ms, mom), grad, indices
    )


@op("ResourceSparseApplyCenteredRMSProp")
def sparse_centered_rms_prop(
    var: Update,
    mg: Update,
    ms: Update,
    mom: Update,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
    indices: Array,
) -> Any:
    """Take a step of centered RMSProp on rows.

    TF: tf.raw_ops.ResourceSparseApplyCenteredRMSProp (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, c, s, m, g: dense.centered_rms_prop(v, c, s, m, lr, rho, momentum, epsilon, g),
        (var, mg, ms, mom),
        grad,
        indices,
    )


@op("ResourceSparseApplyFtrl")
def sparse_ftrl(
    var: Update,
    accum: Update,
    linear: Update,
    grad: Array,
    indices: Array,
    lr: Array,
    l1: Array,
    l2: Array,
    lr_power: Array,
    *,
    multiply_linear_by_lr: bool = False,
) -> Any:
    """Take a step of FTRL-proximal on rows.

    TF: tf.raw_ops.ResourceSparseApplyFtrl (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, a, n, g: dense.ftrl(v, a, n, g, lr, l1, l2, lr_power, multiply_linear_by_lr=multiply_linear_by_lr),
        (var, accum, linear),
        grad,
        indices,
    )


@op("ResourceSparseApplyFtrlV2")
def sparse_ftrl_v2(
    var: Update,
    accum: Update,
    linear: Update,
    grad: Array,
    indices: Array,
    lr: Array,
    l1: Array,
    l2: Array,
    l2_shrinkage: Array,
    lr_power: Array,
    *,
    multiply_linear_by_lr: bool = False,
) -> Any:
    """Take a step of FTRL-proximal with shrinkage on rows.

    TF: tf.raw_ops.ResourceSparseApplyFtrlV2 (core/kernels/training_ops.cc).
    """
    return _rows(
        lambda v, a, n, g: dense.ftrl_v2(
            v, a, n, g, lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr=multiply_linear_by_lr
        ),
        (var, accum, linear),
        grad,
        indices,
    )
