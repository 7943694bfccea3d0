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
from tf2jax_lite.export.atomic_dir import refuse_existing
from tf2jax_lite.federated.aggregators import gaussian_epsilon
from tf2jax_lite.federated.algorithms import kmeans_init
from tf2jax_lite.federated.training import federate
from tf2jax_lite.learning.checks import check_seed
from tf2jax_lite.learning.data import FederatedData, UniformGetClientSampler
from tf2jax_lite.learning.data.client_files import first_examples, prepared
from tf2jax_lite.learning.optimizers import named_optimizer, named_server_optimizer
from tf2jax_lite.support.errors import InputError, MissingLibraryError

Report = Callable[[dict[str, Any]], None]
_ALGORITHMS_OF_OPTION = {
    "proximal_strength": ("fed_prox",),
    "num_clusters": ("hyp_cluster",),
    "domain_key": ("agnostic_fed_avg",),
    "domain_learning_rate": ("agnostic_fed_avg",),
    "domain_window": ("agnostic_fed_avg",),
}


def federate_artifact(
    artifact: str | Path,
    clients: FederatedData,
    out: str | Path,
    *,
    loss: str,
    algorithm: str = "fed_avg",
    rounds: int = 1,
    clients_per_round: int = 10,
    batch_size: int = 20,
    client_epochs: int = 1,
    client_optimizer: str | None = None,
    client_learning_rate: float | None = None,
    server_optimizer: str | None = None,
    server_learning_rate: float | None = None,
    server_momentum: float | None = None,
    server_tau: float | None = None,
    aggregator: str | None = None,
    aggregator_options: Mapping[str, Any] | None = None,
    noise_multiplier: float | None = None,
    clip_norm: float | None = None,
    zeroing_norm: float | None = None,
    proximal_strength: float | None = None,
    client_decay: float = 1.0,
    num_clusters: int | None = None,
    domain_key: str | None = None,
    domain_learning_rate: float | None = None,
    domain_window: int | None = None,
    seed: int = 0,
    eval_examples: Mapping[str, Any] | None = None,
    eval_every: int = 1,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 1,
    overwrite: bool = False,
    report: Report = lambda record: None,
    **model_options: Any,
) -> TrainingReport:
    """Train an artifact by federated learning and write a new one.

    See `finetune_artifact`. With ``algorithm="hyp_cluster"`` there are several models: ``out`` holds an artifact for
    each, ``cluster_0``, ``cluster_1``, ... `kmeans_init` initializes them, among clients drawn like a cohort.

    Args:
      artifact: an artifact of ``tf2jax-lite convert``; with ``--train`` it has a training mode.
      clients: the clients, see `open_clients`; their examples hold the model's inputs by name, and the targets.
      out: the directory to create.
      loss: a name, see `tf2jax_lite.learning.losses.LOSSES`.
      algorithm: see `named_process`.
      rounds: number of rounds.
      clients_per_round: size of a cohort.
      batch_size: examples per client step.
      client_epochs: a client's passes over its examples in a round.
      client_optimizer: a name, see `named_optimizer`; SGD by default.
      client_learning_rate: its rate, 0.1 by default.
      server_optimizer: a name, see `named_server_optimizer`; SGD with rate 1 (averaging) by default.
      server_learning_rate: its rate, 1 by default; of fed_sgd 0.1, as TFF has it.
      server_momentum: its momentum.
      server_tau: of adam, yogi and adagrad, 1e-3 by default; see `named_server_optimizer`.
      aggregator: see `named_aggregator`, as for noise_multiplier, clip_norm and zeroing_norm.
      aggregator_options: its ``options``; see `named_aggregator`.
      noise_multiplier: see `named_aggregator`.
      clip_norm: see `named_aggregator`.
      zeroing_norm: see `named_aggregator`.
      proximal_strength: mu of fed_prox, 0.01 by default.
      client_decay: see `named_process`.
      num_clusters: number of models of hyp_cluster, 2 by default.
      domain_key: of agnostic_fed_avg, the name of the array of each example's domain, integers from 0; ``domain_id``
        by default. All clients are read once to count examples by domain.
      domain_learning_rate: of agnostic_fed_avg, the learning rate of the domains' weights, 0.1 by default.
      domain_window: of agnostic_fed_avg, the number of rounds over which examples are counted, 1 by default.
      seed: for cohorts, orders and the model's random numbers. With the aggregator "dp", cohorts and noise come from
        the operating system's entropy, and the artifact has neither the seed nor a value that privacy does not cover.
      eval_examples: evaluated on the server.
      eval_every: evaluate after this many rounds.
      checkpoint_dir: the state is saved there, and training resumes from it; see `federate`.
      checkpoint_every: save it after this many rounds.
      overwrite: replace an existing artifact at ``out``.
      report: called with each record of the history.
      **model_options: see `trainable_model`: from_logits, label, output, train_signature, eval_signature, freeze,
        backend.

    Raises:
      Tf2JaxError: see `trainable_model`, `named_process`, `federate` and `write_trained`.
    """
    refuse_existing(out, overwrite=overwrite)
    check_algorithm(algorithm)
    check_seed("federate", seed)
    given = {
        "proximal_strength": proximal_strength,
        "num_clusters": num_clusters,
        "domain_key": domain_key,
        "domain_learning_rate": domain_learning_rate,
        "domain_window": domain_window,
    }
    _check_options(algorithm, given, client_optimizer, client_learning_rate)
    client = (
        "sgd" if client_optimizer is None else client_optimizer,
        0.1 if client_learning_rate is None else client_learning_rate,
    )
    server_rate = server_learning_rate
    if server_rate is None:
        server_rate = 0.1 if algorithm == "fed_sgd" else 1.0
    key = "domain_id" if domain_key is None else domain_key
    beside = (key,) if algorithm == "agnostic_fed_avg" else ()
    trainable = trainable_model(artifact, loss, sample=first_examples(clients), beside=beside, **model_options)
    if algorithm == "agnostic_fed_avg":
        rate = 0.1 if domain_learning_rate is None else domain_learning_rate
        window = 1 if domain_window is None else domain_window
        data, domains = _with_domains(clients, trainable, key, clients_per_round, window, rate)
    else:
        data, domains = prepared(clients, trainable.examples), None
    server = None
    # The server of these algorithms has a rate, and no optimizer; the default of all others is SGD.
    rated = algorithm not in ("scaffold", "mime", "mime_lite")
    if rated or any(option is not None for option in (server_optimizer, server_momentum, server_tau)):
        name = "sgd" if server_optimizer is None else server_optimizer
        server = named_server_optimizer(name, server_rate, momentum=server_momentum, tau=server_tau)
    process = named_process(
        algorithm,
        trainable.model,
        named_optimizer(*client),
        server,
        batch_size=batch_size,
        client_epochs=client_epochs,
        aggregator=named_aggregator(
            aggregator,
            clients_per_round=clients_per_round,
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            zeroing_norm=zeroing_norm,
            options=aggregator_options,
        ),
        proximal_strength=proximal_strength,
        client_decay=client_decay,
        num_clients=clients.num_clients(),
        learning_rates=(client[1], server_rate),
        num_clusters=num_clusters,
        domains=domains,
    )
    params = None
    if algorithm == "hyp_cluster" and process.guarantees:
        raise InputError(
            f"the aggregator promises {' and '.join(sorted(process.guarantees))}, and hyp_cluster begins at the "
            "weights of single clients. Take another algorithm or aggregator."
        )
    if algorithm == "hyp_cluster":
        count = 2 if num_clusters is None else num_clusters
        candidates = min(max(clients_per_round, count), clients.num_clients())
        params = kmeans_init(
            trainable.model,
            count,
            [dataset for _, dataset, _ in UniformGetClientSampler(data, candidates, [seed, 1]).sample()],
            named_optimizer(*client),
            client_batching=client_batching(batch_size, client_epochs),
            key=jax.random.key(seed),
        )
    options = {
        "algorithm": algorithm,
        "batch_size": batch_size,
        "client_epochs": client_epochs,
        "client_optimizer": client[0],
        "client_learning_rate": client[1],
        "server_optimizer": server_optimizer,
        "server_learning_rate": server_rate,
        "server_momentum": server_momentum,
        "aggregator": aggregator,
        "aggregator_options": dict(aggregator_options or {}),
        "noise_multiplier": noise_multiplier,
        "clip_norm": clip_norm,
        "zeroing_norm": zeroing_norm,
        "client_decay": client_decay,
        **({} if server_tau is None else {"server_tau": server_tau}),
        **{name: value for name, value in given.items() if value is not None},
        "clients": clients.num_clients(),
    }
    identity = training_identity(artifact, loss, trainable, model_options, options)
    held_out = None
    if eval_examples is not None:
        held_out = trainable.examples(eval_examples, "the evaluation data", may_be_empty=False)
    state, history = federate(
        process,
        trainable.model,
        data,
        rounds=rounds,
        clients_per_round=clients_per_round,
        seed=seed,
        eval_examples=held_out,
        eval_every=eval_every,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=checkpoint_every,
        identity=identity,
        report=report,
        params=params,
    )
    record = {"kind": "federate", **identity, "rounds": rounds, "clients_per_round": clients_per_round, "seed": seed}
    if "differential privacy" in process.guarantees:
        del record["seed"]  # of nothing that privacy rests on, and of no use: the training cannot be repeated
        record["privacy"] = _privacy(noise_multiplier, rounds, clients_per_round, clients.num_clients())
    return write_result(artifact, out, process.get_model_weights(state), history, trainable, record, overwrite)


def _privacy(noise_multiplier: Any, rounds: int, clients_per_round: int, num_clients: int) -> dict[str, Any]:
    """Return the privacy of a training's clients; epsilon needs the extra ``dp``."""
    found = {"unit": "client", "sampling": "fixed_size", "noise_multiplier": noise_multiplier}
    with contextlib.suppress(MissingLibraryError):
        delta = 1 / (10 * num_clients)
        epsilon = gaussian_epsilon(
            noise_multiplier, max(rounds, 1), clients_per_round, num_clients, delta, "fixed_size"
        )
        found |= {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta}
    return found


def _check_options(
    algorithm: str, given: Mapping[str, Any], client_optimizer: str | None, client_learning_rate: float | None
) -> None:
    """Raise `InputError` for options that the algorithm does not have."""
    for option, value in given.items():
        if value is not None and algorithm not in _ALGORITHMS_OF_OPTION[option]:
            raise InputError(f"{option} goes with {' and '.join(_ALGORITHMS_OF_OPTION[option])}, not with {algorithm}")
    if algorithm == "scaffold" and client_optimizer not in (None, "sgd"):
        raise InputError(f"scaffold's clients step with sgd, not {client_optimizer}")
    if algorithm == "fed_sgd" and not client_optimizer is client_learning_rate is None:
        raise InputError("fed_sgd's clients send gradients, and have no optimizer; its rate is server_learning_rate")


def _with_domains(
    clients: FederatedData, trainable: TrainableModel, key: str, clients_per_round: int, rounds: int, rate: float
) -> tuple[FederatedData, Domains]:
    """Return the model's examples with domains under ``key``, and their counts."""
    if key in (*trainable.targets, *trainable.inputs):
        raise InputError(f"{key!r} is an array that the model takes; name that of the domains otherwise")
    domains = count_domains(clients, key, clients_per_round, rounds=rounds, learning_rate=rate)

    def examples(found: Any, where: str) -> dict[str, Any]:
        inputs = trainable.examples(found, where, beside=(key,))
        return {**inputs, key: check_domains(found, key, where, len(domains.weights))}

    return prepared(clients, examples), domains
