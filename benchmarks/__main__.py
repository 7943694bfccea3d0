"""The command: ``python -m benchmarks run|report|compare``."""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from . import records, report, timing

# The module and function of each suite: it takes the parsed options, and yields results.
SUITES = {
    "run": "run.run",
    "train": "run.train",
    "compile": "compilation.compile_models",
    "calls": "compilation.calls",
    "stages": "compilation.stages",
    "source": "exported.source",
    "scan_layers": "compilation.scan_layers",
    "convert": "conversion.convert",
    "tf1": "conversion.tf1",
    "artifact": "conversion.artifact",
    "memory": "conversion.memory",
    "first": "conversion.first",
    "cpu_rules": "kernels.cpu_rules",
    "products": "kernels.products",
    "pages": "kernels.pages",
    "ablation": "ablation.ablation",
    "xla_cpu": "ablation.xla_cpu",
    "operations": "operations.operations",
    "long": "long.long",
    "programs": "gpu.programs",
    "device": "gpu.device",
    "described": "gpu.described",
    "earlier": "earlier.earlier",
    "stablehlo": "stablehlo.stablehlo",
    "federated": "federated.rounds",
    "federated_algorithms": "federated.algorithms",
    "training": "training.training",
    "gallery": "gallery.gallery",
    "serving": "serving.load",
    "generation": "generation.generation",
    "weights": "exported.weights",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure")
    run.add_argument("--suite", default="run", help=f"comma separated: {', '.join(SUITES)}")
    run.add_argument("--models", help="comma separated; default all of a suite")
    run.add_argument("--only", help="comma separated: parts of a suite, or rules of ablation; default all")
    run.add_argument("--size", choices=("full", "small"), default="full")
    run.add_argument("--batch", default="1,8", help="comma separated batch sizes; training steps take the last")
    run.add_argument("--budget", type=float, default=20.0, help="seconds of turns for each model")
    run.add_argument("--rounds", type=int, help="of suites that repeat what they measure; default that of the suite")
    run.add_argument("--times", action="store_true", help="measure the time of a call in gallery, too")
    run.add_argument("--around", help="a command run as `CMD begin PID` before and `CMD end PID` after each timing")
    run.add_argument("--peer", help="a directory to import tf2jax from")
    run.add_argument("--no-xla", action="store_true", help="leave out TensorFlow with jit_compile=True")
    run.add_argument("--folder", type=Path, help="of programs, and where other suites keep files")
    run.add_argument("--earlier", type=Path, help="of programs of another state, for the suite of that name")
    run.add_argument("--platform", default="cuda", help="what programs are lowered for")
    run.add_argument("--json", type=Path, help="append the records to this file, one JSON object a line")
    pages = commands.add_parser("report", help="write pages")
    pages.add_argument("pages", nargs="*", help=f"{', '.join(report.PAGES)}; default those with stored records")
    pages.add_argument("--records", nargs="+", type=Path, help="files that `run --json` wrote; default the stored ones")
    ratio = commands.add_parser("compare", help="print ratios of two files")
    ratio.add_argument("before", type=Path)
    ratio.add_argument("after", type=Path)
    ratio.add_argument("--metric", default="times", help="a part of the names of metrics; default %(default)s")
    return parser


def run(options: argparse.Namespace) -> list[records.Record]:
    """Run suites, print each record as it comes, and return the results."""
    if options.around:
        os.environ[timing.AROUND] = options.around
    found = []
    for suite in options.suite.split(","):
        if suite not in SUITES:
            raise SystemExit(f"no suite {suite!r}; there are {', '.join(SUITES)}")
        module, _, function = SUITES[suite].partition(".")
        try:
            yields = getattr(importlib.import_module(f".{module}", __package__), function)
        except ModuleNotFoundError as error:
            raise SystemExit(f"suite {suite}: {error}") from error
        for result in yields(options):
            new = records.records_of(suite, result, records.circumstances())
            found += new
            print(*map(records.formatted, new), sep="\n", flush=True)
            if options.json:
                records.append(options.json, new)
    return records.results_of(found)


def compare(options: argparse.Namespace) -> None:
    """Print the ratios of the values of two files, the largest last, and their median."""
    before, after = (
        [r for r in records.read([path]) if options.metric in r["metric"]] for path in (options.before, options.after)
    )
    pairs = sorted(records.compared(before, after), key=lambda pair: pair[2])
    for old, new, ratio in pairs:
        print(f"{ratio:.3f} | {records.formatted(new)} | before {old['value']:.4g}")
    if pairs:
        print(f"{statistics.median(ratio for *_, ratio in pairs):.3f} | median of {len(pairs)}")


def main(arguments: Sequence[str] | None = None) -> list[records.Record] | None:
    """Run the command."""
    options = _parser().parse_args(arguments)
    if options.command == "run":
        return run(options)
    if options.command == "report":
        return report.write(options.pages, options.records)
    return compare(options)


if __name__ == "__main__":
    main()
