"""benchmarks/pages/performance.md: all measurements of models and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..conversion import GIVEN
from ..records import Record
from . import kernels, targets
from .tables import different, groups, machines, median, milliseconds, ratio, ready, table, template, versions_and_days

_COSTS = ("ours", "native", "peer")  # parts of a result, of one session


def _stages(records: Sequence[Record]) -> str:
    parts = list(records[0]["seconds"])
    rows = [
        (
            r["model"],
            r["batch"],
            r["kernels"],
            r["different"],
            *(f"{1e3 * r['seconds'][p]:.0f}" for p in parts),
            *(f"{1e3 * r['cpu'][which]:.0f}" if "cpu" in r else "" for which in ("with_rules", "without_rules")),
        )
        for r in records
    ]
    text = (
        "## Compile time by phase\n\nXLA's own profile of our programs, in milliseconds; kernels are summed over "
        "threads. Compile time depends on\nthe number and the length of different kernels. The last two columns are "
        "the CPU time of lowering and compiling,\nand the same without CPU lowering rules.\n\n"
    )
    header = ("model", "batch", "kernels", "different", *parts, "lower and compile", "without rules")
    return text + table(header, rows)


def _rate(record: Record) -> str:
    """Return our program's GFLOP/s; "" for loops, which XLA counts once."""
    flops = record["ours"].get("flops")
    if not flops or "recurrent" in groups(record):
        return ""
    return f"{flops / record['times']['tf2jax_lite']['median'] / 1e9:.0f}"


def _models(title: str, records: Sequence[Record], *, compiling: bool = True) -> str:
    others = sorted({name for r in records for name in r["ratios"]})
    rows = []
    for r in records:
        prepared = [ready(r, o) for o in ("native", "peer") if compiling]
        rows.append(
            (
                r["model"],
                r["batch"],
                milliseconds(r),
                *(ratio(r["ratios"].get(o)) for o in others),
                *map(ratio, prepared),
                f"{r['ours']['equations']} / {r['native']['equations']}",
                " / ".join(f"{r[who]['kernels']:.0f}" if "kernels" in r[who] else "" for who in ("ours", "native")),
                _rate(r),
            )
        )
    header = (
        "model",
        "batch",
        "ours, ms",
        *(f"to {o}" for o in others),
        *(("trace and compile, to native", "to tf2jax") if compiling else ()),
        "equations, ours / native",
        "kernels",
        "GFLOP/s",
    )
    return f"## {title}\n\n" + table(header, rows)


_CONVERSION_CHANGES = """\
On 2026-11-27 the median ratio to tf2jax went from 0.42 to 0.29, by `python -m benchmarks run --suite convert --peer
DIR` with tf2jax 0.3.8 in `DIR`, before and after on one machine: ResNet50 from 0.38 to 0.27, InceptionV3 from 0.45 to
0.31, MobileNetV3 from 0.51 to 0.40. The analysis of uses skips steps that depend on no numeric argument, steps are
named tuples, and Keras layers, equal constants and equal specs are read once. The rest is spread over many parts:
12 % of ResNet50's conversion is TensorFlow's export of its graph.
"""


def _convert(records: Sequence[Record]) -> str:
    text = "## Before the first result\n\n"
    for start in (r for r in records if r.get("what") == "start"):
        text += (
            f"`import tf2jax_lite` takes {start['import']:.2f} s beyond `import jax`; `tf2jax-lite --help` "
            f"{start['help']:.2f} s, of which Python's own start is {start['python']:.2f} s.\n\n"
        )
    if growth := [r for r in records if r.get("what") == "growth"]:
        whos, parts = [who for who in ("ours", "peer") if who in growth[0]], ("convert", "trace")
        rows = [(g["nodes"], *(f"{1e6 * g[w][k] / g['nodes']:.0f}" for w in whos for k in parts)) for g in growth]
        header = ("nodes", *(f"{who}, {part}" for who in whos for part in parts))
        text += "Microseconds per node, by graph size:\n\n" + table(header, rows) + "\n"
    models = [r for r in records if "shares" in r]
    if models:
        header = ("model", "nodes", "tracing by TensorFlow", "ours", "ours, first", "peer", "ratio", "with tracing")
        text += "Conversion for inference, milliseconds:\n\n" + table(header, _conversions(models)) + "\n"
        parts = list(models[0]["shares"])
        rows = [(r["model"], *(f"{100 * r['shares'][p]:.0f}" for p in parts)) for r in models]
        text += "Conversion time by part, percent:\n\n" + table(("model", *parts), rows) + "\n"
        given = median(sum(r["shares"][p] for p in GIVEN) for r in models)
        common = median(r["tracing"] / (r["tracing"] + r["times"]["tf2jax_lite"]["median"]) for r in models)
        text += (
            f"Of our time, {100 * given:.0f} % (median) is spent in TensorFlow: it exports its graph, and reads each\n"
            "variable by an op. Both converters wait for that. Before either begins, TensorFlow traces the model:\n"
            f"{100 * common:.0f} % (median) of tracing and conversion together.\n\n"
            f"{_CONVERSION_CHANGES}\n"
        )
    return text


def _memory(records: Sequence[Record]) -> str:
    rows = [
        (
            r["model"],
            f"{r['weights'] / 2**20:.0f}",
            *(f"{(r[when] - r['baseline']) / r['weights']:.2f}" for when in ("built", "converted", "compiled")),
            f"{r['results_only']:.2f}",
            f"{r['times_weights']:.2f}",
        )
        for r in records
    ]
    compiling = [(r["compiled"] - r["converted"]) / 2**20 for r in records]
    header = ("model", "weights, MiB", "built", "converted", "compiled", "first call, results alone", "params too")
    return (
        "## Memory of building, converting and the first call\n\n"
        "Above the imports of both frameworks, in multiples of the weights. TensorFlow's weights are included;\n"
        "conversion shares them. XLA's compiler takes\n"
        f"{min(compiling):.0f} to {max(compiling):.0f} MiB, most of the memory of small models.\n"
        "A jitted call that returns the params copies them, as XLA's results share no memory with arguments.\n\n"
        + table(header, rows)
    )


def _artifacts(records: Sequence[Record]) -> str:
    rows = [
        (r["model"], f"{r['times']['tf2jax_lite']['median']:.3f}", ratio(r["ratios"]["tensorflow"])) for r in records
    ]
    return "## Loading an artifact\n\n" + table(("model", "ours, s", "to tf.saved_model.load"), rows)


def _compile_times(records: Sequence[Record]) -> str:
    rows = []
    for r in records:
        whos = [who for who in ("ours", "native", "peer") if "cpu" in r.get(who, {})]
        rows.append(
            (
                r["model"],
                r["batch"],
                f"{1e3 * r['ours']['cpu']:.0f}",
                *(ratio(ready(r, who)) for who in ("native", "peer")),
                ratio(r["ours"]["trace"] / r["native"]["trace"]),
                " / ".join(str(different(r, who)) for who in whos),
                " / ".join(f"{1e3 * r[who]['cpu'] / different(r, who):.0f}" for who in whos if different(r, who)),
            )
        )
    header = (
        "model",
        "batch",
        "ours, ms",
        "to native",
        "to tf2jax",
        "tracing alone, to native",
        "different kernels, ours / native / tf2jax",
        "ms per kernel",
    )
    return (
        "## Tracing and compiling\n\nCPU time of tracing, lowering and compiling with cleared caches, interleaved. "
        "Kernels are XLA's\nfusions, equal ones counted once, without library calls.\n\n" + table(header, rows)
    )


def _conversions(results: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return results as rows of nodes, times in ms, and ratios to tf2jax."""
    # Columns: model, nodes, tracing, ours, first, tf2jax, ratios without and with tracing.
    found = []
    for r in results:
        ours = r["times"]["tf2jax_lite"]["median"]
        theirs = r["times"].get("tf2jax", {}).get("median")
        both = (ours + r["tracing"]) / (theirs + r["tracing"]) if theirs else None
        tf2jax = "fails" if "peer" in r else "" if theirs is None else f"{1e3 * theirs:.0f}"
        times = [f"{1e3 * cell:.0f}" for cell in (r["tracing"], ours, r["first"])]
        quotients = ("" if q is None else f"{q:.2f}" for q in (r["ratios"].get("tf2jax"), both))
        found.append((r["model"], r["nodes"], *times, tf2jax, *quotients))
    return found


_CASE = ("suite", "model", "size", "batch", "form", "name", "what", "nodes", "program", "command")


def suites_of(results: Sequence[Record]) -> dict[str, list[Record]]:
    """Return results by suite; of several values of one measurement, the last one.

    A result may lack contestants, such as tf2jax, that an earlier one for the same case has: their ratios, which are of
    one session, stay. Their costs do not: a ratio of them to ours would be one of two sessions.
    """
    found: dict[tuple[Any, ...], Record] = {}
    for r in results:
        old = found.get(key := tuple(r.get(name) for name in _CASE), {})
        kept = {part: value for part, value in old.items() if "ours" not in r or part not in _COSTS}
        found[key] = {**kept, **r, "ratios": {**old.get("ratios", {}), **r.get("ratios", {})}}
    suites: dict[str, list[Record]] = {}
    for r in found.values():
        suites.setdefault(r["suite"], []).append(r)
    return suites


def page(results: Sequence[Record], elsewhere: Sequence[Record] = (), before: Sequence[Record] = ()) -> str:
    """Return the page's text."""
    suites = suites_of(results)
    newest = [r for suite in suites.values() for r in suite]
    loads = [r["load"] for r in newest if "load" in r]
    load = f"\nThe load average was between {min(loads):.0f} and {max(loads):.0f}." if loads else ""
    # The suite long may be from another machine, which its section names.
    machine = "; ".join(sorted({r["machine"] for r in newest if "machine" in r and r["suite"] != "long"}))
    parts = [template("introduction", load=load, machine=machine, versions=_versions(newest))]
    parts.append(targets.section(suites, suites_of(before)))
    if "run" in suites:
        parts.append(_models("One call", suites["run"], compiling=False))
    if "train" in suites:
        parts.append(_models("One training step (SGD with momentum)", suites["train"]))
    for name, render in (
        ("cpu_rules", kernels.convolutions),
        ("operations", kernels.operations),
        ("long", kernels.long),
        ("products", kernels.products),
        ("compile", _compile_times),
        ("stages", _stages),
        ("pages", kernels.pages),
        ("convert", _convert),
        ("artifact", _artifacts),
        ("memory", _memory),
    ):
        if name in suites:
            parts.append(render(suites[name]))
    parts += [_elsewhere(suites_of(elsewhere)), _gpu(suites.get("described", []), suites.get("device", []))]
    return "\n".join(filter(None, parts)).rstrip() + "\n"


def _versions(results: Sequence[Record]) -> str:
    """Return a sentence with the versions and days of results, if they have them."""
    known = [r for r in results if r.get("versions")]
    if not known:
        return ""
    used, days = versions_and_days(known)
    share = f"{len(known)} of {len(results)} results" if len(known) < len(results) else "All"
    return f"\n{share} were measured with {used}, {days}."


# --- Another processor, and GPUs


_ELSEWHERE = (
    "model",
    "batch",
    "ours, ms",
    "to tensorflow",
    "to tensorflow_xla",
    "to native",
    "to tf2jax",
    "trace and compile, to native",
    "to tf2jax",
    "training step, to native",
    "conversion, to tf2jax",
    "memory, times the weights",
)


def _elsewhere(suites: dict[str, list[Record]]) -> str:
    """Return the section, empty without models that were run."""
    if not (run := suites.get("run", [])):
        return ""
    train = {(r["model"], r["batch"]): r["ratios"].get("native") for r in suites.get("train", [])}
    convert = {r["model"]: r["ratios"].get("tf2jax") for r in suites.get("convert", []) if "model" in r}
    memory = {r["model"]: r["results_only"] for r in suites.get("memory", [])}
    batches: dict[str, int] = {}
    rows: list[Sequence[object]] = []
    for r in run:
        first = batches.setdefault(r["model"], r["batch"]) == r["batch"]  # values per model are in its first row
        rows.append(
            (
                r["model"],
                r["batch"],
                milliseconds(r),
                *(ratio(r["ratios"].get(o)) for o in ("tensorflow", "tensorflow_xla", "native", "tf2jax")),
                *(ratio(ready(r, o)) for o in ("native", "peer")),
                ratio(train.get((r["model"], r["batch"]))),
                *(ratio(known.get(r["model"])) if first else "" for known in (convert, memory)),
            )
        )
    return template("elsewhere", machine=machines(run)) + targets.targets(suites) + "\n" + table(_ELSEWHERE, rows)


_NAMES = {"native": "native", "peer": "tf2jax"}


def _over(record: Record, other: str, what: str) -> float | None:
    theirs = record.get(other, {}).get(what)
    return record["ours"][what] / theirs if theirs else None


def _found(records: Sequence[Record], other: str, what: str) -> list[float]:
    return [value for r in records if (value := _over(r, other, what)) is not None]


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.2f} (median; {min(values):.2f} to {max(values):.2f})"


def _summary(records: Sequence[Record]) -> str:
    """Return a summary of the comparison, for calls and for training steps."""
    lines = []
    for kind, chosen in (
        ("Calls", [r for r in records if r["program"].startswith("run-")]),
        ("Training steps", [r for r in records if r["program"].startswith("train-")]),
    ):
        if chosen:
            kernels, moved = (_range(_found(chosen, "native", what)) for what in ("kernels", "bytes"))
            lines.append(f"- {kind} ({len(chosen)} programs), to native: kernels {kernels}, bytes moved {moved}.")
    called = [r for r in records if r["native"]["calls"]]
    same = sum(r["ours"]["calls"] == r["native"]["calls"] == r["native"]["shared"] for r in called)
    lines.append(f"- In {same} of {len(called)} programs with library calls these are identical, including operands.")
    for other in ("native", "peer"):
        if ratios := _found(records, other, "cpu"):
            lines.append(f"- XLA's compile time (CPU), to {_NAMES[other]}: {_range(ratios)}.")
    return "\n".join(lines) + "\n"


def _pair(record: Record, what: str) -> str:
    return " / ".join(str(record[who][what]) for who in ("ours", "native", "peer") if who in record)


def _gpu(described: Sequence[Record], timed: Sequence[Record]) -> str:
    """Return the section's text, or nothing without records."""
    if not described and not timed:
        return ""
    text = template("gpu")
    if timed:
        rows = [
            (
                r["program"],
                milliseconds(r, digits=3),
                milliseconds(r, "native", 3),
                ratio(r["ratios"].get("native")),
                ratio(r["ratios"].get("tf2jax")),
            )
            for r in timed
        ]
        named = ", ".join(sorted({r["device"] for r in timed}))
        text += (
            f"Timed on {named}:\n\n"
            + table(("program", "ours, ms", "native, ms", "to native", "to tf2jax"), rows)
            + "\n"
        )
        same = [r["ratios"]["native"] for r in timed if all(_over(r, "native", m) == 1 for m in ("kernels", "bytes"))]
        if same:
            text += (
                f"{len(same)} of these programs launch as many kernels as native JAX's, and move as many bytes. Their\n"
                f"ratios, {ratio(min(same))} to {ratio(max(same))}, show the noise of this measurement.\n\n"
            )
    else:
        text += "No GPU was available for timing.\n\n"
    if described:
        gpus = ", ".join(sorted({r["device"].upper() for r in described}))
        rows = [
            (
                r["program"],
                _pair(r, "kernels"),
                _pair(r, "calls"),
                r["native"]["shared"],
                f"{r['ours']['bytes'] / 1e6:.0f}",
                *(ratio(_over(r, other, "bytes")) for other in ("native", "peer")),
                ratio(_over(r, "native", "temporaries")),
                *(ratio(_over(r, other, "cpu")) for other in ("native", "peer")),
            )
            for r in described
        ]
        header = (
            "program",
            "kernels, ours / native / tf2jax",
            "library calls of these",
            "in ours and native",
            "MB moved",
            "to native",
            "to tf2jax",
            "temporaries, to native",
            "compiling, to native",
            "to tf2jax",
        )
        text += template("described", gpus=gpus) + _summary(described) + "\n" + table(header, rows)
    return text
