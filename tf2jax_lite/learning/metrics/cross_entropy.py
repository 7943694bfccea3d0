"""Elementwise cross entropies and errors, as Keras defines them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.learning.metrics.metric import as_float
from tf2jax_lite.support.errors import InputError

# Keras clips probabilities to [EPSILON, 1 - EPSILON] (keras.config.epsilon()).
EPSILON = 1e-7


def _log_probabilities(predictions: Any, from_logits: bool) -> jax.Array:
    values = as_float(predictions)
    if from_logits:
        return jax.nn.log_softmax(values, axis=-1)
    values = values / jnp.sum(values, axis=-1, keepdims=True)
    return jnp.log(jnp.clip(values, EPSILON, 1 - EPSILON))


def sparse_categorical_crossentropy(targets: Any, predictions: Any, *, from_logits: bool = True) -> jax.Array:
    """Cross entropy against class numbers.

    See keras.losses.sparse_categorical_crossentropy.

    Args:
      targets: integers, shape (...). A class that does not exist gives NaN.
      predictions: logits or probabilities, shape (..., classes). Probabilities are scaled to sum to 1 and clipped.
      from_logits: whether predictions are logits.

    Returns:
      Float32 or wider, shape (...), in nats.

    Raises:
      InputError: the shapes do not fit.
    """
    targets = jnp.asarray(targets)
    shape = jnp.shape(predictions)
    if targets.ndim == len(shape) and targets.shape == (*shape[:-1], 1):
        targets = targets[..., 0]
    if targets.shape != shape[:-1]:
        raise InputError(
            f"sparse_categorical_crossentropy: targets of shape {targets.shape} do not fit predictions of shape "
            f"{shape}; expected {shape[:-1]} class numbers."
        )
    log = _log_probabilities(predictions, from_logits)
    classes = shape[-1]
    targets = targets.astype(jnp.int32)
    # A sum over a masked row, not a gather: the gather's derivative is a scatter, which is a slow loop on CPUs.
    chosen = jax.lax.broadcasted_iota(jnp.int32, log.shape, log.ndim - 1) == targets[..., None]
    found = jnp.sum(jnp.where(chosen, log, 0), axis=-1)
    return jnp.where((targets >= 0) & (targets < classes), -found, jnp.nan)


def categorical_crossentropy(
    targets: Any, predictions: Any, *, from_logits: bool = True, label_smoothing: float = 0.0
) -> jax.Array:
    """Cross entropy against distributions. See keras.losses.categorical_crossentropy.

    Args:
      targets: one-hot rows or distributions, shape (..., classes).
      predictions: logits or probabilities, shape (..., classes).
      from_logits: whether predictions are logits.
      label_smoothing: the share in [0, 1] of each target that is spread over all classes.

    Returns:
      Float32 or wider, shape (...), in nats.

    Raises:
      InputError: the shapes do not fit.
    """
    targets = as_float(targets)
    if targets.shape != jnp.shape(predictions):
        raise InputError(
            f"categorical_crossentropy: targets of shape {targets.shape} do not fit predictions of shape "
            f"{jnp.shape(predictions)}; give one-hot rows, or use the sparse form for class numbers."
        )
    if label_smoothing:
        targets = targets * (1.0 - label_smoothing) + label_smoothing / targets.shape[-1]
    return -jnp.sum(targets * _log_probabilities(predictions, from_logits), axis=-1)


def binary_crossentropy(
    targets: Any, predictions: Any, *, from_logits: bool = True, label_smoothing: float = 0.0
) -> jax.Array:
    """Cross entropy of yes-or-no targets.

    See keras.losses.binary_crossentropy (without its mean over the last axis).

    Args:
      targets: 0 or 1 (or between), shape (...).
      predictions: logits or probabilities, shape (...).
      from_logits: whether predictions are logits.
      label_smoothing: pulls targets towards one half by this share.

    Returns:
      Float32 or wider, shape (...), in nats.

    Raises:
      InputError: the shapes do not fit.
    """
    targets, values = match(targets, predictions, "binary_crossentropy")
    if label_smoothing:
        targets = targets * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        # Neither term overflows: softplus(x) - x * t.
        return jnp.maximum(values, 0) - values * targets + jnp.log1p(jnp.exp(-jnp.abs(values)))
    values = jnp.clip(values, EPSILON, 1 - EPSILON)
    return -(targets * jnp.log(values) + (1 - targets) * jnp.log1p(-values))


def match(targets: Any, predictions: Any, what: str) -> tuple[jax.Array, jax.Array]:
    """Return targets and predictions as floats of one shape.

    A last dimension of size 1 may be missing from either (as in Keras).

    Raises:
      InputError: the shapes do not fit.
    """
    targets, values = as_float(targets), as_float(predictions)
    if targets.shape == (*values.shape, 1):
        targets = targets[..., 0]
    elif values.shape == (*targets.shape, 1):
        values = values[..., 0]
    if targets.shape != values.shape:
        raise InputError(f"{what}: targets of shape {targets.shape} and predictions of shape {values.shape} differ.")
    return targets, values
