"""The commands inspect, ops and demo; expensive imports stay inside.

This keeps ``--help`` fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tf2jax_lite.support.text import size_text

from . import convert as _convert  # noqa: F401  (registers its commands)
from . import doctor as _doctor  # noqa: F401  (registers its command)
from . import export_tf as _export_tf  # noqa: F401  (registers its command)
from . import federate as _federate  # noqa: F401  (registers its command)
from . import finetune as _finetune  # noqa: F401  (registers its commands)
from . import serve as _serve  # noqa: F401  (registers its command)
from . import verify as _verify  # noqa: F401  (registers its command)
from .advice import for_shell
from .quiet import import_tensorflow, quiet_stderr
from .shared import (
    GRAPHS,
    Import,
    Json,
    MaxConstantBytes,
    MaxNodes,
    Tag,
    Trust,
    app,
    console,
    limits,
    print_json,
    shape_text,
    styled,
)


@app.command()
def inspect(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A SavedModel directory, or a .keras, .h5, .pb or TF1 .meta file.")
    ],
    tag: Tag = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Of a .pb or .meta, a tensor that becomes an argument.", rich_help_panel=GRAPHS),
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option("--output", help="Of a .pb or .meta, a result.", rich_help_panel=GRAPHS)
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page.")] = None,
    max_nodes: MaxNodes = None,
    max_constant_bytes: MaxConstantBytes = None,
    trust: Trust = None,
    modules: Import = None,
    as_json: Json = False,
) -> None:
    """Show the model's kind, signatures, variables and ops, and whether it converts.

    The exit code is 1 if it does not.
    """
    from tf2jax_lite.pipeline.model_paths import KERAS_SUFFIXES

    if model.suffix in KERAS_SUFFIXES:  # other files are read without it
        import_tensorflow()
    from tf2jax_lite.pipeline.inspect_model import describe_model

    with quiet_stderr(), limits(max_nodes, max_constant_bytes, trust, modules=modules):
        found = describe_model(model, tag, inputs=inputs, outputs=outputs)
    if html is not None:
        from tf2jax_lite.export.atomic_dir import write_file
        from tf2jax_lite.pipeline.inspect_model import html_description

        html.parent.mkdir(parents=True, exist_ok=True)
        write_file(html, html_description(found).encode("utf-8", "replace"))
    if as_json:
        print_json(found.as_json())
    else:
        _print_description(found)
        if html is not None:
            console.print(f"page: {html}", highlight=False, soft_wrap=True)
    if not found.supported:
        raise typer.Exit(1)


def _print_description(found: Any) -> None:
    console.print(styled((found.path, "bold")), highlight=False)
    tags = f"; tags {found.tags}" if found.tags else ""
    console.print(f"{found.kind}, TensorFlow {found.tensorflow_version or 'unknown'}{tags}")
    for signature in found.signatures:
        table = Table(title=f"signature {signature.name}", title_justify="left")
        for column in ("", "name", "dtype", "shape"):
            table.add_column(column)
        for kind, tensors in (("in", signature.inputs), ("out", signature.outputs)):
            for tensor in tensors:
                table.add_row(kind, tensor.name, tensor.dtype, shape_text(tensor.shape))
        console.print(table)
        histogram = ", ".join(
            f"{op} {n}" for op, n in sorted(signature.ops.items(), key=lambda item: (-item[1], item[0]))
        )
        console.print(f"ops: {histogram}", highlight=False)
        for op, nodes in signature.unsupported.items():
            listed = for_shell(", ".join(nodes), "inspect")
            console.print(styled(("unsupported", "red"), f" {op}: {listed}"), highlight=False)
    if not found.signatures:
        console.print("no signatures")
    noun = "weights" if found.kind == "frozen GraphDef" else "variables"
    table = Table(title=f"{len(found.variables)} {noun}, {size_text(found.bytes)}", title_justify="left")
    for column in ("name", "dtype", "shape"):
        table.add_column(column)
    for variable in found.variables:
        table.add_row(variable.name, variable.dtype, shape_text(variable.shape))
    if found.variables:
        console.print(table)
    verdict = ("every op is supported", "green") if found.supported else ("some ops are not supported", "red")
    console.print(styled(verdict))
    if not found.supported and any(t.dtype == "string" for s in found.signatures for t in s.inputs):
        line = "Ops on strings can stay in TensorFlow: tf2jax-lite convert MODEL OUT --split-host"
        console.print(line, highlight=False, soft_wrap=True)


@app.command()
def ops(
    as_json: Json = False,
    missing: Annotated[bool, typer.Option("--missing", help="List only ops without an implementation.")] = False,
) -> None:
    """Show which TensorFlow ops are covered."""
    from tf2jax_lite.coverage import coverage

    found = coverage()
    if as_json:
        print_json(found.as_json())
        return
    table = Table()
    for column in ("op", "status", "where or why"):
        table.add_column(column)
    for entry in found.entries:
        if missing and entry.status == "supported":
            continue
        color = {"supported": "green", "refused": "yellow"}.get(entry.status, "red")
        table.add_row(entry.name, styled((entry.status, color)), entry.detail)
    console.print(table)
    console.print(found.summary())


@app.command()
def demo(
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 300,
) -> None:
    """Convert a digits model, compare it with TensorFlow, and train it in JAX.

    It is trained centrally and federated.
    """
    import_tensorflow()
    from tf2jax_lite.demo import run_demo
    from tf2jax_lite.support.extras import require_device

    require_device()
    with quiet_stderr():
        run_demo(console, steps)
