"""Sections on kernels, single operations and long computations."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Record
from .tables import machines, median, milliseconds, ratio, table, template

_SLOW = 1.2  # relative to TensorFlow, to be named in the text


def _rule_cells(record: Record | None) -> tuple[str, str, str]:
    """Return our time in ms, and the ratios of run and compile time to JAX's."""
    if record is None:
        return "", "", ""
    return (
        milliseconds(record, digits=2),
        ratio(record["ratios"]["jax"]),
        ratio(record["compile"]["tf2jax_lite"] / record["compile"]["jax"]),
    )


def convolutions(records: Sequence[Record]) -> str:
    """Return the section on the suite cpu_rules."""
    forms: dict[str, dict[str, Record]] = {}
    for r in records:
        forms.setdefault(r["form"], {})[r["what"]] = r
    rows = []
    for form, found in forms.items():
        to_tensorflow = ratio(found.get("forward", {}).get("ratios", {}).get("tensorflow"))
        forward, gradient = (_rule_cells(found.pop(what, None)) for what in ("forward", "gradient"))
        rows.append((form, *forward, to_tensorflow, *gradient))
        rows += [(f"{form}, {what}", *[""] * 4, *_rule_cells(r)) for what, r in found.items()]
    cells = ("ms", "to JAX", "compile, to JAX")
    header = ("operation, NHWC", *cells, "to TensorFlow", *(f"gradient, {cell}" for cell in cells))
    return template("convolutions") + "\n" + table(header, rows)


def operations(records: Sequence[Record]) -> str:
    """Return the section on the suite operations."""
    ratio = {(r["name"], r["what"]): r["ratios"]["tensorflow"] for r in records}
    each = {what: [value for (_, other), value in ratio.items() if other == what] for what in ("call", "gradient")}
    slow = sorted(((value, *key) for key, value in ratio.items() if value > _SLOW), reverse=True)
    named = ", ".join(f"{name}{' (gradient)' if what == 'gradient' else ''} {value:.1f}" for value, name, what in slow)
    text = template(
        "operations",
        count=len(each["call"]),
        call=f"{median(each['call']):.2f}" if each["call"] else "",
        gradients=len(each["gradient"]),
        gradient=f"{median(each['gradient']):.2f}" if each["gradient"] else "",
        slow=f" More than {_SLOW} times TensorFlow's:\n{named}." if named else "",
    )
    names = list(dict.fromkeys(r["name"] for r in records))
    found = {(r["name"], r["what"]): r for r in records}
    rows = [(name, *_cells(found.get((name, "call"))), *_cells(found.get((name, "gradient")))) for name in names]
    return text + "\n" + table(("operation", "ours, ms", "to TensorFlow", "gradient, ms", "to TensorFlow"), rows)


def _cells(record: Record | None) -> tuple[str, str]:
    if record is None:
        return "", ""
    return milliseconds(record, digits=2), ratio(record["ratios"]["tensorflow"])


def long(records: Sequence[Record]) -> str:
    """Return the section on the suite long."""
    rows = [
        (
            r["name"],
            r["what"],
            r["steps"],
            milliseconds(r, digits=2),
            f"{r['ratios']['tensorflow']:.2f}",
            f"{r['ratios']['native']:.3f}",
            f"{r['compile']['ours']:.2f}",
            f"{r['compile']['native']:.2f}",
        )
        for r in records
    ]
    head = ("program", "", "steps", "ours, ms", "to TensorFlow", "to native", "compile, s", "native, s")
    return template("long", machine=machines(records)) + table(head, rows)


def products(records: Sequence[Record]) -> str:
    """Return the section on the suite products."""
    rows = [
        (
            r["form"],
            f"{r['gflops']['jax']:.0f}",
            f"{r['gflops']['tensorflow']:.0f}",
            ratio(r["ratios"]["tensorflow"]),
        )
        for r in records
    ]
    text = (
        "## Products\n\nMatrix products bound many models: those of XLA, which native JAX and converted models share, "
        "compared with TensorFlow's.\n\n"
    )
    return text + table(("rows x summed x columns", "XLA, GFLOP/s", "TensorFlow, GFLOP/s", "time, ratio"), rows)


def pages(records: Sequence[Record]) -> str:
    """Return the section on the suite pages."""
    rows = [
        (
            r["model"],
            r["batch"],
            *(f"{r['plain']['faults'][who]:.0f}" for who in ("tf2jax_lite", "tensorflow")),
            *(milliseconds(r[which]) for which in ("plain", "larger")),
            *(ratio(r[which]["ratios"]["tensorflow"]) for which in ("plain", "larger")),
        )
        for r in records
    ]
    header = ("model", "batch", "pages touched, ours", "TensorFlow", "ours, ms", "larger pages")
    return template("pages") + table((*header, "to tensorflow", "larger pages"), rows)
