"""Federated training of artifacts, and trained artifacts with their history."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from tf2jax_lite.artifacts.algorithms import (
    Domains,
    check_algorithm,
    check_domains,
    client_batching,
    count_domains,
    named_aggregator,
    named_process,
)
from tf2jax_lite.artifacts.finetune import TrainingReport, training_identity, write_result
from tf2jax_lite.artifacts.model import TrainableModel, trainable_model
from tf2jax_lite.artifacts.options import FederateOptions
from tf2jax_lite.export.atomic_dir import refuse_existing
from tf2jax_lite.federated.aggregators import gaussian_epsilon, gaussian_noise_multiplier
from tf2jax_lite.federated.aggregators.accounting import joint_noise_multiplier
from tf2jax_lite.federated.algorithms import kmeans_init
from tf2jax_lite.federated.training import federate
from tf2jax_lite.learning.checks import check_seed
from tf2jax_lite.learning.data import FederatedData, UniformGetClientSampler
from tf2jax_lite.learning.data.client_files import first_examples, prepared
from tf2jax_lite.learning.optimizers import named_optimizer, named_server_optimizer
from tf2jax_lite.learning.process import LearningProcess
from tf2jax_lite.support.errors import InputError, MissingLibraryError
from tf2jax_lite.support.options import takes

Report = Callable[[dict[str, Any]], None]
_ALGORITHMS_OF_OPTION = {
    "proximal_strength": ("fed_prox", "fed_dyn"),
    "personal_learning_rate": ("per_fed_avg",),
    "first_order": ("per_fed_avg",),
    "buffer_size": ("fed_buff",),
    "num_clusters": ("hyp_cluster",),
    "domain_key": ("agnostic_fed_avg",),
    "domain_learning_rate": ("agnostic_fed_avg",),
    "domain_window": ("agnostic_fed_avg",),
}


@takes(FederateOptions)
def federate_artifact(
    artifact: str | Path,
    clients: FederatedData,
    out: str | Path,
    *,
    eval_examples: Mapping[str, Any] | None = None,
    report: Report = lambda record: None,
    **options: Any,
) -> TrainingReport:
    """Train an artifact by federated learning and write a new one.

    See `finetune_artifact`. With ``algorithm="hyp_cluster"`` there are several models: ``out`` holds an artifact for
    each, ``cluster_0``, ``cluster_1``, ... `kmeans_init` initializes them, among clients drawn like a cohort. With the
    aggregator "dp", the artifact has neither the seed nor a value that privacy does not cover.

    Args:
      artifact: an artifact of ``tf2jax-lite convert``; with ``--train`` it has a training mode.
      clients: the clients, see `open_clients`; their examples hold the model's inputs by name, and the targets.
      out: the directory to create.
      eval_examples: evaluated on the server.
      report: called with each record of the history.
      **options: of `FederateOptions`.

    Raises:
      Tf2JaxError: see `trainable_model`, `named_process`, `federate` and `write_trained`.
    """
    given = FederateOptions(**options)
    refuse_existing(out, overwrite=given.overwrite)
    check_algorithm(given.algorithm)
    check_seed("federate", given.seed)
    _check_options(given)
    given = _with_defaults(given, clients.num_clients())
    agnostic = given.algorithm == "agnostic_fed_avg"
    key = given.domain_key or "domain_id"
    trainable = trainable_model(artifact, given, sample=first_examples(clients), beside=(key,) if agnostic else ())
    if agnostic:
        data, domains = _with_domains(clients, trainable, key, given)
    else:
        data, domains = prepared(clients, trainable.examples), None
    process = _process(given, trainable, clients.num_clients(), domains)
    params = None
    if given.algorithm == "hyp_cluster":
        params = _clusters(given, process, trainable, data)
    identity = {**training_identity(artifact, trainable), **given.identity(), "clients": clients.num_clients()}
    held_out = None
    if eval_examples is not None:
        held_out = trainable.examples(eval_examples, "the evaluation data", may_be_empty=False)
    state, history = federate(
        process,
        trainable.model,
        data,
        rounds=given.rounds,
        clients_per_round=given.clients_per_round,
        sampling=given.sampling,
        seed=given.seed,
        eval_examples=held_out,
        eval_every=given.eval_every,
        checkpoint_dir=given.checkpoint_dir,
        checkpoint_every=given.checkpoint_every,
        identity=identity,
        report=report,
        params=params,
    )
    size = given.clients_per_round
    record = {"kind": "federate", **identity, "rounds": given.rounds, "clients_per_round": size, "seed": given.seed}
    if "differential privacy" in process.guarantees:
        del record["seed"]  # of nothing that privacy rests on, and of no use: the training cannot be repeated
        record["privacy"] = _privacy(given, process, clients.num_clients())
    return write_result(artifact, out, process.get_model_weights(state), history, trainable, record, given.overwrite)


def _with_defaults(given: FederateOptions, num_clients: int) -> FederateOptions:
    """Return options with the defaults that depend on others."""
    server_rate = 0.1 if given.algorithm == "fed_sgd" else 1.0
    if given.target_epsilon is not None:
        size, rounds = given.clients_per_round, max(given.rounds, 1)
        noise = gaussian_noise_multiplier(
            given.target_epsilon, rounds, size, num_clients, _delta(num_clients), given.sampling
        )
        given = given.replace(noise_multiplier=noise)
    return given.replace(
        client_optimizer="sgd" if given.client_optimizer is None else given.client_optimizer,
        client_learning_rate=0.1 if given.client_learning_rate is None else given.client_learning_rate,
        server_learning_rate=server_rate if given.server_learning_rate is None else given.server_learning_rate,
        aggregator_options=dict(given.aggregator_options or {}),
    )


def _rates(given: FederateOptions) -> tuple[str, float, float]:
    """Return the clients' optimizer, its rate, and the server's rate."""
    client, client_rate, server_rate = given.client_optimizer, given.client_learning_rate, given.server_learning_rate
    assert client is not None and client_rate is not None and server_rate is not None
    return client, client_rate, server_rate


def _process(
    given: FederateOptions, trainable: TrainableModel, num_clients: int, domains: Domains | None
) -> LearningProcess:
    client, client_rate, server_rate = _rates(given)
    server = None
    # The server of these algorithms has a rate, and no optimizer; the default of all others is SGD.
    rated = given.algorithm not in ("scaffold", "mime", "mime_lite", "fed_dyn")
    if rated or any(v is not None for v in (given.server_optimizer, given.server_momentum, given.server_tau)):
        name = "sgd" if given.server_optimizer is None else given.server_optimizer
        server = named_server_optimizer(name, server_rate, momentum=given.server_momentum, tau=given.server_tau)
    return named_process(
        given.algorithm,
        trainable.model,
        named_optimizer(client, client_rate),
        server,
        batch_size=given.batch_size,
        client_epochs=given.client_epochs,
        aggregator=named_aggregator(
            given.aggregator,
            clients_per_round=given.clients_per_round,
            noise_multiplier=given.noise_multiplier,
            clip_norm=given.clip_norm,
            zeroing_norm=given.zeroing_norm,
            options=given.aggregator_options,
        ),
        proximal_strength=given.proximal_strength,
        client_decay=given.client_decay,
        num_clients=num_clients,
        learning_rates=(client_rate, server_rate),
        num_clusters=given.num_clusters,
        domains=domains,
        personal=(
            0.01 if given.personal_learning_rate is None else given.personal_learning_rate,
            bool(given.first_order),
        ),
        buffer=(given.buffer_size or max(1, given.clients_per_round // 2), given.clients_per_round),
        client_diagnostics=given.client_metrics,
    )


def _clusters(given: FederateOptions, process: LearningProcess, trainable: TrainableModel, data: FederatedData) -> Any:
    """Return the initial params of hyp_cluster's models."""
    if process.guarantees:
        raise InputError(
            f"the aggregator promises {' and '.join(sorted(process.guarantees))}, and hyp_cluster begins at the "
            "weights of single clients. Take another algorithm or aggregator."
        )
    count = 2 if given.num_clusters is None else given.num_clusters
    candidates = min(max(given.clients_per_round, count), data.num_clients())
    return kmeans_init(
        trainable.model,
        count,
        [dataset for _, dataset, _ in UniformGetClientSampler(data, candidates, [given.seed, 1]).sample()],
        named_optimizer(*_rates(given)[:2]),
        client_batching=client_batching(given.batch_size, given.client_epochs),
        key=jax.random.key(given.seed),
    )


def _delta(num_clients: int) -> float:
    return 1 / (10 * num_clients)


def _privacy(given: FederateOptions, process: LearningProcess, num_clients: int) -> dict[str, Any]:
    """Return the privacy of a training's clients; epsilon needs the extra ``dp``."""
    noise_multiplier, delta = round(joint_noise_multiplier(process), 12), _delta(num_clients)
    found = {"unit": "client", "sampling": given.sampling, "noise_multiplier": noise_multiplier}
    with contextlib.suppress(MissingLibraryError):
        size, rounds = given.clients_per_round, max(given.rounds, 1)
        epsilon = gaussian_epsilon(noise_multiplier, rounds, size, num_clients, delta, given.sampling)
        found |= {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta}
    return found


def _check_options(given: FederateOptions) -> None:
    """Raise `InputError` for options that the algorithm does not have."""
    for option, algorithms in _ALGORITHMS_OF_OPTION.items():
        if getattr(given, option) is not None and given.algorithm not in algorithms:
            raise InputError(f"{option} goes with {' or '.join(algorithms)}, not with {given.algorithm}")
    if given.target_epsilon is not None and (given.aggregator != "dp" or given.noise_multiplier is not None):
        raise InputError("target_epsilon goes with the aggregator dp, instead of noise_multiplier")
    if given.algorithm == "fed_buff" and given.aggregator == "dp":
        raise InputError(
            "fed_buff's rounds have the clients that answer, not a drawn cohort, which epsilon is computed for; take "
            "unweighted_fed_avg, or in Python build_fed_buff and an accountant of yours."
        )
    if given.algorithm in ("scaffold", "fed_nova") and given.client_optimizer not in (None, "sgd"):
        raise InputError(f"{given.algorithm}'s clients step with sgd, not {given.client_optimizer}")
    if given.algorithm == "fed_sgd" and not given.client_optimizer is given.client_learning_rate is None:
        raise InputError("fed_sgd's clients send gradients, and have no optimizer; its rate is server_learning_rate")


def _with_domains(
    clients: FederatedData, trainable: TrainableModel, key: str, given: FederateOptions
) -> tuple[FederatedData, Domains]:
    """Return the model's examples with domains under ``key``, and their counts."""
    if key in (*trainable.targets, *trainable.inputs):
        raise InputError(f"{key!r} is an array that the model takes; name that of the domains otherwise")
    rate = 0.1 if given.domain_learning_rate is None else given.domain_learning_rate
    domains = count_domains(clients, key, given.clients_per_round, rounds=given.domain_window or 1, learning_rate=rate)

    def examples(found: Any, where: str) -> dict[str, Any]:
        inputs = trainable.examples(found, where, beside=(key,))
        return {**inputs, key: check_domains(found, key, where, len(domains.weights))}

    return prepared(clients, examples), domains
