"""List the test files that a change touches, nearest first.

Usage: ``python -m tools.affected_tests BASE``.

A test file is touched if it changed, if it mirrors a module that changed (tests/ops/math/test_reductions.py mirrors
ops/math/reductions.py), or if it imports such a module. Tests that reach a module through others are left to the
nightly run: nearly all tests reach the registry and the lowering.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("ops", "tf2jax_lite")


def changed_files(base: str) -> list[str]:
    """Return the files that differ between a revision and the working tree."""
    listed = subprocess.run(
        ["git", "diff", "--name-only", base], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return listed.split()


def affected(changed: Iterable[str]) -> list[str]:
    """Return the test files that changed files touch: themselves, mirrors, importers."""
    changed = list(changed)
    tests = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    modules = {name for file in changed for name in _modules(file)}
    mirrors = {_mirror(file) for file in changed}
    order = {}
    for test in tests:
        if test in changed:
            order[test] = 0
        elif test in mirrors:
            order[test] = 1
        elif modules.intersection(imported(ROOT / test)):
            order[test] = 2
    return sorted(order, key=lambda test: (order[test], test))


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Return full names of the modules, and names in them, that a file imports."""
    package = path.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def _modules(file: str) -> list[str]:
    """Return the import names of a source file or of a helper of the tests."""
    path = Path(file)
    if path.suffix != ".py" or path.name.startswith("test_"):
        return []
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return [f"tf2jax_lite.{name}"] if path.parts[0] == "ops" else [name]


def _mirror(file: str) -> str:
    path = Path(file)
    if path.suffix != ".py" or path.parts[0] not in SOURCES:
        return ""
    folder = path.parent if path.parts[0] == "ops" else path.parent.relative_to("tf2jax_lite")
    return str(Path("tests") / folder / f"test_{path.name.lstrip('_')}")


if __name__ == "__main__":
    print("\n".join(affected(changed_files(sys.argv[1]))))
