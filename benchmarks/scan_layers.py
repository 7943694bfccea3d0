"""Compilation of the 12-layer encoder with and without ``--scan-layers``.

Columns: how params and function are loaded; median processor time in seconds of tracing and compiling the loss with its
gradients with respect to params, with a loop (default) and with a scan, and the ratio; the ratio for the value alone;
the ratio of the medians of the gradients' run time. Both forms take turns in one process. Run with
``python -m benchmarks.scan_layers [--rounds N] [--only source|load-source|stablehlo]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .source_lines import MODELS

__all__ = ["compile_seconds", "export"]

_RUNS = 200


def export(folder: Path) -> np.ndarray:
    """Write the encoder's artifacts ``loop`` and ``scan``; return an input."""
    import keras
    import tensorflow as tf

    import tf2jax_lite as tf2jax

    model, x = MODELS["encoder"](keras)
    function = tf.function(lambda inputs: model(inputs, training=False))
    converted = tf2jax.convert(function, tf.TensorSpec([None, *x.shape[1:]], x.dtype))
    for name in ("loop", "scan"):
        tf2jax.export_functions({"model": converted}, folder / name, platforms=["cpu"], scan_layers=name == "scan")
    return x


def _source(folder: Path) -> tuple[Any, Any]:
    """Import model.py, without this package."""
    spec = importlib.util.spec_from_file_location(folder.name, folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.model, module.load_params(folder / "params.safetensors")


def _load(backend: str) -> Callable[[Path], tuple[Any, Any]]:
    def load(folder: Path) -> tuple[Any, Any]:
        import tf2jax_lite as tf2jax

        return tf2jax.load(folder, backend=backend)

    return load


LOADERS = {"source": _source, "load-source": _load("source"), "stablehlo": _load("stablehlo")}
"""Ways to load an artifact: its function, and params."""


def _loss(fn: Any, *, gradients: bool) -> Callable[..., Any]:
    def loss(params: Any, x: Any) -> Any:
        return jnp.sum(jnp.sin(fn(params, x)[0]))

    return jax.value_and_grad(loss) if gradients else loss


def compile_seconds(fn: Any, params: Any, x: Any, *, gradients: bool) -> tuple[float, Any]:
    """Return the processor time of tracing and compiling a loss, and the function."""
    jax.clear_caches()
    begin = time.process_time()
    compiled = jax.jit(_loss(fn, gradients=gradients)).lower(params, x).compile()
    return time.process_time() - begin, compiled


def _run_seconds(compiled: list[Any], params: list[Any], x: Any) -> list[float]:
    """Return the median run time of each function; they take turns."""
    found: list[list[float]] = [[] for _ in compiled]
    for _ in range(_RUNS):
        for seconds, call, given in zip(found, compiled, params, strict=True):
            begin = time.perf_counter()
            jax.block_until_ready(call(given, x))
            seconds.append(time.perf_counter() - begin)
    return [float(np.median(seconds)) for seconds in found]


def main() -> None:
    """Print a row per way to load the artifacts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scan_layers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(LOADERS))
    parser.add_argument("--artifacts", type=Path, help="where the artifacts are kept, and taken from")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = options.artifacts or Path(work)
        x = np.zeros((1, 16), np.int32) if (folder / "scan").is_dir() else export(folder)
        print(f"{'loaded by':12} {'loop':>7} {'scan':>7} {'ratio':>6} {'value':>6} {'run':>6}")
        for name in [options.only] if options.only else LOADERS:
            loaded = [LOADERS[name](folder / form) for form in ("loop", "scan")]
            given = [jax.tree.map(jnp.asarray, params) for _, params in loaded]
            medians, compiled = [], []
            for gradients in (True, False):
                rounds: list[list[float]] = []
                for _ in range(options.rounds):
                    found = [
                        compile_seconds(fn, params, x, gradients=gradients)
                        for (fn, _), params in zip(loaded, given, strict=True)
                    ]
                    rounds.append([seconds for seconds, _ in found])
                    compiled = compiled if not gradients else [call for _, call in found]
                medians.append(np.median(rounds, axis=0))
            (loop, scan), (value, value_scan) = medians
            run = _run_seconds(compiled, given, x)
            ratios = " ".join(f"{ratio:6.2f}" for ratio in (scan / loop, value_scan / value, run[1] / run[0]))
            print(f"{name:12} {loop:7.2f} {scan:7.2f} {ratios}", flush=True)


if __name__ == "__main__":
    main()
