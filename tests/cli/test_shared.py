"""Options in front of a command, completion and panels."""

import os
import subprocess
import sys

import pytest
import typer

from tests._support import invoke
from tf2jax_lite.cli.app import app
from tf2jax_lite.cli.shared import COMMANDS


def shell(*args, **environment):
    """Run a command of the shell in a process of its own."""
    code = "import sys; from tf2jax_lite.cli import main; sys.argv[0] = 'tf2jax-lite'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_completion_offers_commands():
    done = shell(_TF2JAX_LITE_COMPLETE="complete_bash", COMP_WORDS="tf2jax-lite in", COMP_CWORD="1")
    assert done.stdout.split() == ["inspect"]


@pytest.mark.default_cases("verbose")
@pytest.mark.parametrize("verbose", [[], ["--verbose"]], ids=["short", "verbose"])
def test_verbose_shows_the_traceback_of_an_error(tmp_path, verbose):
    done = shell(*verbose, "run", str(tmp_path), "--input", str(tmp_path / "none.npz"), "--output", "y.npz")
    assert done.returncode == 2
    *before, last = done.stderr.splitlines()
    assert last.startswith("Error: ")
    assert bool(before) == bool(verbose) == any(line.startswith("Traceback") for line in before)


@pytest.mark.full
def test_options_stand_in_panels():
    help_of_convert = invoke("convert", "--help").output
    assert "Limits and trust" in help_of_convert and "Frozen graphs and .meta files" in help_of_convert


def test_help_lists_each_command_in_the_order_of_use():
    shown = invoke("--help").output
    names = list(typer.main.get_command(app).commands)
    assert sorted(names) == sorted(COMMANDS)
    assert [shown.index(f"│ {name} ") for name in COMMANDS] == sorted(shown.index(f"│ {name} ") for name in names)
    assert "https://" in shown
