"""Tables, templates, and ratios of results."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..models import MODELS
from ..records import Record

TEMPLATES = Path(__file__).parent / "templates"


def template(name: str, **values: Any) -> str:
    """Return the text of a template with values in place of its fields."""
    return (TEMPLATES / f"{name}.md").read_text().format(**values)


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in (header, ["---"] * len(header), *rows))


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def milliseconds(result: Record, who: str = "tf2jax_lite", digits: int = 1) -> str:
    return f"{1e3 * result['times'][who]['median']:.{digits}f}"


def groups(result: Record) -> tuple[str, ...]:
    """Return the kinds of a result's model."""
    return MODELS[result["model"]].groups if result["model"] in MODELS else ()


def machines(results: Iterable[Record]) -> str:
    return " and ".join(sorted({r["machine"] for r in results}))


def versions_and_days(results: Sequence[Record]) -> tuple[str, str]:
    """Return the versions of JAX and TensorFlow, and the first and last day."""
    names = {"jax": "JAX", "tensorflow": "TensorFlow"}
    used = {" and ".join(f"{names[n]} {v}" for n, v in r["versions"].items() if n in names) for r in results}
    days = sorted({r["day"] for r in results})
    return "; ".join(sorted(used)), " to ".join(dict.fromkeys((days[0], days[-1])))


def ready(result: Record, other: str) -> float | None:
    """Return our CPU time to trace and compile relative to another's, if it is known."""
    ours, theirs = result.get("ours", {}), result.get(other, {})
    return ours["cpu"] / theirs["cpu"] if "cpu" in theirs and "cpu" in ours else None


def prepared(suites: dict[str, list[Record]], other: str) -> list[tuple[float, Record]]:
    """Return `ready` of each case: of the suite compile, else of run."""
    for suite in ("compile", "run"):  # the first repeats, and is a median
        if found := [(value, r) for r in suites.get(suite, []) if (value := ready(r, other)) is not None]:
            return found
    return []


def different(result: Record, who: str) -> int:
    """Return the number of a contestant's different kernels; 0 if unknown."""
    return round(result.get(who, {}).get("different", 0))  # a median
