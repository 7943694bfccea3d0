"""Imports point one way, and what must not need TensorFlow does not import it."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each room may import from the rooms that stand after it.
ROOMS = [
    "__main__",
    "cli",
    "demo",
    "coverage",
    "describe",
    "training",
    "federated",
    "verification",
    "to_tf",
    "model_files",
    "keras_code",
    "export",
    "api",
    "loading",
    "function",
    "lowering",
    "passes",
    "signature",
    "components",
    "params",
    "stablehlo",
    "ops",
    "ir",
    "npz",
    "collection",
    "limits",
    "config",
    "errors",
    "scopes",
    "units",
    "version",
]


def _files():
    for path in sorted((ROOT / "tf2jax_lite").rglob("*.py")):
        if "ops" not in path.relative_to(ROOT / "tf2jax_lite").parts[:1]:
            yield path, path.relative_to(ROOT / "tf2jax_lite").with_suffix("").parts
    for path in sorted((ROOT / "ops").rglob("*.py")):
        yield path, ("ops", *path.relative_to(ROOT / "ops").with_suffix("").parts)


def _imports(path, parts):
    """Yields (room, line) for each import of this package, and ("tensorflow", line)."""
    package = ["tf2jax_lite", *parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{prefix}.{alias.name}" for alias in node.names]
        for name in names:
            pieces = name.split(".")
            if pieces[0] == "tf2jax_lite" and len(pieces) > 1:
                yield pieces[1], node.lineno
            elif pieces[0] in ("tensorflow", "keras", "tf_keras"):
                yield "tensorflow", node.lineno


@pytest.mark.full
def test_imports_point_one_way():
    wrong = []
    for path, parts in _files():
        if parts == ("__init__",):
            continue
        here = ROOMS.index(parts[0])
        for room, line in _imports(path, parts):
            if room in ROOMS and ROOMS.index(room) < here:
                wrong.append(f"{'/'.join(parts)}:{line} imports {room}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
def test_only_loading_and_those_above_it_import_tensorflow():
    allowed = {"loading", "verification", "model_files", "demo", "cli"}
    wrong = [
        f"{'/'.join(parts)}:{line}"
        for path, parts in _files()
        for room, line in _imports(path, parts)
        if room == "tensorflow" and parts[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.default_cases("tf2jax_lite", "tf2jax_lite.function")
@pytest.mark.parametrize(
    "module",
    [
        "tf2jax_lite",
        "tf2jax_lite.ops",
        "tf2jax_lite.lowering",
        "tf2jax_lite.function",
        "tf2jax_lite.coverage",
        "tf2jax_lite.training",
    ],
)
def test_import_leaves_tensorflow_out(module):
    code = f"import sys, {module}; assert 'tensorflow' not in sys.modules; assert 'keras' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ops_has_one_name_only():
    """The folder must not be importable as plain ``ops``: the registry would exist twice."""
    result = subprocess.run([sys.executable, "-c", "import ops"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "tf2jax_lite.ops" in result.stderr


@pytest.mark.full
def test_every_package_is_installed():
    """Tests that run in the sources do not see that one is missing."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "tf2jax_lite").rglob("__init__.py")}
    assert set(named) == found | {"tf2jax_lite.ops"}
