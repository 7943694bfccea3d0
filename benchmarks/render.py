"""Writes docs/performance.md from what `python -m benchmarks --json` wrote: `python -m benchmarks.render FILE...`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import (
    conversion,
    render_channels,
    render_elsewhere,
    render_gpu,
    render_long,
    render_operations,
    render_targets,
    tables,
)
from .tables import Record

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"

INTRODUCTION = """# Performance

Generated: `python -m benchmarks --suite
run,train,compile,convert,artefact,memory,spelling,channels,operations,long,products,stages --json out.jsonl`, then
`python -m benchmarks.render out.jsonl [--before older.jsonl] [--elsewhere other.jsonl]`. What this page was made of is
[performance.jsonl](performance.jsonl), for what changed [performance-before.jsonl](performance-before.jsonl), and for
[another processor](#on-another-processor) [performance-avx2.jsonl](performance-avx2.jsonl).

Measured on two shared cores ({machine}), JAX on CPU, float32. Everything that is compared ran in turns in one
session, medians are taken, and **ratios** are what counts: our time divided by the other's, so below 1 we are faster.
While calls and steps of models and products were timed nothing else ran, or other work was held (`--around`), but for
some seconds of type checking. Seconds of conversion and compiling say little by themselves, as the machine's speed
changes.{load}{versions}
"""

SPELLING = """## Convolutions and pooling on CPU

**What was slow.** XLA's CPU backend is good at a convolution whose outputs sum many channels over a small window, and
slow at others: convolutions of each channel by itself, gradients by the filter (a convolution with a window as large
as the image), large images without padding (all windows are written down first), what has gaps between its values
(most products are by zero), volumes, and the gradient of a maximum (`select_and_scatter`). JAX written by hand has
these times too.

**What changed.** `xla_cpu/rules.py` makes twins of primitives (`conv_general_dilated`, `reduce_window_max`,
`reduce_window_sum`, `select_and_gather_add`, `select_and_scatter_add`, and of reductions, below). A twin has its
primitive's name, parameters and derivatives, so jaxprs and exported source look as JAX's do; only its lowering on CPU
asks a rule, by shape. Gradients are written with twins again, so the rule sees them too. GPU, TPU and what is exported
for them keep the primitives.

The rules (`xla_cpu/conv/rule.py`, `xla_cpu/pooling.py`):

| operation | on CPU | where |
| --- | --- | --- |
| convolution of each channel | sum over the window of shifted slices times weights | windows of up to 128 places |
| its gradient by the input, strided | the same for each phase of the image, interleaved | as above |
| its gradient by the filter | one reduction with a result for each place | as above |
| both, of many channels | some channels at a time ([below](#channels-by-blocks)) | channels last |
| convolution 1x1, and both gradients | matrix products | always |
| gradient by the filter | a loop of matrix products | windows of up to 25 places (volumes 125), 8 and 16 channels up |
| gradient by the filter | windows of some rows side by side, for a product | many values; to 128 channels |
| gradient by the filter | operands exchanged | up to 15 channels out, twice as many in; gaps |
| images one place wide, wider kernels | without that dimension, with more outputs | to 4 places: 8 times as wide |
| windows side by side (patches), gradient by the filter | one matrix product | no padding |
| maximum and sum over windows | maximum or sum of shifted slices | windows of up to 64 places |
| gradient of a maximum | number of the winner, then a loop for each phase of the image | as above, float32 and wider |
| larger windows | one dimension after the other | maxima, sums and their gradients |
| convolution 3x3, stride 1 | tiles of 2x2 results (Winograd): 16 products for 36 | 128 channels and more (below) |
| the same by a rate | each phase of the image by itself, in the batch | as above, where little is padded |
| few channels that give few, stride 1 | neighbours in a row as channels | float32; 4 to 32 of all, 8 to 16, 16 to 8 |
| images with short rows | several, or strips of one, in one row | float32, 16 channels to 24, 5 unpadded (below) |
| odd numbers of channels | zeros up to the next four | images, float32; 3 channels to 17 to 32, 5 and more |
| few windows, many weights | gathered for one matrix product | 64 windows and 2^19 weights, 512 and 2^20; tiny images |
| fewer places than the window has | padded first, all but a line; gathered as above | float32 and half precision |
| images without any padding | one line of padding, its results dropped | windows 12 MiB, of 3 and 4 channels 1 MiB |
| gaps no shorter than the window | one matrix product, its results side by side | always |
| smaller gaps (gradients of strides) | each phase of the results by itself | fewer channels in than out; volumes |
| volumes | a convolution of images for each place of the window's depth | depths of up to 16 |
| small volumes of few channels | the places of the depth as channels, one convolution | 5 to 16 to 12 to 64 |
| large volumes | slabs of some planes, one after the other, each one convolution | 12 MiB (up to 16 outputs: 256 KiB) |
| volumes by windows of a plane or a column | one convolution of images | always |
| groups, and their gradients | one after the other, each by these rules | 2^20 products up; filters always |
| the same of single places | one product, the groups its batch | as above |
| groups of up to 8 channels | a sum over members, each channel by itself; some images at a time | filters: up to 4 |
| up to 4 groups of 32 channels and more | convolutions of their own | as above |
| everything else | JAX's primitive | |

XLA brings a convolution's dimensions into the order that its fast code is written for (images and channels last, a
kernel's outputs after its inputs), but not inside loops: there a gradient by the input, whose kernel has its channels
exchanged, takes ten times as long and more. Ours have that order everywhere, which is what lets training steps run in
`lax.scan` (*gradients in a loop* below).

Where a product sums over an operand's leading dimensions XLA lays that operand out anew if it stands on the left, and
fuses everything that it is made of into this: a sum of thirty arrays, or a resized image, is then computed column by
column. Gradients by the filter of 1x1 convolutions and of patches have the operand with fewer values on the left,
marked to be computed once (`dot_in_cheaper_order` in `xla_cpu/conv/params.py`; *convolution of a sum* below).

What is written with tiles, with 36 taps and more or gathered stays a call of its own (`xla_cpu/outline.py`): else XLA
fuses it into each of its users, and computes it, and compiles it, as often (ConvNeXt had its depthwise convolutions
twice).

So it does with sums that end in an operation of one operand, rectifiers above all: in a residual network each block
adds up all blocks before it anew. What a convolution or a product shares with others, and the cotangent that comes back
to it, is marked to be computed once (`xla_cpu/materialize.py`, `lowering/scheduling/materialize.py`).

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


def _spelling(records: Sequence[Record]) -> str:
    rows = [
        (
            r["form"],
            r["what"],
            f"{1e3 * r['times']['jax']['median']:.2f}",
            f"{1e3 * r['times']['tf2jax_lite']['median']:.2f}",
            tables.ratio(r["ratios"]["jax"]),
            tables.ratio(r["ratios"].get("tensorflow")),
            tables.ratio(r["compile"]["tf2jax_lite"] / r["compile"]["jax"]),
        )
        for r in records
    ]
    header = ("operation, NHWC", "", "JAX, ms", "ours, ms", "ratio", "to TensorFlow", "compile ratio")
    return SPELLING + "\n" + tables.table(header, rows)


def _products(records: Sequence[Record]) -> str:
    rows = [
        (
            r["form"],
            f"{r['gflops']['jax']:.0f}",
            f"{r['gflops']['tensorflow']:.0f}",
            tables.ratio(r["ratios"]["tensorflow"]),
        )
        for r in records
    ]
    text = (
        "## Products\n\nWhat bounds models made of matrix products: XLA's, which we and JAX written by hand share, "
        "beside TensorFlow's.\n\n"
    )
    return text + tables.table(("rows x summed x columns", "XLA, GFLOP/s", "TensorFlow, GFLOP/s", "time, ratio"), rows)


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
    return text + tables.table(header, rows)


def _pages(records: Sequence[Record]) -> str:
    rows = [
        (
            r["model"],
            r["batch"],
            *(f"{r['plain']['faults'][who]:.0f}" for who in ("tf2jax_lite", "tensorflow")),
            *(f"{1e3 * r[which]['times']['tf2jax_lite']['median']:.1f}" for which in ("plain", "larger")),
            *(tables.ratio(r[which]["ratios"]["tensorflow"]) for which in ("plain", "larger")),
        )
        for r in records
    ]
    header = ("model", "batch", "pages touched, ours", "TensorFlow", "ours, ms", "larger pages")
    return PAGES + tables.table((*header, "to tensorflow", "larger pages"), rows)


def _changed(records: Sequence[Record], before: Sequence[Record]) -> str:
    older = {(r["model"], r["batch"]): r for r in before if r["suite"] == "run"}
    rows = []
    for r in records:
        if (old := older.get((r["model"], r["batch"]))) is not None:
            ratios = (x["ratios"].get(o) for o in ("tensorflow", "native") for x in (old, r))
            rows.append((r["model"], r["batch"], *map(tables.ratio, ratios)))
    header = ("model", "batch", "to tensorflow, before", "now", "to native, before", "now")
    text = (
        "## What rows of several images changed in whole models\n\nRatios before images stood side by side and tiles "
        "were taken for fewer shapes; measured apart from each other.\n\n"
    )
    return text + tables.table(header, rows)


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
        ready = [tables.ready(r, o) for o in ("native", "peer")]
        rows.append(
            (
                r["model"],
                r["batch"],
                f"{1e3 * r['times']['tf2jax_lite']['median']:.1f}",
                *(tables.ratio(r["ratios"].get(o)) for o in others),
                *map(tables.ratio, ready),
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
    return f"## {title}\n\n" + tables.table(header, rows)


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
            text += "Microseconds a node, as graphs grow:\n\n" + tables.table(("nodes", *names), rows) + "\n"
    models = [r for r in records if "shares" in r]
    if models:
        header = ("model", "nodes", "tracing by TensorFlow", "ours", "ours, first", "peer", "ratio", "with tracing")
        text += "Conversion for inference, milliseconds:\n\n" + tables.table(header, conversion.rows(models)) + "\n"
        parts = list(models[0]["shares"])
        rows = [(r["model"], *(f"{100 * r['shares'][p]:.0f}" for p in parts)) for r in models]
        text += "Where our conversion's time goes, percent:\n\n" + tables.table(("model", *parts), rows) + "\n"
        given = tables.median(sum(r["shares"][p] for p in conversion.GIVEN) for r in models)
        common = tables.median(r["tracing"] / (r["tracing"] + r["times"]["tf2jax_lite"]["median"]) for r in models)
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
        + tables.table(header, rows)
    )


def _artefacts(records: Sequence[Record]) -> str:
    rows = [
        (r["model"], f"{r['times']['tf2jax_lite']['median']:.3f}", tables.ratio(r["ratios"]["tensorflow"]))
        for r in records
    ]
    return "## Loading an artefact\n\n" + tables.table(("model", "ours, s", "to tf.saved_model.load"), rows)


def _compile_times(records: Sequence[Record]) -> str:
    rows = []
    for r in records:
        whos = [who for who in ("ours", "native", "peer") if "cpu" in r.get(who, {})]
        rows.append(
            (
                r["model"],
                r["batch"],
                f"{1e3 * r['ours']['cpu']:.0f}",
                *(tables.ratio(tables.ready(r, who)) for who in ("native", "peer")),
                tables.ratio(r["ours"]["trace"] / r["native"]["trace"]),
                " / ".join(str(tables.different(r, who)) for who in whos),
                " / ".join(
                    f"{1e3 * r[who]['cpu'] / tables.different(r, who):.0f}" for who in whos if tables.different(r, who)
                ),
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
        "library.\n\n" + tables.table(header, rows)
    )


def _suites(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Returns records by suite, of several for the same thing the last one."""
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
    return suites


def page(records: Sequence[Record], before: Sequence[Record] = (), elsewhere: Sequence[Record] = ()) -> str:
    """Returns the page's text.

    Args:
      records: what ``python -m benchmarks --json`` wrote; of several for the same thing the last one counts.
      before: the same of an earlier state, for the table of what changed.
      elsewhere: the same of another processor.
    """
    suites = _suites(records)
    latest = [r for suite in suites.values() for r in suite]
    loads = [r["load"] for r in latest if "load" in r]
    load = f"\nThe load average was between {min(loads):.0f} and {max(loads):.0f}." if loads else ""
    # What another machine measured says so itself.
    machine = "; ".join(sorted({r["machine"] for r in latest if "machine" in r and r["suite"] != "long"}))
    introduction = INTRODUCTION.format(load=load, machine=machine, versions=_versions(latest))
    parts = [introduction, render_targets.section(suites)]
    if "run" in suites:
        parts.append(_models("One call", suites["run"]))
    if "train" in suites:
        parts.append(_models("One training step (SGD with momentum)", suites["train"]))
    parts.append(_spelling(suites.get("spelling", [])))
    parts.append(render_channels.section(suites.get("channels", [])))
    parts.append(render_operations.section(suites.get("operations", [])))
    parts.append(render_long.section(suites.get("long", [])))
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
    parts.append(render_elsewhere.section(_suites(elsewhere)))
    parts.append(render_gpu.section(suites.get("described", []), suites.get("device", [])))
    return "\n".join(filter(None, parts))


def _versions(records: Sequence[Record]) -> str:
    """Says with which versions records were measured, and when; elder ones do not tell."""
    known = [r for r in records if "versions" in r]
    if not known:
        return ""
    names = {"jax": "JAX", "tensorflow": "TensorFlow"}
    used = sorted({" and ".join(f"{names[n]} {v}" for n, v in r["versions"].items()) for r in known})
    days = sorted({r["day"] for r in known})
    share = f"{len(known)} of {len(records)} records" if len(known) < len(records) else "All"
    return f"\n{share} were measured with {'; '.join(used)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}."


def _read(paths: Sequence[str]) -> list[Record]:
    return [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page from files of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__)
    parser.add_argument("records", nargs="+", help="files that `python -m benchmarks --json` wrote")
    parser.add_argument("--before", nargs="*", default=[], help="files of an earlier state")
    parser.add_argument("--elsewhere", nargs="*", default=[], help="files of another processor")
    options = parser.parse_args(arguments)
    written = page(*(_read(files) for files in (options.records, options.before, options.elsewhere)))
    PAGE.write_text(written.rstrip() + "\n")


if __name__ == "__main__":
    main()
