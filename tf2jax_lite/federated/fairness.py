"""Summaries of a metric's distribution over clients.

Source: Li et al. 2020, "Fair Resource Allocation in Federated Learning" (variance, worst and best tenth).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

# Parts of names of metrics that are better if they are smaller.
_COSTS = ("loss", "error", "perplexity", "oov_rate", "truncation_rate")


def is_cost(name: str) -> bool:
    """Return whether a metric of that name is better if it is smaller."""
    return any(part in name for part in _COSTS)


def fairness_summary(
    by_client: Mapping[Hashable, Any], *, smaller_is_better: Callable[[str], bool] = is_cost
) -> dict[str, dict[str, float]]:
    """Return for each metric how it is distributed over clients.

    All clients count the same.

    Args:
      by_client: client id to metrics by name, such as ``metrics["client_diagnostics"]`` of a round or
        ``dict(evaluator.evaluate_global_params(...))``. A list of those counts as several clients. Values that are no
        finite scalars, and numbers of examples, are left out.
      smaller_is_better: by a metric's name; by default losses, errors and perplexities.

    Returns:
      Metric name to ``mean``, ``variance``, ``worst``, and ``worst_decile`` and ``best_decile`` (the mean of that tenth
      of the clients, at least one).
    """
    entries = [entry for own in by_client.values() for entry in (own if isinstance(own, list) else [own])]
    values: dict[str, list[float]] = {}
    for entry in entries:
        for name, value in entry.items():
            number = np.asarray(value)
            if number.ndim == 0 and number.dtype.kind == "f" and np.isfinite(number) and name != "update_weight":
                values.setdefault(name, []).append(float(number))
    found = {}
    for name, own in values.items():
        ordered = np.sort(np.array(own))  # from the worst
        ordered = ordered[::-1] if smaller_is_better(name) else ordered
        tenth = max(len(ordered) // 10, 1)
        found[name] = {
            "mean": float(ordered.mean()),
            "variance": float(ordered.var()),
            "worst_decile": float(ordered[:tenth].mean()),
            "best_decile": float(ordered[-tenth:].mean()),
            "worst": float(ordered[0]),
        }
    return found
