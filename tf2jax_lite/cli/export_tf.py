"""The command ``export-tf``: an artifact's weights into its TensorFlow model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .quiet import import_tensorflow, quiet_stderr
from .shared import Json, Quiet, Tag, app, console, print_json, styled


@app.command(name="export-tf")
def export_tf(
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", help="An artifact that finetune or federate wrote.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The SavedModel directory (or .keras file) to create.")],
    model: Annotated[
        Path | None, typer.Option("--model", help="The model that was converted; else the recorded path.")
    ] = None,
    tag: Tag = None,
    stablehlo: Annotated[
        bool, typer.Option("--stablehlo", help="Write a SavedModel that calls the artifact's StableHLO, for new heads.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write an artifact's weights into its TensorFlow model, as a new SavedModel."""
    import_tensorflow()
    from tf2jax_lite.artifacts.export_tf import export_to_tf

    with quiet_stderr():
        report = export_to_tf(artifact, out, model=model, tags=tag, stablehlo=stablehlo)
    if as_json:
        print_json({"path": report.path, "model": report.model, "changed": report.changed, "kept": report.kept})
    elif not quiet:
        text = f": {report.model} with {len(report.changed)} of its variables changed"
        if stablehlo:
            text = ": functions of StableHLO, which TensorFlow runs"
        console.print(styled((out, "bold"), text), highlight=False)
