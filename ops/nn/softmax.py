"""Softmax, log-softmax, cross entropies from logits, and the L2 loss.

The losses have TensorFlow's gradients. TensorFlow's softmax ops have the last axis; transpose sinking uses any other:
XLA's CPU backend reduces an inner axis faster in its present layout than transposed to the end and back, unless 8
values or fewer follow the axis (two cores, JAX 0.10).

TF: core/kernels/softmax_op.cc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value

_FEW_TRAILING = 8  # values after the axis, up to which a transpose is faster


@inlined
def softmax_along(x: Any, *, axis: int) -> Any:
    """Return ``jax.nn.softmax(x, axis)``."""
    return _along(jax.nn.softmax, x, axis)


@inlined
def log_softmax_along(x: Any, *, axis: int) -> Any:
    """Return ``jax.nn.log_softmax(x, axis)``."""
    return _along(_log_softmax, x, axis)


@op("Softmax", pattern=Pattern.MATERIALIZED)
@inlined
def softmax(logits):
    """Compute softmax along the last dimension."""
    return _softmax(jnp.asarray(logits))


@op("LogSoftmax", pattern=Pattern.MATERIALIZED)
@inlined
def log_softmax(logits):
    """Compute the logarithm of softmax along the last dimension.

    16-bit floats are computed in float32 and rounded once.
    """
    return _log_softmax(jnp.asarray(logits), -1)


@jax.custom_jvp
def _softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


@_softmax.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # JAX's rule, materialized: XLA would fuse the quotient, and the product from which the cotangent is computed, into
    # the kernels of both uses, and write the divisor to memory for each element.
    (x,), (t,) = primals, tangents
    y = materialize(_softmax(x))
    return y, materialize(y * (t - jnp.sum(y * t, axis=-1, keepdims=True)))


def _log_softmax(x: Any, axis: int) -> Any:
    # 16-bit floats in float32: the rounding error of the sum of exponentials may be much larger than the result.
    return _half_log_softmax(x, axis) if jnp.finfo(x.dtype).bits < 32 else jax.nn.log_softmax(x, axis=axis)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _half_log_softmax(x: Any, axis: int) -> Any:
    return in_float32(lambda v: jax.nn.log_softmax(v, axis=axis), x)


@_half_log_softmax.defjvp
def _(axis: int, primals: Any, tangents: Any) -> Any:
    # From the rounded result, as in TensorFlow: the residual has 16 bits.
    y = _half_log_softmax(primals[0], axis)

    def tangent(t: Any, y: Any) -> Any:
        return t - jnp.sum(jnp.exp(y) * t, axis=axis, keepdims=True)

    return y, in_float32(tangent, tangents[0], y)


def _along(fn: Callable[..., Any], x: Any, axis: int) -> Any:
    trailing = x.shape[axis + 1 :]
    if all(isinstance(n, int) for n in trailing) and math.prod(trailing) <= _FEW_TRAILING:
        return jnp.moveaxis(fn(jnp.moveaxis(x, axis, -1), axis=-1), -1, axis)
    return fn(x, axis=axis)


AXIS_IMPLS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    softmax: softmax_along,
    log_softmax: log_softmax_along,
}
"""Functions of ops that work along the last axis to functions that also take ``axis=``."""


@jax.custom_jvp
def _cross_entropy(features: Any, labels: Any) -> tuple[Any, Any]:
    log_probabilities = jax.nn.log_softmax(features, axis=-1)
    # A label of 0 contributes 0 even where the log-probability is infinite.
    terms = jnp.where(labels == 0, jnp.zeros((), features.dtype), labels * log_probabilities)
    return -jnp.sum(terms, axis=-1), lax.exp(log_probabilities) - labels


@_cross_entropy.defjvp
def _cross_entropy_jvp(primals: Any, tangents: Any) -> Any:
    # TensorFlow's gradients: softmax - labels for the features, which is not the derivative where labels do not sum to
    # 1; minus the log-probabilities for the labels, and 0 from the second result.
    features, labels = primals
    t_features, t_labels = tangents
    loss, backprop = _cross_entropy(features, labels)
    softmax = backprop + labels
    t_loss = jnp.sum(backprop * t_features, axis=-1) - jnp.sum(
        jax.nn.log_softmax(features, axis=-1) * t_labels, axis=-1
    )
    inner = jnp.sum(softmax * t_features, axis=-1, keepdims=True)
    return (loss, backprop), (t_loss, softmax * (t_features - inner))


@op("SoftmaxCrossEntropyWithLogits", pattern=Pattern.MATERIALIZED)
def softmax_cross_entropy_with_logits(features, labels):
    """Compute cross entropies from logits, and their gradients.

    TF: core/kernels/xent_op.cc.

    The second result is softmax - labels, the gradient with respect to the logits. 16-bit floats are computed in
    float32.
    """
    shape = jnp.broadcast_shapes(jnp.shape(features), jnp.shape(labels))
    features, labels = jnp.broadcast_to(features, shape), jnp.broadcast_to(labels, shape)
    if (dtype := features.dtype).itemsize > 2:
        return _cross_entropy(features, labels)
    loss, backprop = _cross_entropy(features.astype(np.float32), labels.astype(np.float32))
    return loss.astype(dtype), backprop.astype(dtype)


@op("SparseSoftmaxCrossEntropyWithLogits", pattern=Pattern.MATERIALIZED)
def sparse_softmax_cross_entropy_with_logits(features, labels):
    """Compute cross entropies from logits and class indices, and their gradients.

    TF: core/kernels/sparse_xent_op.cc.

    Results for a traced label out of range are NaN, where TensorFlow's CPU kernel raises an error.

    Args:
      features: logits [batch, classes].

    Returns:
      Losses [batch], and their gradients with respect to the logits [batch, classes].
    """
    features = jnp.asarray(features)
    classes = features.shape[-1]
    values = static_value(labels)
    if values is not None and isinstance(classes, int) and ((values < 0) | (values >= classes)).any():
        raise OpError(f"a label outside [0, {classes})")
    labels = jnp.asarray(labels)
    class_ids = lax.broadcasted_iota(labels.dtype, (1, classes), 1)
    one_hot = (labels[:, None] == class_ids).astype(features.dtype)
    loss, backprop = _cross_entropy(features, lax.stop_gradient(one_hot))
    invalid = (labels < 0) | (labels >= classes)
    nan = jnp.asarray(np.nan, features.dtype)
    return jnp.where(invalid, nan, loss), jnp.where(invalid[:, None], nan, backprop)


@op("L2Loss", pattern=Pattern.MATERIALIZED)
def l2_loss(t):
    """Compute half the sum of squares.

    TF: core/kernels/l2loss_op.cc.
    """
    t = jnp.asarray(t)
    return in_float32(lambda v: jnp.sum(v * v) / jnp.asarray(2, v.dtype), t)
