"""The commands ``federate`` and ``export-tf``, and options of trainings."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.text import printable

from .quiet import import_tensorflow, quiet_stderr
from .shared import Json, MaxInputBytes, Tag, app, console, limits, print_json, styled

Artifact = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="An artifact that convert wrote (with --train for Dropout).")
]
Out = Annotated[Path, typer.Option("--out", help="The directory to create.")]
Loss = Annotated[
    str,
    typer.Option(
        help="sparse_categorical_crossentropy, categorical_..., binary_crossentropy, mse, mae, huber, log_cosh, "
        "cosine, or module:function of your own."
    ),
]
Eval = Annotated[Path | None, typer.Option("--eval", help="An .npz to evaluate on, before and while training.")]
Logits = Annotated[
    bool, typer.Option("--from-logits", help="Predictions are logits; for a cross entropy, probabilities otherwise.")
]
Label = Annotated[str, typer.Option(help="The targets' name in the data.")]
Output = Annotated[str | None, typer.Option(help="The result that is the prediction, if there are several.")]
Signature = Annotated[str | None, typer.Option("--signature", help="The function in evaluation mode.")]
TrainSignature = Annotated[str | None, typer.Option(help="The function in training mode; train if there is one.")]
Freeze = Annotated[
    list[str] | None, typer.Option("--freeze", metavar="REGEX", help="Params that do not train; repeat for several.")
]
Backend = Annotated[str, typer.Option(help="stablehlo, or source (runs the artifact's Python code).")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same weights.")]
Checkpoints = Annotated[
    Path | None, typer.Option("--checkpoint-dir", help="Save the state there, and resume from it if there is one.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing artifact.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]

# Headings of federate's options in --help.
_CLIENTS, _SERVER, _AGGREGATION = "Clients", "Server", "Aggregation"
_ALGORITHMS = "Options of single algorithms"


def import_from_here(losses: Iterable[str]) -> None:
    """Let losses ``module:function`` be imported from the working directory."""
    if any(":" in loss for loss in losses) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


class _Bar:
    """A progress bar, called with each record of the history."""

    def __init__(self, bar: Progress, unit: str, total: int):
        self._bar, self._unit = bar, unit
        self._task = bar.add_task("compiling", total=total, rate="")

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record's number, losses and accuracies."""
        self._bar.update(self._task, completed=record[self._unit], description=_numbers(record))

    def rate(self, examples_per_second: float, utilization: float | None = None) -> None:
        """Show the throughput, and the estimated FLOP utilization where it is known."""
        of_peak = "" if utilization is None else f", {utilization:.0%} FLOP utilization"
        self._bar.update(self._task, rate=f"{examples_per_second:,.0f} examples/s{of_peak}")


@contextlib.contextmanager
def progress(unit: str, total: int, show: bool) -> Iterator[_Bar]:
    """Yield a progress bar."""
    columns = (
        TextColumn(unit, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[rate]}", markup=False),
    )
    with Progress(*columns, console=console, disable=not show) as bar:
        yield _Bar(bar, unit, total)


def _numbers(record: dict[str, Any]) -> str:
    """Return the losses and accuracies of a record as text."""
    texts = []
    for name, value in record.items():
        if name.rsplit("/", 1)[-1] in ("loss", "accuracy", "mae") and isinstance(value, float):
            texts.append(f"{printable(name)} {value:.4f}")
    return "  ".join(texts)


def _named_values(items: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE items; values are JSON, or else text."""
    found: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise InputError(f"{item!r}: expected NAME=VALUE")
        try:
            found[name.replace("-", "_")] = json.loads(text)
        except ValueError:
            found[name.replace("-", "_")] = text
    return found


def finish(out: Path, report: Any, as_json: bool, quiet: bool) -> None:
    """Print the result of a training."""
    history = report.history
    if as_json:
        print_json(
            {
                "path": report.export.path,
                "files": report.export.files,
                "from_logits": report.from_logits,
                "signatures": list(report.signatures),
                "history": history.records,
            }
        )
    elif not quiet:
        kind = "logits" if report.from_logits else "probabilities"
        text = f": trained by the function {report.signatures[0]!r}, whose predictions are {kind}"
        console.print(styled((out, "bold"), text), highlight=False)
        for name, record in (("before", history.records[0]), ("after", history.records[-1])):
            if _numbers(record):
                console.print(f"  {name:6} {_numbers(record)}", highlight=False)
        console.print(f"  {out / 'history.jsonl'}, {out / 'history.svg'}", highlight=False)


@app.command()
def federate(
    artifact: Artifact,
    data: Annotated[
        Path,
        typer.Option("--data", help="Clients: SQLite (ours or TFF's), a folder of .npz, .h5, or .npz with client_id."),
    ],
    out: Out,
    loss: Loss = "sparse_categorical_crossentropy",
    algorithm: Annotated[
        str,
        typer.Option(
            help="fed_avg, unweighted_fed_avg, fed_prox, fed_sgd, mime, mime_lite, scaffold, agnostic_fed_avg or "
            "hyp_cluster (an artifact for each cluster, cluster_0, cluster_1, ...)."
        ),
    ] = "fed_avg",
    rounds: Annotated[int, typer.Option(min=0, help="Number of rounds.")] = 100,
    clients_per_round: Annotated[int, typer.Option(min=1, help="Size of a cohort.", rich_help_panel=_CLIENTS)] = 10,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in a client's step.", rich_help_panel=_CLIENTS)] = 20,
    client_epochs: Annotated[
        int, typer.Option(min=1, help="A client's passes over its data in a round.", rich_help_panel=_CLIENTS)
    ] = 1,
    client_optimizer: Annotated[
        str | None, typer.Option(help="As for finetune; sgd by default.", rich_help_panel=_CLIENTS)
    ] = None,
    client_learning_rate: Annotated[
        float | None, typer.Option(help="Its rate, 0.1 by default.", rich_help_panel=_CLIENTS)
    ] = None,
    server_optimizer: Annotated[
        str | None,
        typer.Option(
            help="As for finetune; adam, yogi, adagrad are FedAdam's and so on. By default clients are averaged.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    server_learning_rate: Annotated[
        float | None,
        typer.Option(help="Its rate, 1 by default (of fed_sgd 0.1, as TFF has it).", rich_help_panel=_SERVER),
    ] = None,
    server_momentum: Annotated[float | None, typer.Option(help="Of sgd and rmsprop.", rich_help_panel=_SERVER)] = None,
    server_tau: Annotated[
        float | None,
        typer.Option(
            help="Of adam, yogi and adagrad: added to the root below, 0.001 by default.", rich_help_panel=_SERVER
        ),
    ] = None,
    aggregator: Annotated[
        str | None,
        typer.Option(
            help="mean, unweighted_mean, robust, median, trimmed_mean, krum, geometric_median, secure, dp, "
            "compression, quantized, rotated, drive, tern_grad or top_k.",
            rich_help_panel=_AGGREGATION,
        ),
    ] = None,
    aggregator_option: Annotated[
        list[str] | None,
        typer.Option(
            "--aggregator-option",
            metavar="NAME=VALUE",
            help="Of the aggregator: num_byzantine=2; repeat for several.",
            rich_help_panel=_AGGREGATION,
        ),
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Of dp: noise in clipping norms.", rich_help_panel=_AGGREGATION)
    ] = None,
    clip_norm: Annotated[
        float | None, typer.Option(help="Scale clients' updates down to this norm.", rich_help_panel=_AGGREGATION)
    ] = None,
    zeroing_norm: Annotated[
        float | None,
        typer.Option(help="Replace client updates with a larger element by zeros.", rich_help_panel=_AGGREGATION),
    ] = None,
    proximal_strength: Annotated[
        float | None, typer.Option(help="Mu of fed_prox, 0.01 by default.", rich_help_panel=_ALGORITHMS)
    ] = None,
    client_decay: Annotated[
        float, typer.Option(help="Factor on clients' rate from round to round.", rich_help_panel=_CLIENTS)
    ] = 1.0,
    num_clusters: Annotated[
        int | None, typer.Option(min=1, help="Models of hyp_cluster, 2 by default.", rich_help_panel=_ALGORITHMS)
    ] = None,
    domain_key: Annotated[
        str | None,
        typer.Option(
            help="Of agnostic_fed_avg, the array of each example's domain, from 0; domain_id by default.",
            rich_help_panel=_ALGORITHMS,
        ),
    ] = None,
    domain_learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Of agnostic_fed_avg: learning rate of the domains' weights, 0.1 by default.",
            rich_help_panel=_ALGORITHMS,
        ),
    ] = None,
    domain_window: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of agnostic_fed_avg: rounds whose examples are counted, 1 by default.",
            rich_help_panel=_ALGORITHMS,
        ),
    ] = None,
    evaluation: Eval = None,
    eval_every: Annotated[int, typer.Option(min=1, help="Evaluate after this many rounds.")] = 1,
    seed: Seed = 0,
    from_logits: Logits = False,
    label: Label = "y",
    client_key: Annotated[
        str, typer.Option(help="Of an .npz, the array with each example's client.", rich_help_panel=_CLIENTS)
    ] = "client_id",
    split: Annotated[
        str | None,
        typer.Option(help="Of TFF's SQLite, the split to train on; train if there is one.", rich_help_panel=_CLIENTS),
    ] = None,
    output: Output = None,
    signature: Signature = None,
    train_signature: TrainSignature = None,
    freeze: Freeze = None,
    backend: Backend = "stablehlo",
    checkpoint_dir: Checkpoints = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Save the state after this many rounds.")] = 1,
    force: Force = False,
    max_input_bytes: MaxInputBytes = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an artifact by federated learning, and write a new artifact.

    TensorFlow is not needed.
    """
    from tf2jax_lite.export.atomic_dir import refuse_existing
    from tf2jax_lite.finetuning import federate_artifact
    from tf2jax_lite.learning.data.client_files import open_clients, read_arrays
    from tf2jax_lite.support.extras import require_device

    require_device()
    refuse_existing(out, overwrite=force)
    import_from_here([loss])
    with limits(max_input_bytes=max_input_bytes):
        clients = open_clients(data, client_key, split)
        held_out = None if evaluation is None else read_arrays(evaluation)
    with progress("round", rounds, not (quiet or as_json)) as step:
        report = federate_artifact(
            artifact,
            clients,
            out,
            loss=loss,
            algorithm=algorithm,
            rounds=rounds,
            clients_per_round=clients_per_round,
            batch_size=batch_size,
            client_epochs=client_epochs,
            client_optimizer=client_optimizer,
            client_learning_rate=client_learning_rate,
            server_optimizer=server_optimizer,
            server_learning_rate=server_learning_rate,
            server_momentum=server_momentum,
            server_tau=server_tau,
            aggregator=aggregator,
            aggregator_options=_named_values(aggregator_option or ()),
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            zeroing_norm=zeroing_norm,
            proximal_strength=proximal_strength,
            client_decay=client_decay,
            num_clusters=num_clusters,
            domain_key=domain_key,
            domain_learning_rate=domain_learning_rate,
            domain_window=domain_window,
            seed=seed,
            eval_examples=held_out,
            eval_every=eval_every,
            checkpoint_dir=checkpoint_dir,
            checkpoint_every=checkpoint_every,
            overwrite=force,
            report=step,
            from_logits=from_logits,
            label=label,
            output=output,
            eval_signature=signature,
            train_signature=train_signature,
            freeze=freeze or (),
            backend=backend,
        )
    finish(out, report, as_json, quiet)


@app.command(name="export-tf")
def export_tf(
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="An artifact that finetune or federate wrote.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The SavedModel directory (or .keras file) to create.")],
    model: Annotated[
        Path | None, typer.Option("--model", help="The model that was converted; else the recorded path.")
    ] = None,
    tag: Tag = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write an artifact's weights into its TensorFlow model, as a new SavedModel."""
    import_tensorflow()
    from tf2jax_lite.export.to_tensorflow import export_to_tf

    with quiet_stderr():
        report = export_to_tf(artifact, out, model=model, tags=tag)
    if as_json:
        print_json({"path": report.path, "model": report.model, "changed": report.changed, "kept": report.kept})
    elif not quiet:
        text = f": {report.model} with {len(report.changed)} of its variables changed"
        console.print(styled((out, "bold"), text), highlight=False)
