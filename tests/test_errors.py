"""docs/errors.md has an entry for each error, whose example raises it."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tf2jax_lite import errors
from tf2jax_lite.support.errors import documentation_address, entry_address

PAGE = (Path(__file__).parent.parent / "docs" / "errors.md").read_text()
SHARED = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
ENTRIES = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))
# A signal ends a process; tests/cli/test_child.py has it.
CRASHES = {"CrashedError"}
EXAMPLES = {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in ENTRIES.items()}


@pytest.mark.full
def test_every_error_has_an_entry_with_a_fix():
    assert sorted(ENTRIES) == sorted(set(errors.__all__) - {"Tf2JaxError"})
    assert [name for name, text in ENTRIES.items() if "\nFix: " not in text] == []
    assert {name for name, blocks in EXAMPLES.items() if len(blocks) != 1} == CRASHES


@pytest.fixture(scope="module")
def shared():
    namespace = {}
    exec(SHARED, namespace)
    return namespace


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(ENTRIES.keys() - CRASHES))
def test_the_example_raises_its_error(name, shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "federated import core" in EXAMPLES[name][0]:
        pytest.importorskip("federated_language")
    with pytest.raises(errors.Tf2JaxError) as found:
        exec(EXAMPLES[name][0], dict(shared))
    public = next(kind.__name__ for kind in type(found.value).__mro__ if kind.__name__ in errors.__all__)
    assert public == name, found.value


def test_the_address_of_an_entry_follows_a_message():
    class Own(errors.ShapeMismatchError):
        pass

    address = f"{documentation_address()}errors.html#shapemismatcherror"
    assert address.startswith("https://")
    for error in (
        errors.ShapeMismatchError("rank 2"),
        Own("rank 2"),
        pickle.loads(pickle.dumps(errors.ShapeMismatchError("rank 2"))),
    ):
        assert str(error) == "rank 2" and error.__notes__ == [f"See {address}"]


def test_each_class_has_its_entry():
    anchors = set(re.findall(r"^### (\w+)", PAGE.lower(), re.MULTILINE)) | set(
        re.findall(r"^\((\w+)\)=", PAGE, re.MULTILINE)
    )
    assert {entry_address(getattr(errors, name)).partition("#")[2] for name in errors.__all__} == anchors


def test_no_address_without_an_installed_distribution():
    code = (
        "import importlib.metadata as m\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.metadata = missing\n"
        "from tf2jax_lite.support.errors import InputError\n"
        "assert not hasattr(InputError('x'), '__notes__')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
