"""Compare the demo set's results between runs, processes and ways to run.

Usage: ``python -m tools.reliability.numbers --json OUT``.

Each model is converted in two fresh processes (with other hash seeds, so that no order of a set decides anything), and
run there three times under ``jax.jit``, eagerly and under ``jax.vmap``. SHA-256 says whether results are the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def measure(names: Sequence[str], processes: int = 2) -> dict[str, dict[str, Any]]:
    """Return `_one`'s results by model, and if all processes had the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        models = _make(names, Path(folder))
        (Path(folder) / "models.json").write_text(json.dumps(models))
        found = []
        for seed in range(processes):
            environment = {**os.environ, "PYTHONHASHSEED": str(seed + 1), "TF_CPP_MIN_LOG_LEVEL": "3"}
            command = [sys.executable, "-m", "tools.reliability.numbers", "--child", folder]
            done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr[-3000:])
            found.append(json.loads(done.stdout.splitlines()[-1]))
    out = {}
    for name in names:
        hashes = {h for run in found for h in run[name]["hashes"]}
        out[name] = {
            **found[0][name],
            "same": len(hashes) == 1,
            "params": len({run[name]["params"] for run in found}) == 1,
        }
    return out


def _make(names: Sequence[str], folder: Path) -> dict[str, str]:
    import numpy as np

    from tests.models.demo_set import DEMO_SET

    paths = {}
    for name in names:
        place = folder / name
        place.mkdir()
        path, inputs = DEMO_SET[name].make(place)
        np.savez(place / "inputs.npz", **inputs)
        paths[name] = str(path)
    return paths


def _child(folder: Path) -> None:
    models = json.loads((folder / "models.json").read_text())
    print(json.dumps({name: _one(Path(path), folder / name / "inputs.npz") for name, path in models.items()}))


def _hash(values: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    return digest.hexdigest()


def _one(path: Path, inputs_path: Path) -> dict[str, Any]:
    """Return hashes of jitted runs, and other ways' largest relative difference."""
    # The differences are relative to the largest element.
    #
    # ``tensorflow``: TensorFlow's results from the jitted ones; ``eager``, ``vmap``: the converted function's own;
    # ``float64``: both sides' errors against float64, and which is wrong.
    import jax
    import numpy as np

    from tf2jax_lite.errors import UnsupportedError
    from tf2jax_lite.verification.roundoff_verdict import in_float64, round_off
    from tf2jax_lite.verification.runners import run_tf
    from tf2jax_lite.verification.targets import convert_source, find_sources
    from tf2jax_lite.verification.verifier import given_values

    with np.load(inputs_path) as data:
        arrays = {name: data[name] for name in data.files}
    target = convert_source(next(iter(find_sources(path, ["serving_default"]))))
    converted, params = target.converted, dict(target.params)
    arguments = converted.interface.tensors()
    given = given_values(target.name, arguments, arrays)
    flat = [given[name] for name in sorted(given, key=lambda name: arguments[name].index)]

    def call(params: Any, inputs: Any) -> Any:
        return converted.flat_call(params, inputs)[0]

    jitted = jax.jit(call)
    runs = [[np.asarray(r) for r in jitted(params, flat)] for _ in range(2)]
    jax.clear_caches()  # compiled again, by another trace
    runs.append([np.asarray(r) for r in jax.jit(lambda p, x: call(p, x))(params, flat)])
    eager = [np.asarray(r) for r in call(params, flat)]
    stacked = [np.stack([x, x[::-1]]) for x in flat]
    mapped = [np.asarray(r)[0] for r in jax.jit(jax.vmap(lambda *x: call(params, list(x))))(*stacked)]
    expected, _ = run_tf(target, flat)
    found = {
        "hashes": [_hash(run) for run in runs],
        "params": _hash([np.asarray(params[name]) for name in sorted(params)]),
        "tensorflow": _far(expected, runs[0]),
        "eager": _far(runs[0], eager),
        "vmap": _far(runs[0], mapped),
    }
    try:
        truths = in_float64(converted, params, flat)
    except UnsupportedError:
        return {**found, "float64": None, "wrong": "no float64: a compiled module"}
    judged = [round_off(e, a, t) for e, a, t in zip(expected, runs[0], truths, strict=True)]
    errors = [max(j.tensorflow_error for j in judged), max(j.jax_error for j in judged)]
    return {**found, "float64": errors, "wrong": ", ".join(j.wrong for j in judged if j.wrong)}


def _far(expected: Sequence[Any], actual: Sequence[Any]) -> float:
    import numpy as np

    worst = 0.0
    for e, a in zip(expected, actual, strict=True):
        e, a = np.asarray(e, np.float64), np.asarray(a, np.float64)
        scale = float(np.max(np.abs(e), initial=0)) or 1.0
        worst = max(worst, float(np.max(np.abs(e - a), initial=0)) / scale)
    return worst


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.reliability.numbers", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _child(options.child)
        return
    from tests.models.demo_set import DEMO_SET

    rows = []
    for name, found in measure(list(DEMO_SET)).items():
        errors = found["float64"]
        rows.append(
            [
                name,
                "yes" if found["same"] and found["params"] else "NO",
                *(f"{found[how]:.1e}" for how in ("tensorflow", "eager", "vmap")),
                "-" if errors is None else f"{errors[0]:.1e}",
                "-" if errors is None else f"{errors[1]:.1e}",
                found["wrong"] or "round-off",
            ]
        )
    page = {
        "title": "Numbers",
        "command": "python -m tools.reliability.numbers --json docs/reliability/numbers.json",
        "columns": [
            "model",
            "same bits in 3 runs x 2 processes",
            "jit from TensorFlow",
            "eager from jit",
            "vmap from jit",
            "TensorFlow from float64",
            "JAX from float64",
            "the difference is",
        ],
        "rows": rows,
        "notes": [
            "Largest absolute differences, relative to the largest element; results are float32. Tolerance: 1e-5 "
            "between TensorFlow, eager, jit and vmap. From float64 either side is off by round-off alone if it is not "
            "32 times as far as the other, and 16 units in the last place besides.",
        ],
    }
    text = json.dumps(page, indent=1) + "\n"
    if options.json is None:
        print(text)
        return
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(text)


if __name__ == "__main__":
    main()
