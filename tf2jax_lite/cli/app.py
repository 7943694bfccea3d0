"""The commands. Heavy imports stay inside them, so that ``--help`` answers at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .quiet import import_tensorflow, quiet_stderr

app = typer.Typer(
    name="tf2jax-lite",
    help="Convert TensorFlow functions and SavedModels to JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

Model = Annotated[Path, typer.Argument(metavar="DIR", help="A SavedModel directory.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Tag of the MetaGraph; repeat for several.")]


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def _shape(shape: list[int | None] | None) -> str:
    return "?" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@app.command()
def inspect(model: Model, tag: Tag = None, as_json: Json = False) -> None:
    """Show a SavedModel's signatures, variables and ops, and whether it converts."""
    import_tensorflow()
    from tf2jax_lite.describe import describe_saved_model

    with quiet_stderr():
        found = describe_saved_model(model, tag)
    if as_json:
        _print_json(found.as_json())
        return
    console.print(f"[bold]{found.path}[/bold]")
    console.print(f"TensorFlow {found.tensorflow_version or 'unknown'}; tags {found.tags}")
    for signature in found.signatures:
        table = Table(title=f"signature {signature.name}", title_justify="left")
        for column in ("", "name", "dtype", "shape"):
            table.add_column(column)
        for kind, tensors in (("in", signature.inputs), ("out", signature.outputs)):
            for tensor in tensors:
                table.add_row(kind, tensor.name, tensor.dtype, _shape(tensor.shape))
        console.print(table)
        histogram = ", ".join(
            f"{op} {n}" for op, n in sorted(signature.ops.items(), key=lambda item: (-item[1], item[0]))
        )
        console.print(f"ops: {histogram}", highlight=False)
        for op, nodes in signature.unsupported.items():
            console.print(f"[red]unsupported[/red] {op}: {', '.join(nodes)}", highlight=False)
    if not found.signatures:
        console.print("no signatures")
    table = Table(title=f"{len(found.variables)} variables, {_size(found.bytes)}", title_justify="left")
    for column in ("name", "dtype", "shape"):
        table.add_column(column)
    for variable in found.variables:
        table.add_row(variable.name, variable.dtype, _shape(variable.shape))
    if found.variables:
        console.print(table)
    verdict = "[green]every op is supported[/green]" if found.supported else "[red]some ops are not supported[/red]"
    console.print(verdict)


@app.command()
def ops(
    as_json: Json = False,
    missing: Annotated[bool, typer.Option("--missing", help="List only ops without an implementation.")] = False,
) -> None:
    """Show which TensorFlow ops are covered."""
    from tf2jax_lite.coverage import coverage

    found = coverage()
    if as_json:
        _print_json(found.as_json())
        return
    table = Table()
    for column in ("op", "status", "where or why"):
        table.add_column(column)
    for entry in found.entries:
        if missing and entry.status == "supported":
            continue
        colour = {"supported": "green", "refused": "yellow"}.get(entry.status, "red")
        table.add_row(entry.name, f"[{colour}]{entry.status}[/{colour}]", entry.detail)
    console.print(table)
    console.print(found.summary())


@app.command()
def verify(
    model: Model,
    signature: Annotated[
        list[str] | None, typer.Option("--signature", help="Only this one; repeat for several.")
    ] = None,
    tag: Tag = None,
    inputs: Annotated[Path | None, typer.Option("--inputs", help="An .npz with arrays by input name.")] = None,
    seed: Annotated[int, typer.Option(help="For the inputs that are drawn.")] = 0,
    rtol: Annotated[float | None, typer.Option(help="Tolerance on the relative error.")] = None,
    as_json: Json = False,
) -> None:
    """Run each signature in TensorFlow and in JAX and compare; exit code 1 if they differ."""
    import_tensorflow()
    from tf2jax_lite.verify import verify_saved_model

    arrays = None if inputs is None else _read_npz(inputs)
    with console.status("loading", spinner="dots") as status, quiet_stderr():
        results = verify_saved_model(
            model,
            signature,
            tag,
            arrays,
            seed=seed,
            rtol=rtol,
            progress=lambda name: status.update(f"signature {name}"),
        )
    if as_json:
        _print_json({"ok": all(r.ok for r in results), "signatures": [r.as_json() for r in results]})
    else:
        table = Table()
        for column in ("signature", "output", "dtype", "shape", "max abs error", "max rel error", "verdict"):
            table.add_column(column)
        for result in results:
            for output in result.outputs:
                verdict = "[green]agrees[/green]" if output.ok else f"[red]differs[/red] {output.problem}"
                table.add_row(
                    result.signature,
                    output.name,
                    output.dtype,
                    _shape(list(output.shape)),
                    f"{output.max_abs_error:.3g}",
                    f"{output.max_rel_error:.3g}",
                    verdict,
                )
        console.print(table)
        for result in results:
            if result.error:
                console.print(f"[red]signature {result.signature}[/red]: {result.error}", highlight=False)
    if not all(r.ok for r in results):
        raise typer.Exit(1)


def _read_npz(path: Path) -> dict[str, Any]:
    import numpy as np

    from tf2jax_lite.errors import InputError

    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not a readable .npz of arrays ({error}).") from error


@app.command()
def demo(
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 300,
) -> None:
    """Convert a bundled digits model, compare it with TensorFlow, and fine-tune it in JAX."""
    import_tensorflow()
    from tf2jax_lite.demo import run_demo

    with quiet_stderr():
        run_demo(console, steps)
