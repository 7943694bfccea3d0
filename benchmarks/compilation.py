"""Compilation: the suites compile, calls, stages and scan_layers.

compile: time to trace and compile, native JAX's and tf2jax's. calls: time to compile and to call with all CPU lowering
rules, with none, and with ``xla_cpu_rules="auto:N"`` for several N. stages: XLA's time by stage.
scan_layers: an encoder exported with and without ``--scan-layers``.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import tf2jax_lite as tf2jax
from tf2jax_lite.jaxprs.compat import bind
from tf2jax_lite.xla_cpu import rules

from . import exported, models
from .native import Native
from .records import Result
from .timing import compile_once, in_turns, kernels, quiet, waited, warm

CALLS = (0, 10, 100, 1000)
SETTINGS: dict[str, dict[str, Any]] = {
    "all": {"xla_cpu_rules": True},
    "none": {"xla_cpu_rules": False},
    **{f"auto {n}": {"xla_cpu_rules": f"auto:{n}"} for n in CALLS},
}


def _again(fn: Any, args: Any) -> tuple[Any, dict[str, Any]]:
    jax.clear_caches()  # else JAX and XLA reuse compiled programs
    return compile_once(jax.jit(lambda *a: fn(*a)), args)


def _repeated(
    contestants: dict[str, Callable[[], dict[str, Any]]], rounds: int, budget: float = 60.0
) -> dict[str, list[dict[str, Any]]]:
    """Compile in turns; return the costs."""
    # The first round pays for what Python, JAX and XLA do once in a process. After ``budget`` seconds no round starts;
    # two are always made.
    warm()
    found: dict[str, list[dict[str, Any]]] = {who: [] for who in contestants}
    with quiet():
        start = time.perf_counter()
        for count in range(1 + rounds):
            if count > 1 and time.perf_counter() - start > budget:
                break
            for who, run in contestants.items():
                found[who].append(run())
    return found


def compile_models(options: Any) -> Iterator[Result]:
    """Trace and compile each model several times, contestants in turns.

    Yields:
      Medians of seconds by contestant (``ours``, ``native``, ``peer``), equations, kernels, and ``first``: the
      processor time of the round that does not count.
    """
    for case in models.cases(options):
        model, graph, arrays = models.traceable(*case.values())
        values: dict[str, Any] = {}
        contestants: dict[str, Callable[[], dict[str, Any]]] = {}
        peer = models.peer_module(options.peer)
        for who, convert in {"ours": tf2jax.convert, "peer": peer and peer.convert}.items():
            if convert is None:
                continue
            try:
                fn, args = models.converted(graph, arrays, convert)
                contestants[who] = lambda fn=fn, args=args: _again(fn, args)[1]
            except Exception as error:
                if who == "ours":
                    raise
                values["peer"] = {"failed": models.failure(error)}
        native = Native(case["model"], case["size"], case["batch"], model.weights)
        contestants["native"] = native.compile_again
        for who, (first, *later) in _repeated(contestants, options.rounds or 3).items():
            medians = {what: statistics.median(cost[what] for cost in later) for what in first}
            values[who] = {**medians, "first": native.cost["cpu"] if who == "native" else first["cpu"]}
        native.close()
        models.clear()
        yield case, values


def _kept(runs: dict[str, Callable[[], float]], who: str, fn: Any, args: Any) -> dict[str, Any]:
    """Compile, keep a run, and return the cost."""
    compiled, cost = _again(fn, args)
    runs[who] = waited(compiled, *args)
    return cost


def calls(options: Any) -> Iterator[Result]:
    """Compile and run convolution networks with each of `SETTINGS`, in turns.

    Yields:
      By setting and for ``native``: ``compile``, seconds of processor time (medians), ``kernels``, and ``times`` of
      calls.
    """
    for case in models.cases(options):
        if "convolution" not in models.MODELS[case["model"]].groups:
            continue
        model, graph, arrays = models.traceable(*case.values())
        native = Native(case["model"], case["size"], case["batch"], model.weights)
        compiles: dict[str, Callable[[], dict[str, Any]]] = {"native": native.compile_again}
        runs: dict[str, Callable[[], float]] = {"native": native}
        for who, setting in SETTINGS.items():
            with contextlib.ExitStack() as stack:
                for option, value in setting.items():
                    stack.enter_context(tf2jax.override_config(option, value))
                fn, args = models.converted(graph, arrays)

            compiles[who] = functools.partial(_kept, runs, who, fn, args)
        costs = _repeated(compiles, options.rounds or 3)
        values = {
            "compile": {who: statistics.median(cost["cpu"] for cost in found[1:]) for who, found in costs.items()},
            "kernels": {who: found[0]["different"] for who, found in costs.items()},
            "times": in_turns(runs, budget=options.budget),
        }
        native.close()
        models.clear()
        yield case, values


# --- Stages

# XLA's names of its parts. Kernels are made and compiled by several threads: theirs are sums.
PARTS = {
    "passes over operations": "HLO passes ",
    "writing kernels": "FusionCompiler::Compile",
    "compiling kernels": "TaskDispatcher::dispatch",
}
_WITH_RULES = (
    lax.conv_general_dilated_p,
    lax.reduce_window_max_p,
    lax.reduce_window_sum_p,
    lax.select_and_gather_add_p,
    lax.select_and_scatter_add_p,
)


def _events(folder: str) -> list[dict[str, Any]]:
    (path,) = Path(folder).rglob("*.trace.json.gz")
    with gzip.open(path) as file:
        return [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]


def plain(closed: Any) -> Callable[..., list[Any]]:
    """Return a jaxpr's function with JAX's primitives in place of CPU variants.

    Those in calls stay.
    """
    own = {rules.variant_of(primitive): primitive for primitive in _WITH_RULES}

    def run(*args: Any) -> list[Any]:
        env = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, *args], strict=True))
        for eqn in closed.jaxpr.eqns:
            inputs = [atom.val if hasattr(atom, "val") else env[atom] for atom in eqn.invars]
            results = bind(eqn, *inputs, primitive=own.get(eqn.primitive))
            env.update(zip(eqn.outvars, results, strict=True))
        return [atom.val if hasattr(atom, "val") else env[atom] for atom in closed.jaxpr.outvars]

    return run


def _compiling(traced: Any) -> float:
    """Return the processor time of lowering and compiling."""
    jax.clear_caches()
    begun = time.process_time()
    traced.lower().compile()
    return time.process_time() - begun


def stages(options: Any) -> Iterator[Result]:
    """Compile converted models under JAX's profiler.

    Yields:
      Seconds by part of XLA (summed over its threads), the number of kernels, equal ones counted once, and
      ``cpu``, CPU time of lowering and compiling with (``with_rules``) and without CPU rules (``without_rules``).
    """
    for case in models.cases(options):
        _, graph, arrays = models.traceable(*case.values())
        fn, args = models.converted(graph, arrays)
        traced = jax.jit(fn).trace(*args)
        without = jax.jit(plain(traced.jaxpr)).trace(*jax.tree.leaves(args))
        _compiling(traced)  # pays for warming up
        cpu = {which: _compiling(program) for which, program in (("without_rules", without), ("with_rules", traced))}
        jax.clear_caches()  # else XLA is not asked again
        lowered = traced.lower()
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                compiled = lowered.compile()
            events = _events(folder)
        found = {what: [e["dur"] / 1e6 for e in events if e["name"].startswith(part)] for what, part in PARTS.items()}
        models.clear()
        parts = {what: sum(times) for what, times in found.items()}
        counts = {"kernels": kernels(compiled), "different": len(found["writing kernels"])}
        yield (
            case,
            {"seconds": parts, **counts, "cpu": cpu},
        )


# --- Exported source


def _source_file(folder: Path) -> tuple[Any, Any]:
    """Import model.py, without this package."""
    spec = importlib.util.spec_from_file_location(folder.name, folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.serving_default, module.load_params(folder / "params.safetensors")


LOADERS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "source": _source_file,
    "load-source": lambda folder: tf2jax.load(folder, backend="source"),
    "stablehlo": lambda folder: tf2jax.load(folder, backend="stablehlo"),
}
"""Ways to load an artifact: its function, and params."""


def _loss(fn: Any, *, gradients: bool) -> Callable[..., Any]:
    def loss(params: Any, x: Any) -> Any:
        return jnp.sum(jnp.sin(fn(params, x)[0]))

    return jax.value_and_grad(loss) if gradients else loss


def _compiled_loss(fn: Any, params: Any, x: Any, *, gradients: bool) -> tuple[float, Any]:
    """Return the processor time of tracing and compiling a loss, and the function."""
    jax.clear_caches()
    begin = time.process_time()
    compiled = jax.jit(_loss(fn, gradients=gradients)).lower(params, x).compile()
    return time.process_time() - begin, compiled


def scan_layers(options: Any) -> Iterator[Result]:
    """Compile an encoder, exported and converted with and without scans, in turns.

    Yields:
      For each of `LOADERS`, and for the converted function (``converted``, with ``config.scan_layers``):
      ``compile/loop`` and ``compile/scan``, median processor time of tracing and compiling a loss with its gradients
      with respect to params; ``compile/loop value`` the same for the value alone; ``times`` of the gradients.
    """
    with tempfile.TemporaryDirectory() as work:
        folder = options.folder or Path(work)
        fn, params, x = exported.converted("encoder")
        for form in ("loop", "scan"):
            if not (folder / form).exists():
                functions = {"serving_default": (fn, params)}
                tf2jax.export_functions(functions, folder / form, platforms=["cpu"], scan_layers=form == "scan")
        for name in options.only.split(",") if options.only else ("converted", *LOADERS):
            if name == "converted":
                with tf2jax.override_config("scan_layers", True):
                    loaded = {"scan": exported.converted("encoder")[:2], "loop": (fn, params)}
            else:
                loaded = {form: LOADERS[name](folder / form) for form in ("scan", "loop")}
            compiling: dict[str, list[float]] = {}
            runs = {}
            for _ in range(options.rounds or 3):
                for gradients in (True, False):
                    for form, (own, held) in loaded.items():
                        placed = jax.tree.map(jnp.asarray, held)
                        cost, compiled = _compiled_loss(own, placed, x, gradients=gradients)
                        compiling.setdefault(form if gradients else f"{form} value", []).append(cost)
                        if gradients:
                            runs[form] = waited(compiled, placed, x)
            medians = {form: statistics.median(found) for form, found in compiling.items()}
            yield {"loaded by": name}, {"compile": medians, "times": in_turns(runs, rounds=200, budget=options.budget)}
