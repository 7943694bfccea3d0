"""Check ops on another platform against TensorFlow on this machine.

`write` and `compare` run here, `run` on a machine with the platform.

    python -m tools.other_platforms write DIR --platform cuda   # needs TensorFlow
    python -m tools.other_platforms run DIR                     # needs JAX alone, and a device of the platform
    python -m tools.other_platforms compare DIR

The programs are those of the op tests: values, values under ``vmap`` and gradients of the cases of the default tier, or
those that pytest's options choose (``write DIR tests/ops/math -m full``).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import io
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

SIZE = 8  # cases in a program


def _cases(arguments: Sequence[str]) -> list[Any]:
    """Return the op cases that pytest collects and that run under ``jit``."""
    import pytest

    from tests.ops.harness import Case

    found = []

    class Collector:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            for item in session.items:
                case = getattr(item, "callspec", None) and item.callspec.params.get("case")
                if isinstance(case, Case) and case.jit and not case.error and not case.xla:
                    found.append(case)

    with contextlib.redirect_stdout(io.StringIO()) as said:
        failed = pytest.main(["--collect-only", "-q", *arguments], plugins=[Collector()])
    if failed:
        raise SystemExit(f"pytest could not collect the cases:\n{said.getvalue()}")
    return found


def _bytes(leaves: Sequence[Any]) -> list[np.ndarray]:
    """Return arrays as bytes, since files of numpy know no bfloat16."""
    return [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8) for leaf in map(np.asarray, leaves)]


def _arrays(stored: Any, avals: Sequence[Any]) -> list[np.ndarray]:
    return [stored[f"arr_{i}"].view(a.dtype).reshape(a.shape) for i, a in enumerate(avals)]


def write(folder: Path, platform: str, arguments: Sequence[str]) -> None:
    """Write the programs of groups of cases, and their arguments.

    ``DIR/NUMBER.bin`` is a program, ``.npz`` has its arguments.
    """
    from tests.ops.batches import Together

    folder.mkdir(parents=True, exist_ok=True)
    cases = _cases(arguments)
    programs: dict[str, list[int]] = {}

    def one(positions: Sequence[int]) -> None:
        together = Together.of([cases[i] for i in positions])
        program = export.export(jax.jit(together.program), platforms=[platform])(*together.arguments)
        name = f"{positions[0]:05}"
        (folder / f"{name}.bin").write_bytes(program.serialize())
        np.savez(folder / f"{name}.npz", *_bytes(jax.tree.leaves(together.arguments)))
        programs[name] = list(positions)

    for start in range(0, len(cases), SIZE):
        positions = range(start, min(start + SIZE, len(cases)))
        try:
            one(positions)
        except Exception:  # the case that fails is reported alone
            for position in positions:
                try:
                    one([position])
                except Exception as error:
                    print(f"{cases[position]}: not written: {type(error).__name__}: {str(error)[:300]}", flush=True)
    (folder / "cases.json").write_text(json.dumps({"arguments": list(arguments), "programs": programs}))


def _run(path: Path) -> list[np.ndarray] | str:
    """Return a program's results as bytes, or its error."""
    jax.config.update("jax_enable_x64", True)
    try:
        program = export.deserialize(bytearray(path.read_bytes()))
        with np.load(path.with_suffix(".npz")) as stored:
            leaves = _arrays(stored, program.in_avals)
        inputs, keywords = jax.tree.unflatten(program.in_tree, leaves)
        return _bytes(jax.tree.leaves(jax.jit(program.call)(*inputs, **keywords)))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:500]}"


def run(folder: Path, results: Path, processes: int) -> None:
    """Run the programs, and write their results to one file."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    found: dict[str, Any] = {}
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        paths = sorted(folder.glob("*.bin"))
        for path, leaves in zip(paths, pool.map(_run, paths), strict=True):
            if isinstance(leaves, str):
                print(f"{path.stem}: {leaves}", flush=True)
                found[f"{path.stem}/error"] = np.asarray(leaves)
            else:
                found.update((f"{path.stem}/{i}", leaf) for i, leaf in enumerate(leaves))
    np.savez_compressed(results, **found)


def failures(folder: Path, results: Path) -> Iterator[tuple[str, str]]:
    """Yield names of cases whose results differ from TensorFlow's, and how."""
    from tests.ops.batches import Together

    known = json.loads((folder / "cases.json").read_text())
    cases = _cases(known["arguments"])
    with np.load(results) as stored:
        for name, positions in known["programs"].items():
            if f"{name}/error" in stored:
                yield from ((str(cases[i]), str(stored[f"{name}/error"])) for i in positions)
                continue
            together = Together.of([cases[i] for i in positions])
            program = export.deserialize(bytearray((folder / f"{name}.bin").read_bytes()))
            leaves = [stored[f"{name}/{i}"].view(a.dtype).reshape(a.shape) for i, a in enumerate(program.out_avals)]
            found = jax.tree.unflatten(program.out_tree, leaves)
            for index, position in enumerate(positions):
                try:
                    together.compare_case(index, found[index])
                except AssertionError as error:
                    yield str(cases[position]), str(error).strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; it exits with 1 if a case differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.other_platforms", description=__doc__)
    parser.add_argument("command", choices=("write", "run", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--platform", default="cuda", help="cuda, rocm, tpu or cpu; default %(default)s")
    parser.add_argument("--results", type=Path, help="file of the results; default DIR/results.npz")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile at once")
    options, rest = parser.parse_known_args(arguments)
    results = options.results or options.folder / "results.npz"
    if options.command == "run":
        return run(options.folder, results, options.processes)
    import tests.conftest  # noqa: F401  sets TensorFlow's options, before it is imported

    # GPUs and TPUs multiply float32 matrices with fewer bits by default.
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        if options.command == "write":
            return write(options.folder, options.platform, rest or ["tests/ops"])
        found = list(failures(options.folder, results))
    for case, error in found:
        print(f"{case}: {error}\n", flush=True)
    print(f"{len(found)} cases differ from TensorFlow")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
