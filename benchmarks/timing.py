"""Interleaved timing: each contestant runs once per round.

Other load affects all of them equally.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

AROUND = "TF2JAX_LITE_BENCH_AROUND"
"""Names the environment variable with the command that `quiet` runs; ``python -m benchmarks --around`` sets it."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run the user's command around the timed part, to hold other work off.

    The command is called as ``CMD begin PID`` and ``CMD end PID``, PID being this process: a command that stops other
    processes must spare it and its children. Without a command nothing happens.

    Raises:
      subprocess.CalledProcessError: the command failed.
    """
    command = shlex.split(os.environ.get(AROUND, ""))
    if not command:
        yield
        return
    subprocess.run([*command, "begin", str(os.getpid())], check=True)
    try:
        yield
    finally:
        subprocess.run([*command, "end", str(os.getpid())], check=True)


def seconds(fn: Callable[[], Any]) -> float:
    """Return the seconds that one call takes; ``fn`` must wait for its results."""
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def in_turns(
    contestants: Mapping[str, Callable[[], float]], *, rounds: int = 15, budget: float = 20.0
) -> dict[str, dict[str, float]]:
    """Run contestants in turns.

    Args:
      contestants: name to a function that runs once and returns the seconds it took. Each is run once before
        anything counts.
      rounds: how many times each runs at most.
      budget: seconds, the uncounted round included, after which no further round starts; three are always run.

    Returns:
      For each name ``median`` and ``best`` in seconds, and ``rounds``.
    """
    with quiet():
        return _in_turns(contestants, rounds, budget)


def _in_turns(
    contestants: Mapping[str, Callable[[], float]], rounds: int, budget: float
) -> dict[str, dict[str, float]]:
    start = time.perf_counter()
    for run in contestants.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for count in range(rounds):
        if count >= 3 and time.perf_counter() - start > budget:
            break
        for name, run in contestants.items():
            found[name].append(run())
    return {
        name: {"median": statistics.median(times), "best": min(times), "rounds": len(times)}
        for name, times in found.items()
    }


def ratios(results: Mapping[str, Mapping[str, float]], ours: str = "tf2jax_lite") -> dict[str, float]:
    """Return our median divided by each other's: below 1 we are faster."""
    mine = results[ours]["median"]
    return {name: mine / times["median"] for name, times in results.items() if name != ours}
