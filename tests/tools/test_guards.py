"""The guard driver tells tests that notice a missing guard from tests that do not."""

import json
import shutil

import pytest

from tools.reliability import guards
from tools.reliability.guards import GUARDS, ROOT, Guard, without

SOURCE = """
def halved(x):
    if x % 2:
        raise ValueError(x)
    return x // 2
"""
TESTS = """
import pytest
from module import halved

def test_odd_number_raises():
    with pytest.raises(ValueError):
        halved(3)

def test_even_number():
    assert halved(4) == 2
"""


def guard(test, there="    if x % 2:"):
    return Guard("odd numbers", "module.py", there, "    if False:", f"test_module.py::{test}")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing plugins takes longer than the tests
    (tmp_path / "module.py").write_text(SOURCE)
    (tmp_path / "test_module.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize(("test", "noticed"), [("test_odd_number_raises", True), ("test_even_number", False)])
def test_without_runs_the_test_on_the_changed_source(tree, test, noticed):
    assert without(guard(test), tree) == noticed
    assert (tree / "module.py").read_text() == SOURCE


def test_without_rejects_a_guard_that_is_not_in_its_file(tree):
    with pytest.raises(ValueError, match=r"module\.py holds .* 0 times"):
        without(guard("test_even_number", "    if x % 3:"), tree)


def test_without_rejects_a_test_that_does_not_exist(tree):
    with pytest.raises(ValueError, match="not found"):
        without(guard("test_renamed"), tree)


@pytest.mark.full
@pytest.mark.parametrize(("noticed", "code", "verdict"), [(True, 0, "fails"), (False, 1, "PASSES")])
def test_command_records_the_verdict(tree, tmp_path_factory, monkeypatch, noticed, code, verdict):
    out = tmp_path_factory.mktemp("out") / "guards.json"
    monkeypatch.setattr(guards, "ROOT", tree)
    monkeypatch.setattr(guards, "GUARDS", (guard("test_x"),))
    monkeypatch.setattr(guards, "_passes", lambda tests, tree: True)
    monkeypatch.setattr(guards, "without", lambda guard, tree: noticed)
    monkeypatch.setattr("sys.argv", ["guards", "--json", str(out)])
    assert guards.main() == code
    assert json.loads(out.read_text())["rows"] == [["odd numbers", "`module.py`", "`test_module.py::test_x`", verdict]]


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    tree = tmp_path_factory.mktemp("guards") / "tree"
    return shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"))


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.against)
def test_each_guard_and_its_test_are_where_they_should_be(guard):
    assert (ROOT / guard.file).read_text().count(guard.there) == 1
    file, _, test = guard.test.partition("::")
    assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.against)
def test_each_guard_is_triggered_by_its_test(copied, guard):
    assert without(guard, copied)
