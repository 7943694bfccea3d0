"""Fine-tunes artifacts, and writes trained artifacts with their history."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from tf2jax_lite.artifacts.model import TrainableModel, by_name, modes, names_with, trainable_model
from tf2jax_lite.artifacts.options import FinetuneOptions
from tf2jax_lite.export.artifact import ExportReport
from tf2jax_lite.export.atomic_dir import refuse_existing
from tf2jax_lite.export.edited import update_artifact
from tf2jax_lite.export.load import load
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.update import write_family, write_trained
from tf2jax_lite.finetuning.adapters import ADAPTERS_FILE, adapted, adapters_file, merged
from tf2jax_lite.finetuning.central_training import finetune
from tf2jax_lite.finetuning.heads import new_head
from tf2jax_lite.finetuning.options import TrainingOptions
from tf2jax_lite.finetuning.sharding import mesh_text, on_host, sharding_json, weight_names
from tf2jax_lite.learning.data import Examples, TrainingData, as_training_data
from tf2jax_lite.learning.optimizers import chosen_optimizer
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.learning.recorder import History, Recorder
from tf2jax_lite.support.errors import DataError
from tf2jax_lite.support.options import takes

Report = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class TrainingReport:
    """Summary of a training.

    Attributes:
      export: the report of the export; for several models, of a directory with an artifact for each.
      history: the records of all epochs or rounds.
      from_logits: whether predictions were treated as logits.
      signatures: the functions in training and in evaluation mode.
      trainable: number of parameters that trained; of a federated training None.
      parameters: number of all parameters, adapters among them; of a federated training None.
    """

    export: ExportReport
    history: History
    from_logits: bool
    signatures: tuple[str, str]
    trainable: int | None = None
    parameters: int | None = None


@takes(FinetuneOptions)
def finetune_artifact(
    artifact: str | Path,
    examples: Examples,
    out: str | Path,
    *,
    eval_examples: Examples | None = None,
    report: Report = lambda record: None,
    callbacks: Sequence[Recorder] = (),
    extra: Mapping[str, bytes] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> TrainingReport:
    """Fine-tune an artifact on one dataset and write a new one.

    TensorFlow is not imported. The new artifact holds the same functions with other params, ``history.jsonl`` (a record
    per epoch), ``history.svg`` (a plot) and the options of the training in its metadata. It appears atomically.
    Low-rank adapters are merged, and apart in ``adapters.safetensors``; see `merge_adapters` and `load_adapters`. With
    ``classes`` or ``head``, the functions have a new last layer, see `replace_head`.

    Args:
      artifact: an artifact of ``tf2jax-lite convert``; with ``--train`` it has a training mode.
      examples: the model's inputs by name, and the targets: a dict of arrays (n, ...), a path, a sequence of
        examples, or `TrainingData`; see `as_training_data`.
      out: the directory to create.
      eval_examples: evaluated before training and after each epoch.
      report: called with each record of the history.
      callbacks: called with each new record; a `Callback` after steps, too.
      extra: further files of the new artifact, name to content.
      progress: called with a line of text about what trains, before it does.
      **options: of `FinetuneOptions`.

    Raises:
      Tf2JaxError: see `trainable_model`, `named_optimizer`, `finetune` and `write_trained`.
    """
    given = FinetuneOptions(**options)
    refuse_existing(out, overwrite=given.overwrite)
    data = as_training_data(examples)
    with contextlib.ExitStack() as stack:
        start, new = artifact, []
        if given.classes is not None or given.head is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            start, new, given = _with_new_head(artifact, Path(folder) / Path(artifact).name, given, progress)
        return _finetune(start, out, given, new, data, eval_examples, report, callbacks, extra, progress)


def _with_new_head(
    artifact: str | Path, path: Path, given: FinetuneOptions, progress: Callable[[str], None]
) -> tuple[Path, list[str], FinetuneOptions]:
    """Write an artifact with a new last layer.

    Returns:
      Its path, the names of the layer's params, and the options: a model whose other params are all frozen trains in
      evaluation mode, in which its statistics do not change.
    """
    metadata = read_metadata(Path(artifact))
    trained, evaluated = modes(metadata["signatures"], given)
    fn, params = load(artifact, evaluated, backend="source")
    inputs = metadata["signatures"][evaluated]["inputs"]
    scope = jax.export.SymbolicScope()
    arrays = {
        i["name"]: jax.ShapeDtypeStruct(
            jax.export.symbolic_shape(", ".join(map(str, i["shape"])), scope=scope) if i["shape"] else (),
            jax.dtypes.canonicalize_dtype(i["dtype"]),
        )
        for i in inputs
    }
    predict = by_name(fn, given.output, ())
    key = [jax.random.key(0)] if fn.needs_key else []

    def predictions(params: Mapping[str, Any], arrays: Mapping[str, Any], *key: Any) -> Any:
        return predict(params, arrays, *key)[0]

    found = new_head(predictions, params, [arrays, *key], classes=given.classes, head=given.head, seed=given.seed)
    update_artifact(artifact, found, out=path)
    new = [str(name) for name in found]
    progress(f"new params: {', '.join(f'{name} {list(value.shape)}' for name, value in found.items())}")
    alone = not (given.freeze or given.train_fully or given.lora_rank)
    if alone and not metadata["signatures"][trained].get("training", {}).get("adds_losses"):
        given = given.replace(train_signature=given.train_signature or evaluated, eval_signature=evaluated)
    return path, new, given


def _trains(params: Sequence[str], given: FinetuneOptions, new: Sequence[str]) -> Callable[[str], bool]:
    """Return which params train, by name, apart from those that an option freezes."""
    fully = names_with(given.train_fully, params, "train_fully")
    alone = bool(given.train_fully) if not new else not given.freeze
    if given.lora_rank is not None or not alone:
        return lambda name: True
    return lambda name: name in fully or name in new


def _finetune(
    artifact: str | Path,
    out: str | Path,
    given: FinetuneOptions,
    new: Sequence[str],
    data: TrainingData,
    eval_examples: Examples | None,
    report: Report,
    callbacks: Sequence[Recorder],
    extra: Mapping[str, bytes] | None,
    progress: Callable[[str], None],
) -> TrainingReport:
    """Train an artifact, in which some params are ``new``; see `finetune_artifact`."""
    trains = _trains(list(read_metadata(Path(artifact))["params"]), given, new)
    trainable = trainable_model(artifact, given, sample=data.first(256), trains=trains)
    train = _fitting(data, trainable, "the training data")
    held_out = None
    if eval_examples is not None:
        eval_data = as_training_data(eval_examples)
        if data.class_names and eval_data.class_names and list(data.class_names) != list(eval_data.class_names):
            raise DataError(
                f"The classes of the evaluation data are {list(eval_data.class_names)[:20]}, and those of the training "
                f"data {list(data.class_names)[:20]}. Both need a folder of images for each class."
            )
        held_out = _fitting(eval_data, trainable, "the evaluation data")
    model = trainable.model if given.lora_rank is None else adapted(trainable.model, given, new)
    trained, parameters = _size(model.shapes.trainable), _size(trainable.model.shapes)
    if given.lora_rank is not None:
        parameters += sum(_size(a) for a in model.shapes.trainable.values() if isinstance(a, Mapping))
    progress(f"trainable params: {trained:,} of {parameters:,} ({trained / parameters:.2%})")
    identity = {**training_identity(artifact, trainable), **given.identity()}
    if given.schedule != "constant":
        identity["epochs"] = given.epochs  # the schedule depends on it; without one, a training may be extended
    steps = given.epochs * -(-len(train) // given.batch_size)
    weights, history = finetune(
        model,
        train,
        optimizer=chosen_optimizer(given, steps, weight_names(model.shapes.trainable)),
        epochs=given.epochs,
        eval_examples=held_out,
        identity={**identity, "data": train.identity()},
        report=report,
        callbacks=callbacks,
        **vars(given.part(TrainingOptions)),
    )
    record = {"kind": "finetune", **identity, **given.record(), "epochs": given.epochs}
    if data.class_names:
        record["class_names"] = list(data.class_names)
    for name, text in (("mesh", mesh_text), ("sharding", sharding_json)):
        if name in record:
            record[name] = text(record[name])
    files = dict(extra or {})
    weights = on_host(weights)
    if given.lora_rank is not None:
        files[ADAPTERS_FILE], weights = adapters_file(weights, given), merged(weights, given)
    if jax.process_index():  # process 0 writes
        written = ExportReport(str(out), {}, list(read_metadata(Path(artifact))["signatures"]), 0, [])
        result = TrainingReport(written, history, trainable.from_logits, trainable.signatures)
    else:
        result = write_result(artifact, out, weights, history, trainable, record, given.overwrite, files)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("the artifact is written")
    return dataclasses.replace(result, trainable=trained, parameters=parameters)


def _size(tree: Any) -> int:
    """Return the number of floating elements, which seeds are not."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating))


def _fitting(examples: Examples, trainable: TrainableModel, where: str) -> TrainingData:
    """Return examples as the model takes them.

    Those in memory are checked at once, others batch by batch.
    """

    def prepare(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return trainable.examples(arrays, where, may_be_empty=False)

    return as_training_data(examples).prepared(prepare)


def training_identity(artifact: str | Path, trainable: TrainableModel) -> dict[str, Any]:
    """Return a hash of the artifact's params, and the functions that train."""
    metadata = read_metadata(Path(artifact))
    files: Sequence[str] = sorted({info["file"] for info in metadata["params"].values()})
    digest = hashlib.sha256("".join(metadata["files"][f]["sha256"] for f in files).encode()).hexdigest()
    return {"artifact": digest, "signatures": list(trainable.signatures)}


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
