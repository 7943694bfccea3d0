"""Run benchmark suites: ``python -m benchmarks --suite run --json out.json``."""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from . import models, timing

SUITES = (
    "run",
    "train",
    "compile",
    "convert",
    "artifact",
    "memory",
    "cpu_rules",
    "products",
    "stages",
    "pages",
    "programs",
)
# Suites of other modules here: each has ``main(options) -> list of records``, options being the parsed arguments.
OTHERS = {
    "channels": "channels",
    "xla_cpu": "xla_cpu",
    "ablation": "ablation",
    "calls": "expected_calls",
    "operations": "operations",
    "long": "long",
    "federated": "federated",
    "first": "first_result",
    "stablehlo": "stablehlo",
    "tf1": "convert_tf1_scaling",
}


def _machine() -> str:
    """Return the kind of processor, and its widest vectors if the system reports them."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        flags = []
    vectors = next((name for flag, name in (("avx512f", ", AVX-512"), ("avx2", ", AVX2")) if flag in flags), "")
    return platform.machine() + vectors


def _circumstances() -> dict[str, Any]:
    """Return the date, machine and versions of a record's measurement."""
    versions = {}
    for name in ("jax", "tensorflow"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"machine": _machine(), "day": day, "versions": versions, "load": os.getloadavg()[0]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", default="run", help=f"comma separated: {', '.join((*SUITES, *OTHERS))}")
    parser.add_argument("--models", default=",".join(models.MODELS), help="comma separated; default all")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--batch", default="1,8", help="comma separated batch sizes; train takes the last")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of turns for each model")
    parser.add_argument("--around", help="a command run as `CMD begin PID` before and `CMD end PID` after each timing")
    parser.add_argument("--peer", help="a directory to import tf2jax from")
    parser.add_argument("--no-xla", action="store_true", help="leave out TensorFlow with jit_compile=True")
    parser.add_argument("--folder", help="where the suite programs writes", type=Path, default=Path("programs"))
    parser.add_argument("--platform", help="what the suite programs lowers for", default="cuda")
    parser.add_argument("--json", help="append the records to this file, one JSON object a line")
    return parser


def _records(suite: str, options: argparse.Namespace) -> Any:
    names = options.models.split(",")
    batches = [int(b) for b in options.batch.split(",")]
    common: dict[str, Any] = {"size": options.size}
    if suite in ("run", "train"):
        from . import run

        for name in names:
            if suite == "train":
                if models.MODELS[name].trains:
                    yield run.train_model(name, batch=batches[-1], budget=options.budget, **common)
                continue
            for batch in batches:
                xla = not options.no_xla
                yield run.run_model(name, batch=batch, peer=options.peer, xla=xla, budget=options.budget, **common)
    elif suite == "compile":
        from . import compiling

        for name in names:
            for batch in batches:
                yield compiling.compile_model(name, batch=batch, peer=options.peer, **common)
    elif suite == "convert":
        from . import conversion, convert

        yield {"start": convert.start_times()}
        small = options.size == "small"
        yield {"growth": convert.growth((500, 1000) if small else (1000, 4000, 16000, 64000), peer=options.peer)}
        for name in names:
            yield conversion.conversion(name, peer=options.peer, budget=options.budget, **common)
    elif suite in ("artifact", "memory"):
        from . import convert

        for name in names:
            if name != "gpt2_decode":
                yield getattr(convert, suite)(name, **common)
    elif suite == "stages":
        from . import stages

        for name in names:
            for batch in batches:
                yield stages.stages(name, batch=batch, **common)
    elif suite == "pages":
        from . import pages

        for name in names:
            for batch in batches:
                yield pages.pages(name, batch=batch, budget=options.budget, **common)
    elif suite == "programs":
        from . import programs

        modes = [(batch, False) for batch in batches] + [(batches[-1], True)]
        for name in names:
            for batch, train in modes:
                if train <= models.MODELS[name].trains:
                    yield programs.programs(
                        name,
                        options.folder.absolute(),
                        batch=batch,
                        train=train,
                        platform=options.platform,
                        peer=options.peer,
                        **common,
                    )
    elif suite == "cpu_rules":
        from . import cpu_rules

        yield from cpu_rules.records(options.size)
    elif suite == "products":
        from . import products

        yield from products.records(options.size)
    elif suite in OTHERS:
        try:
            module = importlib.import_module(f".{OTHERS[suite]}", __package__)
        except ModuleNotFoundError as error:
            sys.exit(f"suite {suite}: {error}")
        yield from module.main(options)
    else:
        sys.exit(f"no suite {suite!r}; there are {', '.join((*SUITES, *OTHERS))}")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run suites, print each record as it comes, and return them."""
    options = _parser().parse_args(arguments)
    unknown = [n for n in options.models.split(",") if n not in models.MODELS]
    if unknown:
        sys.exit(f"no model {unknown[0]!r}; there are {', '.join(models.MODELS)}")
    if options.around:
        os.environ[timing.AROUND] = options.around
    found = []
    for suite in options.suite.split(","):
        for record in _records(suite, options):
            record = {"suite": suite, **_circumstances(), **record}
            found.append(record)
            print(json.dumps(record), flush=True)
            if options.json:
                with open(options.json, "a") as file:
                    file.write(json.dumps(record) + "\n")
    return found


if __name__ == "__main__":
    main()
