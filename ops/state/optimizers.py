"""Optimizer steps on variables (``ResourceApply*``), as TensorFlow's kernels.

`sparse_optimizers` applies them to gathered rows (``ResourceSparseApply*``).

TF: core/kernels/training_ops.cc.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Update


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
