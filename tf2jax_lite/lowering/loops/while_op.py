"""While: the choice between ``lax.scan``, ``lax.while_loop`` and unrolling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along
from tf2jax_lite.lowering.interpreter.frame import Context
from tf2jax_lite.lowering.merging.branch_merge import as_traced, is_carried
from tf2jax_lite.lowering.op_lowerings.cond_ops import written_variables
from tf2jax_lite.ops.registry import op
from tf2jax_lite.passes.analysis.static_values import loop_invariants
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.values import static as values

from .growing_carry import GrowthError
from .loop import MAX_UNROLL, Loop, checkpointed_scan, scan_loop, while_loop
from .trip_count import FoldedLoop, fold_loop, static_results

# A loop is unrolled up to this many iterations if that makes the trip counts of loops inside it known.
_MAX_NESTED_UNROLL = 64


def _host_while(ctx: Context, input: list[Any], *, cond: ir.FunctionRef, body: ir.FunctionRef) -> list[Any]:
    program = ctx.trace.program
    return static_results(ctx.trace, program.function(cond.name), program.function(body.name), input)


@op("While", "StatelessWhile", "XlaWhile", "_While", fold=_host_while)
def while_(ctx: Context, input: list[Any], *, cond: ir.FunctionRef, body: ir.FunctionRef) -> list[Any]:
    """Run ``body`` as long as ``cond`` holds. See tf.raw_ops.While.

    A loop whose trip count is known from folding becomes ``lax.scan``; so does one with an upper bound, if configured.
    Any other becomes ``lax.while_loop``, with derivatives. A loop that neither can carry is unrolled as long as the
    condition is static.
    """
    trace = ctx.trace
    cond_function = trace.program.function(cond.name)
    body_function = trace.program.function(body.name)
    written = sorted({*written_variables(ctx, body_function, input), *written_variables(ctx, cond_function, input)})
    constant = loop_invariants(body_function) | {i for i, v in enumerate(input) if not is_carried(v)}
    loop = Loop(ctx, cond_function, body_function, list(input), written, frozenset(constant))
    folded = fold_loop(trace, cond_function, body_function, input, constant)
    if folded is not None and folded.exact:
        if folded.trips == 0:
            return list(input)
        if folded.trips == 1 or (
            folded.trips <= _MAX_NESTED_UNROLL and _inner_loop_depends_on(loop, set(folded.history))
        ):
            return _unrolled(loop, folded)
        try:
            return scan_loop(loop, folded)
        except (LoweringError, OpError):
            # Shapes change, or the body has static inputs that are static only if it is unrolled.
            if folded.trips > MAX_UNROLL and not _all_static(loop):
                raise
        return _unrolled(loop, folded)
    try:
        if folded is not None and (folded.by_data or trace.program.config.loop_bound == "scan"):
            return scan_loop(loop, folded)
        return while_loop(loop, folded)
    except GrowthError as error:
        results = _counted_by_size(loop, error.shapes) or _unrolled_while_static(loop)
        if results is None:
            raise
    except (LoweringError, OpError):
        results = _unrolled_while_static(loop)
        if results is None:
            raise
    return results


def _counted_by_size(loop: Loop, shapes: Mapping[int, tuple[Any, Any]]) -> list[Any] | None:
    """Run a loop with a condition on a growing array's size; None if unknown."""
    # shapes: by index, the shapes in the first two iterations of growing arrays.
    if not shapes:
        return None
    folded = fold_loop(loop.ctx.trace, loop.cond, loop.body, loop.start, set(loop.constant), shapes)
    if folded is None or (folded.exact and folded.trips <= MAX_UNROLL):  # its iterations are unrolled
        return None
    return scan_loop(loop, folded) if folded.exact else while_loop(loop, folded)


def _all_static(loop: Loop) -> bool:
    """Return whether no value is traced, so that unrolling adds no equations."""
    return not any(is_traced(v) for v in jax.tree.leaves((loop.start, loop.ctx.trace.state)))


def _inner_loop_depends_on(loop: Loop, static: set[int]) -> bool:
    """Return whether an inner loop's start or bound is a static loop variable."""
    program = loop.ctx.trace.program
    for node in loop.body.nodes:
        if "cond" in node.attrs and "body" in node.attrs:
            for ref in node.inputs:
                plan = program.plan_of(loop.body, [ref], effects=False)
                used = {slot for step in plan.steps for slot in step.inputs} | set(plan.outputs)
                if used & static and all(step.op.fold is not None for step in plan.steps):
                    return True
    return False


def _unrolled(loop: Loop, folded: FoldedLoop) -> list[Any]:
    """Run the body once for each iteration of the folded loop."""
    args = list(loop.start)
    trace = loop.ctx.trace
    for number in range(folded.trips):
        for i, steps in folded.history.items():
            args[i] = steps[number]
        results = trace.call(loop.body, args, loop.frame(number))
        args = [args[i] if i in loop.constant else value for i, value in enumerate(results)]
    for i, value in folded.final.items():
        args[i] = value
    return args


def _unrolled_while_static(loop: Loop) -> list[Any] | None:
    """Run the loop as Python would; None if a condition is not static."""
    # Outside ``jax.jit`` it always is. Inside, conditions on shapes and on the lengths of lists are.
    args = list(loop.start)
    trace = loop.ctx.trace.with_state(loop.ctx.trace.state)
    number = static = 0
    while static < MAX_UNROLL:
        (go,) = trace.call(loop.cond, args, loop.frame(number))
        found = values.static_value(go)
        if found is None:
            break
        if not bool(found):
            loop.ctx.trace.state.update(trace.state)
            return args
        results = trace.call(loop.body, args, loop.frame(number))
        args = [args[i] if i in loop.constant else value for i, value in enumerate(results)]
        number += 1
        static += values.is_static(go)  # no limit outside jit, where data are static
    return None


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
