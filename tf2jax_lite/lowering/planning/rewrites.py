"""The rewrites of plans, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from . import dilated_conv, materialize, transpose_sinking
from .plan import Plan


class Rewrite(NamedTuple):
    """An entry of the list.

    Attributes:
      name: switches it off.
      run: the rewrite.
      position: the reason for its position.
    """

    name: str
    run: Callable[[Plan], Plan]
    position: str


REWRITES = (
    Rewrite("materialize", materialize.run, "First: it looks at ops, which the others override."),
    Rewrite(
        "transpose_sinking",
        transpose_sinking.run,
        "Before or after dilated_conv: no op is in both.",
    ),
    Rewrite(
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
    for entry in REWRITES:
        if entry.name in names:
            plan = entry.run(plan)
    return plan
