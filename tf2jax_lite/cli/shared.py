"""What the commands share: the app itself, the console, common arguments, and small printers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tf2jax_lite.units import size_text

__all__ = [
    "Json",
    "MaxConstantBytes",
    "MaxNodes",
    "SplitHost",
    "Tag",
    "Trust",
    "app",
    "console",
    "limits",
    "print_json",
    "read_npz",
    "shape_text",
    "size_text",
]

app = typer.Typer(
    name="tf2jax-lite",
    help="Convert TensorFlow functions and SavedModels to JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

SplitHost = Annotated[
    bool,
    typer.Option("--split-host", help="Leave strings, decoders and tables in front of the model in TensorFlow."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Tag of the MetaGraph; repeat for several.")]

MaxNodes = Annotated[int | None, typer.Option("--max-nodes", min=1, help="The most nodes that a graph may have.")]
MaxConstantBytes = Annotated[
    int | None, typer.Option("--max-constant-bytes", min=1, help="The most bytes that a graph's constants may take.")
]
Trust = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="NAME", help="An op or file that the model may use although it is unsafe; repeat."),
]


@contextlib.contextmanager
def limits(max_nodes: int | None, max_constant_bytes: int | None, trust: list[str] | None = None) -> Iterator[None]:
    """Holds the options that say how much a model may take, and do."""
    from tf2jax_lite.config import override_config

    with contextlib.ExitStack() as stack:
        if max_nodes is not None:
            stack.enter_context(override_config("max_nodes", max_nodes))
        if max_constant_bytes is not None:
            stack.enter_context(override_config("max_constant_bytes", max_constant_bytes))
        if trust:
            stack.enter_context(override_config("trusted", ",".join(trust)))
        yield


def print_json(data: Any) -> None:
    """Prints data for machines."""
    print(json.dumps(data, indent=2))


def shape_text(shape: list[int | None] | None) -> str:
    """Returns a shape with ``?`` for what is unknown."""
    return "?" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def read_npz(path: Path) -> dict[str, Any]:
    """Reads arrays from an .npz file, without pickles.

    Raises:
      InputError: it is not readable.
    """
    import numpy as np

    from tf2jax_lite.errors import InputError

    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not a readable .npz of arrays ({error}).") from error
