"""Write docs/reliability.md from docs/reliability/*.json.

Usage: ``python -m tools.pages.reliability [--check]``.

Each file is ``{"title", "command", "columns", "rows", "notes"}``, written by whatever measured it; the page shows them
in the order of their names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "docs" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"

_HEAD = """# Reliability

Tests of the converter with untrusted files, in servers and in long jobs. The command above each table writes it;
`python -m tools.pages.reliability` puts them together. The repository's `SECURITY.md` says what each role can and
cannot do.
"""


def page(results: Path = RESULTS) -> str:
    """Return the page as Markdown.

    Raises:
      ValueError: a file of results lacks something, or a row does not fit the columns.
    """
    parts = [_HEAD]
    for file in sorted(results.glob("*.json")):
        parts.append(_section(file.name, json.loads(file.read_text())))
    return "\n".join(parts)


def _section(name: str, found: dict[str, Any]) -> str:
    missing = {"title", "command", "columns", "rows", "notes"} - set(found)
    if missing:
        raise ValueError(f"{name} lacks {sorted(missing)}")
    columns = found["columns"]
    wrong = [row for row in found["rows"] if len(row) != len(columns)]
    if wrong:
        raise ValueError(f"{name}: a row does not fit the columns {columns}: {wrong[0]}")
    lines = [f"## {found['title']}", ""]
    if found["command"]:  # promises have none
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
    """Write the page; with ``--check`` says whether it is the one that is there."""
    made = page()
    if "--check" in arguments:
        same = PAGE.exists() and PAGE.read_text() == made
        print("docs/reliability.md is up to date" if same else "run python -m tools.pages.reliability")
        return 0 if same else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
