"""The performance page's first section: targets, values, and reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..records import Record
from .tables import different, groups, median, prepared, ratio, ready, table, template

_Suites = Mapping[str, list[Record]]


class _Target(NamedTuple):
    """A target.

    Attributes:
      beside: returns the values of the earlier state from this one's, by the suite earlier.
    """

    what: str
    at_most: float
    found: Callable[[_Suites], list[float]]
    summary: Callable[[Iterable[float]], float]
    models: int = 13
    beside: Callable[[_Suites], list[float]] | None = None

    def row(self, suites: _Suites, before: _Suites) -> tuple[str, ...]:
        """Return the table's row: target, limit, before, now, verdict."""
        now, then = self.found(suites), self.found(before)
        if self.beside is not None:
            then = self.beside(suites)
        texts = [f"{self.summary(values):.2f} ({len(values)})" if values else "" for values in (then, now)]
        if not now:
            return self.what, f"{self.at_most:.2f}", texts[0], "not measured", ""
        # Compared as printed: a third digit is within the noise.
        verdict = "met" if round(self.summary(now), 2) <= self.at_most else "not met"
        few = len(now) < self.models and self.models > 1
        missing = f"; {self.models - len(now)} of {self.models} models not measured" if few else ""
        return self.what, f"{self.at_most:.2f}", *texts, verdict + missing


def _against(suite: str, other: str, *kinds: str, earlier: bool = False) -> Callable[[_Suites], list[float]]:
    """Return a function that returns ratios of times, of some kinds of models."""

    def found(suites: _Suites) -> list[float]:
        chosen = [r for r in suites.get(suite, []) if not kinds or not set(kinds).isdisjoint(groups(r))]
        known = [(_program(suite, r), r["ratios"][other]) for r in chosen if other in r.get("ratios", {})]
        if not earlier:
            return [value for _, value in known]
        changes = _changes(suites)
        return [value / changes[program] for program, value in known if program in changes]

    return found


def _program(suite: str, result: Record) -> str:
    """Return the name of a result's program."""
    return f"{suite}-{result['model']}-{result.get('batch')}"


def _changes(suites: _Suites) -> dict[str, float]:
    """Return each program's time over the earlier state's; 1 of equal programs."""
    return {r["program"]: r.get("ratios", {}).get("before", 1.0) for r in suites.get("earlier", [])}


def _timed(
    suite: str,
    other: str,
    what: str,
    at_most: float,
    summary: Callable[[Iterable[float]], float],
    *kinds: str,
    models: int = 13,
) -> _Target:
    """Return a target of ratios of times; for the arguments see `_against`."""
    found, beside = (_against(suite, other, *kinds, earlier=earlier) for earlier in (False, True))
    return _Target(what, at_most, found, summary, models, beside)


def _prepared(other: str, *kinds: str) -> Callable[[_Suites], list[float]]:
    def found(suites: _Suites) -> list[float]:
        return [v for v, r in prepared(suites, other) if not kinds or not set(kinds).isdisjoint(groups(r))]

    return found


def _gpu_calls(suites: _Suites) -> list[float]:
    return [r["ratios"]["native"] for r in suites.get("device", []) if r["program"].startswith("run-")]


def _starts(what: str) -> Callable[[_Suites], list[float]]:
    return lambda suites: [r[what] for r in suites.get("convert", []) if r.get("what") == "start"]


def _memory(what: str, least: int = 0) -> Callable[[_Suites], list[float]]:
    """Return a function that returns multiples of weights of at least some bytes."""
    return lambda suites: [r[what] for r in suites.get("memory", []) if r["weights"] >= least]


def _command(model: str, command: str) -> Callable[[_Suites], list[float]]:
    """Return a function that returns the wall time of a command in seconds."""

    def found(suites: _Suites) -> list[float]:
        return [r["wall"] for r in suites.get("first", []) if (r.get("model"), r["command"]) == (model, command)]

    return found


def _streamed(suites: _Suites) -> list[float]:
    """Return the peaks of convert above the imports, over the variables."""
    bare = [r["peak"] for r in suites.get("first", []) if r["command"] == "import"]
    commands = [r for r in suites.get("first", []) if r.get("model") == "dense" and r["command"] == "convert"]
    return [(r["peak"] - bare[-1]) / r["bytes"] for r in commands if bare]


def _printed(suites: _Suites) -> list[float]:
    return [r["cpu"] for r in suites.get("source", []) if r["model"] == "bert_base"]


def _operation(what: str, name: str) -> Callable[[_Suites], list[float]]:
    def found(suites: _Suites) -> list[float]:
        chosen = [r for r in suites.get("operations", []) if (r.get("what"), r.get("name")) == (what, name)]
        return [r["ratios"]["tensorflow"] for r in chosen if "tensorflow" in r.get("ratios", {})]

    return found


_LARGE = 50 << 20
TARGETS = (
    _Target("trace and compile, to native, median", 1.0, _prepared("native"), median),
    _Target("the same of convolution networks, median", 1.1, _prepared("native", "convolution"), median, 7),
    _Target("the same, worst", 2.0, _prepared("native"), max),
    _Target("trace and compile, to tf2jax, median", 0.7, _prepared("peer"), median),
    _timed("run", "tensorflow", "run, to tf.function, median", 0.95, median),
    _timed("run", "tensorflow", "run, to tf.function, worst", 1.05, max),
    _timed("run", "native", "run, to native, median", 0.72, median),
    _timed("run", "native", "run, to native, worst", 1.0, max),
    _timed("run", "native", "run, mobile convolution networks, to native, worst", 0.4, max, "mobile", models=3),
    _timed("run", "tf2jax", "run, to tf2jax, median", 0.6, median),
    _Target("run on GPU, to native, median", 1.0, _gpu_calls, median),
    _timed("train", "native", "train step, to native, median", 0.55, median, models=12),
    _timed("train", "native", "train step, to native, worst", 0.7, max, models=12),
    _Target("conversion, to tf2jax, median", 0.25, _against("convert", "tf2jax"), median),
    _Target(
        "`run` of the ResNet50 artifact, second start, s", 1.5, _command("resnet50", "run with a warm cache"), max, 1
    ),
    _Target("`inspect` of BERT-base, s", 1.5, _command("bert_base", "inspect"), max, 1),
    _Target("`convert resnet50.keras`, s", 8.0, _command("resnet50", "convert keras"), max, 1),
    _Target("`convert`: peak memory above imports, over 400 MiB of variables", 0.3, _streamed, max, 1),
    _Target("source of BERT-base, s", 1.0, _printed, max, 1),
    _Target(
        "conversion and first call: peak memory over weights of 50 MiB and more, worst",
        2.0,
        _memory("results_only", _LARGE),
        max,
        7,
    ),
    _Target("the same of all models when params are returned", 2.2, _memory("times_weights"), max, 12),
    _Target(
        "gradient of conv3d, 24x24x24, 16 to 32 channels, to tf.function", 1.1, _operation("gradient", "conv3d"), max, 1
    ),
    _Target(
        "gradient of conv3d, 48x48x48, 16 to 16 channels, to tf.function",
        1.1,
        _operation("gradient", "conv3d, 48"),
        max,
        1,
    ),
    _Target("gradient of crop_and_resize, to tf.function", 1.1, _operation("gradient", "crop_and_resize"), max, 1),
    _Target("shuffle of 60,000 elements, to tf.function", 1.1, _operation("call", "shuffle, 60000"), max, 1),
    _Target("import beyond jax, s", 1.0, _starts("import"), median, 1),
    _Target("tf2jax-lite --help, s", 0.5, _starts("help"), median, 1),
)
"""The targets, by suite."""


def targets(suites: _Suites, before: _Suites | None = None) -> str:
    """Return the table of targets and measured values."""
    header = ("target", "at most", "before", "measured (models)", "")
    return table(header, [target.row(suites, before or {}) for target in TARGETS])


def _beside(suites: _Suites, before: _Suites) -> str:
    """Tabulate time and memory over those of the earlier state."""
    changes = _changes(suites)
    same = {r["program"] for r in suites.get("earlier", []) if r["same"]}
    compared = {
        f"{what}, time": {p: change for p, change in changes.items() if p.startswith(mode)}
        for what, mode in (("calls", "run-"), ("training steps", "train-"))
    }
    for suite, what, value in (
        ("run", "calls, trace and compile, CPU time", lambda r: r.get("ours", {}).get("cpu")),
        ("memory", "conversion and first call, results only, memory", lambda r: r["results_only"]),
        ("memory", "conversion and first call, params returned, memory", lambda r: r["times_weights"]),
    ):
        then, now = ({_program(suite, r): value(r) for r in of.get(suite, [])} for of in (before, suites))
        compared[what] = {p: v / then[p] for p, v in now.items() if v and then.get(p)}
    rows = []
    for what, found in compared.items():
        equal = [value for p, value in found.items() if p in same]
        spread = f"{min(equal):.2f} to {max(equal):.2f}" if equal else ""
        if found:
            numbers = (f"{of(found.values()):.3f}" for of in (median, min, max))
            rows.append((what, len(found), *numbers, len(equal) or "", spread))
    header = ("now over before", "of", "median", "least", "greatest", "same programs", "of these")
    return "\n" + table(header, rows) if rows else ""


def _started(*states: _Suites) -> str:
    """Return a sentence on the speed of the machine that ran the commands."""
    walls = [r["wall"] for suites in reversed(states) for r in suites.get("first", []) if r["command"] == "import"]
    if len(walls) < len(states):
        return ""
    then, now = walls
    text = "Beside the shell's commands, `import tensorflow, jax` took"
    return f"{text} {then:.1f} s for the earlier state, and {now:.1f} s for this one.\n"


def section(suites: _Suites, before: _Suites | None = None) -> str:
    """Return the section: the targets, and reasons for those that are not met."""
    run = suites.get("run", [])
    explanation = template(
        "targets",
        beside=_beside(suites, before or {}),
        started=_started(suites, before or {}),
        groups=_groups(suites),
        products=_bound(run),
        compiling=_compiling(suites.get("compile", [])),
        without_rules=_without_rules(run, suites.get("stages", [])),
        slower=_slower(suites.get("cpu_rules", [])),
        memory=_added(suites.get("memory", [])),
        gpu=_unseen(suites),
    )
    return "## Targets\n\n" + targets(suites, before) + explanation


def _unseen(suites: _Suites) -> str:
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


def _groups(suites: _Suites) -> str:
    """Tabulate medians of ratios by kind of model."""
    rows, run = [], suites.get("run", [])
    for kind, group in (
        ("convolution networks", "convolution"),
        ("transformers", "attention"),
        ("recurrent", "recurrent"),
    ):
        chosen = [r for r in run if group in groups(r)]
        calls = [[r["ratios"][o] for r in chosen if o in r["ratios"]] for o in ("tensorflow", "native", "tf2jax")]
        compiled = [[x for x, r in prepared(suites, o) if group in groups(r)] for o in ("native", "peer")]
        if chosen:
            rows.append((kind, len(chosen), *(ratio(median(x)) if x else "" for x in (*calls, *compiled))))
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
