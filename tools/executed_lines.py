"""Record the source lines that each test runs; needs Python 3.12.

Usage: ``pytest -p tools.executed_lines --lines DIR``.

``python -m tools.executed_lines DEFAULT FULL`` compares the records of two tiers. ``python -m tools.planted_faults
--lines DIR`` runs only the tests that run a fault's line. A line that runs in a child process is not recorded.
"""

from __future__ import annotations

import argparse
import gzip
import os
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("ops", "tf2jax_lite")


class Record(NamedTuple):
    """The lines of one test.

    Attributes:
      test: the test's id; ``""`` for the lines that imports and collection run.
      lines: line numbers by file, relative to the repository's root.
    """

    test: str
    seconds: float
    lines: dict[str, list[int]]


class _Recorder:
    """Asks the interpreter for each line's first run within a test."""

    def __init__(self, folder: Path) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        folder.mkdir(parents=True, exist_ok=True)
        self._file = gzip.open(folder / f"{worker}.pickle.gz", "wb")  # noqa: SIM115 - open until the session ends
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._names: dict[str, str] = {}
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        tool = self.tool = next(id for id in range(6) if self._monitoring.get_tool(id) is None)
        self._monitoring.use_tool_id(tool, "executed lines")
        self._monitoring.register_callback(tool, self._monitoring.events.LINE, self._line)
        self._monitoring.set_events(tool, self._monitoring.events.LINE)

    def _line(self, code: CodeType, line: int) -> object:
        if (name := self._names.get(code.co_filename)) is None:
            path = Path(code.co_filename).resolve()
            name = str(path.relative_to(ROOT)) if any(path.is_relative_to(ROOT / source) for source in SOURCES) else ""
            self._names[code.co_filename] = name
        if name:
            self._lines[name].add(line)
        return self._monitoring.DISABLE

    def start(self) -> None:
        """Forget the lines so far."""
        self._lines.clear()
        self._monitoring.restart_events()

    def write(self, test: str, seconds: float) -> None:
        """Append the lines since the start to the file."""
        pickle.dump(Record(test, seconds, {name: sorted(lines) for name, lines in self._lines.items()}), self._file)

    def close(self) -> None:
        self._file.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines", type=Path, help="the folder for the records of executed lines")


def pytest_configure(config: pytest.Config) -> None:
    controls_workers = config.getoption("numprocesses", None) and not os.environ.get("PYTEST_XDIST_WORKER")
    if (folder := config.getoption("--lines")) and not controls_workers:
        config.pluginmanager.register(_Hooks(_Recorder(folder)))


class _Hooks:
    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def pytest_collection_finish(self) -> None:
        self._recorder.write("", 0.0)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._recorder.start()
        start = time.process_time()
        result = yield
        self._recorder.write(item.nodeid, time.process_time() - start)
        return result

    def pytest_unconfigure(self) -> None:
        self._recorder.close()


def records(folder: Path) -> Iterator[Record]:
    """Yield the records of a run."""
    for path in sorted(folder.glob("*.pickle.gz")):
        with gzip.open(path) as file:
            while True:
                try:
                    yield pickle.load(file)
                except EOFError:
                    break


def executed(folder: Path) -> set[tuple[str, int]]:
    """Return the (file, line) that any test of a run executes."""
    return {(file, line) for record in records(folder) for file, lines in record.lines.items() for line in lines}


def executable() -> set[tuple[str, int]]:
    """Return the (file, line) of all code in the sources."""
    found = set()
    for source in SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            if path.resolve() == path:
                pending = [compile(path.read_text(), str(path), "exec")]
                while pending:
                    code = pending.pop()
                    found.update((str(path.relative_to(ROOT)), line) for *_, line in code.co_lines() if line)
                    pending.extend(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return found


def main() -> None:
    """Print the share of lines that two runs execute, for each source folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("default", type=Path, help="records of the default tier")
    parser.add_argument("full", type=Path, help="records of the full tier")
    parser.add_argument("--missed", action="store_true", help="print the lines that the full tier alone executes")
    options = parser.parse_args()
    default = executed(options.default)
    every, everything = default | executed(options.full), executable()
    for source in (*SOURCES, ""):
        of = [{line for line in lines if line[0].startswith(source)} for lines in (default, every, everything)]
        ran, ran_in_all, exist = map(len, of)
        print(
            f"{source or 'both'}: default tier {ran / exist:.1%}, both tiers {ran_in_all / exist:.1%}, "
            f"ratio {ran / ran_in_all:.1%} of {exist:,} lines"
        )
    if options.missed:
        for file, line in sorted(every - default):
            print(f"{file}:{line}")


if __name__ == "__main__":
    main()
