"""Losses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import static_value


@jax.custom_jvp
def _cross_entropy(features: Any, labels: Any) -> tuple[Any, Any]:
    log_probabilities = jax.nn.log_softmax(features, axis=-1)
    # A label of 0 counts for nothing even where the log-probability is infinite.
    terms = jnp.where(labels == 0, jnp.zeros((), features.dtype), labels * log_probabilities)
    return -jnp.sum(terms, axis=-1), lax.exp(log_probabilities) - labels


@_cross_entropy.defjvp
def _cross_entropy_jvp(primals: Any, tangents: Any) -> Any:
    # TensorFlow's gradient: features get (softmax - labels), which is not the derivative where labels do not sum to 1;
    # labels get minus the log-probabilities, and nothing from
    # the second result.
    features, labels = primals
    t_features, t_labels = tangents
    loss, backprop = _cross_entropy(features, labels)
    softmax = backprop + labels
    t_loss = jnp.sum(backprop * t_features, axis=-1) - jnp.sum(
        jax.nn.log_softmax(features, axis=-1) * t_labels, axis=-1
    )
    inner = jnp.sum(softmax * t_features, axis=-1, keepdims=True)
    return (loss, backprop), (t_loss, softmax * (t_features - inner))


@op("SoftmaxCrossEntropyWithLogits", stored=True)
def softmax_cross_entropy_with_logits(features: Any, labels: Any) -> tuple[Any, Any]:
    """Returns losses and their gradients by the logits. See tf.raw_ops.SoftmaxCrossEntropyWithLogits."""
    shape = jnp.broadcast_shapes(jnp.shape(features), jnp.shape(labels))
    features, labels = jnp.broadcast_to(features, shape), jnp.broadcast_to(labels, shape)
    if (dtype := features.dtype).itemsize > 2:
        return _cross_entropy(features, labels)
    loss, backprop = _cross_entropy(features.astype(np.float32), labels.astype(np.float32))
    return loss.astype(dtype), backprop.astype(dtype)


@op("SparseSoftmaxCrossEntropyWithLogits", stored=True)
def sparse_softmax_cross_entropy_with_logits(features: Any, labels: Any) -> tuple[Any, Any]:
    """Returns losses and their gradients by the logits; NaN for a label out of range.

    TensorFlow's CPU kernel refuses such labels; here only those known while tracing are. See
    tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits.
    """
    features = jnp.asarray(features)
    classes = features.shape[-1]
    found = static_value(labels)
    if found is not None and isinstance(classes, int) and found.size and not ((found >= 0) & (found < classes)).all():
        raise OpError(f"a label outside [0, {classes})")
    labels = jnp.asarray(labels)
    positions = lax.broadcasted_iota(labels.dtype, (1, classes), 1)
    hot = (labels[:, None] == positions).astype(features.dtype)
    loss, backprop = _cross_entropy(features, lax.stop_gradient(hot))
    bad = (labels < 0) | (labels >= classes)
    nan = jnp.asarray(np.nan, features.dtype)
    return jnp.where(bad, nan, loss), jnp.where(bad[:, None], nan, backprop)


@op("L2Loss", stored=True)
def l2_loss(t: Any) -> Any:
    """Half the sum of squares. See tf.raw_ops.L2Loss."""
    t = jnp.asarray(t)
    return in_float32(lambda v: jnp.sum(v * v) / jnp.asarray(2, v.dtype), t)
