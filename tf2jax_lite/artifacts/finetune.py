"""Fine-tunes artifacts, and writes trained artifacts with their history."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from tf2jax_lite.artifacts.model import TrainableModel, trainable_model
from tf2jax_lite.export.artifact import ExportReport
from tf2jax_lite.export.atomic_dir import refuse_existing
from tf2jax_lite.export.bundle import write_family
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.update import write_trained
from tf2jax_lite.finetuning.adapters import ADAPTERS_FILE, LoraOptions
from tf2jax_lite.finetuning.central_training import finetune
from tf2jax_lite.finetuning.sharding import mesh_text, on_host, sharding_json, weight_names
from tf2jax_lite.learning.data import Examples, TrainingData, as_training_data
from tf2jax_lite.learning.optimizers import named_optimizer, with_multipliers
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.learning.recorder import History

Report = Callable[[dict[str, Any]], None]
# Options of `finetune` that `finetune_artifact` passes on.
_TRAINING = (
    "mesh",
    "sharding",
    "shard",
    "microbatches",
    "ema_decay",
    "precision",
    "remat",
    "checkpoint_steps",
    "monitor",
    "patience",
    "keep_best",
    "callbacks",
)
# Options of `trainable_model` that are recorded where they are given.
_UNSET = {"metrics": (), "label_smoothing": 0.0, "class_weights": (), "focal_gamma": 0.0, "ignore_label": None}
_UNSET |= {"output_losses": (), "output_weights": ()}
_DEFAULTS = {"sharding": "replicated", "microbatches": 1, "precision": "float32"}


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
    examples: Examples,
    out: str | Path,
    *,
    loss: str,
    optimizer: str = "adamw",
    learning_rate: float = 1e-3,
    epochs: int = 1,
    batch_size: int = 32,
    seed: int = 0,
    eval_examples: Examples | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    schedule: str = "constant",
    warmup_steps: int = 0,
    checkpoint_dir: str | Path | None = None,
    overwrite: bool = False,
    report: Report = lambda record: None,
    lora_rank: int | None = None,
    lora_alpha: float | None = None,
    lora_targets: str = "kernel$",
    lr_multipliers: Sequence[str] = (),
    extra: Mapping[str, bytes] | None = None,
    **options: Any,
) -> TrainingReport:
    """Fine-tune an artifact on one dataset and write a new one.

    TensorFlow is not imported. The new artifact holds the same functions with other params, ``history.jsonl`` (a record
    per epoch), ``history.svg`` (a plot) and the options of the training in its metadata. It appears atomically.

    Args:
      artifact: an artifact of ``tf2jax-lite convert``; with ``--train`` it has a training mode.
      examples: the model's inputs by name, and the targets: a dict of arrays (n, ...), a path, a sequence of
        examples, or `TrainingData`; see `as_training_data`.
      out: the directory to create.
      loss: a name, or ``module:function``; see `training_loss`.
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
      lora_rank: train low-rank adapters of this rank instead of the params, see `LoraOptions`. The new artifact has
        them merged, and apart in ``adapters.safetensors``; see `merge_adapters`.
      lora_alpha: the adapters' scale.
      lora_targets: which params get adapters.
      lr_multipliers: rules ``REGEX=FACTOR`` for learning rates of params by name; see `with_multipliers`.
      extra: further files of the new artifact, name to content.
      **options: of `finetune`: mesh, sharding, shard, microbatches, ema_decay, precision, remat, checkpoint_steps,
        monitor, patience, keep_best, callbacks; and of `trainable_model`: from_logits, label, output,
        train_signature, eval_signature, freeze, metrics, label_smoothing, class_weights, focal_gamma, ignore_label,
        output_losses, output_weights, backend.

    Raises:
      Tf2JaxError: see `trainable_model`, `named_optimizer`, `finetune` and `write_trained`.
    """
    refuse_existing(out, overwrite=overwrite)
    training = {name: options.pop(name) for name in _TRAINING if name in options}
    lora = None if lora_rank is None else LoraOptions(lora_rank, lora_alpha, lora_targets)
    data = as_training_data(examples)
    trainable = trainable_model(artifact, loss, sample=data.first(256), **options)
    train = _fitting(data, trainable, "the training data")
    held_out = None if eval_examples is None else _fitting(eval_examples, trainable, "the evaluation data")
    model = trainable.model if lora is None else lora.adapted(trainable.model)
    per_epoch = -(-len(train) // batch_size) if batch_size > 0 else 0
    optimization = {
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "clip_norm": clip_norm,
        "schedule": schedule,
        "warmup_steps": warmup_steps,
    }
    chosen = named_optimizer(
        optimizer,
        learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        schedule=schedule,
        warmup_steps=warmup_steps,
        total_steps=epochs * per_epoch,
    )
    if lr_multipliers:
        chosen = with_multipliers(chosen, lr_multipliers, weight_names(model.shapes.trainable))
        optimization["lr_multipliers"] = list(lr_multipliers)
    if lora is not None:
        optimization["lora"] = dataclasses.asdict(lora)
    identity = training_identity(artifact, loss, trainable, options, optimization)
    if schedule != "constant":
        identity["epochs"] = epochs  # the schedule depends on it; without one, a training may be extended
    weights, history = finetune(
        model,
        train,
        optimizer=chosen,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        eval_examples=held_out,
        checkpoint_dir=checkpoint_dir,
        identity={**identity, "data": train.identity()},
        report=report,
        **training,
    )
    record = {"kind": "finetune", **identity, "epochs": epochs, "batch_size": batch_size, "seed": seed}
    for name, value in training.items():
        if name != "callbacks" and value and value != _DEFAULTS.get(name):
            record[name] = value
    if "mesh" in record:
        record["mesh"] = mesh_text(record["mesh"])
    if "sharding" in record:
        record["sharding"] = sharding_json(record["sharding"])
    files = dict(extra or {})
    weights = on_host(weights)
    if lora is not None:
        files[ADAPTERS_FILE], weights = lora.file(weights), lora.merged(weights)
    if jax.process_index():  # process 0 writes
        written = ExportReport(str(out), {}, list(read_metadata(Path(artifact))["signatures"]), 0, [])
        report_of_all = TrainingReport(written, history, trainable.from_logits, trainable.signatures)
    else:
        report_of_all = write_result(artifact, out, weights, history, trainable, record, overwrite, files)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("the artifact is written")
    return report_of_all


def _fitting(examples: Examples, trainable: TrainableModel, where: str) -> TrainingData:
    """Return examples as the model takes them.

    Those in memory are checked at once, others batch by batch.
    """

    def prepare(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return trainable.examples(arrays, where, may_be_empty=False)

    return as_training_data(examples).prepared(prepare)


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
        **{
            name: model_options[name]
            for name in _UNSET
            if model_options.get(name) is not None and model_options[name] != _UNSET.get(name)
        },
        **options,
    }


def write_result(
    artifact: str | Path,
    out: str | Path,
    weights: ModelWeights | Sequence[ModelWeights],
    history: History,
    trainable: TrainableModel,
    record: Mapping[str, Any],
    overwrite: bool,
    extra: Mapping[str, bytes] | None = None,
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
      extra: further files, name to content.

    Raises:
      ExportError: it cannot be written.
    """
    files = {"history.jsonl": history.jsonl(), "history.svg": history.svg(), **(extra or {})}
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
