"""The placeholder for a result that a branch does not have."""

from __future__ import annotations

from typing import Any

from tf2jax_lite.lowering.interpreter.frame import Context
from tf2jax_lite.lowering.merging.carried_values import UNDEFINED
from tf2jax_lite.ops.registry import op

__all__: list[str] = []


@op("_Undefined")
def undefined(ctx: Context, *, dtype: Any = None) -> list[Any]:
    """Return a placeholder for a result that only the other branch of an If has.

    No live node reads it.

    `passes.control_flow_v1` makes such nodes; where branches meet, zeros take the place
    (lowering/merging/carried_values.py).
    """
    return [UNDEFINED]
