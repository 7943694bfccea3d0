"""Artefacts in, trained artefacts out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.errors import ExportError, InputError
from tf2jax_lite.export.artifact import ExportReport
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.rewrite import write_trained
from tf2jax_lite.federated.data import FederatedData
from tf2jax_lite.federated.process import ModelWeights

from .algorithms import named_aggregator, named_process
from .datasets import first_examples, prepared
from .federated_training import federate
from .finetuning import finetune
from .history import History
from .optimizers import named_optimizer
from .subject import Subject, artifact_subject

__all__ = ["TrainingReport", "federate_artifact", "finetune_artifact"]

Report = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """What was trained and written.

    Attributes:
      export: what was written.
      history: the records of all epochs or rounds.
      from_logits: whether predictions were taken for logits.
      signatures: the functions in training and in evaluation mode.
    """

    export: ExportReport
    history: History
    from_logits: bool
    signatures: tuple[str, str]


def finetune_artifact(
    artifact: str | Path,
    examples: Mapping[str, Any],
    out: str | Path,
    *,
    loss: str,
    optimizer: str = "adamw",
    learning_rate: float = 1e-3,
    epochs: int = 1,
    batch_size: int = 32,
    seed: int = 0,
    eval_examples: Mapping[str, Any] | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    schedule: str = "constant",
    warmup_steps: int = 0,
    checkpoint_dir: str | Path | None = None,
    overwrite: bool = False,
    report: Report = lambda record: None,
    **subject_options: Any,
) -> TrainingReport:
    """Fine-tunes an artefact on one dataset and writes a new one. TensorFlow is not imported.

    The new artefact holds the same functions with other params, ``history.jsonl`` (a record for each epoch),
    ``history.svg`` (a plot) and, in its metadata, what was done. It appears whole or not at all.

    Args:
      artifact: what ``tf2jax-lite convert`` made; with ``--train`` it has a training mode.
      examples: dict of arrays (n, ...): the model's inputs by name, and the targets.
      out: the directory to make.
      loss: a name, see `tf2jax_lite.federated.losses.LOSSES`.
      optimizer: a name, see `named_optimizer`, as for momentum, weight_decay, clip_norm, schedule and warmup_steps.
      learning_rate: the highest rate.
      epochs: passes over the examples.
      batch_size: examples in a step.
      seed: of the order of examples and what the model draws.
      eval_examples: evaluated before training and after each epoch.
      momentum: see `named_optimizer`.
      weight_decay: see `named_optimizer`.
      clip_norm: see `named_optimizer`.
      schedule: see `named_optimizer`.
      warmup_steps: see `named_optimizer`.
      checkpoint_dir: where the state is kept after each epoch, and training goes on from; see `finetune`.
      overwrite: replace an artefact that is at ``out``.
      report: called with each record of the history.
      **subject_options: see `artifact_subject`: from_logits, label, output, train_signature, eval_signature, freeze,
        backend.

    Raises:
      Tf2JaxError: see `artifact_subject`, `named_optimizer`, `finetune` and `write_trained`.
    """
    refuse_existing(out, overwrite)
    subject = artifact_subject(artifact, loss, sample=examples, **subject_options)
    train = subject.examples(examples, "the training data")
    held_out = None if eval_examples is None else subject.examples(eval_examples, "the evaluation data")
    per_epoch = -(-len(train[subject.label]) // batch_size) if batch_size > 0 else 0
    options = {
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "clip_norm": clip_norm,
        "schedule": schedule,
        "warmup_steps": warmup_steps,
    }
    optimization = named_optimizer(
        optimizer,
        learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        schedule=schedule,
        warmup_steps=warmup_steps,
        total_steps=epochs * per_epoch,
    )
    identity = _identity(artifact, loss, subject, subject_options, options)
    if schedule != "constant":
        identity["epochs"] = epochs  # the rate depends on it; otherwise a training may be prolonged
    weights, history = finetune(
        subject.model,
        train,
        optimizer=optimization,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        eval_examples=held_out,
        checkpoint_dir=checkpoint_dir,
        identity={**identity, "data": _digest(train)},
        report=report,
    )
    record = {"kind": "finetune", **identity, "epochs": epochs, "batch_size": batch_size, "seed": seed}
    return _write(artifact, out, weights, history, subject, record, overwrite)


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
    client_optimizer: str = "sgd",
    client_learning_rate: float = 0.1,
    server_optimizer: str | None = None,
    server_learning_rate: float = 1.0,
    server_momentum: float | None = None,
    aggregator: str | None = None,
    aggregator_options: Mapping[str, Any] | None = None,
    noise_multiplier: float | None = None,
    clip_norm: float | None = None,
    zeroing_norm: float | None = None,
    proximal_strength: float = 0.01,
    client_decay: float = 1.0,
    seed: int = 0,
    eval_examples: Mapping[str, Any] | None = None,
    eval_every: int = 1,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every: int = 1,
    overwrite: bool = False,
    report: Report = lambda record: None,
    **subject_options: Any,
) -> TrainingReport:
    """Trains an artefact by federated learning and writes a new one, as `finetune_artifact` does.

    Args:
      artifact: what ``tf2jax-lite convert`` made; with ``--train`` it has a training mode.
      clients: the clients, see `open_clients`; their examples hold the model's inputs by name, and the targets.
      out: the directory to make.
      loss: a name, see `tf2jax_lite.federated.losses.LOSSES`.
      algorithm: see `named_process`.
      rounds: how many.
      clients_per_round: size of a cohort.
      batch_size: examples in a client's step.
      client_epochs: how often a client goes through its examples in a round.
      client_optimizer: a name, see `named_optimizer`.
      client_learning_rate: its rate.
      server_optimizer: a name, see `named_optimizer`; SGD with rate 1, that is averaging, by default.
      server_learning_rate: its rate.
      server_momentum: its momentum.
      aggregator: see `named_aggregator`, as for noise_multiplier, clip_norm and zeroing_norm.
      aggregator_options: its ``options``; see `named_aggregator`.
      noise_multiplier: see `named_aggregator`.
      clip_norm: see `named_aggregator`.
      zeroing_norm: see `named_aggregator`.
      proximal_strength: mu of fed_prox.
      client_decay: see `named_process`.
      seed: of cohorts, orders and what the model draws.
      eval_examples: evaluated on the server.
      eval_every: evaluate after every so many rounds.
      checkpoint_dir: where the state is kept, and training goes on from; see `federate`.
      checkpoint_every: keep it after every so many rounds.
      overwrite: replace an artefact that is at ``out``.
      report: called with each record of the history.
      **subject_options: see `artifact_subject`: from_logits, label, output, train_signature, eval_signature, freeze,
        backend.

    Raises:
      Tf2JaxError: see `artifact_subject`, `named_process`, `federate` and `write_trained`.
    """
    refuse_existing(out, overwrite)
    subject = artifact_subject(artifact, loss, sample=first_examples(clients), **subject_options)
    server = None
    scaffold = algorithm == "scaffold"
    if scaffold and client_optimizer != "sgd":
        raise InputError(f"scaffold's clients step with sgd, not {client_optimizer}")
    rated = server_learning_rate != 1.0 and not scaffold  # scaffold's server has a rate, and no optimizer
    if server_optimizer is not None or server_momentum is not None or rated:
        server = named_optimizer(server_optimizer or "sgd", server_learning_rate, momentum=server_momentum)
    process = named_process(
        algorithm,
        subject.model,
        named_optimizer(client_optimizer, client_learning_rate),
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
        learning_rates=(client_learning_rate, server_learning_rate),
    )
    options = {
        "algorithm": algorithm,
        "batch_size": batch_size,
        "client_epochs": client_epochs,
        "client_optimizer": client_optimizer,
        "client_learning_rate": client_learning_rate,
        "server_optimizer": server_optimizer,
        "server_learning_rate": server_learning_rate,
        "server_momentum": server_momentum,
        "aggregator": aggregator,
        "aggregator_options": dict(aggregator_options or {}),
        "noise_multiplier": noise_multiplier,
        "clip_norm": clip_norm,
        "zeroing_norm": zeroing_norm,
        "proximal_strength": proximal_strength,
        "client_decay": client_decay,
        "clients": clients.num_clients(),
    }
    identity = _identity(artifact, loss, subject, subject_options, options)
    held_out = None if eval_examples is None else subject.examples(eval_examples, "the evaluation data")
    state, history = federate(
        process,
        subject.model,
        prepared(clients, subject.examples),
        rounds=rounds,
        clients_per_round=clients_per_round,
        seed=seed,
        eval_examples=held_out,
        eval_every=eval_every,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every=checkpoint_every,
        identity=identity,
        report=report,
    )
    record = {"kind": "federate", **identity, "rounds": rounds, "clients_per_round": clients_per_round, "seed": seed}
    return _write(artifact, out, process.get_model_weights(state), history, subject, record, overwrite)


def refuse_existing(out: str | Path, overwrite: bool) -> None:
    """Says before hours of training, not after, that the result has no place.

    Raises:
      ExportError: something is there.
    """
    if Path(out).exists() and not overwrite:
        raise ExportError(f"{out} exists; choose another name, or overwrite it (--force)")


def _identity(
    artifact: str | Path, loss: str, subject: Subject, subject_options: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what makes a training the one it is: the artefact's params and all options that change the result."""
    metadata = read_metadata(Path(artifact))
    files: Sequence[str] = sorted({info["file"] for info in metadata["params"].values()})
    return {
        "artifact": hashlib.sha256("".join(metadata["files"][f]["sha256"] for f in files).encode()).hexdigest(),
        "loss": loss,
        "from_logits": subject.from_logits,
        "signatures": list(subject.signatures),
        "freeze": list(subject_options.get("freeze") or ()),
        "output": subject_options.get("output"),
        **options,
    }


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _write(
    artifact: str | Path,
    out: str | Path,
    weights: ModelWeights,
    history: History,
    subject: Subject,
    record: Mapping[str, Any],
    overwrite: bool,
) -> TrainingReport:
    params = {str(name): np.asarray(value) for part in weights for name, value in part.items()}
    last = history.records[-1] if history.records else {}
    written = write_trained(
        artifact,
        out,
        params,
        training={**record, "result": last},
        extra={"history.jsonl": history.jsonl(), "history.svg": history.svg()},
        overwrite=overwrite,
    )
    return TrainingReport(written, history, subject.from_logits, subject.signatures)
