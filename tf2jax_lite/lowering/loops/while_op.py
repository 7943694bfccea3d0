"""While: which kind of JAX loop a TensorFlow loop becomes, or whether it is unrolled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from tf2jax_lite import ir
from tf2jax_lite.lowering.interpreter.trace import Context
from tf2jax_lite.lowering.merging.branch_merge import is_carried
from tf2jax_lite.lowering.op_lowerings.cond_ops import written_variables
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.values import static as values

from .growing_carry import GrownError
from .loop import MAX_UNROLL, Loop, scan_loop, while_loop
from .trip_count import HostLoop, invariants, known_results, run_on_host

__all__: list[str] = []

# A loop is unrolled up to this many iterations if that makes the trip counts of loops inside it known.
_MAX_NESTED_UNROLL = 64


def _host_while(ctx: Context, input: list[Any], *, cond: ir.FunctionRef, body: ir.FunctionRef) -> list[Any]:
    program = ctx.trace.program
    return known_results(ctx.trace, program.function(cond.name), program.function(body.name), input)


@op("While", "StatelessWhile", "XlaWhile", "_While", needs_context=True, host=_host_while)
def while_(ctx: Context, input: list[Any], *, cond: ir.FunctionRef, body: ir.FunctionRef) -> list[Any]:
    """Runs ``body`` as long as ``cond`` holds. See tf.raw_ops.While.

    A loop whose number of iterations is found out while tracing is ``lax.scan``; so is one with an upper bound, if
    configured. Any other is ``lax.while_loop``, with derivatives. What neither can carry is unrolled as long as the
    condition is known.
    """
    trace = ctx.trace
    cond_function = trace.program.function(cond.name)
    body_function = trace.program.function(body.name)
    written = sorted({*written_variables(ctx, body_function, input), *written_variables(ctx, cond_function, input)})
    constant = invariants(body_function) | {i for i, v in enumerate(input) if not is_carried(v)}
    loop = Loop(ctx, cond_function, body_function, list(input), written, frozenset(constant))
    host = run_on_host(trace, cond_function, body_function, input, constant)
    if host is not None and host.exact:
        if host.trips == 0:
            return list(input)
        if host.trips == 1 or (host.trips <= _MAX_NESTED_UNROLL and _inner_loop_depends_on(loop, set(host.history))):
            return _unrolled(loop, host)
        try:
            return scan_loop(loop, host)
        except (LoweringError, OpError):
            # Shapes that change, or something in the body that must be known while tracing, and is if unrolled.
            if host.trips > MAX_UNROLL and not _all_known(loop):
                raise
        return _unrolled(loop, host)
    try:
        if host is not None and (host.by_data or trace.program.config.loop_bound == "scan"):
            return scan_loop(loop, host)
        return while_loop(loop, host)
    except GrownError as error:
        results = _counted_by_size(loop, error.shapes) or _unrolled_while_known(loop)
        if results is None:
            raise
    except (LoweringError, OpError):
        results = _unrolled_while_known(loop)
        if results is None:
            raise
    return results


def _counted_by_size(loop: Loop, shapes: Mapping[int, tuple[Any, Any]]) -> list[Any] | None:
    """Runs a loop that ends as soon as what it makes is so long; None if it does not.

    Args:
      loop: the loop.
      shapes: those in its first two iterations of what grows.
    """
    if not shapes:
        return None
    host = run_on_host(loop.ctx.trace, loop.cond, loop.body, loop.start, set(loop.constant), shapes)
    if host is None or (host.exact and host.trips <= MAX_UNROLL):  # its iterations are unrolled
        return None
    return scan_loop(loop, host) if host.exact else while_loop(loop, host)


def _all_known(loop: Loop) -> bool:
    """Whether nothing is traced: outside ``jit``, unrolling leaves no equations."""
    return not any(isinstance(v, jax.core.Tracer) for v in jax.tree.leaves((loop.start, loop.ctx.trace.state)))


def _inner_loop_depends_on(loop: Loop, static: set[int]) -> bool:
    """Whether a loop inside the body starts from, or is bounded by, one of the variables with a known history."""
    program = loop.ctx.trace.program
    for node in loop.body.nodes:
        if "cond" in node.attrs and "body" in node.attrs:
            for ref in node.inputs:
                plan = program.slice(loop.body, [ref])
                used = {slot for step in plan.steps for slot in step.inputs} | set(plan.outputs)
                if used & static and all(step.op.fold is not None for step in plan.steps):
                    return True
    return False


def _unrolled(loop: Loop, host: HostLoop) -> list[Any]:
    """Runs the body as often as the host found out."""
    args = list(loop.start)
    trace = loop.ctx.trace
    for number in range(host.trips):
        for i, steps in host.history.items():
            args[i] = steps[number]
        results = trace.call(loop.body, args, loop.frame(number))
        args = [args[i] if i in loop.constant else value for i, value in enumerate(results)]
    for i, value in host.final.items():
        args[i] = value
    return args


def _unrolled_while_known(loop: Loop) -> list[Any] | None:
    """Runs the loop as Python would; None if the condition is not known in some iteration.

    Outside ``jax.jit`` it always is. Inside, conditions on shapes are, and on the lengths of lists.
    """
    args = list(loop.start)
    trace = loop.ctx.trace
    state = dict(trace.state)
    number = static = 0
    while static < MAX_UNROLL:
        (go,) = trace.call(loop.cond, args, loop.frame(number))
        found = values.known(go)
        if found is None:
            break
        if not bool(found):
            return args
        results = trace.call(loop.body, args, loop.frame(number))
        args = [args[i] if i in loop.constant else value for i, value in enumerate(results)]
        number += 1
        static += values.is_static(go)  # no limit where data is known, outside jit
    trace.state = state
    return None
