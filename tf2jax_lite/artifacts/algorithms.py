"""Name federated algorithms, aggregators and domains, as the command line does."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import optax

from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.aggregators.base import NAMED
from tf2jax_lite.federated.algorithms import (
    agnostic,
    fed_avg,
    fed_buff,
    fed_dyn,
    fed_nova,
    hyp_cluster,
    mime,
    per_fed_avg,
    scaffold,
)
from tf2jax_lite.federated.client_work import ClientOptimizer
from tf2jax_lite.learning.data import FederatedData, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.model import Model
from tf2jax_lite.learning.process import LearningProcess
from tf2jax_lite.support.errors import DataError, InputError

MAX_DOMAINS = 10_000
"""More domains are treated as an error: the key of another array."""


class Domains(NamedTuple):
    """The domains of a training.

    Attributes:
      key: the examples' key of the domain's number.
      weights: the initial mixture, one positive number per domain.
      window: (rounds, domains), the expected number of examples by domain in a round.
      learning_rate: of the mixture.
    """

    key: str
    weights: list[float]
    window: list[list[float]]
    learning_rate: float = 0.1


def check_domains(examples: Mapping[str, Any], key: str, where: str, count: int | None = None) -> np.ndarray:
    """Return the examples' domains, int32 (n,).

    Raises:
      DataError: the array is missing, or has other values than integers from 0 to ``count - 1``.
    """
    if key not in examples:
        raise DataError(f"{where}: no array {key!r} of the examples' domains among {sorted(examples)} (domain_key=)")
    found = np.asarray(examples[key])
    limit = MAX_DOMAINS if count is None else count
    if found.dtype.kind not in "iu" or found.ndim != 1 or (found.size and (found.min() < 0 or found.max() >= limit)):
        raise DataError(
            f"{where}: {key!r} holds the examples' domains, integers from 0 to {limit - 1} of shape (n,); "
            f"not {found.dtype}{list(found.shape)}{_span(found)}"
        )
    return found.astype(np.int32)


def _span(found: np.ndarray) -> str:
    return f" from {found.min()} to {found.max()}" if found.size and found.dtype.kind in "iuf" else ""


def count_domains(
    clients: FederatedData, key: str, clients_per_round: int, *, rounds: int = 1, learning_rate: float = 0.1
) -> Domains:
    """Count the domains of all clients.

    Each gets the same weight, and the mean number of examples in a cohort.

    Args:
      clients: the clients.
      key: the examples' key of the domain's number.
      clients_per_round: size of a cohort.
      rounds: the number of rounds in the window.
      learning_rate: of the mixture.

    Raises:
      DataError: a client's domains are invalid.
      InputError: a number is out of range, or a domain has no examples.
    """
    if rounds < 1 or not learning_rate >= 0:
        raise InputError(
            f"the domains' window is 1 or more rounds and their rate 0 or more, not {rounds}, {learning_rate}"
        )
    counts = np.zeros(0, np.int64)
    number = 0
    for client_id, dataset in clients.clients():
        number += 1
        if not len(dataset):
            continue
        here = np.bincount(check_domains(dataset.all_examples(), key, f"client {client_id!r}"))
        counts = np.pad(counts, (0, max(0, len(here) - len(counts))))
        counts[: len(here)] += here
    if not counts.size or not counts.all():
        raise InputError(f"domains are numbered from 0 without gaps; {key!r} has examples by domain {counts.tolist()}")
    mean = counts * (clients_per_round / number)
    return Domains(key, [1.0 / len(counts)] * len(counts), [mean.tolist()] * rounds, learning_rate)


@dataclasses.dataclass(frozen=True)
class _Options:
    """Checked options of a training process."""

    model: Model
    plain: optax.GradientTransformation
    client: ClientOptimizer
    server: optax.GradientTransformation | None
    proximal_strength: float
    num_clients: int
    rates: tuple[float, float]
    num_clusters: int
    domains: Domains | None
    personal: tuple[float, bool]
    buffer: tuple[int, int]
    options: dict[str, Any]


def _agnostic(w: _Options) -> LearningProcess:
    if w.domains is None:
        raise InputError("agnostic_fed_avg needs domains")
    return agnostic.build_agnostic_fed_avg(
        w.model,
        w.client,
        w.server,
        init_domain_weights=w.domains.weights,
        init_domain_window=w.domains.window,
        domain_learning_rate=w.domains.learning_rate,
        domain_id_key=w.domains.key,
        **w.options,
    )


def _both_passes(w: _Options) -> dict[str, Any]:
    """Return Mime's options, with an aggregator of the gradients where one is needed."""
    aggregator = w.options.get("aggregator")
    if aggregator is None or not aggregator.create(w.model.shapes.trainable).guarantees:
        return w.options
    return {**w.options, "full_gradient_aggregator": aggregator}


_PROCESSES: dict[str, Callable[[_Options], LearningProcess]] = {
    "fed_avg": lambda w: fed_avg.build_weighted_fed_avg(w.model, w.client, w.server, **w.options),
    "unweighted_fed_avg": lambda w: fed_avg.build_unweighted_fed_avg(w.model, w.client, w.server, **w.options),
    "fed_prox": lambda w: fed_avg.build_fed_prox(w.model, w.proximal_strength, w.client, w.server, **w.options),
    "fed_sgd": lambda w: fed_avg.build_fed_sgd(w.model, w.server, **w.options),
    "fed_nova": lambda w: fed_nova.build_fed_nova(w.model, w.rates[0], w.server, **w.options),
    "fed_dyn": lambda w: fed_dyn.build_fed_dyn(w.model, w.num_clients, w.proximal_strength, w.client, **w.options),
    "per_fed_avg": lambda w: per_fed_avg.build_per_fed_avg(
        w.model, w.personal[0], w.client, w.server, first_order=w.personal[1], **w.options
    ),
    "fed_buff": lambda w: fed_buff.build_fed_buff(
        w.model, w.client, w.server, buffer_size=w.buffer[0], concurrency=w.buffer[1], **w.options
    ),
    "mime": lambda w: mime.build_mime(w.model, w.plain, server_learning_rate=w.rates[1], **_both_passes(w)),
    "mime_lite": lambda w: mime.build_mime_lite(w.model, w.plain, server_learning_rate=w.rates[1], **_both_passes(w)),
    "scaffold": lambda w: scaffold.build_scaffold(
        w.model, w.num_clients, w.rates[0], server_learning_rate=w.rates[1], **w.options
    ),
    "agnostic_fed_avg": _agnostic,
    "hyp_cluster": lambda w: hyp_cluster.build_hyp_cluster(w.model, w.num_clusters, w.client, w.server, **w.options),
}
ALGORITHMS = tuple(_PROCESSES)
_WITHOUT_SERVER = ("mime", "mime_lite", "scaffold", "fed_dyn")
_REFUSED = dict.fromkeys(
    ("fed_kmeans", "kmeans", "k_means"),
    "it moves centroids among the data, and an artifact has none; "
    "in Python, tf2jax_lite.federated.build_fed_kmeans gives them",
)
_WITHOUT_SCHEDULE = ("mime", "mime_lite", "scaffold", "fed_sgd", "fed_nova")


def aggregator_names() -> tuple[str, ...]:
    """Return the names of aggregators."""
    return (*NAMED, "dp")


_BOOLS = {"true": True, "false": False}


def named_aggregator(
    name: str | None,
    *,
    clients_per_round: int,
    noise_multiplier: float | None = None,
    clip_norm: float | None = None,
    zeroing_norm: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> agg.Factory | None:
    """Return an aggregator; None for the algorithm's own.

    Args:
      name: one of `aggregator_names`, or None.
      clients_per_round: for differential privacy.
      noise_multiplier: required by "dp".
      clip_norm: of "dp", a fixed norm; adaptive clipping if None. Of other aggregators, a norm to clip to.
      zeroing_norm: of all aggregators: updates with a larger element are replaced by zeros.
      options: more of the aggregation's own, by the names of its factory: ``num_byzantine`` of "krum",
        ``trim_fraction`` of "trimmed_mean", ``bound`` of "secure", ``num_levels`` of "quantized". Bools may be text:
        "true", "False".

    Raises:
      InputError: no such name, or an option is missing, out of range or does not go with it.
    """
    known = aggregator_names()
    if name is not None and name not in known:
        raise InputError(f"no aggregator {name!r}; there are {', '.join(known)}")
    if name != "dp" and noise_multiplier is not None:
        raise InputError("noise_multiplier goes with the aggregator dp")
    given = dict(options or {})
    if name is None and given:
        raise InputError(f"options {sorted(given)} without an aggregator; name one of {', '.join(known)}")
    found: agg.Factory | None = None
    if name == "dp":
        if noise_multiplier is None:
            raise InputError("the aggregator dp needs a noise multiplier")
        private = agg.DifferentiallyPrivateFactory
        if clip_norm is None:
            found = _made(
                name, functools.partial(private.gaussian_adaptive, noise_multiplier, clients_per_round), given
            )
        else:
            fixed = functools.partial(private.gaussian_fixed, noise_multiplier, clients_per_round, clip_norm)
            found = _made(name, fixed, given)
    elif name is not None:
        found = _made(name, NAMED[name], given)
    if clip_norm is not None and name != "dp":
        found = agg.ClippingFactory(clip_norm, found or agg.MeanFactory())
    return found if zeroing_norm is None else agg.ZeroingFactory(zeroing_norm, found or agg.MeanFactory())


def _made(name: str, make: Callable[..., agg.Factory], options: Mapping[str, Any]) -> agg.Factory:
    known = inspect.signature(make).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        raise InputError(f"the aggregator {name} has no option {unknown[0]!r}; it has {sorted(known) or 'none'}")
    checked = {n: _like(f"the aggregator {name}: {n}", known[n].default, value) for n, value in options.items()}
    try:
        return make(**checked)
    except TypeError as error:
        raise InputError(f"the aggregator {name} does not take {dict(options)}: {error}") from error


def _like(name: str, default: Any, value: Any) -> Any:
    """Return an option's value if it has its default's type.

    Bools may be text, as on the command line.
    """
    if isinstance(default, bool):
        found = _BOOLS.get(value.strip().lower()) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise InputError(f"{name} is true or false, not {value!r}")
        return found
    if isinstance(default, (int, float)) and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise InputError(f"{name} is a number such as {default!r}, not {value!r}")
    return value


def client_batching(batch_size: int, client_epochs: int) -> ShuffleRepeatBatchHParams:
    """Return the batching of a client's examples in a round.

    Shuffled epochs follow one another; the last batch is short.
    """
    return ShuffleRepeatBatchHParams(batch_size=batch_size, num_epochs=client_epochs, fill_remainder=False)


def check_algorithm(name: str) -> None:
    """Raise `InputError` if there is no such algorithm."""
    if name in _REFUSED:
        raise InputError(f"{name} does not train a model: {_REFUSED[name]}")
    if name not in ALGORITHMS:
        raise InputError(f"no algorithm {name!r}; there are {', '.join(ALGORITHMS)}")


def named_process(
    name: str,
    model: Model,
    client_optimizer: optax.GradientTransformation,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    batch_size: int,
    client_epochs: int = 1,
    aggregator: agg.Factory | None = None,
    proximal_strength: float | None = None,
    client_decay: float = 1.0,
    num_clients: int | None = None,
    learning_rates: tuple[float, float] | None = None,
    num_clusters: int | None = None,
    domains: Domains | None = None,
    personal: tuple[float, bool] = (0.01, False),
    buffer: tuple[int, int] = (5, 10),
    client_diagnostics: bool = False,
) -> LearningProcess:
    """Return a training process.

    Args:
      name: one of `ALGORITHMS`.
      model: the model.
      client_optimizer: the clients' optimizer; for mime the optimizer whose statistics clients use.
      server_optimizer: the server's; SGD with rate 1 if None.
      batch_size: examples per client step.
      client_epochs: a client's passes over its examples in a round.
      aggregator: of the clients' updates; the algorithm's own if None.
      proximal_strength: mu of fed_prox, alpha of fed_dyn, 0.01 by default.
      client_decay: clients' steps are scaled by this to the power of the round's number; above 0.
      num_clients: total number of clients; for scaffold and fed_dyn.
      learning_rates: of clients and the server; for scaffold and fed_nova, whose clients step with plain SGD, and, the
        server's alone, for mime.
      num_clusters: number of models of hyp_cluster, 2 by default.
      domains: of agnostic_fed_avg, see `count_domains`.
      personal: of per_fed_avg, the rate of a client's own step, and whether to leave second derivatives out.
      buffer: of fed_buff, how many clients answer in a round, and how many train at a time.
      client_diagnostics: see `compose_learning_process`.

    Raises:
      InputError: no such algorithm, or an option that does not go with it.
    """
    check_algorithm(name)
    if name in _WITHOUT_SERVER and server_optimizer is not None:
        raise InputError(f"{name} has no server optimizer")
    if not 0 < client_decay < math.inf:
        raise InputError(f"client_decay is above 0, and finite; not {client_decay}")
    for rate in learning_rates or ():
        if not 0 < rate < math.inf:
            raise InputError(f"learning rates are finite numbers above 0, not {rate}")
    if client_decay != 1 and name in _WITHOUT_SCHEDULE:
        raise InputError(f"client_decay does not go with {name}")
    needed = {"scaffold": (num_clients, learning_rates), "fed_dyn": (num_clients,), "fed_nova": (learning_rates,)}
    if None in needed.get(name, ()):
        raise InputError(f"{name} needs num_clients, the number of all clients, and learning_rates")
    batching = client_batching(batch_size, client_epochs)
    options: dict[str, Any] = {"client_batching": batching, "client_diagnostics": client_diagnostics}
    options |= {} if aggregator is None else {"aggregator": aggregator}

    def decaying(round_number: Any) -> optax.GradientTransformation:
        return optax.chain(client_optimizer, optax.scale(client_decay**round_number))

    chosen = _Options(
        model=model,
        plain=client_optimizer,
        client=client_optimizer if client_decay == 1 else decaying,
        server=server_optimizer,
        proximal_strength=0.01 if proximal_strength is None else proximal_strength,
        num_clients=num_clients or 1,
        rates=learning_rates or (0.1, 1.0),
        num_clusters=2 if num_clusters is None else num_clusters,
        domains=domains,
        personal=personal,
        buffer=buffer,
        options=options,
    )
    return _PROCESSES[name](chosen)
