"""Write docs/reference/custom-gradients.md, from cases of the tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.lowering.gradient_cases import CASES, SAME, claimed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "custom-gradients.md"
_HEAD = """# Custom gradients

For [Gradients](../gradients.md): values, gradients, forward mode, second derivatives, and these of the saved and
restored model are TensorFlow's for:

"""
_TABLE = """
With exceptions (TensorFlow itself has no derivative where there is a "-"):

| construct | forward mode | second order | saved and restored |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page."""
    same, rows = [], []
    for case in CASES.values():
        _, _, *others = claimed(case).values()  # values and reverse mode are the same in each
        if set(others) == {SAME}:
            same.append(case.text)
        else:
            rows.append(f"| {case.text} | {' | '.join(others)} |\n")
    return f"{_HEAD}{textwrap.fill('; '.join(same), 120)}.\n{_TABLE}{''.join(rows)}"


if __name__ == "__main__":
    PAGE.write_text(page())
