"""Write docs/reliability.md and tools/reliability/results.md from records.

Usage: ``python -m tools.pages.reliability [--check]``.

Each file of docs/reliability is ``{"title", "command", "columns", "rows", "notes"}``, written by whatever measured it.
Promises, which have no command, stand on the site; measurements on the other page, in the order of the files' names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "docs" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"
MEASURED = ROOT / "tools" / "reliability" / "results.md"

_HEAD = """# Reliability

Promises of the converter for untrusted files, in servers and in long jobs, and their tests. The repository's
`SECURITY.md` says what each role can and cannot do.
"""
_TESTS = """## Tests

Each command writes its record. The repository's `tools/reliability/results.md` has the results.

"""
_MEASURED_HEAD = """# Results of the reliability tests

The command above each table writes its record; `python -m tools.pages.reliability` puts them together.
[Reliability](../../docs/reliability.md) has the promises.
"""


def _records(results: Path) -> list[tuple[str, dict[str, Any]]]:
    return [(file.name, json.loads(file.read_text())) for file in sorted(results.glob("*.json"))]


def page(results: Path = RESULTS) -> str:
    """Return the site's page: the promises, and the command of each measurement."""
    sections = [(_section(name, found), found) for name, found in _records(results)]
    promised = [text for text, found in sections if not found["command"]]
    rows = [[found["title"], f"`{found['command']}`"] for _, found in sections if found["command"]]
    table = "\n".join(map(_row, [["test", "command"], ["---"] * 2, *rows]))
    return "\n".join([_HEAD, *promised, f"{_TESTS}{table}\n"])


def measured(results: Path = RESULTS) -> str:
    """Return the developers' page: each measurement as a table with its notes."""
    return "\n".join(
        [_MEASURED_HEAD, *(_section(name, found) for name, found in _records(results) if found["command"])]
    )


def _section(name: str, found: dict[str, Any]) -> str:
    missing = {"title", "command", "columns", "rows", "notes"} - set(found)
    if missing:
        raise ValueError(f"{name} lacks {sorted(missing)}")
    columns = found["columns"]
    wrong = [row for row in found["rows"] if len(row) != len(columns)]
    if wrong:
        raise ValueError(f"{name}: a row does not fit the columns {columns}: {wrong[0]}")
    lines = [f"## {found['title']}", ""]
    if found["command"]:
        lines += [f"    {found['command']}", ""]
    if found["rows"]:
        lines += [_row(columns), _row(["---"] * len(columns)), *map(_row, found["rows"]), ""]
    lines += [f"- {note}" for note in found["notes"]]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def main(arguments: list[str]) -> int:
    """Write both pages; with ``--check``, say whether they are up to date."""
    made = {PAGE: page(), MEASURED: measured()}
    if "--check" in arguments:
        same = all(path.exists() and path.read_text() == text for path, text in made.items())
        print("the pages are up to date" if same else "run python -m tools.pages.reliability")
        return 0 if same else 1
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
