"""Each error class has its entry in docs/errors.md; tests/docs runs examples."""

import ast
import pickle
import re
import subprocess
import sys

from tests.docs.blocks import DOCS, ROOT, blocks
from tf2jax_lite import errors
from tf2jax_lite.support.errors import documentation_address, entry_address

PAGE = DOCS / "errors.md"


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
    labels = re.findall(r"^\((\w+)\)=$", PAGE.read_text(), re.MULTILINE)
    assert sorted(labels) == sorted(entry_address(getattr(errors, name)).partition("#")[2] for name in errors.__all__)
    examples = {block.label for block in blocks(PAGE) if block.info == "raises"}
    # A signal ends a process: tests/cli/test_child.py. The example of a missing gradient is its warning.
    assert set(labels) - examples == {"tf2jaxerror", "crashederror", "missinggradienterror"}


def test_no_address_without_an_installed_distribution():
    code = (
        "import importlib.metadata as m\n"
        "def missing(name): raise m.PackageNotFoundError(name)\n"
        "m.metadata = missing\n"
        "from tf2jax_lite.support.errors import InputError\n"
        "assert not hasattr(InputError('x'), '__notes__')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_damaged_is_said_of_bytes_that_differ_from_a_checksum():
    """Other files, and failures that have nothing to do with a file, cannot be read."""
    found = []
    for path in (ROOT / "tf2jax_lite").rglob("*.py"):
        raised = [
            node.exc for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise) and node.exc
        ]
        texts = [ast.unparse(exc) for exc in raised]
        found += [text for text in texts if "damaged" in text and not re.search("checksum differs|SHA-256", text)]
    assert found == []
