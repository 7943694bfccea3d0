"""The command ``convert``: a model's file to an artifact."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from tf2jax_lite.artifacts.options import ConvertOptions
from tf2jax_lite.export.artifact import ExportReport, check_framework, check_random, export_functions
from tf2jax_lite.export.atomic_dir import refuse_existing
from tf2jax_lite.export.params_file import require_orbax
from tf2jax_lite.pipeline.model_files import convert_file
from tf2jax_lite.support.command_options import ExportOptions
from tf2jax_lite.support.config import override_config
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The result of `convert_model`.

    Attributes:
      report: of the export.
      cuts: of each function whose front stays in TensorFlow, where it is cut, as JSON data.
      left_out: errors of the functions that could not be converted.
    """

    report: ExportReport
    cuts: Mapping[str, dict[str, Any]]
    left_out: Mapping[str, Exception]


def convert_model(
    model: Path, out: Path, options: ConvertOptions, progress: Callable[[str], None] = lambda step: None
) -> Conversion:
    """Convert a model's file to an artifact.

    Args:
      model: a SavedModel directory, a ``.keras``, ``.h5``, frozen ``.pb`` or TF1 ``.meta`` file.
      out: the directory to create.
      options: of the command.
      progress: called with the name of each step as it begins.

    Raises:
      Tf2JaxError: an option does not fit, the model cannot be read or converted, or the artifact cannot be written.
    """
    refuse_existing(out, overwrite=options.overwrite)
    check_framework(options.framework, scan_layers=options.scan_layers)
    if options.checkpoint:
        require_orbax()
    check_random(options.random)
    target, chosen, shapes = _dtype(options.dtype), _settings(options.settings), _shapes(options.shapes)
    left_out: dict[str, Exception] | None = None if options.signatures or options.train else {}
    if target is not None and target.name == "bfloat16":
        chosen.setdefault("force_const_float32_to_bfloat16", True)
    with contextlib.ExitStack() as stack:
        for name, value in chosen.items():
            stack.enter_context(override_config(name, value))
        functions = convert_file(
            model,
            signatures=options.signatures or None,
            tags=options.tags or None,
            train=options.train,
            inputs=options.graph_inputs or None,
            outputs=options.graph_outputs or None,
            constants_as_params=options.constants_as_params,
            split_host=options.split_host,
            shapes=shapes,
            stored=True,
            left_out=left_out,
            progress=progress,
        )
        cuts = {name: _cut(fn.host) for name, (fn, _) in functions.items() if fn.host is not None}
        report = export_functions(
            functions,
            out,
            shapes=shapes,
            platforms=[p.strip() for p in options.platforms.split(",") if p.strip()],
            dtype=target,
            title=f"{model.name}, converted from TensorFlow.",
            options={
                "model": str(model.absolute()),
                "dtype": options.dtype,
                "train": options.train,
                "config": chosen,
                "platforms": options.platforms,
                "split_host": cuts,
            },
            left_out=left_out,
            progress=progress,
            **vars(options.part(ExportOptions)),
        )
    return Conversion(report, {n: cut for n, cut in cuts.items() if n in report.signatures}, left_out or {})


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


def _dtype(name: str | None) -> Any:
    if name is None:
        return None
    if name not in ("bfloat16", "float16", "float32", "float64"):
        raise InputError(f"--dtype is a floating dtype such as bfloat16, not {name!r}")
    return jnp.dtype(name)


def _settings(given: Sequence[str]) -> dict[str, Any]:
    """Parse ``name=value`` items; values are true, false, integers or text."""
    found: dict[str, Any] = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator:
            raise InputError(f"--set takes NAME=VALUE, not {item!r}")
        lower = value.strip().lower()
        if lower in ("true", "false"):
            found[name.strip()] = lower == "true"
        else:
            found[name.strip()] = int(lower) if re.fullmatch("-?[0-9]{1,4000}", lower) else value.strip()
    return found


def _shapes(given: Sequence[str]) -> Any:
    if not given:
        return None
    if not any("=" in item for item in given):
        return given
    if not all("=" in item for item in given):
        raise InputError("--shapes: name all shapes (image=b,224,224,3), or none")
    return {name.strip(): shape for name, _, shape in (item.partition("=") for item in given)}
