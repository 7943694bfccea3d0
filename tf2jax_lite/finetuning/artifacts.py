"""Fine-tunes artifacts, and writes trained artifacts with their history."""

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
from .trained_artifact import TrainableModel, trainable_model

__all__ = ["TrainingReport", "finetune_artifact", "training_identity", "write_result"]

Report = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """Summary of a training.

    Attributes:
      export: the report of the export; for several models, of a directory with an artifact for each.
      history: the records of all epochs or rounds.
      from_logits: whether predictions were treated as logits.
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
    **model_options: Any,
) -> TrainingReport:
    """Fine-tune an artifact on one dataset and write a new one.

    TensorFlow is not imported. The new artifact holds the same functions with other params, ``history.jsonl`` (a record
    per epoch), ``history.svg`` (a plot) and the options of the training in its metadata. It appears atomically.

    Args:
      artifact: an artifact of ``tf2jax-lite convert``; with ``--train`` it has a training mode.
      examples: dict of arrays (n, ...): the model's inputs by name, and the targets.
      out: the directory to create.
      loss: a name, see `tf2jax_lite.federated.losses.LOSSES`.
      optimizer: a name, see `named_optimizer`, as for momentum, weight_decay, clip_norm, schedule and warmup_steps.
      learning_rate: the highest rate.
      epochs: passes over the examples.
      batch_size: examples in a step.
      seed: for the order of examples and the model's random numbers.
      eval_examples: evaluated before training and after each epoch.
      momentum: see `named_optimizer`.
      weight_decay: see `named_optimizer`.
      clip_norm: see `named_optimizer`.
      schedule: see `named_optimizer`.
      warmup_steps: see `named_optimizer`.
      checkpoint_dir: the state is saved there after each epoch, and training resumes from it; see `finetune`.
      overwrite: replace an existing artifact at ``out``.
      report: called with each record of the history.
      **model_options: see `trainable_model`: from_logits, label, output, train_signature, eval_signature, freeze,
        backend.

    Raises:
      Tf2JaxError: see `trainable_model`, `named_optimizer`, `finetune` and `write_trained`.
    """
    refuse_existing(out, overwrite=overwrite)
    trainable = trainable_model(artifact, loss, sample=examples, **model_options)
    train = trainable.examples(examples, "the training data", may_be_empty=False)
    held_out = None
    if eval_examples is not None:
        held_out = trainable.examples(eval_examples, "the evaluation data", may_be_empty=False)
    per_epoch = -(-len(train[trainable.label]) // batch_size) if batch_size > 0 else 0
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
    identity = training_identity(artifact, loss, trainable, model_options, options)
    if schedule != "constant":
        identity["epochs"] = epochs  # the schedule depends on it; without one, a training may be extended
    weights, history = finetune(
        trainable.model,
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
    return write_result(artifact, out, weights, history, trainable, record, overwrite)


def training_identity(
    artifact: str | Path,
    loss: str,
    trainable: TrainableModel,
    model_options: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the identity of a training.

    Hashes of the artifact's params, and all options that change the result.

    Args:
      artifact: the artifact's directory.
      loss: the loss's name.
      trainable: the model.
      model_options: options of `trainable_model`.
      options: of the algorithm.
    """
    metadata = read_metadata(Path(artifact))
    files: Sequence[str] = sorted({info["file"] for info in metadata["params"].values()})
    return {
        "artifact": hashlib.sha256("".join(metadata["files"][f]["sha256"] for f in files).encode()).hexdigest(),
        "loss": loss,
        "from_logits": trainable.from_logits,
        "signatures": list(trainable.signatures),
        "freeze": list(model_options.get("freeze") or ()),
        "output": model_options.get("output"),
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
    trainable: TrainableModel,
    record: Mapping[str, Any],
    overwrite: bool,
) -> TrainingReport:
    """Write the trained artifact.

    For several weights, write a directory with ``cluster_0``, ``cluster_1``, ...

    Args:
      artifact: the original artifact.
      out: the directory to create.
      weights: the weights, or those of each cluster.
      history: its records become ``history.jsonl`` and ``history.svg``.
      trainable: the model.
      record: of the training, for the metadata.
      overwrite: replace an existing artifact at ``out``.

    Raises:
      ExportError: it cannot be written.
    """
    files = {"history.jsonl": history.jsonl(), "history.svg": history.svg()}
    last = history.records[-1] if history.records else {}

    def write(folder: str | Path, weights: ModelWeights, extra: Mapping[str, bytes], **more: Any) -> ExportReport:
        params = {str(name): np.asarray(value) for part in weights for name, value in part.items()}
        return write_trained(
            artifact, folder, params, training={**record, **more, "result": last}, extra=extra, overwrite=overwrite
        )

    if isinstance(weights, ModelWeights):
        written = write(out, weights, files)
    else:
        members = {
            f"cluster_{i}": functools.partial(write, weights=found, extra={}, cluster=i)
            for i, found in enumerate(weights)
        }
        written = write_family(out, members, extra=files, overwrite=overwrite)
    return TrainingReport(written, history, trainable.from_logits, trainable.signatures)
