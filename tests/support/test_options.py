"""A field of an option class is an option of Python, the shell, its files."""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Sequence

import pytest
import typer
from typer.cli import get_docs_for_click
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tests.docs.blocks import DOCS
from tf2jax_lite.artifacts.options import FederateOptions, FinetuneOptions
from tf2jax_lite.cli import options as shell
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning import federate_artifact, finetune_artifact
from tf2jax_lite.support.command_options import ExportOptions, VerificationOptions
from tf2jax_lite.support.options import described, option, takes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shaded(FinetuneOptions):
    """The options of `finetune`, and one more."""

    shade: int = option(3, "Darkness of the page.", least=1, below=10, identity="given")
    colors: Sequence[str] = option((), "Names of colors; repeat for several.", flag="--color", identity="recorded")


@takes(Shaded)
def paint(page, **options):
    """Paint a page.

    Args:
      page: the page.
      **options: of `Shaded`.

    Returns:
      The page.
    """  # `takes` adds the options here
    return Shaded(**options)


@pytest.fixture
def command(monkeypatch):
    """A function that runs a command; it returns the result and the options."""
    app, got = typer.Typer(), []
    monkeypatch.setattr(shell, "app", app)

    @shell.command(Shaded)
    def draw(options: Shaded, context: typer.Context) -> None:
        """Draw."""
        got.append(options)

    def run(*args):
        result = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False, env={"COLUMNS": "200"})
        return result, got[-1] if got else None

    return run


def test_new_option_is_documented_in_python():
    assert inspect.signature(paint).parameters["shade"].default == 3
    assert "  page: the page.\n" in paint.__doc__ and "\n\nReturns:\n" in paint.__doc__
    assert "  shade: Darkness of the page. Default: 3.\n" in paint.__doc__
    with pytest.raises(TypeError, match="gloss"):
        paint(0, loss="mse", gloss=1)


@pytest.mark.parametrize("value", [0, 10, 1.5, "3", True])
def test_new_option_is_checked(value):
    with pytest.raises(InputError, match="shade is an integer of at least 1 and below 10, not"):
        paint(0, loss="mse", shade=value)


def test_new_option_is_in_the_identity():
    assert "shade" not in paint(0, loss="mse").identity()
    found = paint(0, loss="mse", shade=4, colors=["red"])
    assert found.identity()["shade"] == 4 and found.identity()["learning_rate"] == 1e-3
    assert found.record()["colors"] == ["red"] and "colors" not in found.identity()


def test_new_option_is_in_the_shell_and_its_files(command, tmp_path):
    text = command("--help")[0].output
    assert "--shade" in text and "Darkness of the page." in text and "1<=x" not in text and "x>=1" in text
    assert command("--shade", 4, "--color", "red", "--color", "blue")[1] == Shaded(
        loss="sparse_categorical_crossentropy", epochs=3, shade=4, colors=("red", "blue")
    )
    (tmp_path / "options.toml").write_text('shade = 5\ncolor = ["green"]\nfrom-logits = true\n')
    found = command("--config", tmp_path / "options.toml", "--shade", 6)[1]
    assert (found.shade, found.colors, found.from_logits) == (6, ("green",), True)


def test_new_option_is_on_the_reference_pages(command, monkeypatch):
    """The pages are made of the command and the docstring."""
    monkeypatch.syspath_prepend(DOCS / "_ext")
    reference_pages = importlib.import_module("reference_pages")
    draw = typer.main.get_command(shell.app)
    page = get_docs_for_click(obj=draw, ctx=typer.Context(draw), name="draw")
    assert re.search(r"--shade.*Darkness of the page\.", page), page[page.find("--shade") :][:200]
    assert re.search(r"--color.*Names of colors; repeat for several\.", page)
    assert reference_pages.entry("tests", "paint", paint) == [".. autofunction:: tests.paint", ""]


@pytest.mark.parametrize(
    ("name", "function", "options"),
    [
        ("convert", tf2jax.export_functions, ExportOptions),
        ("verify", tf2jax.verify, VerificationOptions),
        ("finetune", finetune_artifact, FinetuneOptions),
        ("federate", federate_artifact, FederateOptions),
    ],
)
def test_each_option_is_in_python_and_in_the_shell(name, function, options):
    parameters = inspect.signature(function).parameters
    flags = {p.name: p for p in typer.main.get_command(app).commands[name].params}
    for field, _, facts in described(options).values():
        assert field.name in parameters and f"\n  {field.name}: " in function.__doc__, field.name
        assert facts.flag == "" or flags[field.name].help == facts.help, field.name


@pytest.mark.parametrize("options", [FinetuneOptions, FederateOptions])
def test_options_have_help_and_ranges_that_hold(options):
    made = options(loss="mse")
    for field in dataclasses.fields(options):
        assert field.metadata["option"].help.endswith((".", ").")), field.name
    assert made.part(options) == made
