"""Federated training: rounds over cohorts of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from tf2jax_lite.federated.checkpoint import CheckpointFile
from tf2jax_lite.federated.data import ClientDataset, FederatedData, UniformGetClientSampler
from tf2jax_lite.federated.model import Model, evaluate_model
from tf2jax_lite.federated.options import check_seed
from tf2jax_lite.federated.process import LearningProcess, ModelWeights
from tf2jax_lite.federated.training import run_rounds
from tf2jax_lite.support.errors import InputError, TrainingError

from .history import History, plain

__all__ = ["federate"]


def federate(
    process: LearningProcess,
    model: Model,
    clients: FederatedData,
    *,
    rounds: int,
    clients_per_round: int,
    seed: int = 0,
    eval_examples: Mapping[str, Any] | None = None,
    eval_every: int = 1,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 1,
    identity: Mapping[str, Any] | None = None,
    report: Callable[[dict[str, Any]], None] = lambda record: None,
    params: Any = None,
) -> tuple[Any, History]:
    """Runs rounds of a training process.

    Each round draws a cohort, each client with the same chance, from the seed and the round's number alone. Results
    depend on the arguments alone, also where a training was interrupted and went on from a checkpoint.

    Args:
      process: the training process.
      model: the model it trains, for evaluation.
      clients: the clients.
      rounds: how many; 0 only evaluates.
      clients_per_round: size of a cohort.
      seed: of cohorts, and of the process's key.
      eval_examples: dict of arrays (n, ...), evaluated on the server.
      eval_every: evaluate after every so many rounds, and after the last.
      checkpoint_dir: where the state is kept. If there is one, training goes on from it.
      checkpoint_every: keep it after every so many rounds, and after the last.
      identity: what must not differ between a checkpoint and now.
      report: called with each record of the history.
      params: where to start; see the process's ``initialize``.

    Returns:
      ``(state, history)``: the process's last state; records have ``train/...``, ``clients/...``, ``aggregator/...``,
      ``eval/...`` and ``seconds``. A process of several models has ``cluster_0/train/...``, ``eval/cluster_0/...``.

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

    def evaluate(weights: Any) -> Mapping[str, Any]:
        assert eval_examples is not None
        if not isinstance(weights, ModelWeights):
            return {f"cluster_{i}": evaluate(found) for i, found in enumerate(weights)}
        return evaluate_model(model, weights, ClientDataset(dict(eval_examples)).padded_batch(batch_size=128))

    def watched(record: dict[str, Any]) -> None:
        report(record)
        lost = record.get("clients/non_finite")
        if lost and not record.get("clients/participated"):
            raise TrainingError(
                f"round {record['round']}: no client's update was finite ({lost} were not), so nothing was learned. "
                "Lower the learning rates, or look for values in the clients' data that are not finite, or too large."
            )

    state, records = run_rounds(
        process,
        UniformGetClientSampler(clients, clients_per_round, seed),
        rounds,
        key=jax.random.key(seed),
        params=params,
        evaluate=None if eval_examples is None else evaluate,
        evaluate_every=eval_every,
        evaluate_first=True,
        checkpoint_dir=None if checkpoint_dir is None else CheckpointFile(checkpoint_dir, known),
        checkpoint_every=checkpoint_every,
        timed=True,
        summarize=lambda metrics: _without_means_of_nothing(plain(_short(metrics))),
        report=watched,
    )
    return state, History("round", records)


def _without_means_of_nothing(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record in which metrics of no example at all are None: a loss of 0 would look perfect."""
    of_none = [
        name[: -len("num_examples")] for name in record if name.endswith("train/num_examples") and not record[name]
    ]
    return {
        name: None if any(name.startswith(p) and name != f"{p}num_examples" for p in of_none) else value
        for name, value in record.items()
    }


def _short(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a round's metrics with ``client_work/train`` as ``train``; those of clusters as ``cluster_0``, ..."""
    if "clusters" in metrics:
        clusters = {f"cluster_{name}": _short(found) for name, found in metrics["clusters"].items()}
        return {"clients": metrics["clients"], **clusters}
    rest = {name: value for name, value in metrics.items() if name != "client_work"}
    work = dict(metrics.get("client_work", {}))
    train = work.pop("train", {})
    return {**({"train": train} if train else {}), **rest, **({"client_work": work} if work else {})}
