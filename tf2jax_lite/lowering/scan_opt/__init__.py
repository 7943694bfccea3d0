"""Optimizations of scans: jaxpr to jaxpr, on the body of a ``lax.scan``.

`scan` is the entry: it traces a body, applies `OPTIMIZATIONS` in order, and runs the loop. Each is a function
``(body) -> Body``, has a name and a reason for its position, and can be switched off by name (the config option
``passes``). Values do not change; results of floating-point sums may differ by rounding.

Read `tf2jax_lite.loops.body` first, then the optimizations in the order of the list. `tf2jax_lite.loops.batch_steps`
and the analyses in `code_motion` (loop-invariant and live equations) are shared; thresholds are in
`tf2jax_lite.xla_cpu.cost_model`.

Does not import the IR, plans or the interpreter: any JAX program could use it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from jax import lax

from tf2jax_lite.loops.body import Scan, run_loop, trace_body
from tf2jax_lite.support.config import Entry, apply_entries

from . import (
    carry_to_xs,
    code_motion,
    drop_unit_axes,
    materialize_slices,
    weight_gradients,
)

__all__ = ["NAMES", "OPTIMIZATIONS", "scan"]


OPTIMIZATIONS = (
    Entry("carry_to_xs", carry_to_xs.run, "First: exposes elements of carried buffers as inputs to all others."),
    Entry(
        "sink_accumulators",
        code_motion.sink_accumulators,
        "Before hoist_matmuls: the factors of accumulated matmuls become results, which keeps them alive.",
    ),
    Entry(
        "hoist_matmuls",
        code_motion.hoist_matmuls,
        "After carry_to_xs, whose inputs it multiplies. Removes dead equations, so that later ones count uses right.",
    ),
    Entry(
        "sink_last_values",
        code_motion.sink_last_values,
        "After hoist_matmuls: a carried value counts as unread only once dead equations are gone.",
    ),
    Entry(
        "materialize_slices",
        materialize_slices.run,
        "After hoist_matmuls, whose results are the inputs that iterations split.",
    ),
    Entry(
        "hoist_factors",
        code_motion.hoist_factors,
        "Before weight_gradients: a slice of the weights is a loop-invariant factor only outside the loop.",
    ),
    Entry(
        "drop_unit_axes",
        drop_unit_axes.run,
        "After all that add inputs or remove carried values.",
    ),
    Entry(
        "weight_gradients",
        weight_gradients.run,
        "Last: it fixes the loop's derivative rule, which applies to the equations as they are.",
    ),
)
"""The optimizations, in order."""

NAMES = tuple(o.name for o in OPTIMIZATIONS)
"""Their names."""


def scan(
    step: Callable[..., Any],
    start: Any,
    xs: Any,
    trips: int,
    names: Collection[str] = NAMES,
    loop: Scan = lax.scan,
) -> Any:
    """Run a loop as ``lax.scan`` does, optimized.

    Args:
      step: the body as ``lax.scan`` takes it, from (carry, x) to (carry, None).
      xs: a pytree of arrays with an entry for each iteration along the first axis. Loops are optimized only if all are
        NumPy arrays: static.
    """
    body = trace_body(step, start, xs, trips, lambda body: run_loop(body, loop)) if trips > 1 else None
    if body is None:
        return loop(step, start, xs, trips)[0]
    return apply_entries(OPTIMIZATIONS, names, body).run()
