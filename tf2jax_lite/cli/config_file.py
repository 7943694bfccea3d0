"""Options of a command from a TOML file, and the file that repeats a run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.limits import regular


def _names(parameter: Any) -> set[str]:
    """Return a parameter's names in files: its own, and its options without dashes."""
    return {str(parameter.name), *(name.lstrip("-").replace("-", "_") for name in parameter.opts)}


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Make a file's values the defaults of the command's options."""
    if path is None or context.resilient_parsing:
        return path
    try:
        found = tomllib.loads(regular(path, InputError).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable TOML file: {error}.") from error
    parameters = {name: p for p in context.command.params for name in _names(p) if p.name != "config"}
    defaults: dict[str, Any] = {}
    for key, value in found.items():
        name = key.replace("-", "_")
        if name not in parameters:
            raise InputError(f"{path}: {context.info_name} has no option {key!r}; there are {sorted(parameters)}.")
        parameter = parameters[name]
        if isinstance(value, dict) or isinstance(value, list) != bool(getattr(parameter, "multiple", False)):
            kind = "a list" if getattr(parameter, "multiple", False) else "one value"
            raise InputError(f"{path}: the option {key!r} takes {kind}, not {value!r}.")
        defaults[str(parameter.name)] = value
    context.default_map = defaults
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="TOML",
        is_eager=True,
        callback=_read,
        help="A file with options, as in learning-rate = 0.001; those of the command line count more.",
    ),
]


def options_text(context: typer.Context) -> bytes:
    """Return a command's options that have values as TOML, which `Config` reads."""
    lines = []
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if parameter.name == "config" or value is None or value == () or value == []:
            continue
        option = max(parameter.opts, key=len).lstrip("-")
        lines.append(f"{option} = {json.dumps(_plain(value), ensure_ascii=False)}\n")
    return "".join(lines).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
