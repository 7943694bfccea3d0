"""Classify results as probabilities or logits, by interval analysis of the jaxpr."""

from __future__ import annotations

from typing import Any, Literal

from tf2jax_lite.dynamic_shapes.intervals import OPAQUE, Interval, jaxpr_intervals

__all__ = ["LOGITS", "PROBABILITIES", "UNKNOWN", "Kind", "prediction_kinds"]

Kind = Literal["probabilities", "logits", "unknown"]
PROBABILITIES: Kind = "probabilities"
LOGITS: Kind = "logits"
UNKNOWN: Kind = "unknown"


def prediction_kinds(closed_jaxpr: Any) -> list[Kind]:
    """Return the kind of each result of a jaxpr.

    Probabilities are in [0, 1]: results of a softmax or a sigmoid. Results that may be negative are logits. The kind is
    unknown if results are positive and unbounded, or results of a call or a loop.
    """
    return [_kind(found) for found in jaxpr_intervals(closed_jaxpr)]


def _kind(found: Interval) -> Kind:
    if found is OPAQUE:
        return UNKNOWN
    if found.lower is None or found.lower < 0:
        return LOGITS
    return PROBABILITIES if isinstance(found.upper, int | float) and found.upper <= 1 else UNKNOWN
