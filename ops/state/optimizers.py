"""Optimizer steps on variables (``ResourceApply*``), and rows of them.

As TensorFlow's kernels (core/kernels/training_ops.cc), which update rows (``ResourceSparseApply*``) in the given order;
a repeated row is updated repeatedly. Here unique rows are updated in one scatter; repeated ones in a loop, as in the
kernels. An index out of range is an error in TensorFlow; under ``jit`` its row is skipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Marker, Update, marker_of
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value


@op("ResourceApplyGradientDescent")
def gradient_descent(var: Update, alpha, delta):
    """Take a step of gradient descent."""
    return var - alpha * delta


@op("ResourceApplyMomentum")
def momentum(var: Update, accum: Update, lr, grad, momentum, *, use_nesterov=False):
    """Take a step of gradient descent with momentum."""
    accum = accum * momentum + grad
    step = grad * lr + accum * momentum * lr if use_nesterov else accum * lr
    return var - step, accum


@op("ResourceApplyKerasMomentum")
def keras_momentum(var: Update, accum: Update, lr, grad, momentum, *, use_nesterov=False):
    """Take a step of gradient descent with momentum, as Keras defines it."""
    accum = accum * momentum - grad * lr
    return var + (accum * momentum - grad * lr if use_nesterov else accum), accum


@op("ResourceApplyAdagrad")
def adagrad(var: Update, accum: Update, lr, grad, *, update_slots=True):
    """Take a step of Adagrad."""
    accum = accum + grad * grad if update_slots else accum
    return var - lr * grad * lax.rsqrt(accum), accum


@op("ResourceApplyAdagradV2")
def adagrad_v2(var: Update, accum: Update, lr, epsilon, grad, *, update_slots=True):
    """Take a step of Adagrad with epsilon."""
    accum = accum + grad * grad if update_slots else accum
    return var - lr * grad / (jnp.sqrt(accum) + epsilon), accum


@op("ResourceApplyAdagradDA")
def adagrad_da(
    var: Update, gradient_accumulator: Update, gradient_squared_accumulator: Update, grad, lr, l1, l2, global_step
):
    """Take a step of Adagrad dual averaging."""
    sums, squares = gradient_accumulator + grad, gradient_squared_accumulator + grad * grad
    step = jnp.asarray(global_step).astype(sums.dtype)
    shrunk = jnp.where(l1 > 0, jnp.sign(sums) * jnp.maximum(jnp.abs(sums) - step * l1, 0), sums)
    return -lr * shrunk / (l2 * (step * lr) + jnp.sqrt(squares)), sums, squares


@op("ResourceApplyAdadelta")
def adadelta(var: Update, accum: Update, accum_update: Update, lr, rho, epsilon, grad):
    """Take a step of Adadelta."""
    accum = accum * rho + grad * grad * (1 - rho)
    update = jnp.sqrt(accum_update + epsilon) * lax.rsqrt(accum + epsilon) * grad
    return var - update * lr, accum, accum_update * rho + update * update * (1 - rho)


@op("ResourceApplyAdam")
def adam(
    var: Update, m: Update, v: Update, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, *, use_nesterov=False
):
    """Take a step of Adam."""
    rate = lr * jnp.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    step = grad * (1 - beta1) + beta1 * m if use_nesterov else m
    return var - step * rate / (jnp.sqrt(v) + epsilon), m, v


@op("ResourceApplyAdamWithAmsgrad")
def adam_with_amsgrad(
    var: Update, m: Update, v: Update, vhat: Update, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad
):
    """Take a step of Adam with AMSGrad."""
    rate = lr * jnp.sqrt(1 - beta2_power) / (1 - beta1_power)
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    vhat = jnp.maximum(vhat, v)
    return var - m * rate / (jnp.sqrt(vhat) + epsilon), m, v, vhat


@op("ResourceApplyAdaMax")
def ada_max(var: Update, m: Update, v: Update, beta1_power, lr, beta1, beta2, epsilon, grad):
    """Take a step of AdaMax."""
    m = m + (grad - m) * (1 - beta1)
    v = jnp.maximum(beta2 * v, jnp.abs(grad))
    return var - lr / (1 - beta1_power) * (m / (v + epsilon)), m, v


@op("ResourceApplyRMSProp")
def rms_prop(var: Update, ms: Update, mom: Update, lr, rho, momentum, epsilon, grad):
    """Take a step of RMSProp."""
    ms = ms + (grad * grad - ms) * (1 - rho)
    mom = mom * momentum + grad * lr * lax.rsqrt(ms + epsilon)
    return var - mom, ms, mom


@op("ResourceApplyCenteredRMSProp")
def centered_rms_prop(var: Update, mg: Update, ms: Update, mom: Update, lr, rho, momentum, epsilon, grad):
    """Take a step of centered RMSProp."""
    ms = ms + (grad * grad - ms) * (1 - rho)
    mg = mg + (grad - mg) * (1 - rho)
    mom = mom * momentum + grad * lr * lax.rsqrt(ms - mg * mg + epsilon)
    return var - mom, mg, ms, mom


@op("ResourceApplyAddSign")
def add_sign(var: Update, m: Update, lr, alpha, sign_decay, beta, grad):
    """Take a step of AddSign."""
    m = m * beta + grad * (1 - beta)
    return var - lr * (alpha + sign_decay * jnp.sign(grad) * jnp.sign(m)) * grad, m


@op("ResourceApplyPowerSign")
def power_sign(var: Update, m: Update, lr, logbase, sign_decay, beta, grad):
    """Take a step of PowerSign."""
    m = m * beta + grad * (1 - beta)
    return var - lr * jnp.exp(logbase * sign_decay * jnp.sign(grad) * jnp.sign(m)) * grad, m


def _shrink(value: Any, rate: Any, l1: Any, l2: Any) -> Any:
    """Return the proximal step for L1 and L2 penalties."""
    shrunk = jnp.sign(value) * jnp.maximum(jnp.abs(value) - rate * l1, 0)
    return jnp.where(l1 > 0, shrunk, value) / (1 + rate * l2)


@op("ResourceApplyProximalGradientDescent")
def proximal_gradient_descent(var: Update, alpha, l1, l2, delta):
    """Take a step of proximal gradient descent (FOBOS)."""
    return _shrink(var - alpha * delta, alpha, l1, l2)


@op("ResourceApplyProximalAdagrad")
def proximal_adagrad(var: Update, accum: Update, lr, l1, l2, grad):
    """Take a step of proximal Adagrad (FOBOS)."""
    accum = accum + grad * grad
    rate = lr * lax.rsqrt(accum)
    return _shrink(var - rate * grad, rate, l1, l2), accum


def _ftrl(
    var: Any, accum: Any, linear: Any, grad: Any, lr: Any, l1: Any, l2: Any, shrinkage: Any, power: Any, scaled: bool
) -> Any:
    # ``linear`` is stored multiplied by lr if ``scaled``.
    new_accum = accum + grad * grad
    before, after = jnp.power(accum, -power), jnp.power(new_accum, -power)
    shrunk = grad + 2 * shrinkage * var
    if scaled:
        linear = linear + shrunk * lr - (after - before) * var
        quadratic = after + 2 * l2 * lr
        threshold = l1 * lr
    else:
        linear = linear + shrunk - (after - before) / lr * var
        quadratic = after / lr + 2 * l2
        threshold = l1
    # Not a clip: TensorFlow sets a weight whose linear term is NaN to zero.
    active = (threshold * jnp.sign(linear) - linear) / quadratic
    return jnp.where(jnp.abs(linear) > threshold, active, jnp.zeros_like(active)), new_accum, linear


@op("ResourceApplyFtrl")
def ftrl(var: Update, accum: Update, linear: Update, grad, lr, l1, l2, lr_power, *, multiply_linear_by_lr=False):
    """Take a step of FTRL-proximal."""
    return _ftrl(var, accum, linear, grad, lr, l1, l2, jnp.zeros_like(lr), lr_power, multiply_linear_by_lr)


@op("ResourceApplyFtrlV2")
def ftrl_v2(
    var: Update, accum: Update, linear: Update, grad, lr, l1, l2, l2_shrinkage, lr_power, *, multiply_linear_by_lr=False
):
    """Take a step of FTRL-proximal with shrinkage."""
    return _ftrl(var, accum, linear, grad, lr, l1, l2, l2_shrinkage, lr_power, multiply_linear_by_lr)


Step = Callable[..., Any]


def _rows(step: Step, variables: tuple[Any, ...], grad: Any, indices: Any) -> tuple[Any, ...]:
    """Apply a step to rows of variables.

    Args:
      step: a function of rows of each variable and of the gradient; returns a tuple of new rows.
      grad: [n, ...], one row for each index.
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


def _register(name: str, step: Callable[..., Any]) -> None:
    """Register a dense step for rows, with ``indices`` after the gradient."""
    signature = inspect.signature(step)
    parameters = [p.replace(name="grad") if p.name == "delta" else p for p in signature.parameters.values()]
    at = [p.name for p in parameters].index("grad")
    count = sum(marker_of(p.annotation, step.__globals__) is Marker.UPDATE for p in parameters)

    def call(*inputs, **attrs):
        """Take an optimizer step on rows. TF: core/kernels/training_ops.cc."""

        def step_of_rows(*values: Any) -> tuple[Any, ...]:
            *rows, grad = values
            result = step(*rows, *inputs[count:at], grad, *inputs[at + 2 :], **attrs)
            return result if isinstance(result, tuple) else (result,)

        return _rows(step_of_rows, inputs[:count], inputs[at], inputs[at + 1])

    indices = inspect.Parameter("indices", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters.insert(at + 1, indices)
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    op(name)(call)


_register("ResourceSparseApplyProximalGradientDescent", proximal_gradient_descent)
_register("ResourceSparseApplyMomentum", momentum)
_register("ResourceSparseApplyKerasMomentum", keras_momentum)
_register("ResourceSparseApplyAdagrad", adagrad)
_register("ResourceSparseApplyAdagradV2", adagrad_v2)
_register("ResourceSparseApplyProximalAdagrad", proximal_adagrad)
_register("ResourceSparseApplyAdagradDA", adagrad_da)
_register("ResourceSparseApplyAdadelta", adadelta)
_register("ResourceSparseApplyRMSProp", rms_prop)
_register("ResourceSparseApplyCenteredRMSProp", centered_rms_prop)
_register("ResourceSparseApplyFtrl", ftrl)
_register("ResourceSparseApplyFtrlV2", ftrl_v2)
