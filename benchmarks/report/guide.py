"""docs/guides/performance.md, and its plots, which need the extra ``plot``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..records import ROOT, Record
from .performance import suites_of
from .tables import median, prepared, template, versions_and_days

IMAGES = ROOT / "docs" / "images"

SUITES = ("run", "train", "compile", "convert", "memory")
# Contestants of the suite run, as they are shown.
CONTESTANTS = {"tf2jax_lite": "tf2jax_lite", "native": "native JAX", "tf2jax": "tf2jax"}
COLORS = {"tf2jax_lite": "#c2410c", "native": "#2563eb", "tf2jax": "#9ca3af"}
PHASES = ("TensorFlow traces", "conversion", "JAX traces", "XLA compiles")


def facts(suites: dict[str, list[Record]]) -> dict[str, Any]:
    """Return the values that the page shows."""
    run, train = suites["run"], suites["train"]
    compiled = [(value, r["model"]) for value, r in prepared(suites, "native")]
    worst, worst_model = max(compiled)
    known = [r for suite in SUITES for r in suites[suite] if r.get("versions")]
    versions, days = versions_and_days(known)
    return {
        "run": {o: median(r["ratios"][o] for r in run) for o in ("tensorflow", "native")},
        "models": len({r["model"] for r in run}),
        "batches": " and ".join(map(str, sorted({r["batch"] for r in run}))),
        "train": median(r["ratios"]["native"] for r in train),
        "trained": len(train),
        "compile": median(value for value, _ in compiled),
        "worst_compile": worst,
        "worst_compiled": worst_model,
        "versions": versions,
        "machine": "; ".join(sorted({r["machine"] for r in known})),
        "days": days,
        "gpu": _gpu(suites["device"]),
    }


def _gpu(timed: Sequence[Record]) -> dict[str, Any]:
    """Return the device, and the median ratio of its calls to native JAX's."""
    calls = [r for r in timed if r["program"].startswith("run-")]
    return {
        "device": " and ".join(sorted({r["device"] for r in calls})),
        "run": median(r["ratios"]["native"] for r in calls),
        "models": len(calls),
    }


def relative(record: Record, name: str, to: str = "tensorflow") -> float | None:
    """Return a contestant's time relative to another's; None if it was not timed."""
    ratios = {"tf2jax_lite": 1.0, **record["ratios"]}  # our time over each one's
    return ratios[to] / ratios[name] if name in ratios else None


def phases(suites: dict[str, list[Record]]) -> dict[str, list[float]]:
    """Return the seconds of `PHASES` by model, at batch size 1."""
    compiled = {r["model"]: r["ours"] for r in suites["compile"] if r["batch"] == 1}
    return {
        r["model"]: [
            r["tracing"],
            r["times"]["tf2jax_lite"]["median"],
            compiled[r["model"]]["trace"],
            compiled[r["model"]]["compile"],
        ]
        for r in suites["convert"]
        if r.get("model") in compiled
    }


def _mib(record: Record) -> tuple[float, float]:
    """Return the size of the weights, and the peak, in MiB."""
    return record["weights"] / 2**20, record["results_only"] * record["weights"] / 2**20


# --- Plots


def plot(draw: Callable[[Any, Any], None], path: Path, width: float, height: float, columns: int = 1) -> None:
    """Draw a figure into an SVG file, which is the same for the same values."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style = {"svg.hashsalt": "performance", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    with matplotlib.rc_context({**style, "axes.spines.right": False}):
        figure, axes = pyplot.subplots(
            1, columns, figsize=(width, height), sharex=True, sharey=True, layout="constrained"
        )
        draw(figure, axes)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _ratios(axis: Any, names: Sequence[str], series: dict[str, tuple[str, Iterable[float | None]]], label: str) -> None:
    """Plot ratios as points on a logarithmic axis, one row for each name."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.axvline(1.0, color="black", linewidth=0.8)
    for name, (color, values) in reversed(series.items()):
        points = [(value, row) for row, value in enumerate(values) if value is not None]
        axis.plot(*zip(*points, strict=True), "o", color=color, label=name, markersize=5)
    axis.set_xscale("log")
    axis.set_yticks(range(len(names)), names)
    axis.grid(axis="x", color="#e5e7eb")
    axis.set_axisbelow(True)
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10)
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel(label)


def draw_calls(records: Sequence[Record]) -> Callable[[Any, Any], None]:
    batches = sorted({r["batch"] for r in records})
    names = list(dict.fromkeys(r["model"] for r in records))[::-1]

    def draw(figure: Any, axes: Any) -> None:
        for axis, batch in zip(axes, batches, strict=True):
            found = {r["model"]: r for r in records if r["batch"] == batch}
            series = {
                shown: (COLORS[name], [relative(found[model], name) for model in names])
                for name, shown in CONTESTANTS.items()
            }
            _ratios(axis, names, series, f"time of a call / TensorFlow's, batch {batch}")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=3, frameon=False)

    return draw


def draw_steps(records: Sequence[Record], elsewhere: Sequence[Record]) -> Callable[[Any, Any], None]:
    names = [r["model"] for r in records][::-1]

    def draw(figure: Any, axis: Any) -> None:
        series = {}
        for color, chosen in ((COLORS["tf2jax_lite"], records), ("#fdba74", elsewhere)):
            found = {r["model"]: r["ratios"]["native"] for r in chosen}
            series[chosen[0]["machine"]] = (color, [found.get(name) for name in names])
        _ratios(axis, names, series, "time of a step / native JAX's")
        handles, labels = axis.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=2, frameon=False)

    return draw


def draw_phases(seconds: dict[str, list[float]]) -> Callable[[Any, Any], None]:
    def draw(figure: Any, axis: Any) -> None:
        names = list(seconds)[::-1]
        start = [0.0] * len(names)
        for phase, color in enumerate(("#9ca3af", COLORS["tf2jax_lite"], "#93c5fd", "#2563eb")):
            widths = [seconds[name][phase] for name in names]
            axis.barh(names, widths, left=start, color=color, label=PHASES[phase], height=0.6)
            start = [a + b for a, b in zip(start, widths, strict=True)]
        axis.set_xlabel("seconds")
        figure.legend(loc="outside upper center", ncols=4, frameon=False)

    return draw


def draw_memory(records: Sequence[Record]) -> Callable[[Any, Any], None]:
    def draw(figure: Any, axis: Any) -> None:
        names = [r["model"] for r in records][::-1]
        sizes = [_mib(r) for r in records][::-1]
        axis.barh(names, [peak for _, peak in sizes], color="#fdba74", label="peak", height=0.6)
        axis.barh(names, [weights for weights, _ in sizes], color="#374151", label="weights", height=0.25)
        axis.set_xlabel("MiB")
        figure.legend(loc="outside upper center", ncols=2, frameon=False)

    return draw


def page(results: Sequence[Record], *elsewhere: Sequence[Record]) -> str:
    """Return the page's text."""
    return template("guide", **facts(suites_of(results)))


def draw(results: Sequence[Record], elsewhere: Sequence[Record]) -> None:
    """Write the plots of the page."""
    suites, other = suites_of(results), suites_of(elsewhere)
    IMAGES.mkdir(exist_ok=True)
    plot(draw_calls(suites["run"]), IMAGES / "run-times.svg", 8, 4.2, columns=2)
    plot(draw_steps(suites["train"], other["train"]), IMAGES / "training-times.svg", 6, 3.6)
    plot(draw_phases(phases(suites)), IMAGES / "first-result.svg", 7, 3.8)
    plot(draw_memory(suites["memory"]), IMAGES / "peak-memory.svg", 7, 3.6)
