"""The interface of metrics, and the evaluation of a batch.

See fedjax.metrics.{Metric, evaluate_batch}.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated._utils.user_functions import raised_by
from tf2jax_lite.support.errors import InputError

from .stat import Stat

# Where padded batches say which of their examples are real; FedJAX's EXAMPLE_MASK_KEY.
MASK_KEY = "__mask__"


@dataclasses.dataclass(frozen=True)
class Metric(abc.ABC):
    """A frozen, hashable dataclass of options, with two pure functions.

    It is a static argument of `jax.jit`.
    """

    @abc.abstractmethod
    def zero(self) -> Stat:
        """Return the statistic of no examples."""

    @abc.abstractmethod
    def evaluate_example(self, example: Mapping[str, Any], prediction: Any) -> Stat:
        """Return the statistic of one example.

        Args:
          example: dict of arrays without a batch dimension.
          prediction: the model's prediction for it, without a batch dimension.
        """

    def evaluate_examples(self, batch: Mapping[str, Any], predictions: Any, mask: Any) -> Stat:
        """Return the statistic of a batch.

        A metric overrides this where one example's statistic is large.

        Args:
          batch: dict of arrays of shape (n, ...).
          predictions: pytree of arrays of shape (n, ...).
          mask: bool (n,).
        """
        stats = jax.vmap(self.evaluate_example)(batch, predictions)

        def keep(value: Any, zero: Any) -> Any:
            # Not a product: values of padding may be NaN, and 0 * NaN is NaN.
            zero = jnp.asarray(zero)
            zero = jnp.reshape(zero, zero.shape + (1,) * (value.ndim - 1 - zero.ndim))
            return jnp.where(jnp.reshape(mask, mask.shape + (1,) * (value.ndim - 1)), value, zero)

        return jax.tree.map(keep, stats, self.zero()).reduce()


def check_metrics(who: str, name: str, metrics: Any) -> dict[str, Metric]:
    """Return metrics by name; none for None.

    Args:
      who: whose option it is.
      name: the option.
      metrics: the value of the option.

    Raises:
      InputError: it is not a dict, or an entry is not a metric.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise InputError(f"{who}: {name} is a dict from name to metric, not {type(metrics).__name__}")
    for key, metric in (metrics or {}).items():
        if not isinstance(metric, Metric):
            raise InputError(f"{who}: {name} is a dict from name to metric; {key!r} is a {type(metric).__name__}")
    return dict(metrics or {})


def evaluate_batch(metric: Metric, batch: Mapping[str, Any], predictions: Any, mask: Any = None) -> Stat:
    """Evaluate a metric over a batch, vectorized.

    Masked examples do not count.

    Args:
      metric: the metric.
      batch: dict of arrays of shape (n, ...).
      predictions: pytree of arrays of shape (n, ...).
      mask: bool (n,), False for padding. By default ``batch["__mask__"]``, or all True.

    Returns:
      The batch's statistic; merge those of all batches, then take the result.

    Raises:
      InputError: a key is absent, or shapes do not fit.
    """
    if mask is None:
        mask = batch.get(MASK_KEY)
    for name, value in batch.items():
        if getattr(value, "dtype", np.dtype(bool)).kind in "OSU":
            raise InputError(f"{type(metric).__name__}: {name!r} in the batch is text; metrics take numbers.")
    batch = {name: jnp.asarray(value) for name, value in batch.items() if name != MASK_KEY}
    sizes = {str(jnp.shape(leaf)[:1]) for leaf in jax.tree.leaves((batch, predictions))}
    if mask is None:
        leaves = jax.tree.leaves(predictions) or list(batch.values())
        mask = jnp.ones(jnp.shape(leaves[0])[:1], bool)
    mask = jnp.asarray(mask).astype(bool)
    if len(sizes | {str(mask.shape)}) > 1:
        shapes = {name: value.shape for name, value in batch.items()}
        raise InputError(
            f"{type(metric).__name__}: the batch {shapes}, the predictions {jax.tree.map(jnp.shape, predictions)} and "
            f"the mask {mask.shape} differ in the number of examples (the first dimension)."
        )
    with raised_by("a metric", metric):
        return metric.evaluate_examples(batch, predictions, mask)


def pick(metric: Metric, values: Any, key: str | None, what: str) -> jax.Array:
    """Return ``values[key]``, or ``values`` itself where the key is None.

    Raises:
      InputError: the key is missing; ``what`` names the structure.
    """
    if key is None:
        found = values
    elif isinstance(values, Mapping) and key in values:
        found = values[key]
    else:
        there = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        raise InputError(f"{type(metric).__name__}: the {what} has no key {key!r}; it has {there}.")
    if isinstance(found, (Mapping, list, tuple)):
        raise InputError(
            f"{type(metric).__name__}: the {what} is a {type(found).__name__}, not an array; name the array in it "
            "with pred_key (predictions) or target_key (examples)."
        )
    return jnp.asarray(found)


def as_float(value: Any) -> jax.Array:
    """Return ``value`` in float32 or wider: half-precision sums lose examples."""
    value = jnp.asarray(value)
    return value.astype(jnp.promote_types(value.dtype, jnp.float32))
