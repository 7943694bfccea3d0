"""Import point one way, and what must not need TensorFlow does not import it."""

import ast
import functools
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
# Each package may import from the packages that stand after it.
PACKAGES = [
    "__main__",
    "cli",
    "demo",
    "coverage",
    "artifacts",
    "serving",
    "finetuning",
    "federated",
    "learning",
    "verification",
    "export",
    "api",
    "pipeline",
    "frontend",
    "lowering",
    "passes",
    "calling",
    "stablehlo",
    "ops",
    "xla_cpu",
    "dynamic_shapes",
    "values",
    "autodiff",
    "loops",
    "jaxprs",
    "ir",
    "errors",
    "support",
    "version",
]
# The same for the families of ops, and for the modules beside them.
FAMILIES = [
    "rare",
    "state",
    "quantization",
    "xla",
    "nn",
    "image",
    "ragged",
    "sparse",
    "strings",
    "containers",
    "linalg",
    "math",
    "random",
    "arrays",
    "common",
    "registry",
    "traits",
]
# Parts of JAX that change between releases; tf2jax_lite/jaxprs/compat.py imports them for all others.
UNSTABLE = ("jax.extend", "jax.interpreters", "jax.core", "jax._src", "jaxlib")
# Runs as a script in a process that must not import this package, nor jax itself.
WITHOUT_COMPAT = {"stablehlo/parsing/child_process"}


def _files():
    for path in sorted((ROOT / "tf2jax_lite").rglob("*.py")):
        if "ops" not in path.relative_to(ROOT / "tf2jax_lite").parts[:1]:
            yield path, path.relative_to(ROOT / "tf2jax_lite").with_suffix("").parts
    for path in sorted((ROOT / "ops").rglob("*.py")):
        yield path, ("ops", *path.relative_to(ROOT / "ops").with_suffix("").parts)


class _Facts(NamedTuple):
    """Facts of a source file, from one walk over its syntax tree.

    Attributes:
      imports: (package, line), (("ops", family), line) and ("tensorflow", line): imports of this package, its op
        families, and TensorFlow.
    """

    imports: list
    jax_names: list
    docstring: str


@functools.cache
def _tree(path):
    return ast.parse(path.read_text())


@functools.cache
def _facts(path, parts):
    tree = _tree(path)
    found = _Facts([], [], ast.get_docstring(tree) or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if (name := _dotted(node)).startswith("jax."):
                found.jax_names.append((name, node.lineno))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in _imported(node, ("tf2jax_lite", *parts[:-1])):
                found.jax_names.append((name, node.lineno))
                found.imports.extend((package, node.lineno) for package in _packages(name))
    return found


def _long_docstrings(tree):
    """Yield the lines of docstrings that begin with more than 80 characters."""
    pending = [tree]
    while pending:
        node = pending.pop()
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and len((ast.get_docstring(node, clean=False) or "").split("\n")[0]) > 80:
            yield node.body[0].lineno
        pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def _dotted(node):
    """Return the name of an attribute of a module, "" for one of another expression."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner else ""


def _imported(node, package):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = package[: len(package) - node.level + 1] if node.level else ()
    prefix = ".".join([*base, *([node.module] if node.module else [])])
    return [f"{prefix}.{alias.name}" for alias in node.names]


def _packages(name):
    pieces = name.split(".")
    if pieces[0] == "tf2jax_lite" and len(pieces) > 1:
        yield pieces[1]
        if pieces[1] == "ops" and len(pieces) > 2:
            yield ("ops", pieces[2])
    elif pieces[0] in ("tensorflow", "keras", "tf_keras"):
        yield "tensorflow"


def test_imports_point_one_way():
    wrong = []
    for path, parts in _files():
        if parts in (("__init__",), ("finetuning", "__init__")):  # they load the names of other packages on first use
            continue
        here = PACKAGES.index(parts[0])
        for package, line in _facts(path, parts).imports:
            if package in PACKAGES and PACKAGES.index(package) < here:
                wrong.append(f"{'/'.join(parts)}:{line} imports {package}")
    assert not wrong, "\n".join(wrong)


def test_imports_between_op_families_point_one_way():
    wrong = []
    for path, parts in _files():
        if parts[0] != "ops" or parts == ("ops", "__init__"):
            continue
        here = FAMILIES.index(parts[1])
        for package, line in _facts(path, parts).imports:
            if isinstance(package, tuple) and FAMILIES.index(package[1]) < here:
                wrong.append(f"{'/'.join(parts)}:{line} imports ops/{package[1]}")
    assert not wrong, "\n".join(wrong)


def test_trainers_import_no_converter_internals():
    """Only the interfaces that convert, load and export, and the CPU rules."""
    internals = {"ops", "lowering", "passes", "frontend", "dynamic_shapes", "values", "autodiff", "loops", "ir"}
    wrong = [
        f"{'/'.join(parts)}:{line} imports {package}"
        for path, parts in _files()
        for package, line in _facts(path, parts).imports
        if parts[0] in ("learning", "federated") and package in internals
    ]
    assert not wrong, "\n".join(wrong)


def test_frontend_imports_neither_lowering_nor_passes():
    wrong = [
        f"{'/'.join(parts)}:{line} imports {package}"
        for path, parts in _files()
        for package, line in _facts(path, parts).imports
        if parts[0] == "frontend" and package in ("lowering", "passes")
    ]
    assert not wrong, "\n".join(wrong)


def test_only_frontend_and_those_above_it_import_tensorflow():
    allowed = {"frontend", "verification", "pipeline", "demo", "cli"}
    wrong = [
        f"{'/'.join(parts)}:{line}"
        for path, parts in _files()
        for package, line in _facts(path, parts).imports
        if package == "tensorflow" and parts[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_only_compat_uses_unstable_parts_of_jax():
    wrong = {
        f"{'/'.join(parts)}:{line} uses {name}"
        for path, parts in _files()
        if "/".join(parts) not in ("jaxprs/compat", *WITHOUT_COMPAT)
        for name, line in _facts(path, parts).jax_names
        if any(f"{name}.".startswith(f"{prefix}.") for prefix in UNSTABLE)
    }
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.default_cases("tf2jax_lite", "tf2jax_lite.pipeline.converted_function")
@pytest.mark.parametrize(
    "module",
    [
        "tf2jax_lite",
        "tf2jax_lite.ops",
        "tf2jax_lite.lowering",
        "tf2jax_lite.pipeline.converted_function",
        "tf2jax_lite.pipeline.inspect_model",
        "tf2jax_lite.coverage",
        "tf2jax_lite.finetuning",
    ],
)
def test_import_leaves_tensorflow_out(module):
    code = f"import sys, {module}; assert 'tensorflow' not in sys.modules; assert 'keras' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ops_has_one_name_only():
    """The folder is not importable as ``ops``: two registries would exist."""
    result = subprocess.run([sys.executable, "-c", "import ops"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "tf2jax_lite.ops" in result.stderr


def test_every_folder_of_modules_is_an_installed_package(monkeypatch):
    """Tests that run in the sources do not see that one is missing."""
    installed = []
    monkeypatch.setattr("setuptools.setup", lambda packages: installed.extend(packages))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    folders = {"/".join(parts[:-1]) for _, parts in _files()}
    assert sorted(installed) == sorted(f"tf2jax_lite/{folder}".strip("/").replace("/", ".") for folder in folders)


def test_every_package_says_what_it_is_for():
    short = [
        "/".join(parts)
        for path, parts in _files()
        if parts[-1] == "__init__" and len(_facts(path, parts).docstring.splitlines()) < 4
    ]
    assert not short


@pytest.mark.parametrize("which", ["package", "others"])
def test_docstrings_begin_with_at_most_80_characters(which):
    """Ruff checks the imperative mood (D401), but not the length of the first line."""
    if which == "package":
        paths = [path for path, _ in _files()]
    else:
        paths = [
            path for folder in ("tests", "tools", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
        ]
    long = [f"{path.relative_to(ROOT)}:{line}" for path in sorted(paths) for line in _long_docstrings(_tree(path))]
    assert not long, "\n".join(long)


def test_modules_and_packages_are_small():
    """A package has at most 30 modules, each of at most 1,000 lines."""
    long = ["/".join(parts) for path, parts in _files() if len(path.read_text().splitlines()) > 1000]
    sizes = Counter(parts[:-1] for _, parts in _files() if parts[-1] != "__init__")
    crowded = ["/".join(package) for package, count in sizes.items() if count > 30]
    assert not long + crowded
