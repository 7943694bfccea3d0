"""Classify results as probabilities or logits, by interval analysis of the jaxpr."""

from __future__ import annotations

from typing import Any, Literal

from tf2jax_lite.dynamic_shapes.intervals import LINEAR, jaxpr_intervals
from tf2jax_lite.jaxprs.interval import Interval

Kind = Literal["probabilities", "logits", "unknown"]
PROBABILITIES: Kind = "probabilities"
LOGITS: Kind = "logits"
UNKNOWN: Kind = "unknown"


def prediction_kinds(closed_jaxpr: Any) -> list[Kind]:
    """Return the kind of each result of a jaxpr, as far as its operations prove it.

    Probabilities are in [0, 1]: results of a softmax or a sigmoid. Logits are results of a linear layer or of a
    log-softmax. Others are unknown: a model may normalize by a form of its own.
    """
    return [_kind(found) for found in jaxpr_intervals(closed_jaxpr)]


def _kind(found: Interval) -> Kind:
    if found is LINEAR or (found.lower is None and isinstance(found.upper, int | float) and found.upper <= 0):
        return LOGITS
    in_unit = found.lower is not None and found.lower >= 0 and isinstance(found.upper, int | float) and found.upper <= 1
    return PROBABILITIES if in_unit else UNKNOWN
