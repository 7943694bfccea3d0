"""Writes docs/performance.md from what `python -m benchmarks --json` wrote: `python -m benchmarks.render FILE...`."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import conversion, render_gpu, render_long, render_operations

Record = dict[str, Any]
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"

INTRODUCTION = """# Performance

Generated: `python -m benchmarks --suite
run,train,compile,convert,artefact,memory,spelling,operations,long,products,stages --json out.jsonl`, then
`python -m benchmarks.render out.jsonl [--before older.jsonl]`. What this page was made of is
[performance.jsonl](performance.jsonl), and for what changed [performance-before.jsonl](performance-before.jsonl).

Measured on two shared cores ({machine}), JAX on CPU, float32. Everything that is compared ran in turns in one
session, medians are taken, and **ratios** are what counts: our time divided by the other's, so below 1 we are faster.
While calls and steps of models and products were timed nothing else ran, or other work was held (`--around`). Seconds
of conversion and compiling say little by themselves, as the machine's speed changes.{load}
"""

EXPLANATION = """
What is not met, and why. Medians by kind of model:

{groups}
Running: transformers are matrix products, and JAX written by hand and the peer make the same ones: the ratio to them is
about 1 there.
{products}What XLA's products reach is under [Products](#products), what
our programs compute a second in the last column under [One call](#one-call). A decoding step reads all weights for one
token, which bounds it rather than what it computes.
{slower}
Tracing and compiling: {compiling}Where we take longer there are more of them (the table
[Tracing and compiling](#tracing-and-compiling)): tiles are four to seven loops for each distinct shape (layers of one
shape share them), images side by side two; and the code of a convolution of each channel has a term for each place of
its window (ConvNeXt's have 49). Where there are as many, XLA has the same to do, which is most of the time
([Where compiling goes](#where-compiling-goes)).
{unspelled}{memory}{gpu}"""

SPELLING = """## Convolutions and pooling on CPU

**What was slow.** XLA's CPU backend is good at a convolution whose outputs sum many channels over a small window, and
slow at others: convolutions of each channel by itself, gradients by the filter (a convolution with a window as large
as the image), large images without padding (all windows are written down first), what has gaps between its values
(most products are by zero), volumes, and the gradient of a maximum (`select_and_scatter`). JAX written by hand has
these times too.

**What changed.** `ops/spelling.py` makes twins of primitives (`conv_general_dilated`, `reduce_window_max`,
`reduce_window_sum`, `select_and_gather_add`, `select_and_scatter_add`, and of reductions, below). A twin has its
primitive's name, parameters and derivatives, so jaxprs and exported source look as JAX's do; only its lowering on CPU
asks a rule, by shape. Gradients are written with twins again, so the rule sees them too. GPU, TPU and what is exported
for them keep the primitives.

The rules (`ops/spelling_conv.py`, `ops/spelling_window.py`):

| operation | on CPU | where |
| --- | --- | --- |
| convolution of each channel | sum over the window of shifted slices times weights | windows of up to 128 places |
| its gradient by the input, strided | the same for each phase of the image, interleaved | as above |
| its gradient by the filter | one reduction with a result for each place | as above |
| convolution 1x1, and both gradients | matrix products | always |
| gradient by the filter | a loop of matrix products | windows of up to 25 places (volumes 125), 8 and 16 channels up |
| gradient by the filter | windows of some rows side by side, for a product | large images: 3x3 of 8 to 128 channels |
| gradient by the filter | operands exchanged | up to 15 channels out, twice as many in |
| windows side by side (patches), gradient by the filter | one matrix product | no padding |
| maximum and sum over windows | maximum or sum of shifted slices | windows of up to 64 places |
| gradient of a maximum | number of the winner, then a loop for each phase of the image | as above, float32 and wider |
| larger windows | one dimension after the other | maxima, sums and their gradients |
| convolution 3x3, stride 1 | tiles of 2x2 results (Winograd): 16 products for 36 | 128 channels and more (below) |
| images with short rows | several, or strips of one, in one row | float32, 16 channels, 3 unpadded (below) |
| odd numbers of channels | zeros up to the next four | images, float32; 3 channels to 17 to 32, 5 and more |
| few windows, many weights | gathered for one matrix product | 64 windows and 2^19 weights, 512 and 2^20; tiny images |
| images without any padding | one line of padding, and its results dropped | all windows 12 MiB, 3 channels and more |
| gaps no shorter than the window | one matrix product, its results side by side | always |
| smaller gaps (gradients of strides) | each phase of the results by itself | fewer channels in than out; volumes |
| volumes | a convolution of images for each place of the window's depth | depths of up to 16 |
| large volumes | slabs of some planes, one after the other, each one convolution | 12 MiB; up to 16 outputs: 256 KiB |
| groups, and their gradients | windows side by side, a product for each group | 2^20 products up; filters always |
| up to 4 groups of 32 channels and more | convolutions of their own | as above |
| everything else | JAX's primitive | |

XLA brings a convolution's dimensions into the order that its fast code is written for (images and channels last, a
kernel's outputs after its inputs), but not inside loops: there a gradient by the input, whose kernel has its channels
exchanged, takes ten times as long and more. Ours have that order everywhere, which is what lets training steps run in
`lax.scan` (*gradients in a loop* below).

What is written with tiles, with 36 taps and more or gathered stays a call of its own (`ops/kept.py`): else XLA fuses it
into each of its users, and computes it, and compiles it, as often (ConvNeXt had its depthwise convolutions twice).

So it does with sums that end in an operation of one operand, rectifiers above all: in a residual network each block
adds up all blocks before it anew. What a convolution or a product shares with others, and the cotangent that comes back
to it, is marked to be computed once (`ops/once.py`, `lowering/sharing.py`).

XLA (of JAX 0.10) shares a convolution among threads by columns of the result, in blocks of about 2^18 / (channels x
outputs): one thread computes all of a convolution whose rows are no longer than that, however many rows and images it
has. So images whose rows are shorter than three blocks (five without padding; eight where images and results take no
more than 16 MiB; 1.5 for two or three images) stand side by side, with the zeros between them that would pad them
anyway, until a row has 64 blocks. An image alone is cut into four strips if it has 100 million products and rows of
less than 1.75 blocks, or 300 million and less than 4.

Tiles pay where each transformed value takes part in 80 multiplications (channels x outputs / their sum), the direct
convolution has 190 million, and no more than a fifth is computed beyond the edges. They are about as exact as the
primitive for values of like size (a test holds them against double precision). A value that is not finite, or far
larger than its neighbours, reaches its whole tile; `jax.default_matmul_precision("highest")` keeps the direct
convolution.
"""


PAGES = """## Memory that calls take anew

XLA's client on CPU takes memory for a program's temporaries at each call and frees it after it. What is large the C
library gives back, and the system clears each page when the next call touches it; TensorFlow keeps a pool. JAX written
by hand has the same. On Linux, where `/sys/kernel/mm/transparent_hugepage/enabled` says `madvise`, starting Python with
`GLIBC_TUNABLES=glibc.malloc.hugetlb=1` in the environment (glibc 2.35 and later) takes pages of 2 MiB, for TensorFlow,
too. Two processes for each row; in each ours and TensorFlow's calls took turns.

"""


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _spelling(records: Sequence[Record]) -> str:
    rows = [
        (
            r["form"],
            r["what"],
            f"{1e3 * r['times']['jax']['median']:.2f}",
            f"{1e3 * r['times']['tf2jax_lite']['median']:.2f}",
            _ratio(r["ratios"]["jax"]),
            _ratio(r["ratios"].get("tensorflow")),
            _ratio(r["compile"]["tf2jax_lite"] / r["compile"]["jax"]),
        )
        for r in records
    ]
    header = ("operation, NHWC", "", "JAX, ms", "ours, ms", "ratio", "to TensorFlow", "compile ratio")
    return SPELLING + "\n" + _table(header, rows)


def _products(records: Sequence[Record]) -> str:
    rows = [
        (r["form"], f"{r['gflops']['jax']:.0f}", f"{r['gflops']['tensorflow']:.0f}", _ratio(r["ratios"]["tensorflow"]))
        for r in records
    ]
    text = (
        "## Products\n\nWhat bounds models made of matrix products: XLA's, which we and JAX written by hand share, "
        "beside TensorFlow's.\n\n"
    )
    return text + _table(("rows x summed x columns", "XLA, GFLOP/s", "TensorFlow, GFLOP/s", "time, ratio"), rows)


def _stages(records: Sequence[Record]) -> str:
    parts = list(records[0]["seconds"])
    rows = [
        (
            r["model"],
            r["batch"],
            r["kernels"],
            r["different"],
            *(f"{1e3 * r['seconds'][p]:.0f}" for p in parts),
            *(f"{1e3 * r['cpu'][which]:.0f}" if "cpu" in r else "" for which in ("spelled", "plain")),
        )
        for r in records
    ]
    text = (
        "## Where compiling goes\n\nXLA's own account for our programs, milliseconds; of kernels the sum over threads. "
        "Compiling takes what\nthe number of different kernels, and their length, make it take. The last two columns: "
        "processor time of\nlowering and compiling, and the same with JAX's own convolutions and poolings.\n\n"
    )
    header = ("model", "batch", "kernels", "different", *parts, "lower and compile", "unspelled")
    return text + _table(header, rows)


def _pages(records: Sequence[Record]) -> str:
    rows = [
        (
            r["model"],
            r["batch"],
            *(f"{r['plain']['faults'][who]:.0f}" for who in ("tf2jax_lite", "tensorflow")),
            *(f"{1e3 * r[which]['times']['tf2jax_lite']['median']:.1f}" for which in ("plain", "larger")),
            *(_ratio(r[which]["ratios"]["tensorflow"]) for which in ("plain", "larger")),
        )
        for r in records
    ]
    header = ("model", "batch", "pages touched, ours", "TensorFlow", "ours, ms", "larger pages")
    return PAGES + _table((*header, "to tensorflow", "larger pages"), rows)


def _changed(records: Sequence[Record], before: Sequence[Record]) -> str:
    older = {(r["model"], r["batch"]): r for r in before if r["suite"] == "run"}
    rows = []
    for r in records:
        if (old := older.get((r["model"], r["batch"]))) is not None:
            ratios = (x["ratios"].get(o) for o in ("tensorflow", "native") for x in (old, r))
            rows.append((r["model"], r["batch"], *map(_ratio, ratios)))
    header = ("model", "batch", "to tensorflow, before", "now", "to native, before", "now")
    text = (
        "## What rows of several images changed in whole models\n\nRatios before images stood side by side and tiles "
        "were taken for fewer shapes; measured apart from each other.\n\n"
    )
    return text + _table(header, rows)


def _ready(record: Record, other: str) -> float | None:
    """Returns our time for tracing and compiling to another's: processor time, or the clock in older records."""
    ours, theirs = record["ours"], record.get(other, {})
    if "compile" not in theirs:
        return None
    if "cpu" in ours and "cpu" in theirs:
        return ours["cpu"] / theirs["cpu"]
    return (ours["trace"] + ours["compile"]) / (theirs["trace"] + theirs["compile"])


def _rate(record: Record) -> str:
    """Returns what our program computes a second; nothing of loops, whose operations XLA counts once."""
    flops = record["ours"].get("flops")
    if not flops or "recurrent" in record["groups"]:
        return ""
    return f"{flops / record['times']['tf2jax_lite']['median'] / 1e9:.0f}"


def _models(title: str, records: Sequence[Record]) -> str:
    others = sorted({name for r in records for name in r["ratios"]})
    rows = []
    for r in records:
        ready = [_ready(r, o) for o in ("native", "peer")]
        rows.append(
            (
                r["model"],
                r["batch"],
                f"{1e3 * r['times']['tf2jax_lite']['median']:.1f}",
                *(_ratio(r["ratios"].get(o)) for o in others),
                *map(_ratio, ready),
                f"{r['ours']['equations']} / {r['native']['equations']}",
                f"{r['ours'].get('kernels', '')} / {r['native'].get('kernels', '')}",
                _rate(r),
            )
        )
    header = (
        "model",
        "batch",
        "ours, ms",
        *(f"to {o}" for o in others),
        "trace and compile, to native",
        "to peer",
        "equations, ours / native",
        "kernels",
        "GFLOP/s",
    )
    return f"## {title}\n\n" + _table(header, rows)


def _convert(records: Sequence[Record]) -> str:
    text = "## Before the first result\n\n"
    for record in records:
        if "start" in record:
            start = record["start"]
            text += (
                f"`import tf2jax_lite` takes {start['import']:.2f} s beyond `import jax`; `tf2jax-lite --help` "
                f"{start['help']:.2f} s, of which Python's own start is {start['python']:.2f} s.\n\n"
            )
        if "growth" in record:
            rows = [
                (g["nodes"], *(f"{1e6 * g[w][k] / g['nodes']:.0f}" for w in ("ours", "peer") if w in g for k in g[w]))
                for g in record["growth"]
            ]
            names = [f"{w}, {k}" for w in ("ours", "peer") if w in record["growth"][0] for k in ("convert", "trace")]
            text += "Microseconds a node, as graphs grow:\n\n" + _table(("nodes", *names), rows) + "\n"
    models = [r for r in records if "shares" in r]
    if models:
        header = ("model", "nodes", "tracing by TensorFlow", "ours", "ours, first", "peer", "ratio", "with tracing")
        text += "Conversion for inference, milliseconds:\n\n" + _table(header, conversion.rows(models)) + "\n"
        parts = list(models[0]["shares"])
        rows = [(r["model"], *(f"{100 * r['shares'][p]:.0f}" for p in parts)) for r in models]
        text += "Where our conversion's time goes, percent:\n\n" + _table(("model", *parts), rows) + "\n"
        given = _median(sum(r["shares"][p] for p in conversion.GIVEN) for r in models)
        common = _median(r["tracing"] / (r["tracing"] + r["times"]["tf2jax_lite"]["median"]) for r in models)
        text += (
            f"Of ours {100 * given:.0f} % (median) goes to TensorFlow: it writes out its graph, and hands over each\n"
            "variable by an op of its own. Both converters wait for that. Before either begins, TensorFlow traces the\n"
            f"model: {100 * common:.0f} % (median) of tracing and conversion together.\n\n"
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
        "Above the imports of both frameworks, in multiples of the weights. TensorFlow's weights are in all of it;\n"
        "conversion shares them. What XLA's compiler takes\n"
        f"({min(compiling):.0f} to {max(compiling):.0f} MiB) is most of what small models need.\n"
        "A jitted call that returns the params copies them, as XLA's results share no memory with arguments.\n\n"
        + _table(header, rows)
    )


def _artefacts(records: Sequence[Record]) -> str:
    rows = [
        (r["model"], f"{r['times']['tf2jax_lite']['median']:.3f}", _ratio(r["ratios"]["tensorflow"])) for r in records
    ]
    return "## Loading an artefact\n\n" + _table(("model", "ours, s", "to tf.saved_model.load"), rows)


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
        verdict + (f" by {len(found)} of {models}" if few else ""),
    )


def _targets(suites: dict[str, list[Record]]) -> str:
    run, train = suites.get("run", []), suites.get("train", [])

    def against(records: Sequence[Record], other: str, group: str | None = None) -> list[float]:
        chosen = [r for r in records if group is None or group in r["groups"]]
        return [r["ratios"][other] for r in chosen if other in r["ratios"]]

    def ready(other: str) -> list[float]:
        found = (_ready(r, other) for r in run)
        return [ratio for ratio in found if ratio is not None]

    converting = [r["ratios"]["tf2jax"] for r in suites.get("convert", []) if "tf2jax" in r.get("ratios", {})]
    memory = suites.get("memory", [])
    on_gpu = [r["ratios"]["native"] for r in suites.get("device", []) if r["program"].startswith("run-")]
    starts = [r["start"] for r in suites.get("convert", []) if "start" in r]
    rows = [
        _goal("run, to tf.function, median", 1.0, against(run, "tensorflow"), _median),
        _goal("run, to tf.function, worst", 1.25, against(run, "tensorflow"), max),
        _goal("run, to native, median", 0.8, against(run, "native"), _median),
        _goal("run, to native, worst", 1.05, against(run, "native"), max),
        _goal("run, mobile convolution networks, to native, worst", 0.4, against(run, "native", "mobile"), max, 3),
        _goal("train step, to native, median", 0.7, against(train, "native"), _median, 12),
        _goal("run, to the peer, median", 0.6, against(run, "tf2jax"), _median),
        _goal("run on GPU, to native, median", 1.0, on_gpu, _median),
        _goal("trace and compile, to native, median", 1.0, ready("native"), _median),
        _goal("trace and compile, to the peer, median", 0.7, ready("peer"), _median),
        _goal("conversion, to the peer, median", 0.33, converting, _median),
        _goal("peak memory, multiple of the weights, worst", 2.2, [r["results_only"] for r in memory], max),
        _goal("the same when params are returned", 2.2, [r["times_weights"] for r in memory], max),
        _goal("import beyond jax, s", 1.0, [s["import"] for s in starts], _median, 1),
        _goal("tf2jax-lite --help, s", 0.5, [s["help"] for s in starts], _median, 1),
    ]
    return (
        "## Targets\n\n"
        + _table(("target", "at most", "measured (of so many)", ""), rows)
        + EXPLANATION.format(
            groups=_groups(run),
            products=_bound(run),
            compiling=_compiling(suites.get("compile", [])),
            unspelled=_unspelled(run, suites.get("stages", [])),
            slower=_slower(suites.get("spelling", [])),
            memory=_added(memory),
            gpu=_unseen(suites),
        )
    )


def _unseen(suites: dict[str, list[Record]]) -> str:
    """Says what stands in for times on a GPU that was not there."""
    if "device" in suites or "described" not in suites:
        return ""
    return (
        "\nGPU: there was none to time anything on. Compiled for one, our programs are compared with JAX written by\n"
        "hand by what they launch ([On a GPU](#on-a-gpu)).\n"
    )


def _unspelled(run: Sequence[Record], stages: Sequence[Record]) -> str:
    """Says what tracing and compiling would be without spelled convolutions and poolings."""
    saved = {(r["model"], r["batch"]): r["cpu"]["spelled"] - r["cpu"]["plain"] for r in stages if "cpu" in r}
    chosen = [r for r in run if "cpu" in r["ours"] and "cpu" in r["native"] and (r["model"], r["batch"]) in saved]
    if not chosen:
        return ""
    now = _median(r["ours"]["cpu"] / r["native"]["cpu"] for r in chosen)
    less = _median((r["ours"]["cpu"] - saved[r["model"], r["batch"]]) / r["native"]["cpu"] for r in chosen)
    price = "what is above 1" if less <= 1 else "part of it"
    return (
        f"With JAX's own convolutions and poolings it would be {less:.2f} of native instead of {now:.2f} (medians\n"
        f"of the {len(chosen)} in that table): {price} is what makes calls fast.\n"
    )


def _groups(run: Sequence[Record]) -> str:
    """Tabulates medians of ratios by kind of model."""
    rows = []
    for kind, group in (
        ("convolution networks", "convolution"),
        ("transformers", "attention"),
        ("recurrent", "recurrent"),
    ):
        chosen = [r for r in run if group in r["groups"]]
        ratios = [[r["ratios"][o] for r in chosen if o in r["ratios"]] for o in ("tensorflow", "native", "tf2jax")]
        ready = [[x for r in chosen if (x := _ready(r, o)) is not None] for o in ("native", "peer")]
        if chosen:
            rows.append((kind, len(chosen), *(_ratio(_median(x)) if x else "" for x in (*ratios, *ready))))
    header = ("", "of", "run, to tensorflow", "to native", "to tf2jax", "trace and compile, to native", "to peer")
    return _table(header, rows)


def _added(memory: Sequence[Record]) -> str:
    """Says what of the memory is there before conversion, and what XLA's compiler takes."""
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
    """Says how much of a model's time its products and convolutions take alone."""
    text = ""
    for kind, group in (
        ("Transformers' products", "attention"),
        ("Convolution networks' convolutions and products", "convolution"),
    ):
        chosen = [r for r in run if group in r["groups"] and "products" in r["ratios"]]
        if chosen:
            shares = [1 / r["ratios"]["products"] for r in chosen]
            middle, least, most = (f"{100 * of(shares):.0f}" for of in (_median, min, max))
            text += (
                f"{kind} alone, one by one without anything between\nthem, take {middle} % (median, {least} to {most}) "
            )
            text += "of our whole call (the column *to products*).\n"
    return text and text + "More than 100 % is possible: each call by itself takes memory for its results anew.\n"


def _slower(spelling: Sequence[Record]) -> str:
    """Says which single operations are slower than TensorFlow's."""
    found = sorted((r["ratios"].get("tensorflow", 0), r["form"]) for r in spelling)[-3:]
    named = ",\n".join(f"{form} ({ratio:.1f})" for ratio, form in reversed(found) if ratio > 1)
    if not named:
        return ""
    return f"TensorFlow's convolutions are oneDNN's; XLA has none as fast for some shapes. Farthest behind:\n{named}.\n"


def _different(record: Record, who: str) -> int:
    return record.get(who, {}).get("different", 0)


def _compiling(records: Sequence[Record]) -> str:
    """Says what one kernel takes to compile, of records of the suite compile."""
    chosen = [r for r in records if _different(r, "ours") and _different(r, "native")]
    if not chosen:
        return ""
    ours, native = (
        f"{_median([1e3 * r[who]['cpu'] / _different(r, who) for r in chosen]):.0f}" for who in ("ours", "native")
    )
    same = [r for r in chosen if _different(r, "ours") <= 1.1 * _different(r, "native")]
    more = [r for r in chosen if r not in same]
    text = (
        f"{ours} ms of processor time for each different piece of code that XLA compiles, JAX written by hand\n"
        f"takes {native} (medians). "
    )
    for what, group in (("no more than a tenth more", same), ("more", more)):
        if group:
            ratio = _ratio(_median([_ready(r, "native") or 0.0 for r in group]))
            text += f"The {len(group)} with {what} pieces than native take {ratio} of its time.\n"
    tracing = _ratio(_median([r["ours"]["trace"] / r["native"]["trace"] for r in chosen]))
    return f"{text}Tracing alone, which is ours to shorten, takes {tracing} of native's.\n"


def _compile_times(records: Sequence[Record]) -> str:
    rows = []
    for r in records:
        whos = [who for who in ("ours", "native", "peer") if "cpu" in r.get(who, {})]
        rows.append(
            (
                r["model"],
                r["batch"],
                f"{1e3 * r['ours']['cpu']:.0f}",
                *(_ratio(_ready(r, who)) for who in ("native", "peer")),
                _ratio(r["ours"]["trace"] / r["native"]["trace"]),
                " / ".join(str(_different(r, who)) for who in whos),
                " / ".join(f"{1e3 * r[who]['cpu'] / _different(r, who):.0f}" for who in whos if _different(r, who)),
            )
        )
    header = (
        "model",
        "batch",
        "ours, ms",
        "to native",
        "to peer",
        "tracing alone, to native",
        "different pieces of code, ours / native / peer",
        "ms for each",
    )
    return (
        "## Tracing and compiling\n\nProcessor time of tracing, lowering and compiling again what was forgotten, "
        "contestants in turns. Pieces of code are XLA's\nfusions, alike ones counted once, without calls of its "
        "library.\n\n" + _table(header, rows)
    )


def page(records: Sequence[Record], before: Sequence[Record] = ()) -> str:
    """Returns the page's text.

    Args:
      records: what ``python -m benchmarks --json`` wrote; of several for the same thing the last one counts.
      before: the same of an earlier state, for the table of what changed.
    """
    latest: dict[tuple[Any, ...], Record] = {}
    for r in records:
        named = tuple(r.get(k) for k in ("suite", "model", "size", "batch", "form", "name", "what", "program"))
        latest[(*named, *(k for k in ("start", "growth") if k in r))] = r
    suites: dict[str, list[Record]] = {}
    for r in latest.values():
        suites.setdefault(r["suite"], []).append(r)
    # The suite compile measures again what the suite run saw once, beside whatever else ran then.
    compiled = {(r["model"], r["batch"]): r for r in suites.get("compile", [])}
    for r in suites.get("run", []):
        anew = compiled.get((r["model"], r["batch"]), {})
        r.update({who: {**r.get(who, {}), **anew[who]} for who in ("ours", "native", "peer") if who in anew})
    loads = [r["load"] for r in latest.values() if "load" in r]
    load = f"\nThe load average was between {min(loads):.0f} and {max(loads):.0f}." if loads else ""
    # What another machine measured says so itself.
    machine = "; ".join(sorted({r["machine"] for r in latest.values() if "machine" in r and r["suite"] != "long"}))
    parts = [INTRODUCTION.format(load=load, machine=machine), _targets(suites)]
    if "run" in suites:
        parts.append(_models("One call", suites["run"]))
    if "train" in suites:
        parts.append(_models("One training step (SGD with momentum)", suites["train"]))
    parts.append(_spelling(suites.get("spelling", [])))
    parts.append(render_operations.section(suites.get("operations", []), _table))
    parts.append(render_long.section(suites.get("long", []), _table))
    if before and "run" in suites:
        parts.append(_changed(suites["run"], before))
    for name, render in (
        ("products", _products),
        ("compile", _compile_times),
        ("stages", _stages),
        ("pages", _pages),
        ("convert", _convert),
        ("artefact", _artefacts),
        ("memory", _memory),
    ):
        if name in suites:
            parts.append(render(suites[name]))
    parts.append(render_gpu.section(suites.get("described", []), suites.get("device", []), _table))
    return "\n".join(filter(None, parts))


def _read(paths: Sequence[str]) -> list[Record]:
    return [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page from files of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__)
    parser.add_argument("records", nargs="+", help="files that `python -m benchmarks --json` wrote")
    parser.add_argument("--before", nargs="*", default=[], help="files of an earlier state")
    options = parser.parse_args(arguments)
    PAGE.write_text(page(_read(options.records), _read(options.before)).rstrip() + "\n")


if __name__ == "__main__":
    main()
