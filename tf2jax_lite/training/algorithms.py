"""Federated algorithms and aggregations by name: what a shell command can say."""

from __future__ import annotations

from collections.abc import Callable

import optax

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.algorithms import fed_avg, mime
from tf2jax_lite.federated.data import ShuffleRepeatBatchHParams
from tf2jax_lite.federated.model import Model
from tf2jax_lite.federated.process import LearningProcess

__all__ = ["AGGREGATORS", "ALGORITHMS", "named_aggregator", "named_process"]

# Each takes (model, client optimizer, server optimizer, FedProx's mu, further options).
_PROCESSES: dict[str, Callable[..., LearningProcess]] = {
    "fed_avg": lambda m, c, s, mu, **k: fed_avg.build_weighted_fed_avg(m, c, s, **k),
    "unweighted_fed_avg": lambda m, c, s, mu, **k: fed_avg.build_unweighted_fed_avg(m, c, s, **k),
    "fed_prox": lambda m, c, s, mu, **k: fed_avg.build_fed_prox(m, mu, c, s, **k),
    "fed_sgd": lambda m, c, s, mu, **k: fed_avg.build_fed_sgd(m, s, **k),
    "mime": lambda m, c, s, mu, **k: mime.build_mime(m, c, **k),
    "mime_lite": lambda m, c, s, mu, **k: mime.build_mime_lite(m, c, **k),
}
ALGORITHMS = tuple(_PROCESSES)
_WITHOUT_SERVER = ("mime", "mime_lite")

_AGGREGATORS: dict[str, Callable[[], agg.Factory]] = {
    "mean": agg.MeanFactory,
    "unweighted_mean": agg.UnweightedMeanFactory,
    "robust": agg.robust_aggregator,
    "compression": agg.compression_aggregator,
    "median": agg.CoordinateMedianFactory,
    "trimmed_mean": agg.TrimmedMeanFactory,
    "krum": agg.KrumFactory,
    "geometric_median": agg.GeometricMedianFactory,
}
AGGREGATORS = (*_AGGREGATORS, "dp")


def named_aggregator(
    name: str | None, *, clients_per_round: int, noise_multiplier: float | None = None, clip_norm: float | None = None
) -> agg.Factory | None:
    """Returns an aggregation; None for the algorithm's own.

    Args:
      name: one of `AGGREGATORS`, or None.
      clients_per_round: for differential privacy.
      noise_multiplier: of "dp"; must be given there.
      clip_norm: of "dp", a fixed norm; adaptive clipping if None. Before other aggregations, a norm to clip to.

    Raises:
      InputError: no such name, or an option is missing or does not go with it.
    """
    if name is not None and name not in AGGREGATORS:
        raise InputError(f"no aggregator {name!r}; there are {', '.join(AGGREGATORS)}")
    if name != "dp" and noise_multiplier is not None:
        raise InputError("noise_multiplier goes with the aggregator dp")
    if name == "dp":
        if noise_multiplier is None:
            raise InputError("the aggregator dp needs a noise multiplier")
        if clip_norm is None:
            return agg.dp_aggregator(noise_multiplier, clients_per_round, zeroing=False)
        return agg.DifferentiallyPrivateFactory.gaussian_fixed(noise_multiplier, clients_per_round, clip_norm)
    found = None if name is None else _AGGREGATORS[name]()
    return found if clip_norm is None else agg.ClippingFactory(clip_norm, found or agg.MeanFactory())


def named_process(
    name: str,
    model: Model,
    client_optimizer: optax.GradientTransformation,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    batch_size: int,
    client_epochs: int = 1,
    aggregator: agg.Factory | None = None,
    proximal_strength: float = 0.01,
) -> LearningProcess:
    """Returns a training process.

    Args:
      name: one of `ALGORITHMS`.
      model: the model.
      client_optimizer: what clients step with; for mime the optimizer whose statistics clients use.
      server_optimizer: the server's; SGD with rate 1 if None.
      batch_size: examples in a client's step.
      client_epochs: how often a client goes through its examples in a round.
      aggregator: how updates become one; the algorithm's own if None.
      proximal_strength: mu of fed_prox.

    Raises:
      InputError: no such algorithm, or an option that does not go with it.
    """
    if name not in ALGORITHMS:
        raise InputError(f"no algorithm {name!r}; there are {', '.join(ALGORITHMS)}")
    if name in _WITHOUT_SERVER and server_optimizer is not None:
        raise InputError(f"{name} has no server optimizer")
    batching = ShuffleRepeatBatchHParams(batch_size=batch_size, num_epochs=client_epochs, fill_remainder=False)
    options = {"client_batching": batching, **({} if aggregator is None else {"aggregator": aggregator})}
    return _PROCESSES[name](model, client_optimizer, server_optimizer, proximal_strength, **options)
