"""Pages of one suite: gallery, training, federated, StableHLO, rules, first."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ..records import ROOT, Record, latest
from ..timing import ratios
from ..training import LENGTH, MEMORY, PLACEMENTS, SIZES
from .tables import median, milliseconds, ratio, table, template, versions_and_days

MIB = 2**20


# --- Gallery

PACKAGES = {
    "keras": "https://keras.io/api/applications",
    "tf_keras": "https://github.com/keras-team/tf-keras",
    "tensorflow-probability": "https://www.tensorflow.org/probability",
    "dm-haiku": "https://dm-haiku.readthedocs.io",
    "flax": "https://flax.readthedocs.io",
}


def _size(count: int) -> str:
    """Return a number of params in units for people."""
    for unit, name in ((10**6, " M"), (10**3, " k")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return str(count) if count else "none"


def gallery(results: Sequence[Record]) -> str:
    """Return the page of the suite gallery, with times if some were measured."""
    results = latest(results, ["name"])
    timed = any("times" in r for r in results)
    header = ("model", "package", "kind", "params", "error", *(["time / TensorFlow's"] if timed else []))
    rows = [
        (
            r["source"].rpartition(".")[2],
            r["package"],
            r["kind"],
            _size(r["params"]),
            f"`{r['error']:.0e}`" if r["error"] else "0",
            *([ratio(r.get("ratios", {}).get("tensorflow"))] if timed else []),
        )
        for r in results
    ]
    modules: dict[str, list[str]] = {}
    for r in results:
        modules.setdefault(r["package"], []).append(f"`{r['source'].rpartition('.')[0]}`")
    package_versions = {r["package"]: r["versions"][r["package"]] for r in results}
    packages = [
        (f"[{package}]({PACKAGES[package]})", package_versions[package], ", ".join(dict.fromkeys(found)))
        for package, found in modules.items()
    ]
    versions, days = versions_and_days(results)
    return template(
        "gallery",
        table=table(header, rows),
        times="A time is the ratio of median times of calls, in turns." if timed else "Times are not measured yet.",
        versions=versions,
        days=days,
        packages=table(("package", "version", "modules"), packages),
    )


# --- Training

TRAINING_GOAL = 1.05


def _flax(results: Sequence[Record]) -> list[str]:
    found = latest((r for r in results if r["kind"] == "flax"), ["placement", "dropout"])
    if not found:
        return []
    rows = [
        (
            r["placement"],
            f"{r['dropout']:g}",
            *(f"{r['times'][who]['median']:.2f}" for who in ("tf2jax_lite", "flax")),
            f"**{r['ratios']['flax']:.2f}**",
            f"{ratios(r['times'], 'cpu')['flax']:.2f}",
            r["times"]["flax"]["rounds"],
        )
        for r in sorted(found, key=lambda r: [*PLACEMENTS].index(r["placement"]))
    ]
    blocks, width, heads = SIZES[found[0]["size"]]
    header = ("sharding", "dropout", "ours, s", "Flax, s", "ratio", "ratio, CPU time", "steps of each")
    text = (
        f"A Keras transformer of {blocks} blocks, width {width}, {heads} heads and {found[0]['params']:,} params, "
        f"converted, and the same model in Flax with the same weights, optimizer (AdamW) and shardings: "
        f"{found[0]['batch']} sequences of {LENGTH} tokens a step, float32, eight virtual devices. "
        f"Steps alternate; the ratio is that of the medians. The goal is {TRAINING_GOAL}."
    )
    return ["## A step against Flax", _wrapped(text), table(header, rows)]


def _options(results: Sequence[Record]) -> list[str]:
    measured = latest((r for r in results if r["kind"] == "memory"), ["options", "xla_flags"])
    found = {r["options"]: r for r in measured if "xla_flags" not in r}
    if not found:
        return []
    rows = [
        (
            f"`{name}`" if name.startswith("--") else name,
            *(f"{found[name][what] / MIB:,.0f}" for what in ("temporaries", "results", "peak")),
        )
        for name in MEMORY
        if name in found
    ]
    first = next(iter(found.values()))
    text = (
        f"The same transformer on one device, {first['batch']} sequences a step, `--backend source`; params and "
        f"AdamW's statistics take {first['state'] / MIB:,.0f} MiB. Temporaries are those of XLA's buffer assignment. "
        "The peak is the resident size of the process, with Python, JAX and the compiler. XLA:CPU computes products of "
        "bfloat16 in float32, so `bf16` saves less here than on a GPU or TPU."
    )
    header = ("options", "temporaries, MiB", "results not in place, MiB", "peak of the process, MiB")
    parts = ["## Memory of a step", _wrapped(text), table(header, rows)]
    flagged: dict[str, list[str]] = {}
    for r in measured:
        if "xla_flags" in r:
            size = f"{r['temporaries'] / MIB:,.0f} MiB ({r['options'].strip('-')})"
            flagged.setdefault(r["xla_flags"], []).append(size)
    for flags, sizes in flagged.items():
        text = "By default XLA:CPU schedules for concurrency, and keeps more values at once. With "
        parts.append(_wrapped(f"{text}`XLA_FLAGS={flags}`, temporaries are {', '.join(sizes)}."))
    return parts


def _stream(results: Sequence[Record]) -> list[str]:
    for r in latest((r for r in results if r["kind"] == "stream"), ["kind"]):
        text = (
            f"{r['shards']} shards of {r['bytes'] / 1e9:g} GB, .npz files of 256x256 images in float32, "
            f"{r['examples']:,} examples; {r['different']} shards have bytes of their own, the others are hard links "
            "to them:"
        )
        after = (
            f"The process read {r['read'] / 1e9:.1f} GB in {r['seconds']:,.0f} s, in a shuffled order, and its peak "
            f"resident size was {r['peak'] / MIB:,.0f} MiB."
        )
        return ["## Data beyond memory", _wrapped(text), f"```sh\n{r['command']}\n```\n", _wrapped(after)]
    return []


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def training(results: Sequence[Record]) -> str:
    """Return the page of the suite training."""
    loads, last = [r["load"] for r in results], results[-1]
    commands = (
        "Generated: `python -m benchmarks run --suite training --json out.jsonl`, then `python -m benchmarks report "
        "training --records out.jsonl`. The records of this page are "
        "[finetuning.jsonl](../results/finetuning.jsonl)."
    )
    circumstances = (
        f"Measured on two shared cores ({last['machine']}), JAX {last['versions']['jax']} on CPU, {last['day']}. "
        f"Other work ran at the same time (load average {min(loads):.0f} to {max(loads):.0f}), so compare ratios, not "
        "seconds."
    )
    head = ["# Performance of fine-tuning", _wrapped(commands), _wrapped(circumstances)]
    parts = [*head, *_flax(results), *_options(results), *_stream(results)]
    return "\n".join(f"{part}\n" if part.startswith("#") else part for part in parts)


# --- Federated

GOALS = {"logistic regression": 0.6, "CNN": 0.5, "CNN converted from Keras": 0.5, "larger CNN": 0.67}


def _rounds(results: Sequence[Record]) -> str:
    rows = []
    for model in dict.fromkeys(r["model"] for r in results):
        runs = sorted((r for r in results if r["model"] == model), key=lambda r: r["ratios"]["native"])
        r = runs[len(runs) // 2]
        low, high = (run["ratios"]["native"] for run in (runs[0], runs[-1]))
        rows.append(
            (
                r["model"],
                r["clients"],
                *(f"{r['times'][who]['median']:.3f}" for who in ("tf2jax_lite", "native")),
                f"**{r['ratios']['native']:.2f}**",
                f"{low:.2f} to {high:.2f}" if len(runs) > 1 else "one run",
                f"{ratios(r['times'], 'cpu')['native']:.2f}",
                GOALS[r["model"]],
                f"{r['difference']:.0e}",
            )
        )
    header = (
        "model",
        "clients",
        "ours, s",
        "native loop, s",
        "ratio, wall clock",
        "range of runs",
        "ratio, CPU",
        "goal",
        "weights differ by",
    )
    return "## A round\n\n" + table(header, rows)


def _memory(results: Sequence[Record]) -> str:
    rows = [
        (r["model"], r["clients"], *(f"{r['memory'][who]['more'] / MIB:.0f}" for who in ("ours", "native")))
        for r in latest(results, ["model"])
    ]
    text = "Peak memory in MiB above that before the first round, including compilation.\n\n"
    return "## Memory of a round\n\n" + text + table(("model", "clients", "ours", "native loop"), rows)


def _backends(results: Sequence[Record]) -> str:
    results = latest(results, ["model"])
    ways = list(dict.fromkeys(way for r in results for way in r["times"]))
    rows = []
    for r in results:
        wall, cpu = (min(t[kind] for t in r["times"].values()) for kind in ("median", "cpu"))
        found = {way: f"{t['median'] / wall:.2f} ({t['cpu'] / cpu:.2f})" for way, t in r["times"].items()}
        rows.append((r["model"], *(found.get(way, "not supported") for way in ways), r["chosen"]))
    text = (
        "Wall-clock time relative to the best backend, CPU time in parentheses; the last column is the choice of "
        '`client_execution="auto"`. An artifact\'s StableHLO cannot be batched.\n\n'
    )
    return "## Execution backends\n\n" + text + table(("model", *ways, "auto"), rows)


def _scaling(results: Sequence[Record]) -> str:
    rows = [
        (f"{r['clients']:,}", f"{r['seconds']:.2f}", *(f"{r['memory'][what] / MIB:.0f}" for what in ("peak", "more")))
        for r in latest(results, ["clients"])
    ]
    text = "Logistic regression; each size in a separate process, after a round of 40 clients. Seconds include "
    text += "compilation for the size.\n\n"
    header = ("clients per round", "seconds", "peak, MiB", "above the round of 40, MiB")
    return "## Scaling\n\n" + text + table(header, rows)


def _mesh(results: Sequence[Record]) -> str:
    rows = [
        (r["devices"], *(f"{r['seconds'][which]:.2f}" for which in ("first", "later")), f"{r['difference']:.0e}")
        for r in latest(results, ["devices"])
    ]
    text = (
        "Logistic regression, 200 clients a round, on virtual devices of the same two cores: the work is the same, so "
    )
    text += "that the time beyond that of one device is the price of the mesh.\n\n"
    header = ("devices", "first round, s", "later ones, s", "weights after five rounds differ by")
    return "## Several devices\n\n" + text + table(header, rows)


def _programs(results: Sequence[Record]) -> str:
    results = latest(results, ["algorithm"])
    base = results[0]["seconds"]
    rows = [(r["algorithm"], r["programs"], f"{1e3 * r['seconds']:.2f}", ratio(r["seconds"] / base)) for r in results]
    text = (
        f"Logistic regression, {results[0]['rounds']} rounds of 5 to 20 clients: the programs of clients' work that "
        "XLA compiles, and processor time for\na client after half of the rounds (median).\n\n"
    )
    header = ("algorithm", "programs", "ms a client", f"to {results[0]['algorithm']}")
    return "## Algorithms\n\n" + text + table(header, rows)


def _asynchronous(results: Sequence[Record]) -> str:
    results = latest(results, ["waits"])
    first = results[0]["simulated"]
    rows = [(r["waits"], r["rounds"], f"{r['simulated']:.0f}", ratio(r["simulated"] / first)) for r in results]
    text = (
        "Synthetic EMNIST, logistic regression; the time of each client is lognormal. Simulated seconds until the loss "
        f"of other clients is\n{results[0]['loss']:.2f}, that of the first row.\n\n"
    )
    return "## Waiting for clients\n\n" + text + table(("a round waits for", "rounds", "seconds", "to the first"), rows)


def federated(*files: Sequence[Record]) -> str:
    """Return the page of the suite federated, of the median run or last result."""
    results = [*chain(*files)]
    loads = [r["load"] for r in results if "load" in r] or [0]
    parts = [template("federated", load=f"{min(loads):.0f} to {max(loads):.0f}")]
    renderers = {
        "rounds": _rounds,
        "memory": _memory,
        "ways": _backends,
        "scaling": _scaling,
        "mesh": _mesh,
        "programs": _programs,
        "asynchronous": _asynchronous,
    }
    for what, render in renderers.items():
        if chosen := [r for r in results if r["what"] == what]:
            parts.append(render(chosen))
    return "\n".join(parts)


def algorithms(results: Sequence[Record]) -> str:
    """Return a table of last losses and accuracies, and the privacy budget."""
    found = latest((r for r in results if "round" in r), ["algorithm"])
    rows = [(r["algorithm"], r["round"], r["loss"], r["accuracy"]) for r in found]
    (privacy,) = (r for r in results if r.get("what") == "privacy")
    text = f"\nDP-FedAvg: epsilon {privacy['epsilon']} at delta {privacy['delta']}."
    return table(("algorithm", "round", "loss", "accuracy"), rows) + text


def draw_algorithms(results: Sequence[Record], path: Path = ROOT / "docs" / "federated-algorithms.svg") -> None:
    """Draw the loss and the accuracy of all algorithms by round."""
    import matplotlib
    from matplotlib.figure import Figure

    curves: dict[str, list[Record]] = {}
    for r in results:
        if "round" in r:
            curves.setdefault(r["algorithm"], []).append(r)
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for name, points in curves.items():
            axes.plot([r["round"] for r in points], [r[kind] for r in points], label=name, linewidth=1.5)
        axes.set(xlabel="round", ylabel=f"{kind} on clients that do not train", ylim=(0, None))
        axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    # The same file for the same data.
    with matplotlib.rc_context({"svg.hashsalt": "federated", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


# --- StableHLO, CPU rules, first results

_STABLEHLO = """# Run times of StableHLO round trips

`python -m benchmarks run --suite stablehlo --json FILE` runs round trips and originals in turns and takes the median of
the ratios; `python -m benchmarks report stablehlo --records FILE` wrote this page.

"""
GOAL = 1.05


def run_times(results: Sequence[Record]) -> str:
    """Return a summary and a table; of several results of a model the last counts."""
    found = latest(results, ["model"])
    loads = [r["load"] for r in found]
    middle = median(r["ratio"] for r in found)
    above = [f"{r['model']} ({r['ratio']:.2f})" for r in found if r["ratio"] > GOAL]
    same = sum(r["same_program"] for r in found)
    rows = [
        (
            r["model"],
            *(milliseconds(r, who, 3) for who in ("tf2jax_lite", "original")),
            f"{r['ratio']:.3f}",
            r["times"]["original"]["rounds"],
            f"{r['equations']:.2f}",
            "yes" if r["same_program"] else "no",
        )
        for r in found
    ]
    header = ("function", "ours, ms", "original, ms", "ratio", "rounds", "equations, ours / original", "same program")
    return (
        f"jax {found[0]['versions']['jax']} on {found[0]['cores']} CPU cores, while other work ran (load average "
        f"{min(loads):.1f} to {max(loads):.1f}): milliseconds say little, **ratios** count, since both programs ran in "
        f"turns.\n\nMedian over {len(found)} functions: {middle:.3f}. Above the goal of {GOAL}: "
        f"{', '.join(above) or 'none'}. {same} of them compile to as many instructions of each kind as the "
        "original.\n\n"
    ) + table(header, rows).rstrip()


def stablehlo(*files: Sequence[Record]) -> str:
    """Return the page of the suite stablehlo."""
    return f"{_STABLEHLO}{run_times([*chain(*files)])}\n"


def rules(*files: Sequence[Record]) -> str:
    """Return the table of the suite ablation: each rule where it gains most.

    These are a call and a derivative. Rules are in the order of the catalog, with a column for each version of JAX.
    """
    from tf2jax_lite.xla_cpu import catalog

    gains: dict[tuple[str, str], dict[str, float]] = {}
    for result in chain(*files):
        version = ".".join(result["versions"]["jax"].split(".")[:2])
        gains.setdefault((result["rule"], result["case"]), {})[version] = result["ratios"]["without"]
    versions = sorted({v for gain in gains.values() for v in gain}, key=lambda v: [*map(int, v.split("."))])
    primitives = {rule.name: primitive for primitive, of in reversed(catalog.TABLES.items()) for rule in of}
    rows = []
    for rule in catalog.rules_by_name():
        for derivative in (False, True):
            cases = [key for key in gains if key[0] == rule and key[1].endswith(("gradient", "tangent")) == derivative]
            for _, case in sorted(cases, key=lambda key: max(gains[key].values()))[:1]:
                found = gains[rule, case]
                rows.append((primitives[rule], f"`{rule}`", case, *(ratio(found.get(v)) for v in versions)))
    return table(("Primitive", "Rule", "Case", *(f"JAX {v}" for v in versions)), rows)


def first(*files: Sequence[Record]) -> str:
    """Return the table of the suite first; memory in multiples of the variables."""
    results = [*chain(*files)]
    bare = next((r["peak"] for r in results if r["command"] == "import"), 0)
    rows = [
        (
            r.get("model", ""),
            r["command"],
            f"{r['wall']:.1f}",
            f"{r['cpu']:.1f}",
            f"{(r['peak'] - bare) / r['bytes']:.2f}" if "bytes" in r else "",
        )
        for r in results
    ]
    return table(("model", "command", "wall, s", "CPU, s", "memory / variables"), rows)
