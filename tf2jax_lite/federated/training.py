"""Federated training: rounds over cohorts of clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from tf2jax_lite.federated.aggregators.privacy import fresh_words
from tf2jax_lite.federated.fairness import fairness_summary
from tf2jax_lite.learning.checkpoints import CheckpointFile
from tf2jax_lite.learning.checks import check_seed
from tf2jax_lite.learning.data import ClientDataset, FederatedData, PoissonSampler, UniformGetClientSampler
from tf2jax_lite.learning.loop import run_rounds
from tf2jax_lite.learning.model import Model, evaluate_model
from tf2jax_lite.learning.process import NOT_PRIVATE, LearningProcess, LearningProcessOutput, ModelWeights
from tf2jax_lite.learning.recorder import History, plain
from tf2jax_lite.support.errors import InputError, TrainingError

_SAMPLERS = {"fixed_size": UniformGetClientSampler, "poisson": PoissonSampler}


def federate(
    process: LearningProcess,
    model: Model,
    clients: FederatedData,
    *,
    rounds: int,
    clients_per_round: int,
    sampling: str = "fixed_size",
    seed: int = 0,
    eval_examples: Mapping[str, Any] | None = None,
    eval_every: int = 1,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 1,
    identity: Mapping[str, Any] | None = None,
    report: Callable[[dict[str, Any]], None] = lambda record: None,
    params: Any = None,
) -> tuple[Any, History]:
    """Run rounds of a training process.

    Each round draws a cohort, from the seed and the round's number. Results depend only on the arguments,
    even if a training was interrupted and resumed from a checkpoint. Under differential privacy the operating system's
    entropy draws cohorts and noise, and records have only values that privacy covers.

    Args:
      process: the training process.
      model: the model it trains, for evaluation.
      clients: the clients.
      rounds: number of rounds; 0 only evaluates.
      clients_per_round: size of a cohort; with "poisson" its expected size.
      sampling: "fixed_size" (uniform, without replacement), or "poisson" (each client by its own coin).
      seed: of cohorts, and of the process's key.
      eval_examples: dict of arrays (n, ...), evaluated on the server.
      eval_every: evaluate after this many rounds, and after the last.
      checkpoint_dir: the state is saved there. If it has one, training resumes from it.
      checkpoint_every: save it after this many rounds, and after the last.
      identity: values that must equal those of the checkpoint.
      report: called with each record of the history.
      params: initial params; see the process's ``initialize``.

    Returns:
      ``(state, history)``: the process's last state; records have ``train/...``, ``clients/...``, ``aggregator/...``,
      ``eval/...`` and ``seconds``; of a process with ``client_diagnostics``, these and ``fairness/...`` as well. A
      process of several models has ``cluster_0/train/...``, ``eval/cluster_0/...``.

    Raises:
      InputError: an argument is out of range.
      DataError: there are fewer clients than a cohort needs, or one cannot be read.
      CheckpointError: the checkpoint is damaged or of another training.
      TrainingError: in a round no client's update was finite.
    """
    if rounds < 0 or clients_per_round < 1 or eval_every < 1 or checkpoint_every < 1:
        raise InputError(
            "rounds is 0 or more, and clients_per_round, eval_every and checkpoint_every are at least 1; "
            f"not {rounds}, {clients_per_round}, {eval_every}, {checkpoint_every}."
        )
    check_seed("federate", seed)
    known = {"unit": "round", "clients_per_round": clients_per_round, "seed": seed, **(identity or {})}
    known |= {} if sampling == "fixed_size" else {"sampling": sampling}

    def evaluate(weights: Any) -> Mapping[str, Any]:
        assert eval_examples is not None
        if not isinstance(weights, ModelWeights):
            return {f"cluster_{i}": evaluate(found) for i, found in enumerate(weights)}
        return evaluate_model(model, weights, ClientDataset(dict(eval_examples)).padded_batch(batch_size=128))

    def watched(record: dict[str, Any]) -> None:
        report(record)
        _check_finite(record)

    def next_round(state: Any, client_data: Any) -> LearningProcessOutput:
        output = process.next(state, client_data)
        counts = output.metrics.get(NOT_PRIVATE, {}).get("clients", {})
        if counts.get("non_finite") and not counts["participated"]:
            raise TrainingError("in a round no client's update was finite, so nothing was learned.")
        if diagnostics := output.metrics.get("client_diagnostics"):
            return output._replace(metrics={**output.metrics, "fairness": fairness_summary(diagnostics)})
        return output

    private = "differential privacy" in process.guarantees
    if sampling not in _SAMPLERS:
        raise InputError(f"federate: sampling is one of {', '.join(_SAMPLERS)}; not {sampling!r}.")
    state, records = run_rounds(
        dataclasses.replace(process, next=next_round),
        _SAMPLERS[sampling](clients, clients_per_round, fresh_words() if private else seed),
        rounds,
        key=jax.random.key(seed),
        params=params,
        evaluate=None if eval_examples is None else evaluate,
        evaluate_every=eval_every,
        evaluate_first=True,
        checkpoint_dir=None if checkpoint_dir is None else CheckpointFile(checkpoint_dir, known),
        checkpoint_every=checkpoint_every,
        timed=not private,
        summarize=lambda metrics: _without_empty_means(plain(_short(metrics))),
        report=watched,
    )
    return state, History("round", records)


def _check_finite(record: Mapping[str, Any]) -> None:
    """Raise `TrainingError` for the record of a round that learned nothing."""
    lost = record.get("clients/non_finite")
    if lost and not record.get("clients/participated"):
        raise TrainingError(
            f"round {record['round']}: no client's update was finite ({lost} were not), so nothing was learned. "
            "Lower the learning rates, or look for values in the clients' data that are not finite, or too large."
        )


def _without_empty_means(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with None for metrics over zero examples.

    A loss of 0 would look perfect.
    """
    empty = [
        name[: -len("num_examples")] for name in record if name.endswith("train/num_examples") and not record[name]
    ]
    return {
        name: None if any(name.startswith(p) and name != f"{p}num_examples" for p in empty) else value
        for name, value in record.items()
    }


def _short(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round's metrics with ``client_work/train`` as ``train``.

    Those of clusters are ``cluster_0``, ...
    """
    if "clusters" in metrics:
        clusters = {f"cluster_{name}": _short(found) for name, found in metrics["clusters"].items()}
        return {"clients": metrics["clients"], **clusters}
    rest = {name: value for name, value in metrics.items() if name != "client_work"}
    work = dict(metrics.get("client_work", {}))
    train = work.pop("train", {})
    return {**({"train": train} if train else {}), **rest, **({"client_work": work} if work else {})}
