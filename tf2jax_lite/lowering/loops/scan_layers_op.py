"""_ScanLayers: layers of equal form as ``lax.scan`` over their stacked variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along
from tf2jax_lite.lowering.interpreter.frame import Context
from tf2jax_lite.lowering.merging.carried_values import as_traced
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import LoweringError, OpError

from .loop import checkpointed_scan


class _UnequalTypesError(Exception):
    """A layer changes the shape or dtype of the tensors that it passes on."""


@op("_ScanLayers")
def scan_layers(
    ctx: Context, carry: list[Any], shared: list[Any], stacked: list[Any], *, body: ir.FunctionRef, layers: int
) -> list[Any]:
    """Run layers one after the other.

    They are unrolled if a layer changes the types of the tensors that it passes on, or has values that are no arrays.

    Args:
      body: a layer: a function of all three, which returns the carry and further results.

    Returns:
      The carry, and the further results of all layers, stacked.
    """
    trace, size = ctx.trace, len(carry)
    mode = trace.program.config.loop_checkpoint
    function = trace.program.function(body.name)

    def layer(carry: Sequence[Any], variables: Sequence[Any], number: Any) -> list[Any]:
        return trace.call(function, [*carry, *shared, *variables], ctx.frame.enter(ctx.step, number))

    if trace.tracker is None and all(isinstance(v, (jax.Array, np.ndarray)) for v in carry):
        start = _varying(list(map(as_traced, carry)), [*shared, *stacked])

        def step(state: list[Any], x: tuple[list[Any], Any]) -> tuple[list[Any], list[Any]]:
            results = list(map(as_traced, layer(state, *x)))
            if any(jax.typeof(v) != jax.typeof(w) for v, w in zip(results[:size], state, strict=True)):
                raise _UnequalTypesError
            return results[:size], results[size:]

        try:
            end, rows = checkpointed_scan(step, start, (stacked, np.arange(layers, dtype=np.int32)), layers, mode=mode)
        except (_UnequalTypesError, LoweringError, OpError):  # a static value that differs between layers
            pass
        else:
            return [*end, *rows]
    rows = []
    for number in range(layers):
        results = layer(carry, [v[number] for v in stacked], number)
        carry = results[:size]
        rows.append(list(map(as_traced, results[size:])))
    return [*carry, *map(jnp.stack, zip(*rows, strict=True))]


def _varying(start: list[Any], others: Sequence[Any]) -> list[Any]:
    """Return the initial carry, varying along the mesh axes of all values."""
    axes = frozenset[str]().union(*(axes_of(v) for v in [*start, *others] if isinstance(v, jax.Array)))
    return [varying_along(v, axes) for v in start]
