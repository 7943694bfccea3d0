"""Artifacts in, trained artifacts out."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.export.artifact import ExportReport
from tf2jax_lite.export.atomic_dir import refuse_existing
from tf2jax_lite.export.bundle import write_family
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.update import write_trained
from tf2jax_lite.federated.process import ModelWeights

from .central_training import finetune
from .history import History
from .optimizers import named_optimizer
from .trained_artifact import Subject, artifact_subject

__all__ = ["TrainingReport", "finetune_artifact", "training_identity", "write_result"]

Report = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """What was trained and written.

    Attributes:
      export: what was written; where several models were trained, a directory with an artifact for each.
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
    """Fine-tunes an artifact on one dataset and writes a new one. TensorFlow is not imported.

    The new artifact holds the same functions with other params, ``history.jsonl`` (a record for each epoch),
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
      overwrite: replace an artifact that is at ``out``.
      report: called with each record of the history.
      **subject_options: see `artifact_subject`: from_logits, label, output, train_signature, eval_signature, freeze,
        backend.

    Raises:
      Tf2JaxError: see `artifact_subject`, `named_optimizer`, `finetune` and `write_trained`.
    """
    refuse_existing(out, overwrite=overwrite)
    subject = artifact_subject(artifact, loss, sample=examples, **subject_options)
    train = subject.examples(examples, "the training data", may_be_empty=False)
    held_out = None
    if eval_examples is not None:
        held_out = subject.examples(eval_examples, "the evaluation data", may_be_empty=False)
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
    identity = training_identity(artifact, loss, subject, subject_options, options)
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
    return write_result(artifact, out, weights, history, subject, record, overwrite)


def training_identity(
    artifact: str | Path, loss: str, subject: Subject, subject_options: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what makes a training the one it is: the artifact's params and all options that change the result.

    Args:
      artifact: the artifact's directory.
      loss: the loss's name.
      subject: the model.
      subject_options: how it was made.
      options: of the algorithm.
    """
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


def write_result(
    artifact: str | Path,
    out: str | Path,
    weights: ModelWeights | Sequence[ModelWeights],
    history: History,
    subject: Subject,
    record: Mapping[str, Any],
    overwrite: bool,
) -> TrainingReport:
    """Writes what was trained: one artifact, or a directory with ``cluster_0``, ``cluster_1``, ... for several weights.

    Args:
      artifact: what was trained.
      out: the directory to make.
      weights: the weights, or those of each cluster.
      history: its records become ``history.jsonl`` and ``history.svg``.
      subject: the model.
      record: what was done, for the metadata.
      overwrite: replace an artifact that is at ``out``.

    Raises:
      ExportError: it cannot be written.
    """
    files = {"history.jsonl": history.jsonl(), "history.svg": history.svg()}
    last = history.records[-1] if history.records else {}

    def write(place: str | Path, weights: ModelWeights, extra: Mapping[str, bytes], **more: Any) -> ExportReport:
        params = {str(name): np.asarray(value) for part in weights for name, value in part.items()}
        return write_trained(
            artifact, place, params, training={**record, **more, "result": last}, extra=extra, overwrite=overwrite
        )

    if isinstance(weights, ModelWeights):
        written = write(out, weights, files)
    else:
        members = {
            f"cluster_{i}": functools.partial(write, weights=found, extra={}, cluster=i)
            for i, found in enumerate(weights)
        }
        written = write_family(out, members, extra=files, overwrite=overwrite)
    return TrainingReport(written, history, subject.from_logits, subject.signatures)
