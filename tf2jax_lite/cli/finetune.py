"""The commands ``finetune`` and ``merge-adapters``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .config_file import Config, options_text
from .shared import Json, MaxInputBytes, app, console, limits, print_json, styled
from .train import (
    Artifact,
    Backend,
    Checkpoints,
    Force,
    Freeze,
    Label,
    Logits,
    Loss,
    Out,
    Output,
    Quiet,
    Seed,
    Signature,
    TrainSignature,
    finish,
    import_from_here,
    progress,
)

# Headings of finetune's options in --help.
_OPTIMIZATION, _DEVICES, _ADAPTERS = "Optimization", "Devices and memory", "Adapters"
_WATCHING, _LOSS = "Metrics and records", "Loss"


@app.command()
def finetune(
    context: typer.Context,
    artifact: Artifact,
    data: Annotated[
        Path,
        typer.Option(
            "--data", help="An .npz, or a file or folder of .npz, .tfrecord, .array_record or .parquet shards."
        ),
    ],
    out: Out,
    config: Config = None,
    loss: Loss = "sparse_categorical_crossentropy",
    optimizer: Annotated[str, typer.Option(help="sgd, adam, adamw, adagrad, rmsprop, yogi, lamb or lion.")] = "adamw",
    learning_rate: Annotated[float, typer.Option(help="The highest rate.")] = 1e-3,
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the data.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in a step.")] = 32,
    evaluation: Annotated[
        Path | None,
        typer.Option("--eval", help="Data to evaluate on, before training and after each epoch; the same kinds."),
    ] = None,
    seed: Seed = 0,
    momentum: Annotated[float | None, typer.Option(help="Of sgd and rmsprop.", rich_help_panel=_OPTIMIZATION)] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Of adamw, lamb and lion.", rich_help_panel=_OPTIMIZATION)
    ] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help="Scale gradients down to this norm.", rich_help_panel=_OPTIMIZATION)
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="constant, cosine or linear (down to 0 at the end).", rich_help_panel=_OPTIMIZATION)
    ] = "constant",
    warmup_steps: Annotated[
        int, typer.Option(min=0, help="Steps in which the rate goes up from 0.", rich_help_panel=_OPTIMIZATION)
    ] = 0,
    lr_multiplier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX=FACTOR",
            help="Learning rate of params by name: 'embedding=0.1'; repeat for several.",
            rich_help_panel=_OPTIMIZATION,
        ),
    ] = None,
    ema_decay: Annotated[
        float | None,
        typer.Option(
            help="Of a moving average of weights, which is evaluated and written.", rich_help_panel=_OPTIMIZATION
        ),
    ] = None,
    label_smoothing: Annotated[
        float, typer.Option(help="Share of targets that is spread over all classes.", rich_help_panel=_LOSS)
    ] = 0.0,
    class_weight: Annotated[
        list[float] | None,
        typer.Option(help="Factor for the loss of each class; one for every class.", rich_help_panel=_LOSS),
    ] = None,
    focal_gamma: Annotated[
        float, typer.Option(help="Exponent of the focal loss; 0 for cross entropy.", rich_help_panel=_LOSS)
    ] = 0.0,
    ignore_label: Annotated[
        int | None, typer.Option(help="Target of positions that do not count, as in padding.", rich_help_panel=_LOSS)
    ] = None,
    from_logits: Logits = False,
    label: Label = "y",
    output: Output = None,
    output_loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOSS",
            help="Loss of one of several outputs, in place of --loss; its targets have its name. Repeat for each.",
            rich_help_panel=_LOSS,
        ),
    ] = None,
    output_weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FACTOR", help="Its factor in the sum of losses; 1 by default.", rich_help_panel=_LOSS
        ),
    ] = None,
    signature: Signature = None,
    train_signature: TrainSignature = None,
    freeze: Freeze = None,
    backend: Backend = "stablehlo",
    checkpoint_dir: Checkpoints = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(min=1, help="Save the state after this many steps, too, not only after epochs.")
    ] = None,
    data_workers: Annotated[
        int, typer.Option(min=0, help="Processes that read shards ahead; threads of one process by default.")
    ] = 0,
    mesh: Annotated[
        str | None, typer.Option(help="Devices to train on: data=8, or data=4,model=2.", rich_help_panel=_DEVICES)
    ] = None,
    sharding: Annotated[
        str, typer.Option(help="Of params on a mesh: replicated, or fsdp (fully sharded).", rich_help_panel=_DEVICES)
    ] = "replicated",
    shard: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX=AXES",
            help="Sharding of params by name: 'kernel$=None,model'; repeat for several.",
            rich_help_panel=_DEVICES,
        ),
    ] = None,
    microbatches: Annotated[
        int, typer.Option(min=1, help="Parts of a batch, one after another in memory.", rich_help_panel=_DEVICES)
    ] = 1,
    precision: Annotated[
        str, typer.Option(help="float32, or bf16 for products in bfloat16.", rich_help_panel=_DEVICES)
    ] = "float32",
    remat: Annotated[
        bool,
        typer.Option(
            "--remat",
            help="Compute activations again in the backward pass; with --backend source.",
            rich_help_panel=_DEVICES,
        ),
    ] = False,
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Of several processes, the address of process 0; auto on Slurm and Cloud TPU.",
            rich_help_panel=_DEVICES,
        ),
    ] = None,
    num_processes: Annotated[
        int | None, typer.Option(min=1, help="Number of processes.", rich_help_panel=_DEVICES)
    ] = None,
    process_id: Annotated[
        int | None, typer.Option(min=0, help="Number of this process, from 0.", rich_help_panel=_DEVICES)
    ] = None,
    lora_rank: Annotated[
        int | None, typer.Option(min=1, help="Train adapters of this rank, not params.", rich_help_panel=_ADAPTERS)
    ] = None,
    lora_alpha: Annotated[
        float | None, typer.Option(help="Scale of adapters; the rank by default.", rich_help_panel=_ADAPTERS)
    ] = None,
    lora_targets: Annotated[
        str, typer.Option(metavar="REGEX", help="Params that get adapters.", rich_help_panel=_ADAPTERS)
    ] = "kernel$",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="accuracy, top_5_accuracy, auc, pr_auc, mae, mse, perplexity, token_accuracy; of one of several "
            "outputs kind/accuracy. Repeat for several.",
            rich_help_panel=_WATCHING,
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(help="Metric of --patience and --keep-best; eval/loss by default.", rich_help_panel=_WATCHING),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="End after this many epochs without improvement.", rich_help_panel=_WATCHING),
    ] = None,
    keep_best: Annotated[
        bool, typer.Option("--keep-best", help="Write the weights of the best epoch.", rich_help_panel=_WATCHING)
    ] = False,
    log_jsonl: Annotated[
        Path | None, typer.Option(help="A file that gets a line per epoch at once.", rich_help_panel=_WATCHING)
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A directory for TensorBoard's event files.", rich_help_panel=_WATCHING)
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="A directory for a trace of three steps.", rich_help_panel=_WATCHING)
    ] = None,
    force: Force = False,
    max_input_bytes: MaxInputBytes = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune an artifact on examples, and write a new artifact.

    TensorFlow is not needed.
    """
    import jax

    from tf2jax_lite.export.atomic_dir import refuse_existing
    from tf2jax_lite.finetuning import callbacks as c
    from tf2jax_lite.finetuning import finetune_artifact
    from tf2jax_lite.finetuning.sharding import join_processes
    from tf2jax_lite.learning.data import open_data
    from tf2jax_lite.support.extras import require_device

    import_from_here([loss, *(output_loss or ())])
    join_processes(coordinator, num_processes, process_id)
    require_device()
    refuse_existing(out, overwrite=force)
    quiet = quiet or (coordinator is not None and jax.process_index() > 0)
    with limits(max_input_bytes=max_input_bytes):
        examples = open_data(data, workers=data_workers)
        held_out = None if evaluation is None else open_data(evaluation)
    makers = ((c.JsonLines, log_jsonl), (c.TensorBoard, tensorboard), (c.Profile, profile))
    first = coordinator is None or jax.process_index() == 0
    watching: list[c.Callback] = [make(path) for make, path in makers if path is not None and first]
    show = not (quiet or as_json)
    with progress("epoch", epochs, show) as update:
        if show:
            watching.append(_rates(update.rate, precision))
        report = finetune_artifact(
            artifact,
            examples,
            out,
            loss=loss,
            optimizer=optimizer,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            eval_examples=held_out,
            momentum=momentum,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            schedule=schedule,
            warmup_steps=warmup_steps,
            lr_multipliers=lr_multiplier or (),
            ema_decay=ema_decay,
            checkpoint_dir=checkpoint_dir,
            checkpoint_steps=checkpoint_steps,
            mesh=mesh,
            sharding=sharding,
            shard=shard or (),
            microbatches=microbatches,
            precision=precision,
            remat=remat,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            lora_targets=lora_targets,
            monitor=monitor,
            patience=patience,
            keep_best=keep_best,
            callbacks=watching,
            overwrite=force,
            report=update,
            extra={"finetune.toml": options_text(context)},
            from_logits=from_logits,
            label=label,
            output=output,
            eval_signature=signature,
            train_signature=train_signature,
            freeze=freeze or (),
            metrics=metric or (),
            label_smoothing=label_smoothing,
            class_weights=class_weight or (),
            focal_gamma=focal_gamma,
            ignore_label=ignore_label,
            output_losses=output_loss or (),
            output_weights=output_weight or (),
            backend=backend,
        )
    if first:
        finish(out, report, as_json, quiet)


def _rates(show: Callable[[float, float | None], None], precision: str) -> Any:
    """Return a callback that passes throughput on, at most five times a second."""
    from tf2jax_lite.finetuning.callbacks import Throughput

    class Rates(Throughput):
        last = 0.0

        def on_step(self, step: int, num_examples: int, state: Any) -> None:
            super().on_step(step, num_examples, state)
            now, rate = time.monotonic(), self.rate()
            if rate is not None and now - self.last > 0.2:
                self.last = now
                show(rate, self.utilization())

    return Rates(precision)


@app.command(name="merge-adapters")
def merge_adapters(
    artifact: Artifact,
    adapters: Annotated[Path, typer.Argument(metavar="ADAPTERS", help="adapters.safetensors of a trained artifact.")],
    out: Out,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Add trained adapters to an artifact's params, and write a new artifact."""
    from tf2jax_lite.finetuning.adapters import merge_adapters as merge
    from tf2jax_lite.support.extras import require_device

    require_device()
    report = merge(artifact, adapters, out, overwrite=force)
    if as_json:
        print_json({"path": report.path, "files": report.files})
    else:
        console.print(styled((out, "bold"), ": the artifact with its adapters merged"), highlight=False)
