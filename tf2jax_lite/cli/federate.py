"""The command ``federate``, and parts of both training commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tf2jax_lite.artifacts.options import FederateOptions
from tf2jax_lite.support.errors import InputError

from .options import command
from .shared import Json, MaxInputBytes, Quiet, console, limits, print_json, styled

Artifact = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="An artifact that convert wrote (with --train for Dropout).")
]
Out = Annotated[Path, typer.Option("--out", help="The directory to create.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing artifact.")]


def import_from_here(losses: Iterable[str]) -> None:
    """Let losses ``module:function`` be imported from the working directory."""
    if any(":" in loss for loss in losses) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


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
    from tf2jax_lite.learning.recorder import summary_text

    history = report.history
    if as_json:
        print_json(
            {
                "path": report.export.path,
                "files": report.export.files,
                "from_logits": report.from_logits,
                "signatures": list(report.signatures),
                **(
                    {} if report.trainable is None else {"trainable": report.trainable, "parameters": report.parameters}
                ),
                "history": history.records,
            }
        )
    elif not quiet:
        kind = "logits" if report.from_logits else "probabilities"
        text = f": trained by the function {report.signatures[0]!r}, whose predictions are {kind}"
        console.print(styled((out, "bold"), text), highlight=False)
        for name, record in (("before", history.records[0]), ("after", history.records[-1])):
            if text := summary_text(record):
                console.print(f"  {name:6} {text}", highlight=False)
        console.print(f"  {out / 'history.jsonl'}, {out / 'history.svg'}", highlight=False)


@command(FederateOptions)
def federate(
    options: FederateOptions,
    artifact: Artifact,
    data: Annotated[
        Path,
        typer.Option("--data", help="Clients: SQLite (ours or TFF's), a folder of .npz, .h5, or .npz with client_id."),
    ],
    out: Out,
    evaluation: Annotated[
        Path | None, typer.Option("--eval", help="An .npz to evaluate on, before and while training.")
    ] = None,
    client_key: Annotated[
        str, typer.Option(help="Of an .npz, the array with each example's client.", rich_help_panel="Clients")
    ] = "client_id",
    split: Annotated[
        str | None,
        typer.Option(help="Of TFF's SQLite, the split to train on; train if there is one.", rich_help_panel="Clients"),
    ] = None,
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
    from tf2jax_lite.learning.recorder import ProgressBar
    from tf2jax_lite.support.extras import require_device

    require_device()
    refuse_existing(out, overwrite=options.overwrite)
    import_from_here([options.loss, *options.output_losses])
    with limits(max_input_bytes=max_input_bytes):
        clients = open_clients(data, client_key, split)
        held_out = None if evaluation is None else read_arrays(evaluation)
    given = vars(options) | {"aggregator_options": _named_values(list(options.aggregator_options or ()))}
    with ProgressBar("round", options.rounds, console=console, disable=quiet or as_json) as bar:
        report = federate_artifact(artifact, clients, out, eval_examples=held_out, report=bar.on_record, **given)
    finish(out, report, as_json, quiet)
