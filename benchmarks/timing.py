"""Timing in turns: each contestant runs once a round, so that what disturbs the machine disturbs all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def seconds(fn: Callable[[], Any]) -> float:
    """Returns the seconds that one call takes; ``fn`` must wait for its results."""
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def in_turns(
    contestants: Mapping[str, Callable[[], float]], *, rounds: int = 15, budget: float = 20.0
) -> dict[str, dict[str, float]]:
    """Runs contestants in turns.

    Args:
      contestants: name to a function that runs once and returns the seconds it took. Each is run once before
        anything counts.
      rounds: how many times each runs at most.
      budget: seconds after which no further round starts; three rounds are always run.

    Returns:
      For each name ``median`` and ``best`` in seconds, and ``rounds``.
    """
    for run in contestants.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in contestants}
    start = time.perf_counter()
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
    """Returns our median divided by each other's: below 1 we are faster."""
    mine = results[ours]["median"]
    return {name: mine / times["median"] for name, times in results.items() if name != ours}
