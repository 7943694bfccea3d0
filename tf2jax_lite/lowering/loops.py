"""While: lax.scan where the trip count is known while tracing, lax.while_loop otherwise."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.errors import LoweringError, OpError
from tf2jax_lite.ops import values
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.tensor_list import TensorList, resized

from .branches import written_variables
from .joins import as_traced, is_carried, signature
from .trace import Context, Frame
from .trip_count import HostLoop, invariants, run_on_host

__all__: list[str] = []

# A loop whose carried shapes change is unrolled up to this many iterations.
_MAX_UNROLL = 256
# A loop is unrolled up to this many iterations if that makes the trip counts of loops inside it known.
_MAX_NESTED_UNROLL = 64
# How often a carry is adapted (tensor lists that grow, lists within lists) before we give up.
_MAX_ATTEMPTS = 6


class _CarryChanged(Exception):
    """The body's results do not have the form of its arguments. Leaves a trace in order to start it anew."""

    _tf2jax_lite_control = True

    def __init__(self, before: list[Any], after: list[Any]):
        super().__init__("carry changed")
        self.before = before
        self.after = after


@dataclasses.dataclass(frozen=True)
class _Loop:
    """What is fixed about one While node in one trace."""

    ctx: Context
    cond: ir.Function
    body: ir.Function
    start: list[Any]
    written: list[str]
    constant: set[int]
    frame: Callable[[Any], Frame]

    def body_values(self, args: list[Any], state: dict[str, Any], counter: Any) -> tuple[list[Any], dict[str, Any]]:
        """Runs the body once on plain values, with the variables as given, and returns results and variables."""
        trace = self.ctx.trace
        outer = trace.state
        trace.state = dict(state)
        try:
            results = trace.call(self.body, args, self.frame(counter))
            return results, trace.state
        finally:
            trace.state = outer


@op("While", "StatelessWhile", "XlaWhile", "_While", needs_context=True)
def while_(ctx: Context, input: list[Any], *, cond: ir.FunctionRef, body: ir.FunctionRef) -> list[Any]:
    """Runs ``body`` as long as ``cond`` holds. See tf.raw_ops.While."""
    trace = ctx.trace
    cond_function = trace.program.function(cond.name)
    body_function = trace.program.function(body.name)
    written = sorted({*written_variables(ctx, body_function, input), *written_variables(ctx, cond_function, input)})
    constant = invariants(body_function)
    constant |= {i for i, v in enumerate(input) if not is_carried(v)}
    loop = _Loop(
        ctx, cond_function, body_function, list(input), written, constant, lambda n: ctx.frame.enter(ctx.step, n)
    )
    host = run_on_host(trace, cond_function, body_function, input, constant)
    if host is not None:
        return _counted(loop, host)
    return _unbounded(loop)


def _counted(loop: _Loop, host: HostLoop) -> list[Any]:
    if host.trips == 0:
        return list(loop.start)
    if host.trips == 1 or (host.trips <= _MAX_NESTED_UNROLL and _inner_loop_depends_on(loop, set(host.history))):
        return _unrolled(loop, host)
    static = set(host.history)
    carried = [i for i in range(len(loop.start)) if i not in loop.constant and i not in static]
    trace = loop.ctx.trace
    xs = {i: _stacked(steps) for i, steps in host.history.items()}
    counter = np.arange(host.trips, dtype=np.int32)

    def attempt(start: dict[int, Any]) -> tuple[dict[int, Any], dict[str, Any]]:
        outer = dict(trace.state)

        def step(carry: tuple[list[Any], dict[str, Any]], x: tuple[Any, dict[int, Any]]) -> tuple[Any, None]:
            data, variables = carry
            number, slices = x
            args = list(loop.start)
            for i, value in zip(carried, data, strict=True):
                args[i] = value
            for i, value in slices.items():
                args[i] = value
            results, state = loop.body_values(args, {**outer, **variables}, number)
            after = [as_traced(results[i]) for i in carried]
            after_variables = {name: as_traced(state[name]) for name in loop.written if name in state}
            _check_carry([*data, variables], [*after, after_variables])
            return (after, after_variables), None

        initial = [start[i] for i in carried]
        variables = {n: as_traced(start_vars[n]) for n in loop.written if n in start_vars}
        (data, variables), _ = lax.scan(step, (initial, variables), (counter, xs))
        return dict(zip(carried, data, strict=True)), variables

    start = {i: as_traced(loop.start[i]) for i in carried}
    lists = {i: v for i, v in start.items() if isinstance(v, TensorList)}
    growth: dict[int, Any] = {}
    start_vars = dict(trace.state)
    for _ in range(_MAX_ATTEMPTS):
        try:
            data, variables = attempt(start)
            break
        except LoweringError:
            # Something in the body needs a value that is known in each iteration, though not in the scan's body.
            if host.trips > _MAX_UNROLL or not host.history:
                raise
            return _unrolled(loop, host)
        except _CarryChanged as change:
            if not _adapt(start, start_vars, carried, change, host.trips, lists, growth):
                if host.trips <= _MAX_UNROLL:
                    return _unrolled(loop, host)
                raise OpError(_explain(loop, carried, change)) from None
    else:
        raise OpError("the form of the loop's variables does not settle (tensor lists within lists?)")
    trace.state.update(variables)
    results = list(loop.start)
    for i, value in data.items():
        if i in growth:
            length = lists[i].length + growth[i] * host.trips
            value = value.with_buffer(resized(value, length), length)
        results[i] = value
    results_static = dict(host.final)
    for i, value in results_static.items():
        results[i] = value
    return results


def _inner_loop_depends_on(loop: _Loop, static: set[int]) -> bool:
    """Whether a loop inside the body starts from, or is bounded by, one of the variables with a known history."""
    program = loop.ctx.trace.program
    for node in loop.body.nodes:
        if "cond" in node.attrs and "body" in node.attrs:
            for ref in node.inputs:
                plan = program.slice(loop.body, [ref])
                used = {slot for step in plan.steps for slot in step.inputs} | set(plan.outputs)
                if used & static and all(step.op.host is not None for step in plan.steps):
                    return True
    return False


def _stacked(steps: list[np.ndarray]) -> Any:
    if any(values.is_symbolic(v) for v in steps):
        return jnp.stack([jnp.asarray(values.as_array(v)) for v in steps])
    return values.as_array(np.stack(steps))


def _unrolled(loop: _Loop, host: HostLoop) -> list[Any]:
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


def _check_carry(before: list[Any], after: list[Any]) -> None:
    if any(signature(a) != signature(b) for a, b in zip(before, after, strict=True)):
        form = [jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), v) for v in after]
        raise _CarryChanged(before, form)


def _adapt(
    start: dict[int, Any],
    start_vars: dict[str, Any],
    carried: Sequence[int],
    change: _CarryChanged,
    trips: int | None,
    lists: dict[int, TensorList],
    growth: dict[int, Any],
) -> bool:
    """Gives the loop's initial values the form that the body asks for; False if there is no way."""
    adapted = False
    for i, before, after in zip(carried, change.before, change.after, strict=False):
        if signature(before) == signature(after):
            continue
        if not (isinstance(before, TensorList) and isinstance(after, TensorList)):
            return False
        original = start[i]
        if before.buffer is None and after.buffer is not None:
            count = before.capacity
            buffer = jax.tree.map(functools.partial(_zeros, count=count), after.buffer)
            if not isinstance(original.length, int) or not isinstance(after.length, int):
                buffer = jax.tree.map(_zeros, after.buffer)
            start[i] = original.with_buffer(buffer)
        elif not before.is_traced:
            if not after.is_traced:
                growth[i] = after.length - before.length
                more = max(growth[i], 0)
            else:
                more = max(after.capacity - before.capacity, 0)
            if trips is not None:
                capacity = before.capacity + more * trips
            elif before.limit >= 0:
                capacity = before.limit
            elif more == 0:
                capacity = before.capacity
            else:
                raise OpError(
                    "a tensor list grows in a loop whose number of iterations is not known while tracing; give "
                    "tf.while_loop maximum_iterations, or the TensorArray a size"
                )
            start[i] = original.with_buffer(resized(original, capacity), jnp.asarray(original.length, np.int32))
        else:
            return False
        adapted = True
    before_vars, after_vars = change.before[len(carried)], change.after[len(carried)]
    for name, form in after_vars.items():
        if name not in before_vars:  # the first assignment is inside the loop
            start_vars[name] = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), form)
            adapted = True
        elif signature(before_vars[name]) != signature(form):
            return False
    return adapted


def _zeros(form: Any, count: int | None = None) -> Any:
    return jnp.zeros(form.shape if count is None else (count, *form.shape[1:]), form.dtype)


def _explain(loop: _Loop, carried: Sequence[int], change: _CarryChanged) -> str:
    parts = []
    for i, before, after in zip(carried, change.before, change.after, strict=False):
        if signature(before) != signature(after):
            parts.append(f"{loop.body.args[i].name!r} from {_form(before)} to {_form(after)}")
    return (
        f"loop variables change their form between iterations ({'; '.join(parts)}); JAX loops carry fixed shapes "
        f"and dtypes. Loops of up to {_MAX_UNROLL} iterations, counted while tracing, are unrolled instead"
    )


def _form(value: Any) -> str:
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(value)) or "nothing"


def _unbounded(loop: _Loop) -> list[Any]:
    trace = loop.ctx.trace
    carried = [i for i in range(len(loop.start)) if i not in loop.constant]
    start = {i: as_traced(loop.start[i]) for i in carried}
    start_vars = dict(trace.state)

    def attempt(start: dict[int, Any]) -> tuple[dict[int, Any], dict[str, Any]]:
        outer = dict(trace.state)

        def arguments(data: list[Any]) -> list[Any]:
            args = list(loop.start)
            for i, value in zip(carried, data, strict=True):
                args[i] = value
            return args

        def test(carry: Any) -> Any:
            data, variables, number = carry
            saved, trace.state = trace.state, {**outer, **variables}
            try:
                (result,) = trace.call(loop.cond, arguments(data), loop.frame(number))
            finally:
                trace.state = saved
            result = jnp.asarray(values.as_array(result))
            return result.reshape(()) if result.dtype == jnp.bool_ else lax.ne(result, jnp.zeros((), result.dtype))

        def step(carry: Any) -> Any:
            data, variables, number = carry
            results, state = loop.body_values(arguments(data), {**outer, **variables}, number)
            after = [as_traced(results[i]) for i in carried]
            after_variables = {name: as_traced(state[name]) for name in loop.written if name in state}
            _check_carry([*data, variables], [*after, after_variables])
            return after, after_variables, number + 1

        variables = {n: as_traced(start_vars[n]) for n in loop.written if n in start_vars}
        data, variables, _ = lax.while_loop(
            test, step, ([start[i] for i in carried], variables, jnp.zeros((), np.int32))
        )
        return dict(zip(carried, data, strict=True)), variables

    lists = {i: v for i, v in start.items() if isinstance(v, TensorList)}
    for _ in range(_MAX_ATTEMPTS):
        try:
            data, variables = attempt(start)
            break
        except _CarryChanged as change:
            if not _adapt(start, start_vars, carried, change, None, lists, {}):
                raise OpError(_explain(loop, carried, change)) from None
    else:
        raise OpError("the form of the loop's variables does not settle (tensor lists within lists?)")
    trace.state.update(variables)
    results = list(loop.start)
    for i, value in data.items():
        results[i] = value
    return results
