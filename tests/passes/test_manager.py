"""The pass list: order, switches, docs and tests of each pass."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from tf2jax_lite import ir
from tf2jax_lite.errors import ConfigError
from tf2jax_lite.passes import manager
from tf2jax_lite.passes.manager import PASSES, run_passes
from tf2jax_lite.support.config import Config

ROOT = Path(__file__).parent.parent.parent
REQUIRED = [entry.name for entry in PASSES if entry.required]


def test_list_agrees_with_the_table_in_the_docs():
    text = (ROOT / "docs/architecture.md").read_text()
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    names = {entry.name: entry for entry in PASSES}
    table = [row for row in rows if row[0].strip("`") in names and len(row) == 4]
    assert [row[0].strip("`") for row in table] == list(names)
    for name, effect, reason, required in table:
        entry = names[name.strip("`")]
        assert (effect, reason, required) == (entry.effect, entry.reason, "yes" if entry.required else "no")


@pytest.mark.parametrize("entry", PASSES, ids=lambda entry: entry.name)
def test_pass_is_named_for_its_module_and_has_a_test_module(entry):
    module = Path(entry.run.__code__.co_filename).relative_to(ROOT / "tf2jax_lite").with_suffix("")
    assert module.name == entry.name and entry.run.__name__ == "run"
    test = ROOT / "tests" / module.parent / f"test_{entry.name}.py"
    assert re.search(r"^def test_", test.read_text(), re.MULTILINE), test


def test_every_module_with_a_run_function_is_in_the_list():
    found = set()
    for path in (ROOT / "tf2jax_lite/passes").rglob("*.py"):
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        found |= {path.stem for node in functions if node.name == "run" and len(node.args.args) == 2}
    assert found == {entry.name for entry in PASSES}


@pytest.fixture
def ran(monkeypatch):
    """Return the names of the passes that ran."""
    names = []

    def recording(entry):
        def run(graph, config):
            names.append(entry.name)
            return graph

        return manager.Pass(entry.name, run, entry.effect, entry.reason, entry.required)

    monkeypatch.setattr(manager, "PASSES", tuple(map(recording, PASSES)))
    return names


def _graph():
    return ir.Graph(ir.Function("main", (ir.Argument("x", np.dtype(np.float32)),), (), (ir.TensorRef("x"),)), {})


def test_passes_run_in_order(ran):
    run_passes(_graph(), Config())
    assert ran == [entry.name for entry in PASSES]


def test_only_names_a_subset(ran):
    run_passes(_graph(), Config(), only=("cse", "functionalize"))
    assert ran == ["functionalize", "cse"]


def test_passes_left_out_are_skipped(ran):
    run_passes(_graph(), Config(passes="-cse, -fold_clamps"))
    assert ran == [entry.name for entry in PASSES if entry.name not in ("cse", "fold_clamps")]


@pytest.mark.parametrize(("value", "optional"), [("none", []), ("cse", ["cse"])])
def test_required_passes_always_run(ran, value, optional):
    run_passes(_graph(), Config(passes=value))
    assert ran == [entry.name for entry in PASSES if entry.required or entry.name in optional]


@pytest.mark.parametrize(
    ("names", "message"),
    [("-cse,-constant_folding", "no name 'constant_folding'"), (f"-{REQUIRED[0]}", f"'{REQUIRED[0]}'.*required")],
)
def test_leaving_out_an_unknown_or_required_pass_raises(names, message):
    with pytest.raises(ConfigError, match=message):
        run_passes(_graph(), Config(passes=names))
