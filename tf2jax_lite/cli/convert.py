"""The commands ``convert`` and ``run``: write and run artifacts."""

from __future__ import annotations

import contextlib
import io
import re
import time
import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from .quiet import import_tensorflow, quiet_stderr
from .shared import (
    GRAPHS,
    Import,
    Json,
    MaxConstantBytes,
    MaxInputBytes,
    MaxNodes,
    SplitHost,
    Tag,
    Trust,
    app,
    console,
    limits,
    print_json,
    shape_text,
    size_text,
    steps,
    styled,
)

_MAX_MEMBER_NAME = (1 << 16) - 1  # bytes of UTF-8
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


@app.command()
def convert(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A SavedModel directory, a .keras, .h5, frozen .pb or TF1 .meta file."),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The directory to create.")],
    signature: Annotated[
        list[str] | None,
        typer.Option("--signature", help="Only this one; repeat for several. Default: all that can be converted."),
    ] = None,
    tag: Tag = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shapes", help='Shape of an argument, "b,224,224,3" or "image=b,224,224,3"; repeat in order.'),
    ] = None,
    platforms: Annotated[str, typer.Option(help="Platforms to lower StableHLO for.")] = "cpu,cuda,tpu",
    dtype: Annotated[
        str | None, typer.Option(help="Convert floating params and constants, and compute, in this dtype.")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Add the training mode (Keras files).")] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Of a .pb or .meta, a tensor that becomes an argument.", rich_help_panel=GRAPHS),
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option("--output", help="Of a .pb or .meta, a result.", rich_help_panel=GRAPHS)
    ] = None,
    constants_as_params: Annotated[
        bool,
        typer.Option(
            "--constants-as-params/--no-constants-as-params",
            help="Of a .pb, make weights params.",
            rich_help_panel=GRAPHS,
        ),
    ] = True,
    split_host: SplitHost = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A config option; repeat for several.")
    ] = None,
    max_nodes: MaxNodes = None,
    max_constant_bytes: MaxConstantBytes = None,
    trust: Trust = None,
    modules: Import = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Add params as an Orbax checkpoint (extra: checkpoint).")
    ] = False,
    mlir: Annotated[
        bool, typer.Option("--mlir", help="Write StableHLO as text, too (model.mlir), for viewers of graphs.")
    ] = False,
    shape_comments: Annotated[
        bool, typer.Option("--shape-comments", help="In model.py, write the shape behind each line.")
    ] = False,
    scan_layers: Annotated[
        bool, typer.Option("--scan-layers", help="Run repeated layers by lax.scan, which compiles faster.")
    ] = False,
    framework: Annotated[
        str, typer.Option(help="Of model.py: jax (functions of params), or nnx (flax.nnx modules).")
    ] = "jax",
    random: Annotated[
        str, typer.Option(help="Of dropout and other layers with seeds: jax (jax.random), or tensorflow (its bits).")
    ] = "jax",
    standalone: Annotated[
        bool, typer.Option("--standalone", help="No effect: model.py always runs with JAX alone.", hidden=True)
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing artifact.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a model to a directory that runs without TensorFlow.

    It has params, StableHLO and readable JAX source.
    """
    import_tensorflow()
    from tf2jax_lite.export import export_functions
    from tf2jax_lite.export.artifact import check_framework, check_random
    from tf2jax_lite.export.atomic_dir import refuse_existing
    from tf2jax_lite.export.params_file import require_orbax
    from tf2jax_lite.pipeline.model_files import convert_file
    from tf2jax_lite.support.config import override_config
    from tf2jax_lite.support.extras import require_device

    require_device()
    refuse_existing(out, overwrite=force)
    check_framework(framework, scan_layers=scan_layers)
    if checkpoint:
        require_orbax()
    check_random(random)
    target = _dtype(dtype)
    left_out: dict[str, Exception] | None = None if signature or train else {}
    chosen = _settings(settings)
    if target is not None and target.name == "bfloat16":
        chosen.setdefault("force_const_float32_to_bfloat16", True)
    begin = time.perf_counter()
    with contextlib.ExitStack() as stack:
        step, seconds = stack.enter_context(steps(not (quiet or as_json)))
        stack.enter_context(quiet_stderr())
        for name, value in chosen.items():
            stack.enter_context(override_config(name, value))
        stack.enter_context(limits(max_nodes, max_constant_bytes, trust, modules=modules))
        functions = convert_file(
            model,
            signatures=signature,
            tags=tag,
            train=train,
            inputs=inputs,
            outputs=outputs,
            constants_as_params=constants_as_params,
            split_host=split_host,
            shapes=_shapes(shapes),
            stored=True,
            left_out=left_out,
            progress=step,
        )
        cuts = {name: _cut(fn.host) for name, (fn, _) in functions.items() if fn.host is not None}
        report = export_functions(
            functions,
            out,
            shapes=_shapes(shapes),
            platforms=[p.strip() for p in platforms.split(",") if p.strip()],
            dtype=target,
            title=f"{model.name}, converted from TensorFlow.",
            options={
                "model": str(model.absolute()),
                "dtype": dtype,
                "train": train,
                "config": chosen,
                "platforms": platforms,
                "split_host": cuts,
            },
            overwrite=force,
            checkpoint=checkpoint,
            mlir=mlir,
            shape_comments=shape_comments,
            scan_layers=scan_layers,
            framework=framework,
            random=random,
            left_out=left_out,
            progress=step,
        )
    cuts = {name: cut for name, cut in cuts.items() if name in report.signatures}
    total = time.perf_counter() - begin
    if as_json:
        print_json(
            {
                "path": report.path,
                "signatures": report.signatures,
                "parameters": report.parameters,
                "files": report.files,
                "warnings": report.warnings,
                "left_out": {name: str(error) for name, error in (left_out or {}).items()},
                **({"split_host": cuts} if split_host else {}),
                "seconds": {**{k: round(v, 3) for k, v in seconds.items()}, "total": round(total, 3)},
            }
        )
    elif not quiet:
        console.print(styled((out, "bold"), f": {', '.join(report.signatures)}; {report.parameters:,} parameters"))
        for name, size in report.files.items():
            console.print(f"  {name}  {size_text(size)}", highlight=False)
        for name, cut in cuts.items():
            _print_cut(name, cut)
        for warning in report.warnings:
            console.print(styled(("warning", "yellow"), f" {warning}"), highlight=False)


def _cut(host: Any) -> dict[str, Any]:
    """Return the partition of a model as JSON data."""
    return {
        "host_nodes": host.nodes,
        "because": [{"node": node, "op": op, "reason": reason} for node, (op, reason) in host.reasons.items()],
        "core_inputs": [
            {
                "name": t.name,
                "tensor": t.tensor if t.op else None,
                "op": t.op or None,
                "dtype": t.dtype.name,
                "shape": None if t.shape is None else list(t.shape),
            }
            for t in host.cut
        ],
        "left_out": list(host.dropped),
    }


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


def _dtype(name: str | None) -> Any:
    if name is None:
        return None
    from tf2jax_lite.support.errors import InputError

    if name not in ("bfloat16", "float16", "float32", "float64"):
        raise InputError(f"--dtype is a floating dtype such as bfloat16, not {name!r}")
    import jax.numpy as jnp

    return jnp.dtype(name)


def _settings(given: list[str] | None) -> dict[str, Any]:
    """Parse ``name=value`` items; values are true, false, integers or text."""
    from tf2jax_lite.support.errors import InputError

    found: dict[str, Any] = {}
    for item in given or []:
        name, separator, value = item.partition("=")
        if not separator:
            raise InputError(f"--set takes NAME=VALUE, not {item!r}")
        lower = value.strip().lower()
        if lower in ("true", "false"):
            found[name.strip()] = lower == "true"
        else:
            found[name.strip()] = int(lower) if re.fullmatch("-?[0-9]{1,4000}", lower) else value.strip()
    return found


def _shapes(given: list[str] | None) -> Any:
    from tf2jax_lite.support.errors import InputError

    if not given:
        return None
    if not any("=" in item for item in given):
        return given
    if not all("=" in item for item in given):
        raise InputError("--shapes: name all shapes (image=b,224,224,3), or none")
    return {name.strip(): shape for name, _, shape in (item.partition("=") for item in given)}


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
    inputs: Annotated[Path, typer.Option("--input", help="An .npz with arrays by input name.")],
    output: Annotated[Path, typer.Option("--output", help="The .npz to write.")],
    signature: Annotated[str | None, typer.Option("--signature", help="Which function.")] = None,
    backend: Annotated[str, typer.Option(help="stablehlo, or source (runs the artifact's Python code).")] = "stablehlo",
    seed: Annotated[int, typer.Option(help="For functions that draw random numbers.")] = 0,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep the compiled program in the user's cache directory.")
    ] = True,
    max_input_bytes: MaxInputBytes = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an artifact on arrays from an .npz file. TensorFlow is not needed."""
    import numpy as np

    from tf2jax_lite.export.atomic_dir import write_file
    from tf2jax_lite.export.execution import run_artifact
    from tf2jax_lite.export.load import flat_results
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
    results = run_artifact(artifact, arrays, signature=signature, backend=backend, seed=seed, cache=cache)
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
