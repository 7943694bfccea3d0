"""Compile and time the programs of the suite programs.

Usage: ``python -m benchmarks.device FOLDER --json out.json``.

It needs JAX alone. Without a GPU ``--described h100`` compiles for one all the same, with JAX's CUDA plugin
(``pip install 'jax[cuda12]' flatbuffers``), and counts what a call would launch; nothing is timed then. Each program
is compiled in a process of its own, as XLA remembers what it compiled before. Nothing can be tried out without a
device, so matrix products are left to cuBLAS, where XLA would choose between it and code of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .hlo import launches
from .timing import in_turns, ratios, seconds

CONTESTANTS = ("ours", "native", "peer")

# XLA's description of the GPU for its compiler (xla/backends/gpu/target_config/specs/h100_sxm.txtpb).
DESCRIPTIONS = {
    "h100": """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 } runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
}
_WITHOUT_DEVICE = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # else the plugin looks for a driver
    "XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false",
}


def _compiled(path: Path, sharding: Any = None) -> tuple[Any, Any, dict[str, Any]]:
    """Return a compiled program, its arguments, memory and launch counts."""
    import jax
    import jax.numpy as jnp
    from jax import export

    program = export.deserialize(bytearray(path.read_bytes()))
    args = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in program.in_avals]
    small = jax.ShapeDtypeStruct((8, 8), "float32", sharding=sharding)
    jax.jit(jnp.tanh).lower(small).compile()  # warms up the process
    start, begun = time.perf_counter(), time.process_time()
    compiled = jax.jit(program.call).lower(*args).compile()
    cost = {"compile": time.perf_counter() - start, "cpu": time.process_time() - begun}
    found = launches(compiled.as_text() or "")
    memory = compiled.memory_analysis()
    record = {**cost, "kernels": found.kernels, "bytes": found.bytes, "unknown": found.unknown}
    record["temporaries"] = memory.temp_size_in_bytes if memory else None
    record["library"] = dict(found.library)
    return compiled, args, record


def _arguments(structs: Any) -> list[Any]:
    """Return arrays of small positive floats (variances), zeros for integers."""
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    return [
        jnp.asarray(rng.uniform(0.01, 0.02, s.shape), s.dtype)
        if jnp.issubdtype(s.dtype, jnp.inexact)
        else jnp.zeros(s.shape, s.dtype)
        for s in structs
    ]


def _there(folder: Path) -> dict[str, Path]:
    return {who: path for who in CONTESTANTS if (path := folder / f"{who}.bin").exists()}


def _shared(record: dict[str, Any]) -> dict[str, Any]:
    """Replace the lists of library calls in a record by a summary of their agreement."""
    calls = {who: Counter(record[who].pop("library")) for who in CONTESTANTS if who in record}
    for who, found in calls.items():
        record[who]["calls"] = found.total()
        record[who]["shared"] = (found & calls["ours"]).total()
    return record


def timed(folder: Path, budget: float = 20.0) -> dict[str, Any]:
    """Compile one model's programs, and time them in turns on the device.

    Args:
      folder: with a file for each contestant.
      budget: seconds of turns.

    Returns:
      By contestant seconds of compiling, how many kernels and bytes a call takes, how many library calls, and how many
      of these ours has too; ``times`` and ``ratios``.
    """
    import jax

    record: dict[str, Any] = {"program": folder.name, "device": jax.devices()[0].device_kind}
    runs = {}
    for who, path in _there(folder).items():
        compiled, structs, record[who] = _compiled(path)
        args = _arguments(structs)
        name = "tf2jax_lite" if who == "ours" else who
        runs[name] = lambda c=compiled, a=args: seconds(lambda: jax.block_until_ready(c(*a)))
    record["times"] = in_turns(runs, rounds=200, budget=budget)
    record["ratios"] = ratios(record["times"])
    return _shared(record)


def described(folder: Path, gpu: str) -> dict[str, Any]:
    """Compile the programs of one model for a GPU that need not be there.

    Args:
      folder: with a file for each contestant.
      gpu: which of `DESCRIPTIONS`.

    Returns:
      As `timed`, without times.
    """
    record: dict[str, Any] = {"program": folder.name, "device": gpu}
    for who, path in _there(folder).items():
        command = [sys.executable, "-m", "benchmarks.device", str(path), "--child", gpu]
        env = {**os.environ, **_WITHOUT_DEVICE}
        done = subprocess.run(command, env=env, cwd=Path(__file__).parents[1], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            raise RuntimeError(f"{path} was not compiled for {gpu}:\n{done.stderr[-2000:]}")
        record[who] = json.loads(lines[-1])
    return _shared(record)


def _child(path: Path, gpu: str) -> None:
    import jax
    from jax.experimental import topologies

    there = topologies.get_topology_desc(platform="cuda", target_config=DESCRIPTIONS[gpu], topology="1x1x1")
    print(json.dumps(_compiled(path, jax.sharding.SingleDeviceSharding(there.devices[0]))[2]), flush=True)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Compile and time a folder's programs; print and return records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.add_argument("folder", type=Path, help="what the suite programs wrote")
    parser.add_argument("--described", choices=sorted(DESCRIPTIONS), help="a GPU to compile for, without one")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of turns for each model")
    parser.add_argument("--json", type=Path, help="append the records to this file, one JSON object a line")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _child(options.folder, options.child)
        return []
    found = []
    for folder in sorted({path.parent for path in options.folder.glob("**/ours.bin")}):
        if options.described:
            record = {"suite": "described", **described(folder.absolute(), options.described)}
        else:
            record = {"suite": "device", **timed(folder, options.budget)}
        found.append(record)
        print(json.dumps(record), flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(record) + "\n")
    return found


if __name__ == "__main__":
    main()
