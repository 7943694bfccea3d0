"""The rewrites of plans, in order."""

from __future__ import annotations

from collections.abc import Collection

from tf2jax_lite.support.config import Entry, apply_entries

from . import dilated_conv, materialize, transpose_sinking
from .plan import Plan

REWRITES = (
    Entry("materialize", materialize.run, "First: it looks at ops, which the others override."),
    Entry(
        "transpose_sinking",
        transpose_sinking.run,
        "Before or after dilated_conv: no op is in both.",
    ),
    Entry(
        "dilated_conv",
        dilated_conv.run,
        "After materialize: the convolution that stands for several steps materializes the results of the last.",
    ),
)
"""The rewrites, in order."""

NAMES = tuple(r.name for r in REWRITES)
"""Their names."""


def rewrite(plan: Plan, names: Collection[str] = NAMES) -> Plan:
    """Apply the rewrites of these names to a plan, in order."""
    return apply_entries(REWRITES, names, plan)
