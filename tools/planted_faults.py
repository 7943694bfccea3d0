"""Plant single-line faults, and count those that a tier of the tests catches.

Usage: ``python -m tools.planted_faults``.

Each fault flips a comparison, exchanges an arithmetic operator, drops an epsilon or swaps two arguments, in a module of
another package. The tests that the fault touches run first, then the rest of the tier: all of it, or with ``--lines``
the tests that run the fault's line. A fault that no test can catch (an equivalent program) counts as missed, so the
figure compares tiers; it is no measure by itself.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .affected_tests import affected
from .executed_lines import records

ROOT = Path(__file__).parent.parent
OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """One changed line.

    Attributes:
      line: counted from 1.
    """

    file: str
    line: int
    kind: str
    before: str
    after: str


def candidates(file: str) -> Iterator[Fault]:
    """Yield every fault that can be planted in a source file."""
    source = (ROOT / file).read_text()
    lines = source.splitlines()

    def replaced(number: int, kind: str, begin: int, end: int | None, text: str) -> Fault:
        line = lines[number - 1]
        return Fault(file, number, kind, line, line[:begin] + text + line[end:])

    for node in ast.walk(ast.parse(source)):
        if getattr(node, "lineno", 0) != getattr(node, "end_lineno", None):
            continue
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                kind = "comparison"
            case ast.BinOp(left=left, op=operator, right=right):
                kind = "arithmetic"
            case ast.Call(func=ast.Name(id=name), args=[ast.Name() as first, ast.Name() as second, *_]):
                if name not in ("isinstance", "issubclass") and first.id != second.id:
                    text = f"{second.id}, {first.id}"
                    yield replaced(node.lineno, "swap", first.col_offset, second.end_col_offset, text)
                continue
            case ast.Name(id="eps" | "epsilon", ctx=ast.Load()):
                yield replaced(node.lineno, "epsilon", node.col_offset, node.end_col_offset, "0.0")
                continue
            case _:
                continue
        old, new = OPERATORS.get(type(operator), ("", ""))
        between = lines[node.lineno - 1][left.end_col_offset : right.col_offset]
        if old and between.strip() == old:
            yield replaced(node.lineno, kind, left.end_col_offset or 0, right.col_offset, between.replace(old, new))


def drawn(count: int, seed: int) -> list[Fault]:
    """Draw faults, each in another module, from packages and kinds in turns."""
    generator = random.Random(seed)
    packages: dict[str, list[str]] = {}
    for path in sorted([*ROOT.glob("ops/**/*.py"), *ROOT.glob("tf2jax_lite/**/*.py")]):
        file = str(path.relative_to(ROOT))
        if not file.startswith("tf2jax_lite/ops/"):
            packages.setdefault(str(path.parent.relative_to(ROOT)), []).append(file)
    order = sorted(packages)
    generator.shuffle(order)
    kinds = itertools.cycle(["comparison", "arithmetic", "comparison", "arithmetic", "swap", "epsilon"])
    found: list[Fault] = []
    for package, kind in zip(itertools.cycle(order), kinds, strict=False):
        if len(found) == count or not any(packages.values()):
            return sorted(found, key=lambda fault: fault.file)
        for file in generator.sample(packages[package], len(packages[package])):
            # Columns count bytes, so lines are ASCII; the text of an error is no behavior.
            faults = [f for f in candidates(file) if f.before.isascii() and "raise" not in f.before]
            if faults := [f for f in faults if f.kind == kind] or [f for f in faults if kind == "epsilon"]:
                found.append(generator.choice(faults))
                packages[package].remove(file)
                break
    raise AssertionError("itertools.cycle ended")


def running(faults: list[Fault], folder: Path) -> dict[Fault, list[str]]:
    """Return the tests that run each fault's line, from a record of executed lines.

    A fault whose line runs while modules are imported is left out: every test may depend on it.
    """
    tests: dict[Fault, list[str]] = {fault: [] for fault in faults}
    for record in records(folder):
        for fault in list(tests):
            if fault.line in record.lines.get(fault.file, ()):
                if record.test:
                    tests[fault].append(_batch_of(record.test))
                else:
                    del tests[fault]
    return tests


def _batch_of(test: str) -> str:
    """Return a test's id; for an op case all cases of its module."""
    # The first case of a batch runs the others.
    return test.partition("[")[0] if "::test_case[" in test else test


def caught(fault: Fault, root: Path, marks: str, minutes: float, tests: list[str] | None = None) -> str:
    """Return the test that fails with the fault planted, or ``""``.

    Args:
      tests: the tests that can fail; None for all of the tier.
    """
    path = root / fault.file
    source = path.read_text()
    lines = source.splitlines()
    assert lines[fault.line - 1] == fault.before, f"{fault.file} differs from the tree that the fault was drawn from"
    lines[fault.line - 1] = fault.after
    path.write_text("\n".join(lines) + "\n")
    try:
        near = affected([fault.file])
        if tests is None:
            groups = [near, ["tests"]]
        else:
            files = {test: test.split("::")[0] for test in tests}
            groups = [[t for t in tests if files[t] in near], [t for t in tests if files[t] not in near]]
        return next((name for group in groups if group and (name := _first_failure(root, group, marks, minutes))), "")
    finally:
        path.write_text(source)


def _first_failure(root: Path, tests: list[str], marks: str, minutes: float) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", "-rfE", "--tb=no"]
    if marks:
        command += ["-m", marks]
    with tempfile.NamedTemporaryFile("w") as chosen:
        chosen.writelines(f"{test}\n" for test in tests if (root / test.split("::")[0]).exists())
        chosen.flush()
        try:
            output = subprocess.run(
                [*command, f"@{chosen.name}"], cwd=root, capture_output=True, text=True, timeout=60 * minutes
            ).stdout
        except subprocess.TimeoutExpired:
            return "time limit"
    failed = [line.split()[1] for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else ""


def main() -> None:
    """Print a line for each fault, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--marks", default="", help="pytest's -m; the default tier without it")
    parser.add_argument("--minutes", type=float, default=20, help="a run that takes longer counts as a failure")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose tests run")
    parser.add_argument("--faults", type=Path, help="a record: its faults, instead of drawn ones")
    parser.add_argument("--lines", type=Path, help="a record of tools.executed_lines: only tests that run the line run")
    parser.add_argument("--json", type=Path, help="where to write the record")
    options = parser.parse_args()
    if options.faults:
        faults = [Fault(**row["fault"]) for row in json.loads(options.faults.read_text())]
    else:
        faults = drawn(options.count, options.seed)
    chosen = running(faults, options.lines) if options.lines else {}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        shutil.copytree(options.tree, root, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        for fault in faults:
            test = caught(fault, root, options.marks, options.minutes, chosen.get(fault))
            rows.append({"fault": dataclasses.asdict(fault), "caught by": test})
            print(f"{fault.file}:{fault.line}: {test or 'missed'}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{sum(bool(row['caught by']) for row in rows)} of {len(rows)} faults caught")


if __name__ == "__main__":
    main()
