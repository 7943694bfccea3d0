"""The command ``verify``: compare a model, and an artifact, with TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tf2jax_lite.artifacts.options import VerifyOptions

from .child import report_step
from .options import command
from .quiet import import_tensorflow, quiet_stderr
from .shared import (
    Json,
    console,
    limits,
    print_json,
    shape_text,
    steps,
    styled,
)


@command(VerifyOptions)
def verify(
    options: VerifyOptions,
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A SavedModel directory, a .keras, .h5, frozen .pb or TF1 .meta file."),
    ],
    artifact: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]", help="An artifact of the model; with --source, its source is run, too.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run each signature in TensorFlow and in JAX, and compare.

    The exit code is 1 if they differ.
    """
    import_tensorflow()
    from tf2jax_lite.artifacts.verify import verify_model
    from tf2jax_lite.support.extras import require_device

    require_device()
    held = limits(
        options.max_nodes, options.max_constant_bytes, options.trust, options.max_input_bytes, options.modules
    )
    with held, steps(not as_json) as (step, _), quiet_stderr():

        def progress(text: str) -> None:
            report_step(text)
            step(text)

        result = verify_model(model, artifact, options, progress)
    if as_json:
        print_json(result.as_json())
    else:
        _print(result)
        if options.report is not None:
            console.print(f"report: {options.report}", highlight=False, soft_wrap=True)
    if not result.ok:
        raise typer.Exit(1)


def _print(result: Any) -> None:
    for signature in result.signatures:
        if signature.outputs:
            console.print(_table(signature))
    for signature in result.signatures:
        if signature.error:
            first, *rest = signature.error.splitlines() or [""]
            console.print(styled((f"signature {signature.signature}", "red"), f": {first}"), highlight=False)
            for line in rest:
                console.print(line, highlight=False)
        for note in signature.notes:
            console.print(f"{signature.signature}: {note}", highlight=False)
        if signature.bisection is not None:
            _print_bisection(signature.signature, signature.bisection)
    console.print(styled((str(result).splitlines()[-1], "green" if result.ok else "red")), highlight=False)
    if result.repro:
        console.print(f"reproduction: python {result.repro}", highlight=False, soft_wrap=True)


def _table(signature: Any) -> Table:
    """Return a table with a row per result; agreeing gradients share a row."""
    table = Table(title=f"signature {signature.signature}", title_justify="left")
    table.add_column("output", overflow="fold")
    for column in ("type", "max abs error", "max rel error", "ulp", "verdict"):
        table.add_column(column)
    agreeing: dict[tuple[str, str], list[Any]] = {}
    for output in signature.outputs:
        against = "" if output.against == "jax" else f" ({output.against})"
        if output.verdict == "agrees" and output.kind != "result":
            agreeing.setdefault((output.kind, against), []).append(output)
            continue
        prefix = "" if output.kind == "result" else f"{output.kind} "
        verdict = (output.verdict, "green" if output.ok else "red")
        table.add_row(
            f"{prefix}{output.name}{against}",
            f"{output.dtype}{shape_text(list(output.shape))}",
            f"{output.max_abs_error:.3g}",
            f"{output.max_rel_error:.3g}",
            "" if output.max_ulp is None else str(output.max_ulp),
            styled(verdict, f" {output.remarks}".rstrip()),
        )
    for (kind, against), outputs in agreeing.items():
        worst = [max(o.max_abs_error for o in outputs), max(o.max_rel_error for o in outputs)]
        label = f"{len(outputs)} {kind}{'s' if len(outputs) > 1 else ''}{against}"
        table.add_row(label, "", *(f"{w:.3g}" for w in worst), "", styled(("agrees", "green")))
    return table


def _print_bisection(name: str, found: Any) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    line(f"{name}: {found.summary} ({found.inputs})")
    for suspect in found.suspects:
        own = "unknown" if suspect.own_error is None else f"{suspect.own_error:.2g}"
        line(
            f"  {suspect.path} ({suspect.op}): error {suspect.error:.2g}, "
            f"of its inputs {suspect.input_error:.2g}, own {own}"
        )
        if suspect.location:
            line(f"    made at {suspect.location}")
        if suspect.problem:
            line(f"    {suspect.problem}")
        if suspect.attributes:
            line("    " + ", ".join(f"{k}={v}" for k, v in suspect.attributes.items()))
        for entry in suspect.inputs:
            values = f" in [{entry['min']:.4g}, {entry['max']:.4g}]" if "min" in entry else ""
            nan = f", {entry['nan']} NaN" if entry.get("nan") else ""
            line(f"    {entry['tensor']}: {entry.get('dtype', '?')}{entry.get('shape', '')}{values}{nan}")
