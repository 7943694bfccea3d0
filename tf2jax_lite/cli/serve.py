"""The command ``serve``: an artifact over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tf2jax_lite.artifacts.options import ServeOptions

from .options import command
from .shared import Quiet, console


@command(ServeOptions)
def serve(
    options: ServeOptions,
    artifact: Annotated[Path, typer.Argument(metavar="DIR", help="An artifact that convert wrote.")],
    quiet: Quiet = False,
) -> None:
    """Serve an artifact over HTTP.

    The routes are those of KServe V2 and of TensorFlow Serving. SIGTERM ends it when running requests are answered.
    TensorFlow is not needed, except for strings.
    """
    from tf2jax_lite.artifacts.serve import serve_artifact

    def show(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    serve_artifact(artifact, progress=(lambda line: None) if quiet else show, **vars(options))
