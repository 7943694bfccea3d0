"""Federated averaging and its relatives: FedProx, FedSGD, FedOpt.

Sources: McMahan et al. 2017 (FedAvg), Li et al. 2018 (FedProx), Reddi et al. 2020 (FedOpt, "Adaptive Federated
Optimization"); tff.learning.algorithms.build_weighted_fed_avg and its siblings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import optax

from tf2jax_lite.federated.aggregators import MeanFactory, UnweightedMeanFactory
from tf2jax_lite.federated.client_work import (
    ClientOptimizer,
    ClientWeighting,
    build_fed_sgd_client_work,
    build_model_delta_client_work,
)
from tf2jax_lite.federated.compose import (
    Distributor,
    LearningState,
    build_apply_optimizer_finalizer,
    compose_learning_process,
)
from tf2jax_lite.federated.execution import Execution
from tf2jax_lite.federated.execution.cohort import Batching
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model
from tf2jax_lite.learning.optimizers import server_optimizer
from tf2jax_lite.learning.process import LearningProcess
from tf2jax_lite.support.errors import InputError

R = TypeVar("R")
_NAMES = {
    "client_optimizer_fn": "client_optimizer",
    "model_aggregator": "aggregator",
    "model_distributor": "distributor",
    "model_fn": "model",
    "reconstruction_optimizer_fn": "reconstruction_optimizer",
    "server_optimizer_fn": "server_optimizer",
}


def takes_tff_keywords(builder: Callable[..., R]) -> Callable[..., R]:
    """Return a builder that takes TFF's keywords, too.

    They are ``model_fn``, ``client_optimizer_fn``, ``server_optimizer_fn``, ``reconstruction_optimizer_fn``,
    ``model_aggregator`` and ``model_distributor``; their values are those of this library's keywords.
    """

    @functools.wraps(builder)
    def build(*args: Any, **kwargs: Any) -> R:
        for theirs in _NAMES.keys() & kwargs.keys():
            if _NAMES[theirs] in kwargs:
                raise InputError(f"{builder.__name__}: {theirs} is TFF's name of {_NAMES[theirs]}; give one of them")
            kwargs[_NAMES[theirs]] = kwargs.pop(theirs)
        return builder(*args, **kwargs)

    return build


@takes_tff_keywords
def build_weighted_fed_avg(
    model: Model,
    client_optimizer: ClientOptimizer,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    proximal_strength: float = 0.0,
    distributor: Distributor | None = None,
    aggregator: Any = None,
    train_metrics: Mapping[str, Metric] | None = None,
    client_diagnostics: bool = False,
    client_batching: Batching | None = None,
    client_execution: Execution = "auto",
    clients_per_chunk: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> LearningProcess[LearningState]:
    """Build federated averaging.

    The server's gradient is the weighted mean of the clients' differences, initial minus final weights. FedOpt is this
    with another server optimizer: ``optax.adam``, ``optax.yogi``, ``optax.adagrad``, ``optax.sgd(lr, momentum=0.9)``.
    See tff.learning.algorithms.build_weighted_fed_avg.

    Args:
      model: the model.
      client_optimizer: an optax transformation for each client's training, or a function from the round's number
        (int32, traced) to one: ``lambda r: optax.sgd(0.1 * 0.99**r)``.
      server_optimizer: ``optax.sgd(1.0)`` by default. Its schedules count rounds.
      client_weighting: ``"num_examples"`` or ``"uniform"``.
      proximal_strength: see `build_fed_prox`.
      distributor: see `compose_learning_process`.
      aggregator: the weighted mean by default; see `compose_learning_process`.
      train_metrics: metrics of predictions in training mode, beside ``loss`` and ``num_examples``.
      client_diagnostics: see `compose_learning_process`.
      client_batching: see `compose_learning_process`.
      client_execution: see `compose_learning_process`.
      clients_per_chunk: see `compose_learning_process`.
      mesh: see `compose_learning_process`.

    Raises:
      InputError: an option does not fit.
    """
    check_number("build_weighted_fed_avg", "proximal_strength", proximal_strength, least=0)
    work = build_model_delta_client_work(
        model,
        client_optimizer,
        client_weighting=client_weighting,
        proximal_strength=float(proximal_strength),  # a number of NumPy's would widen bfloat16
        train_metrics=check_metrics("build_weighted_fed_avg", "train_metrics", train_metrics),
    )
    return compose_learning_process(
        model,
        client_work=work,
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=build_apply_optimizer_finalizer(server_optimizer or optax.sgd(1.0)),
        distributor=distributor,
        client_diagnostics=client_diagnostics,
        client_batching=client_batching,
        client_execution=client_execution,
        clients_per_chunk=clients_per_chunk,
        mesh=mesh,
    )


@takes_tff_keywords
def build_unweighted_fed_avg(
    model: Model,
    client_optimizer: ClientOptimizer,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    aggregator: Any = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build federated averaging in which every client counts the same.

    Args:
      model: the model.
      client_optimizer: each client's optimizer, or a function of the round.
      server_optimizer: applies the clients' mean change; SGD of rate 1 by default.
      aggregator: of changes; the unweighted mean by default.
      **options: as for `build_weighted_fed_avg`.
    """
    return build_weighted_fed_avg(
        model,
        client_optimizer,
        server_optimizer,
        client_weighting="uniform",
        aggregator=UnweightedMeanFactory() if aggregator is None else aggregator,
        **options,
    )


@takes_tff_keywords
def build_weighted_fed_prox(
    model: Model,
    proximal_strength: float,
    client_optimizer: ClientOptimizer,
    server_optimizer: optax.GradientTransformation | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build FedProx. See tff.learning.algorithms.build_weighted_fed_prox.

    Clients' losses have a term mu/2 * |w - w_server|^2. See `build_weighted_fed_avg`.

    Args:
      model: the model.
      proximal_strength: mu, 0 or more.
      client_optimizer: as for `build_weighted_fed_avg`.
      server_optimizer: as for `build_weighted_fed_avg`.
      **options: as for `build_weighted_fed_avg`.
    """
    return build_weighted_fed_avg(
        model, client_optimizer, server_optimizer, proximal_strength=proximal_strength, **options
    )


build_fed_prox = build_weighted_fed_prox


@takes_tff_keywords
def build_unweighted_fed_prox(
    model: Model,
    proximal_strength: float,
    client_optimizer: ClientOptimizer,
    server_optimizer: optax.GradientTransformation | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build FedProx in which every client counts the same.

    See tff.learning.algorithms.build_unweighted_fed_prox.

    Args:
      model: the model.
      proximal_strength: factor of the squared distance from the server's weights.
      client_optimizer: each client's optimizer, or a function of the round.
      server_optimizer: applies the clients' mean change.
      **options: as for `build_weighted_fed_avg`.
    """
    return build_unweighted_fed_avg(
        model, client_optimizer, server_optimizer, proximal_strength=proximal_strength, **options
    )


@takes_tff_keywords
def build_weighted_fed_avg_with_optimizer_schedule(
    model: Model,
    client_learning_rate_fn: Callable[[Any], Any],
    client_optimizer: Callable[[Any], optax.GradientTransformation],
    server_optimizer: optax.GradientTransformation | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build federated averaging whose clients' learning rate depends on the round.

    See tff.learning.algorithms.build_weighted_fed_avg_with_optimizer_schedule.

    Args:
      model: the model.
      client_learning_rate_fn: ``(round) -> learning rate``; the round counts from 0, int32, traced.
      client_optimizer: ``(learning rate) -> optax transformation``, such as ``optax.sgd``.
      server_optimizer: as for `build_weighted_fed_avg`.
      **options: as for `build_weighted_fed_avg`.
    """
    return build_weighted_fed_avg(
        model, _scheduled(client_learning_rate_fn, client_optimizer), server_optimizer, **options
    )


@takes_tff_keywords
def build_unweighted_fed_avg_with_optimizer_schedule(
    model: Model,
    client_learning_rate_fn: Callable[[Any], Any],
    client_optimizer: Callable[[Any], optax.GradientTransformation],
    server_optimizer: optax.GradientTransformation | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build `build_weighted_fed_avg_with_optimizer_schedule` with equal clients.

    Args:
      model: the model.
      client_learning_rate_fn: the clients' learning rate by round.
      client_optimizer: a function of the learning rate.
      server_optimizer: applies the clients' mean change.
      **options: as for `build_weighted_fed_avg`.
    """
    return build_unweighted_fed_avg(
        model, _scheduled(client_learning_rate_fn, client_optimizer), server_optimizer, **options
    )


def _scheduled(learning_rate_fn: Any, optimizer: Any) -> Callable[[Any], optax.GradientTransformation]:
    for name, value in (("client_learning_rate_fn", learning_rate_fn), ("client_optimizer", optimizer)):
        if not callable(value) or isinstance(value, tuple):
            raise InputError(
                f"{name} is a function, as in lambda round: 0.1 * 0.99**round, and optax.sgd; not {value!r}"
            )
    return lambda round_number: optimizer(learning_rate_fn(round_number))


@takes_tff_keywords
def build_fed_sgd(
    model: Model,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build federated SGD.

    Clients send gradients at the server's weights. See tff.learning.algorithms.build_fed_sgd.

    Args:
      model: the model.
      server_optimizer: ``optax.sgd(0.1)`` by default, as TFF's.
      client_weighting: ``"num_examples"`` or ``"uniform"``.
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: see `compose_learning_process`.
      **options: see `compose_learning_process`.

    Raises:
      InputError: an option does not fit.
    """
    metrics = check_metrics("build_fed_sgd", "train_metrics", train_metrics)
    work = build_fed_sgd_client_work(model, client_weighting=client_weighting, train_metrics=metrics)
    return compose_learning_process(
        model,
        client_work=work,
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=build_apply_optimizer_finalizer(server_optimizer or optax.sgd(0.1)),
        **options,
    )


@takes_tff_keywords
def build_fed_opt(
    model: Model,
    client_optimizer: ClientOptimizer,
    optimizer: str | optax.GradientTransformation = "adam",
    learning_rate: Any = 1e-2,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build FedOpt: FedAvg with an adaptive optimizer at the server.

    FedAdam, FedYogi, FedAdagrad and FedAvgM are its cases.

    Args:
      model: the model.
      client_optimizer: see `build_weighted_fed_avg`.
      optimizer: a name for `server_optimizer`, or an optax transformation.
      learning_rate: of a named optimizer.
      **options: see `build_weighted_fed_avg`.

    Raises:
      InputError: no such optimizer, or an option that does not fit.
    """
    server = server_optimizer(optimizer, learning_rate) if isinstance(optimizer, str) else optimizer
    return build_weighted_fed_avg(model, client_optimizer, server, **options)
