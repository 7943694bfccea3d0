"""Write docs/reference/random-ops.md, from claims that the tests check."""

from __future__ import annotations

from pathlib import Path

from tests.ops.random.claims import CLAIMS, ULP

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "random-ops.md"

_HEAD = """# Random ops

The numbers of each op beside TensorFlow's; [Random numbers](../random.md#which-numbers) has the terms.

| numbers | ops | note |
| --- | --- | --- |
"""


def page() -> str:
    """Return the page; ops with the same claim share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, claim in CLAIMS.items():
        kind = f"{claim.kind}, at most {claim.ulps:g}" if claim.kind == ULP else claim.kind
        rows.setdefault((kind, claim.note), []).append(name)
    return _HEAD + "".join(f"| {kind} | {', '.join(names)} | {note} |\n" for (kind, note), names in rows.items())


if __name__ == "__main__":
    PAGE.write_text(page())
