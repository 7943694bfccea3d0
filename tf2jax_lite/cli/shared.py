"""The typer app, the console, common options, and small printers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tf2jax_lite.support.errors import documentation_address
from tf2jax_lite.support.extras import installed_version
from tf2jax_lite.support.text import printable

# In the order of their use, as the help lists them.
COMMANDS = ["demo", "inspect", "convert", "verify", "run", "serve", "finetune", "federate", "merge-adapters", "update"]
COMMANDS += ["export-tf", "ops", "doctor"]


class _Commands(typer.core.TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=COMMANDS.index)


app = typer.Typer(
    name="tf2jax-lite",
    cls=_Commands,
    help="Convert TensorFlow functions, Keras models and SavedModels to JAX.",
    epilog=f"For example: tf2jax-lite convert model.keras OUT. Documentation: {documentation_address() or 'docs/'}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tf2jax-lite {installed_version()}")
        raise typer.Exit


@app.callback()
def _all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show log messages, TensorFlow's too, and tracebacks of errors.")
    ] = False,
) -> None:
    """Options in front of a command."""
    if verbose:
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("tf2jax_lite").setLevel(logging.DEBUG)
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"


class _Console(Console):
    """A console of literal text: untrusted names must not act as terminal codes."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


console = _Console()


def styled(*parts: str | tuple[object, str]) -> Text:
    """Return a line for the console.

    Args:
      *parts: texts, or texts with a style such as ``"bold"``.
    """
    plain = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((printable(text), style) for text, style in plain))


Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Tag of the MetaGraph; repeat for several.")]

_LIMITS = "Limits and trust"
MaxNodes = Annotated[
    int | None,
    typer.Option("--max-nodes", min=1, help="Maximum number of nodes of a graph.", rich_help_panel=_LIMITS),
]
MaxConstantBytes = Annotated[
    int | None,
    typer.Option(
        "--max-constant-bytes", min=1, help="Maximum size of a graph's constants in bytes.", rich_help_panel=_LIMITS
    ),
]
MaxInputBytes = Annotated[
    int | None,
    typer.Option(
        "--max-input-bytes", min=1, help="Maximum unpacked size of an .npz in bytes.", rich_help_panel=_LIMITS
    ),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="NAME",
        help="An op, file, or name in a Keras file that the model may use although it is unsafe; repeat.",
        rich_help_panel=_LIMITS,
    ),
]
Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Of a Keras file, a module with layers that it uses; implies trust. Repeat.",
        rich_help_panel=_LIMITS,
    ),
]
GRAPHS = "Frozen graphs and .meta files"


@contextlib.contextmanager
def steps(show: bool) -> Iterator[tuple[Callable[[str], None], dict[str, float]]]:
    """Show the steps of a command and their times.

    Args:
      show: whether to print them.

    Yields:
      A function that takes the name of each step as it begins, and the seconds that each has taken.
    """
    seconds: dict[str, float] = {}
    open_step: list[Any] = []
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console,
        disable=not show,
    )

    def close() -> None:
        if open_step:
            name, task, begin = open_step.pop()
            seconds[name] = time.perf_counter() - begin
            progress.update(task, total=1, completed=1)

    def begin(name: str) -> None:
        close()
        open_step.append((name, progress.add_task(printable(name), total=None), time.perf_counter()))

    with progress:
        yield begin, seconds
        close()


@contextlib.contextmanager
def limits(
    max_nodes: int | None = None,
    max_constant_bytes: int | None = None,
    trust: Sequence[str] | None = None,
    max_input_bytes: int | None = None,
    modules: Sequence[str] | None = None,
) -> Iterator[None]:
    """Override the limits of model and input sizes, and which parts are trusted."""
    from tf2jax_lite.support.config import override_config

    trust = [*(trust or []), *(modules or [])]
    with contextlib.ExitStack() as stack:
        for name, value in (
            ("max_nodes", max_nodes),
            ("max_constant_bytes", max_constant_bytes),
            ("max_input_bytes", max_input_bytes),
        ):
            if value is not None:
                stack.enter_context(override_config(name, value))
        if trust:
            stack.enter_context(override_config("trusted", ",".join(trust)))
        if modules:
            from tf2jax_lite.frontend.safety.keras_config import imported

            if os.getcwd() not in sys.path:
                sys.path.append(os.getcwd())  # as `python -m` has it
            stack.enter_context(imported(modules))
        yield


def print_json(data: Any) -> None:
    """Print data as JSON."""
    print(json.dumps(data, indent=2))


def shape_text(shape: list[int | None] | None) -> str:
    """Return a shape as text with ``?`` for unknown dimensions."""
    return "?" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
