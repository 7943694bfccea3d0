"""Write docs/developer/performance.md: `python -m benchmarks.render FILE...`.

The files are records of `python -m benchmarks --json`; by default those in benchmarks/results.
"""

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

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "developer" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"

INTRODUCTION = """# Measurements of performance

[Performance](../guides/performance.md) is the page for users; this one has every measurement. It is written by `python
-m benchmarks.render` from [performance.jsonl](../../benchmarks/results/performance.jsonl), and for [another
processor](#on-another-processor) from [performance-avx2.jsonl](../../benchmarks/results/performance-avx2.jsonl). The
suites `run`, `train`, `compile`, `convert`, `artifact`, `memory`, `cpu_rules`, `channels`, `operations`, `long`,
`products` and `stages` of `python -m benchmarks --json FILE` append such records.

Measured on two shared cores ({machine}), JAX on CPU, float32. Compared programs ran interleaved in one session. The
tables show medians of **ratios**: the time of tf2jax_lite ("ours") divided by the other's, so below 1 tf2jax_lite is
faster. While calls and training steps were timed, other work was paused (`--around`), except for some seconds of type
checking. Absolute times of conversion and compilation vary with the machine's speed.{load}{versions}
"""

CONVOLUTIONS = """## Convolutions and pooling on CPU

**Problem.** XLA:CPU is fast for convolutions that sum many channels over a small window. It is slow for depthwise
convolutions, filter gradients (the window is as large as the image), large images without padding (all windows are
materialized first), input dilation (most products are by zero), 3-D convolutions, and the gradient of max pooling
(`select_and_scatter`). Native JAX has the same times.

**Solution.** `conv_general_dilated`, `reduce_window_max`, `reduce_window_sum`, `select_and_gather_add`,
`select_and_scatter_add` and reductions are primitives with a CPU lowering rule (`xla_cpu/rules.py`). They have the
name, parameters and derivatives of JAX's primitives, so jaxprs and exported source are the same; only the CPU lowering
depends on shapes. Gradients use the same primitives, so the rules apply to them, too. GPU and TPU keep the primitives.

The rules (`xla_cpu/conv/rule.py`, `xla_cpu/pooling.py`):

| operation | lowered as, on CPU | condition |
| --- | --- | --- |
| depthwise convolution | sum over taps of shifted slices times weights | up to 128 taps |
| its input gradient, strided | the same for each phase of the image, interleaved | as above |
| its filter gradient | one reduction per tap | as above |
| both, many channels | by channel blocks ([below](#channel-blocking)) | channels last |
| 1x1 convolution, and both gradients | matrix products | always |
| filter gradient | a loop of matrix products | up to 25 taps (3-D: 125), 8 and 16 channels up |
| filter gradient | im2col of some rows, one product | many values; up to 128 channels |
| filter gradient | operand-swapped convolution | up to 15 outputs, twice as many inputs; input dilation |
| width-1 images, wider kernels | convolution without that dimension, more outputs | up to 4 taps: 8 times as wide |
| non-overlapping windows (patches), filter gradient | one matrix product | no padding |
| max and sum pooling | maximum or sum of shifted slices | up to 64 taps |
| gradient of max pooling | argmax, then a loop for each phase of the image | as above, float32 and wider |
| larger windows | one dimension after the other | maxima, sums and their gradients |
| 3x3 convolution, stride 1 | Winograd F(2x2, 3x3): 16 products for 36 | 128 channels and more (below) |
| the same with kernel dilation | each phase of the image in the batch | as above, if little is padded |
| few channels and outputs, stride 1 | width folding | float32; 4 to 32 of all, 8 to 16, 16 to 8 |
| images with short rows | several images, or strips, in one row | float32, 16 channels to 24, 5 unpadded (below) |
| odd numbers of channels | padded to a multiple of 4 | images, float32; 3 channels to 17 to 32, 5 and more |
| few windows, many weights | gather, one matrix product | 64 windows and 2^19 weights, 512 and 2^20; tiny images |
| images smaller than the window | padded to one line less, then the rule above | float32 and half precision |
| images without padding | one line of padding, whose results are dropped | windows 12 MiB, of 3 and 4 channels 1 MiB |
| input dilation, no shorter than the window | one matrix product | always |
| smaller input dilation (gradients of strides) | each phase of the results | fewer inputs than outputs; 3-D |
| 3-D convolution | one 2-D convolution per depth tap | depths of up to 16 |
| small 3-D convolution, few channels | depth taps as channels, one convolution | 5 to 16 to 12 to 64 |
| large 3-D convolution | depth blocks, each one convolution | 12 MiB (up to 16 outputs: 256 KiB) |
| 3-D with (1,k,k) or (k,1,1) kernels | one 2-D convolution | always |
| grouped convolution, and gradients | one convolution per group, by these rules | 2^20 products up; filters always |
| the same with 1x1 kernels | one batched product | as above |
| groups of up to 8 channels | a sum over channels of a group, depthwise; some images at a time | filters: up to 4 |
| up to 4 groups of 32 channels and more | separate convolutions | as above |
| otherwise | JAX's primitive | |

XLA transposes a convolution to its fast layout (images channels-last, a kernel's outputs after its inputs), but not
inside loops: there an input gradient, whose kernel has transposed channels, takes 10 times as long or more. The rules
emit that layout everywhere, so training steps can run in `lax.scan` (*gradients in a loop* below).

If a product sums over leading dimensions of an operand on the left, XLA transposes that operand and fuses its whole
computation into the transposition: a sum of 30 arrays, or a resized image, is then computed column by column. Filter
gradients of 1x1 convolutions and of patches have the smaller operand on the left, materialized (*convolution of a sum*
below).

Winograd convolutions, 36 taps and more, and gathers are outlined (`xla_cpu/outline.py`). Otherwise XLA fuses, computes
and compiles them once per user (ConvNeXt had its depthwise convolutions twice).

XLA also duplicates sums that end in a unary operation, such as ReLU: in a residual network each block recomputes the
sum of all blocks before it. Operands that a convolution or a product shares with other ops, and its incoming cotangent,
are materialized (`xla_cpu/materialize.py`, `lowering/planning/materialize.py`).

XLA (of JAX 0.10) parallelizes a convolution over columns of the result, in blocks of about 2^18 / (channels x outputs).
A convolution with rows no longer than a block runs on one thread, however many rows and images it has. So images with
rows shorter than 3 blocks (5 without padding; 8 if images and results take at most 16 MiB; 1.5 for two or three images)
are concatenated along their rows, with padding between them, until a row has 64 blocks. A single image is split into 4
strips if it has 100 million products and rows of less than 1.75 blocks, or 300 million and less than 4.

Winograd pays if each transformed value takes part in 80 multiplications (channels x outputs / their sum), the direct
convolution has 190 million, and at most 20 % is computed beyond the edges. Its accuracy is about that of the primitive
for values of similar size (a test compares it with float64). A value that is not finite, or far larger than its
neighbors, affects its whole tile; `jax.default_matmul_precision("highest")` keeps the direct convolution.
"""


PAGES = """## Memory allocation per call

XLA's CPU client allocates memory for a program's temporaries at each call and frees it after it. The C library returns
large blocks to the system, which clears each page when the next call touches it; TensorFlow keeps a pool. Native JAX
behaves the same. On Linux, where `/sys/kernel/mm/transparent_hugepage/enabled` says `madvise`, start Python with
`GLIBC_TUNABLES=glibc.malloc.hugetlb=1` in the environment (glibc 2.35 and later) to use pages of 2 MiB, for TensorFlow,
too. Each row is from two processes; in each, calls of both libraries are interleaved.

"""


def _rule_cells(record: Record | None) -> tuple[str, str, str]:
    """Return our time in ms, and the ratios of run and compile time to JAX's."""
    if record is None:
        return "", "", ""
    return (
        f"{1e3 * record['times']['tf2jax_lite']['median']:.2f}",
        tables.ratio(record["ratios"]["jax"]),
        tables.ratio(record["compile"]["tf2jax_lite"] / record["compile"]["jax"]),
    )


def _convolutions(records: Sequence[Record]) -> str:
    forms: dict[str, dict[str, Record]] = {}
    for r in records:
        forms.setdefault(r["form"], {})[r["what"]] = r
    rows = []
    for form, found in forms.items():
        to_tensorflow = tables.ratio(found.get("forward", {}).get("ratios", {}).get("tensorflow"))
        forward, gradient = (_rule_cells(found.pop(what, None)) for what in ("forward", "gradient"))
        rows.append((form, *forward, to_tensorflow, *gradient))
        rows += [(f"{form}, {what}", *[""] * 4, *_rule_cells(r)) for what, r in found.items()]
    cells = ("ms", "to JAX", "compile, to JAX")
    header = ("operation, NHWC", *cells, "to TensorFlow", *(f"gradient, {cell}" for cell in cells))
    return CONVOLUTIONS + "\n" + tables.table(header, rows)


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
        "## Products\n\nMatrix products bound many models: those of XLA, which native JAX and converted models share, "
        "compared with TensorFlow's.\n\n"
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
        "## Compile time by phase\n\nXLA's own profile of our programs, in milliseconds; kernels are summed over "
        "threads. Compile time depends on\nthe number and the length of different kernels. The last two columns are "
        "the CPU time of lowering and compiling,\nand the same without CPU lowering rules.\n\n"
    )
    header = ("model", "batch", "kernels", "different", *parts, "lower and compile", "without rules")
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


def _rate(record: Record) -> str:
    """Return our program's GFLOP/s; "" for loops, which XLA counts once."""
    flops = record["ours"].get("flops")
    if not flops or "recurrent" in record["groups"]:
        return ""
    return f"{flops / record['times']['tf2jax_lite']['median'] / 1e9:.0f}"


def _models(title: str, records: Sequence[Record], *, compiling: bool = True) -> str:
    others = sorted({name for r in records for name in r["ratios"]})
    rows = []
    for r in records:
        ready = [tables.ready(r, o) for o in ("native", "peer") if compiling]
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
        *(("trace and compile, to native", "to tf2jax") if compiling else ()),
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
            text += "Microseconds per node, by graph size:\n\n" + tables.table(("nodes", *names), rows) + "\n"
    models = [r for r in records if "shares" in r]
    if models:
        header = ("model", "nodes", "tracing by TensorFlow", "ours", "ours, first", "peer", "ratio", "with tracing")
        text += "Conversion for inference, milliseconds:\n\n" + tables.table(header, conversion.rows(models)) + "\n"
        parts = list(models[0]["shares"])
        rows = [(r["model"], *(f"{100 * r['shares'][p]:.0f}" for p in parts)) for r in models]
        text += "Conversion time by part, percent:\n\n" + tables.table(("model", *parts), rows) + "\n"
        given = tables.median(sum(r["shares"][p] for p in conversion.GIVEN) for r in models)
        common = tables.median(r["tracing"] / (r["tracing"] + r["times"]["tf2jax_lite"]["median"]) for r in models)
        text += (
            f"Of our time, {100 * given:.0f} % (median) is spent in TensorFlow: it exports its graph, and reads each\n"
            "variable by an op. Both converters wait for that. Before either begins, TensorFlow traces the model:\n"
            f"{100 * common:.0f} % (median) of tracing and conversion together.\n\n"
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
        + tables.table(header, rows)
    )


def _artifacts(records: Sequence[Record]) -> str:
    rows = [
        (r["model"], f"{r['times']['tf2jax_lite']['median']:.3f}", tables.ratio(r["ratios"]["tensorflow"]))
        for r in records
    ]
    return "## Loading an artifact\n\n" + tables.table(("model", "ours, s", "to tf.saved_model.load"), rows)


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
        "to tf2jax",
        "tracing alone, to native",
        "different kernels, ours / native / tf2jax",
        "ms per kernel",
    )
    return (
        "## Tracing and compiling\n\nCPU time of tracing, lowering and compiling with cleared caches, interleaved. "
        "Kernels are XLA's\nfusions, equal ones counted once, without library calls.\n\n" + tables.table(header, rows)
    )


# Older records have these names of suites.
_RENAMED = {"artefact": "artifact", "spelling": "cpu_rules"}


def suites_of(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return records by suite; of several records for one measurement, the last one."""
    latest: dict[tuple[Any, ...], Record] = {}
    for r in records:
        named = tuple(r.get(k) for k in ("suite", "model", "size", "batch", "form", "name", "what", "program"))
        latest[(*named, *(k for k in ("start", "growth") if k in r))] = r
    suites: dict[str, list[Record]] = {}
    for r in latest.values():
        suites.setdefault(_RENAMED.get(r["suite"], r["suite"]), []).append(r)
    # The suite compile repeats the compile times of the suite run without other work.
    compiled = {(r["model"], r["batch"]): r for r in suites.get("compile", [])}
    for r in suites.get("run", []):
        again = compiled.get((r["model"], r["batch"]), {})
        r.update({who: {**r.get(who, {}), **again[who]} for who in ("ours", "native", "peer") if who in again})
    return suites


def page(records: Sequence[Record], elsewhere: Sequence[Record] = ()) -> str:
    """Return the page's text.

    Args:
      records: of ``python -m benchmarks --json``; of several for one measurement, the last one counts.
      elsewhere: records of another processor.
    """
    suites = suites_of(records)
    latest = [r for suite in suites.values() for r in suite]
    loads = [r["load"] for r in latest if "load" in r]
    load = f"\nThe load average was between {min(loads):.0f} and {max(loads):.0f}." if loads else ""
    # The suite long may be from another machine, which its section names.
    machine = "; ".join(sorted({r["machine"] for r in latest if "machine" in r and r["suite"] != "long"}))
    introduction = INTRODUCTION.format(load=load, machine=machine, versions=_versions(latest))
    parts = [introduction, render_targets.section(suites)]
    if "run" in suites:
        parts.append(_models("One call", suites["run"], compiling=False))
    if "train" in suites:
        parts.append(_models("One training step (SGD with momentum)", suites["train"]))
    parts.append(_convolutions(suites.get("cpu_rules", [])))
    parts.append(render_channels.section(suites.get("channels", [])))
    parts.append(render_operations.section(suites.get("operations", [])))
    parts.append(render_long.section(suites.get("long", [])))
    for name, render in (
        ("products", _products),
        ("compile", _compile_times),
        ("stages", _stages),
        ("pages", _pages),
        ("convert", _convert),
        ("artifact", _artifacts),
        ("memory", _memory),
    ):
        if name in suites:
            parts.append(render(suites[name]))
    parts.append(render_elsewhere.section(suites_of(elsewhere)))
    parts.append(render_gpu.section(suites.get("described", []), suites.get("device", [])))
    return "\n".join(filter(None, parts))


def _versions(records: Sequence[Record]) -> str:
    """Return a sentence with the versions and days of records, if they have them."""
    known = [r for r in records if "versions" in r]
    if not known:
        return ""
    names = {"jax": "JAX", "tensorflow": "TensorFlow"}
    used = sorted({" and ".join(f"{names[n]} {v}" for n, v in r["versions"].items()) for r in known})
    days = sorted({r["day"] for r in known})
    share = f"{len(known)} of {len(records)} records" if len(known) < len(records) else "All"
    return f"\n{share} were measured with {'; '.join(used)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}."


def read(paths: Sequence[str | Path]) -> list[Record]:
    """Return the records of files."""
    return [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page from files of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__)
    parser.add_argument(
        "records", nargs="*", default=[RESULTS / "performance.jsonl"], help="files that `python -m benchmarks` wrote"
    )
    parser.add_argument(
        "--elsewhere", nargs="*", default=[RESULTS / "performance-avx2.jsonl"], help="files of another processor"
    )
    options = parser.parse_args(arguments)
    written = page(read(options.records), read(options.elsewhere))
    PAGE.write_text(written.rstrip() + "\n")


if __name__ == "__main__":
    main()
