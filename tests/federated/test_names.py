"""What users write: ``from tf2jax_lite import federated``."""

import ast
import contextlib
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


def test_every_builder_is_among_them():
    """Whatever module defines it."""
    found = {
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(("build_", "create_model_", "partition_"))
    }
    assert len(found) > 20
    assert found <= set(federated.__all__)
