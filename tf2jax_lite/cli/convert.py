"""The commands ``convert`` and ``run``: write and run artifacts."""

from __future__ import annotations

import contextlib
import io
import time
import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from tf2jax_lite.artifacts.options import ConvertOptions
from tf2jax_lite.support.text import size_text

from .options import command
from .quiet import import_tensorflow, quiet_stderr
from .shared import (
    Json,
    MaxInputBytes,
    Quiet,
    app,
    console,
    limits,
    print_json,
    shape_text,
    steps,
    styled,
)

_MAX_MEMBER_NAME = (1 << 16) - 1  # bytes of UTF-8


@command(ConvertOptions)
def convert(
    options: ConvertOptions,
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A SavedModel directory, a .keras, .h5, frozen .pb or TF1 .meta file."),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The directory to create.")],
    standalone: Annotated[
        bool, typer.Option("--standalone", help="No effect: model.py always runs with JAX alone.", hidden=True)
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a model to a directory that runs without TensorFlow.

    It has params, StableHLO and readable JAX source.
    """
    import_tensorflow()
    from tf2jax_lite.artifacts.convert import convert_model
    from tf2jax_lite.support.extras import require_device

    require_device()
    begin = time.perf_counter()
    with contextlib.ExitStack() as stack:
        step, seconds = stack.enter_context(steps(not (quiet or as_json)))
        stack.enter_context(quiet_stderr())
        stack.enter_context(
            limits(options.max_nodes, options.max_constant_bytes, options.trust, modules=options.modules)
        )
        found = convert_model(model, out, options, step)
    report, total = found.report, time.perf_counter() - begin
    if as_json:
        print_json(
            {
                "path": report.path,
                "signatures": report.signatures,
                "parameters": report.parameters,
                "files": report.files,
                "warnings": report.warnings,
                "left_out": {name: str(error) for name, error in found.left_out.items()},
                **({"split_host": found.cuts} if options.split_host else {}),
                "seconds": {**{k: round(v, 3) for k, v in seconds.items()}, "total": round(total, 3)},
            }
        )
    elif not quiet:
        console.print(styled((out, "bold"), f": {', '.join(report.signatures)}; {report.parameters:,} parameters"))
        for name, size in report.files.items():
            console.print(f"  {name}  {size_text(size)}", highlight=False)
        for name, cut in found.cuts.items():
            _print_cut(name, cut)
        for warning in report.warnings:
            console.print(styled(("warning", "yellow"), f" {warning}"), highlight=False)


def _print_cut(name: str, cut: dict[str, Any]) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    if not cut["host_nodes"]:
        line(f"{name}: nothing stays in TensorFlow")
        return
    line(f"{name}: {cut['host_nodes']} nodes stay in TensorFlow, in front of the core:")
    for entry in cut["because"][:10]:
        line(f"  {entry['node']} ({entry['op']}) {entry['reason']}")
    if len(cut["because"]) > 10:
        line(f"  and {len(cut['because']) - 10} more")
    line("the cut is at:")
    for entry in cut["core_inputs"]:
        origin = f"{entry['tensor']} ({entry['op']})" if entry["op"] else "passed on"
        line(f"  {entry['name']}: {entry['dtype']}{shape_text(entry['shape'])}  {origin}")
    if cut["left_out"]:
        line(f"left out, being strings: {', '.join(cut['left_out'])}")


@app.command()
def update(
    artifact: Annotated[Path, typer.Argument(metavar="DIR", help="An artifact whose model.py was edited.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check an artifact's edited model.py, and write the files that depend on it.

    These are StableHLO and metadata. The source runs: only for source that you trust. TensorFlow is not needed.
    """
    from tf2jax_lite.export.edited import update_artifact
    from tf2jax_lite.support.extras import require_device

    require_device()
    with steps(not (quiet or as_json)) as (step, _):
        report = update_artifact(artifact, progress=step)
    if as_json:
        print_json({"path": report.path, "signatures": report.signatures, "warnings": report.warnings})
    elif not quiet:
        console.print(styled((artifact, "bold"), f": {', '.join(report.signatures)}; {report.parameters:,} parameters"))
        for warning in report.warnings:
            console.print(styled(("warning", "yellow"), f" {warning}"), highlight=False)


@app.command()
def run(
    artifact: Annotated[Path, typer.Argument(metavar="DIR", help="An artifact that convert wrote.")],
    inputs: Annotated[Path, typer.Option("--input", help="An .npz with arrays by input name, or strings.")],
    output: Annotated[Path, typer.Option("--output", help="The .npz to write.")],
    signature: Annotated[str | None, typer.Option("--signature", help="Which function.")] = None,
    backend: Annotated[str, typer.Option(help="stablehlo, or source (runs the artifact's Python code).")] = "stablehlo",
    adapters: Annotated[
        Path | None, typer.Option(metavar="FILE", help="adapters.safetensors of a trained artifact, to run with.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For functions that draw random numbers.")] = 0,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep the compiled program in the user's cache directory.")
    ] = True,
    max_input_bytes: MaxInputBytes = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an artifact on arrays from an .npz file.

    TensorFlow is not needed, except for the strings of a model that was converted with --split-host.
    """
    import numpy as np

    from tf2jax_lite.export.atomic_dir import write_file
    from tf2jax_lite.export.execution import run_artifact
    from tf2jax_lite.export.reader import flat_results
    from tf2jax_lite.support.errors import InputError
    from tf2jax_lite.support.extras import require_device
    from tf2jax_lite.support.npz import read_npz

    require_device()
    if not -(2**63) <= seed < 2**63:
        raise InputError(f"--seed is a 64-bit integer, not {seed}")
    if output.suffix not in ("", ".npz"):
        raise InputError(f"{output}: --output writes an .npz, not a {output.suffix} file; name it so.")
    with limits(max_input_bytes=max_input_bytes):
        arrays = read_npz(inputs)
    more = {}
    if adapters is not None:
        from tf2jax_lite.finetuning import load_adapters

        more["adapt"] = load_adapters(adapters).applied_to
    with quiet_stderr():
        results = run_artifact(artifact, arrays, signature=signature, backend=backend, seed=seed, cache=cache, **more)
    found = {name: np.asarray(value) for name, value in flat_results(results).items()}
    write_file(output, _npz({name: _plain(value) for name, value in found.items()}))
    if as_json:
        print_json({n: {"dtype": v.dtype.name, "shape": list(v.shape)} for n, v in found.items()})
    elif not quiet:
        for name, value in found.items():
            console.print(f"{name}  {value.dtype.name}{list(value.shape)}", highlight=False)


def _npz(arrays: dict[str, Any]) -> bytes:
    """Return the bytes of an .npz; any name is allowed, ``file`` too.

    Raises:
      InputError: a name does not fit: .zip files limit its length, and end it at a NUL character.
    """
    import numpy as np

    from tf2jax_lite.support.errors import InputError

    for name in arrays:
        size = len(f"{name}.npy".encode("utf-8", "replace"))
        if size > _MAX_MEMBER_NAME or "\0" in name or name != name.encode("utf-8", "replace").decode():
            raise InputError(
                f"the result {name[:100]!r} has a name that an .npz cannot hold: it has text of at most "
                f"{_MAX_MEMBER_NAME} bytes without NUL characters."
            )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """Return an array in a dtype that .npz supports: bfloat16 becomes float32."""
    return value.astype("float32") if value.dtype.kind == "V" else value
