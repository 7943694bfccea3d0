"""Public names: ``from tf2jax_lite import federated``."""

import ast
import contextlib
import importlib
import sys
from pathlib import Path

import pytest

from tf2jax_lite import federated
from tf2jax_lite.errors import MissingLibraryError

ROOT = Path(federated.__file__).parent


def test_every_name_is_there():
    for name in federated.__all__:
        with contextlib.suppress(MissingLibraryError):  # of an extra
            assert getattr(federated, name) is not None, name
    assert set(federated.__all__) <= set(dir(federated))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        federated.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["aggregators", "algorithms", "data", "execution", "metrics", "optimizers"])
def test_subpackages_have_their_names(name):
    module = importlib.import_module(f"tf2jax_lite.federated.{name}")
    assert len(set(module.__all__)) == len(module.__all__) > 1
    assert [public for public in module.__all__ if not hasattr(module, public)] == []


def test_a_star_needs_no_extra(monkeypatch):
    """Subpackages that need an extra are found by name."""
    for library in ("flwr", "federated_language"):
        for name in [n for n in sys.modules if n.partition(".")[0] == library]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)
    subpackages = (f"{federated.__name__}.flower", f"{federated.__name__}.core")
    for name in [n for n in sys.modules if n.startswith(subpackages)]:
        monkeypatch.delitem(sys.modules, name)
    for subpackage in ("flower", "core"):  # importing one leaves it with its parent
        monkeypatch.delitem(vars(federated), subpackage, raising=False)
    found = {}
    exec("from tf2jax_lite.federated import *", found)
    assert found["build_weighted_fed_avg"] is federated.build_weighted_fed_avg
    assert {"core", "flower", "jax_computation", "set_default_context"} <= set(dir(federated)) - set(found)
    with pytest.raises(MissingLibraryError, match="Flower"):
        federated.flower  # noqa: B018


def test_names_of_extras_are_found_by_attribute(monkeypatch):
    core = importlib.import_module("tf2jax_lite.federated.core")
    monkeypatch.delitem(vars(federated), "core")
    assert federated.core is core
    assert federated.jax_computation is core.jax_computation
    assert federated.set_default_context is core.set_default_context
    with pytest.raises(AttributeError, match="'other'"):
        federated.other  # noqa: B018


@pytest.mark.full
def test_every_builder_is_among_them():
    """Whatever module defines it."""
    found = {
        node.name
        for package in (ROOT, ROOT.parent / "learning")
        for path in package.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(("build_", "create_model_", "partition_"))
    }
    assert len(found) > 20
    assert found <= set(federated.__all__)
