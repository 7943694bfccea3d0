"""The performance page's first section: targets, values, and reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..records import Record
from .tables import different, groups, median, ratio, ready, table, template


def _goal(
    what: str, goal: float, found: Sequence[float], summary: Callable[[Iterable[float]], float], models: int = 13
) -> tuple[str, str, str, str]:
    if not found:
        return what, f"{goal:.2f}", "not measured", ""
    value = summary(found)
    verdict = "met" if value <= goal else "not met"
    few = len(found) < models and models > 1
    return (
        what,
        f"{goal:.2f}",
        f"{value:.2f} ({len(found)})",
        verdict + (f"; {models - len(found)} of {models} models not measured" if few else ""),
    )


def targets(suites: dict[str, list[Record]]) -> str:
    """Return the table of targets and measured values.

    Args:
      suites: records by suite.
    """
    run, train = suites.get("run", []), suites.get("train", [])

    def against(records: Sequence[Record], other: str, group: str | None = None) -> list[float]:
        chosen = [r for r in records if group is None or group in groups(r)]
        return [r["ratios"][other] for r in chosen if other in r["ratios"]]

    def prepared(other: str) -> list[float]:
        return [value for r in run if (value := ready(r, other)) is not None]

    converting = [r["ratios"]["tf2jax"] for r in suites.get("convert", []) if "tf2jax" in r.get("ratios", {})]
    memory = suites.get("memory", [])
    on_gpu = [r["ratios"]["native"] for r in suites.get("device", []) if r["program"].startswith("run-")]
    starts = [r for r in suites.get("convert", []) if r.get("what") == "start"]
    rows = [
        _goal("run, to tf.function, median", 1.0, against(run, "tensorflow"), median),
        _goal("run, to tf.function, worst", 1.25, against(run, "tensorflow"), max),
        _goal("run, to native, median", 0.8, against(run, "native"), median),
        _goal("run, to native, worst", 1.05, against(run, "native"), max),
        _goal("run, mobile convolution networks, to native, worst", 0.4, against(run, "native", "mobile"), max, 3),
        _goal("train step, to native, median", 0.7, against(train, "native"), median, 12),
        _goal("run, to tf2jax, median", 0.6, against(run, "tf2jax"), median),
        _goal("run on GPU, to native, median", 1.0, on_gpu, median),
        _goal("trace and compile, to native, median", 1.0, prepared("native"), median),
        _goal("trace and compile, to tf2jax, median", 0.7, prepared("peer"), median),
        _goal("conversion, to tf2jax, median", 0.33, converting, median),
        _goal("peak memory, multiple of the weights, worst", 2.2, [r["results_only"] for r in memory], max, 12),
        _goal("the same when params are returned", 2.2, [r["times_weights"] for r in memory], max, 12),
        _goal("import beyond jax, s", 1.0, [s["import"] for s in starts], median, 1),
        _goal("tf2jax-lite --help, s", 0.5, [s["help"] for s in starts], median, 1),
    ]
    return table(("target", "at most", "measured (models)", ""), rows)


def section(suites: dict[str, list[Record]]) -> str:
    """Return the section: the targets, and reasons for those that are not met.

    Args:
      suites: records by suite.
    """
    run = suites.get("run", [])
    explanation = template(
        "targets",
        groups=_groups(run),
        products=_bound(run),
        compiling=_compiling(suites.get("compile", [])),
        without_rules=_without_rules(run, suites.get("stages", [])),
        slower=_slower(suites.get("cpu_rules", [])),
        memory=_added(suites.get("memory", [])),
        gpu=_unseen(suites),
    )
    return "## Targets\n\n" + targets(suites) + explanation


def _unseen(suites: dict[str, list[Record]]) -> str:
    """Return a sentence on the GPU comparison if no GPU was available."""
    if "device" in suites or "described" not in suites:
        return ""
    return (
        "\nGPU: none was available. Programs compiled for a GPU are compared with native JAX by the kernels that they\n"
        "launch ([On a GPU](#on-a-gpu)).\n"
    )


def _without_rules(run: Sequence[Record], stages: Sequence[Record]) -> str:
    """Return a sentence on tracing and compiling without CPU lowering rules."""
    saved = {(r["model"], r["batch"]): r["cpu"]["with_rules"] - r["cpu"]["without_rules"] for r in stages if "cpu" in r}
    chosen = [r for r in run if "cpu" in r["ours"] and "cpu" in r["native"] and (r["model"], r["batch"]) in saved]
    if not chosen:
        return ""
    now = median(r["ours"]["cpu"] / r["native"]["cpu"] for r in chosen)
    less = median((r["ours"]["cpu"] - saved[r["model"], r["batch"]]) / r["native"]["cpu"] for r in chosen)
    price = "all above 1" if less <= 1 else "part of it"
    return (
        f"Without CPU lowering rules it would be {less:.2f} of native instead of {now:.2f} (medians of the\n"
        f"{len(chosen)} in that table): {price} is the cost of faster calls.\n"
    )


def _groups(run: Sequence[Record]) -> str:
    """Tabulate medians of ratios by kind of model."""
    rows = []
    for kind, group in (
        ("convolution networks", "convolution"),
        ("transformers", "attention"),
        ("recurrent", "recurrent"),
    ):
        chosen = [r for r in run if group in groups(r)]
        calls = [[r["ratios"][o] for r in chosen if o in r["ratios"]] for o in ("tensorflow", "native", "tf2jax")]
        prepared = [[x for r in chosen if (x := ready(r, o)) is not None] for o in ("native", "peer")]
        if chosen:
            rows.append((kind, len(chosen), *(ratio(median(x)) if x else "" for x in (*calls, *prepared))))
    header = ("", "of", "run, to tensorflow", "to native", "to tf2jax", "trace and compile, to native", "to tf2jax")
    return table(header, rows)


def _added(memory: Sequence[Record]) -> str:
    """Return a sentence on the memory before conversion, and that of XLA's compiler."""
    if not memory:
        return ""
    built = [(r["built"] - r["baseline"]) / r["weights"] for r in memory]
    rest = [(r["results_only"] * r["weights"] - (r["compiled"] - r["baseline"])) / r["weights"] for r in memory]
    converting = [(r["converted"] - r["built"]) / 2**20 for r in memory]
    return (
        f"\nMemory: TensorFlow's model takes {min(built):.2f} to {max(built):.2f} times its weights before conversion\n"
        f"begins; conversion adds {min(converting):.0f} to {max(converting):.0f} MiB, the first call "
        f"{min(rest):.2f} to {max(rest):.2f} times the weights;\nthe rest is XLA's compiler "
        "([Memory](#memory-of-building-converting-and-the-first-call)).\n"
    )


def _bound(run: Sequence[Record]) -> str:
    """Return sentences on the share of products and convolutions in a model's time."""
    text = ""
    for kind, group in (
        ("Transformers' products", "attention"),
        ("Convolution networks' convolutions and products", "convolution"),
    ):
        chosen = [r for r in run if group in groups(r) and "products" in r["ratios"]]
        if chosen:
            shares = [1 / r["ratios"]["products"] for r in chosen]
            middle, low, high = (f"{100 * of(shares):.0f}" for of in (median, min, max))
            text += f"{kind}, each in a program of its own,\ntake {middle} % (median, {low} to {high}) "
            text += "of our whole call (the column *to products*).\n"
    return text and text + "More than 100 % is possible, since each of these programs allocates its results.\n"


def _slower(records: Sequence[Record]) -> str:
    """Return a sentence with the single operations that are slower than TensorFlow's."""
    found = sorted((r["ratios"].get("tensorflow", 0), r["form"]) for r in records)[-3:]
    named = ",\n".join(f"{form} ({ratio:.1f})" for ratio, form in reversed(found) if ratio > 1)
    if not named:
        return ""
    return f"TensorFlow's convolutions are oneDNN's, which are faster for some shapes. Slowest by ratio:\n{named}.\n"


def _compiling(records: Sequence[Record]) -> str:
    """Return sentences on compile time per kernel, from the suite compile."""
    chosen = [r for r in records if different(r, "ours") and different(r, "native")]
    if not chosen:
        return ""
    ours, native = (
        f"{median([1e3 * r[who]['cpu'] / different(r, who) for r in chosen]):.0f}" for who in ("ours", "native")
    )
    same = [r for r in chosen if different(r, "ours") <= 1.1 * different(r, "native")]
    more = [r for r in chosen if r not in same]
    text = f"{ours} ms of CPU time per different kernel that XLA compiles, and {native} ms for native JAX\n(medians). "
    for what, group in (("at most 10 % more", same), ("more", more)):
        if group:
            value = ratio(median(ready(r, "native") or 0.0 for r in group))
            text += f"The {len(group)} with {what} kernels than native take {value} of its time.\n"
    tracing = ratio(median([r["ours"]["trace"] / r["native"]["trace"] for r in chosen]))
    return f"{text}Tracing alone takes {tracing} of native's.\n"
