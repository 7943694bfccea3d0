"""The commands ``finetune`` and ``merge-adapters``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tf2jax_lite.artifacts.options import FinetuneOptions

from .config_file import options_text
from .federate import Artifact, Force, Out, Quiet, finish, import_from_here
from .options import command
from .shared import Json, MaxInputBytes, app, console, limits, print_json, styled

# Headings of finetune's options in --help.
_DEVICES, _WATCHING = "Devices and memory", "Metrics and records"


@command(FinetuneOptions)
def finetune(
    options: FinetuneOptions,
    context: typer.Context,
    artifact: Artifact,
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="A .npz, .csv or .jsonl file; a file or folder of .npz, .tfrecord, .array_record or .parquet shards; "
            "a folder of images for each class; or hf://datasets/NAME.",
        ),
    ],
    out: Out,
    evaluation: Annotated[
        Path | None,
        typer.Option("--eval", help="Data to evaluate on, before training and after each epoch; the same kinds."),
    ] = None,
    data_workers: Annotated[
        int, typer.Option(min=0, help="Processes that read shards ahead; threads of one process by default.")
    ] = 0,
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
    log_jsonl: Annotated[
        Path | None, typer.Option(help="A file that gets a line per epoch at once.", rich_help_panel=_WATCHING)
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A directory for TensorBoard's event files.", rich_help_panel=_WATCHING)
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="A directory for a trace of three steps.", rich_help_panel=_WATCHING)
    ] = None,
    max_input_bytes: MaxInputBytes = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune an artifact on examples, and write a new artifact.

    TensorFlow is not needed.
    """
    import jax

    from tf2jax_lite.artifacts.model import image_shape
    from tf2jax_lite.export.atomic_dir import refuse_existing
    from tf2jax_lite.finetuning import finetune_artifact
    from tf2jax_lite.finetuning.callbacks import Profile
    from tf2jax_lite.finetuning.sharding import join_processes
    from tf2jax_lite.learning.data import open_data
    from tf2jax_lite.learning.recorder import JSONLinesReleaseManager, ProgressBar, Recorder, TensorBoardReleaseManager
    from tf2jax_lite.support.extras import require_device

    import_from_here([options.loss, *options.output_losses])
    join_processes(coordinator, num_processes, process_id)
    require_device()
    refuse_existing(out, overwrite=options.overwrite)
    quiet = quiet or (coordinator is not None and jax.process_index() > 0)
    with limits(max_input_bytes=max_input_bytes):
        given = {"label": options.label, "image_shape": image_shape(artifact, options.eval_signature)}
        examples = open_data(data, workers=data_workers, **given)
        held_out = None if evaluation is None else open_data(evaluation, **given)
    makers = ((JSONLinesReleaseManager, log_jsonl), (TensorBoardReleaseManager, tensorboard), (Profile, profile))
    first = coordinator is None or jax.process_index() == 0
    watching: list[Recorder] = [make(path) for make, path in makers if path is not None and first]
    with ProgressBar("epoch", options.epochs, console=console, disable=quiet or as_json) as bar:
        if not (quiet or as_json):
            watching.append(_rates(bar.on_rate))
        report = finetune_artifact(
            artifact,
            examples,
            out,
            eval_examples=held_out,
            report=bar.on_record,
            callbacks=watching,
            progress=(lambda line: None)
            if quiet or as_json
            else (lambda line: console.print(line, highlight=False, soft_wrap=True)),
            extra={"finetune.toml": options_text(context)},
            **vars(options),
        )
    if first:
        finish(out, report, as_json, quiet)


def _rates(show: Callable[[float], None]) -> Any:
    """Return a callback that passes throughput on, at most five times a second."""
    from tf2jax_lite.finetuning.callbacks import Throughput

    class Rates(Throughput):
        last = 0.0

        def on_step(self, step: int, num_examples: int, state: Any) -> None:
            super().on_step(step, num_examples, state)
            now, rate = time.monotonic(), self.rate()
            if rate is not None and now - self.last > 0.2:
                self.last = now
                show(rate)

    return Rates()


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
