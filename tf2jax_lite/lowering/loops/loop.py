"""Compiled loops: ``lax.scan`` for bounded trip counts, else ``while_loop``."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.autodiff.one_mode import forward_only
from tf2jax_lite.loops import derivatives
from tf2jax_lite.lowering import scan_opt
from tf2jax_lite.lowering.interpreter.frame import Context, Frame
from tf2jax_lite.lowering.merging.branch_merge import IMPOSSIBLE, is_carried
from tf2jax_lite.lowering.planning.plan import Plan
from tf2jax_lite.support.errors import LoweringError
from tf2jax_lite.values import static

from .carry import Carry, find_fixpoint
from .growing_carry import GrowingCarry
from .trip_count import FoldedLoop

MAX_UNROLL = 256
"""A loop that cannot be compiled is unrolled up to this many iterations."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """A While node in one trace.

    Attributes:
      start: the loop variables' initial values.
      written: names of the variables that the loop assigns to.
      constant: indices of the loop variables that never change.
    """

    ctx: Context
    cond: ir.Function
    body: ir.Function
    start: list[Any]
    written: list[str]
    constant: frozenset[int]

    @property
    def has_effects(self) -> bool:
        """Whether iterations have side effects."""
        effects = self.ctx.trace.program.effects
        return bool(self.written) or any(bool(effects(function)) for function in (self.cond, self.body))

    def frame(self, counter: Any) -> Frame:
        """Return an iteration's frame; it is unconditional if its number is static."""
        return self.ctx.frame.enter(self.ctx.step, counter, unconditional=static.static_value(counter) is not None)

    def arguments(self, changed: Mapping[int, Any]) -> list[Any]:
        """Return all loop variables, given those that differ from the start."""
        return [changed.get(i, value) for i, value in enumerate(self.start)]

    def test(self, args: list[Any], state: dict[str, Any], counter: Any) -> Any:
        """Return the condition as a bool scalar."""
        plan = self.ctx.trace.program.plan(self.cond)
        (result,) = self._run(plan, args, state, counter)[0]
        result = jnp.asarray(static.as_array(result))
        return result.reshape(()) if result.dtype == jnp.bool_ else lax.ne(result, jnp.zeros((), result.dtype))

    def iterate(
        self, args: list[Any], state: dict[str, Any], counter: Any, wanted: list[int]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Run the body once; return wanted results and assigned variables."""
        plan = self.ctx.trace.program.plan_of(self.body, [self.body.outputs[i] for i in wanted], effects=True)
        results, state = self._run(plan, args, state, counter)
        return results, {name: state[name] for name in self.written if name in state}

    def _run(
        self, plan: Plan, args: list[Any], state: dict[str, Any], counter: Any
    ) -> tuple[list[Any], dict[str, Any]]:
        trace = self.ctx.trace.with_state(state)
        return trace.run(plan, args, self.frame(counter)), trace.state

    def carry(self, indices: list[int], folded: FoldedLoop | None) -> Carry:
        """Return the carry of some loop variables, given by index."""
        trace = self.ctx.trace
        return Carry(
            names={i: self.body.args[i].name for i in indices},
            data={i: self.start[i] for i in indices},
            variables={name: trace.state[name] for name in self.written if name in trace.state},
            trips=None if folded is None else folded.trips,
            folded=folded,
            bound=trace.program.config.dynamic_shape_bound,
            pops=trace.program.holds(self.body, "TensorListPopBack"),
            growing=self._growing(folded),
        )

    def _growing(self, folded: FoldedLoop | None) -> GrowingCarry | None:
        """Return the carry of resizing arrays; None if not supported here."""
        if self.ctx.trace.tracker is None:
            return None
        if folded is None:
            return GrowingCarry(self.ctx.trace.tracker, None, is_exact=False, can_unroll=False)
        can_unroll = folded.exact and folded.trips <= MAX_UNROLL
        return GrowingCarry(self.ctx.trace.tracker, folded.trips, folded.exact, can_unroll)

    def gated(self, go: Any, args: list[Any], state: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return operands whose gradients are stopped where the loop has ended.

        Under vmap both sides of a ``lax.cond`` run. After the end, the body's derivative may not be finite, and NaN
        times 0 is NaN: this stops it from reaching other values.
        """

        def gate(value: Any) -> Any:
            if not isinstance(value, jax.Array) or not jnp.issubdtype(value.dtype, jnp.inexact):
                return value
            return jnp.where(go, value, lax.stop_gradient(value))

        read = {v.name for v in self.start if isinstance(v, static.VariableHandle)} | set(self.written)
        gated_args = [jax.tree.map(gate, v) if is_carried(v) and not static.is_static(v) else v for v in args]
        return gated_args, {name: jax.tree.map(gate, value) if name in read else value for name, value in state.items()}


def scan_loop(loop: Loop, folded: FoldedLoop) -> list[Any]:
    """Run a loop as ``lax.scan`` over the iterations that folding counted.

    The histories of static variables are its inputs. If traced values may end the loop earlier, iterations after that
    do nothing.
    """
    history = {i: _stacked(steps) for i, steps in folded.history.items() if i not in folded.changing_types}
    carried = [i for i in range(len(loop.start)) if i not in loop.constant and i not in history]
    static_lists = {i: lst for i, lst in folded.lists.items() if lst.buffer is not static.UNKNOWN}
    if folded.exact and not (set(carried) - static_lists.keys()) and not loop.has_effects:
        return loop.arguments({**folded.final, **static_lists})  # all is folded
    carry = loop.carry(carried, folded)
    outer = dict(loop.ctx.trace.state)
    counter = np.arange(folded.trips, dtype=np.int32)
    trips: list[Any] = []

    def attempt() -> Any:
        def body(values_: Any, number: Any, slices: dict[int, Any], go: Any = None) -> Any:
            data, variables = values_
            args = loop.arguments({**carry.unpack(data), **slices})
            state = {**outer, **variables}
            if go is not None:
                args, state = loop.gated(go, args, state)
            return carry.check(values_, loop.iterate(args, state, number, carried))

        def step(state: Any, x: Any) -> tuple[Any, None]:
            return body(state, *x), None

        def masked(state: Any, x: Any) -> tuple[Any, None]:
            now, running, count = state
            number, slices = x
            args = loop.arguments({**carry.unpack(now[0]), **slices})
            test = carry.keep_running(loop.test(args, {**outer, **now[1]}, number), now[0])
            go = carry.check_condition(jnp.logical_and(running, test))
            after = lax.cond(go, lambda: body(now, number, slices, go), lambda: now)
            return (after, go, count + go), None

        start, xs = carry.initial(), (counter, history)
        if folded.exact:
            return _scan(loop, step, start, xs, folded.trips)
        flags = carry.flag(np.bool_(True)), carry.flag(np.int32(0))
        end, _, count = _scan(loop, masked, (start, *flags), xs, folded.trips)
        trips[:] = [count]
        return end

    data, variables = find_fixpoint(carry, attempt)
    loop.ctx.trace.state.update(variables)
    results = loop.arguments(data)
    for i, steps in folded.history.items():
        if folded.exact:
            results[i] = folded.final[i]
        elif i in history:
            # The trip count selects the variable's value from its history.
            reached = jnp.asarray(_stacked([*steps, folded.final[i]]))
            results[i] = lax.dynamic_index_in_dim(reached, trips[0], 0, keepdims=False)
    if folded.exact:
        for i, lst in static_lists.items():
            results[i] = lst
    return results


def _scan(loop: Loop, step: Callable[..., Any], start: Any, xs: Any, trips: int) -> Any:
    """Run ``lax.scan``, optimized, and return the last carry."""
    program = loop.ctx.trace.program
    mode = program.config.loop_checkpoint
    if mode == "none":
        return scan_opt.scan(step, start, xs, trips, program.scan_optimizations)
    # The others save values of all iterations, which checkpoints are to avoid.
    names = program.scan_optimizations & {"carry_to_xs"}
    return scan_opt.scan(step, start, xs, trips, names, functools.partial(checkpointed_scan, mode=mode))


def checkpointed_scan(step: Callable[..., Any], start: Any, xs: Any, trips: int, *, mode: str) -> tuple[Any, Any]:
    """Run ``lax.scan``, with checkpoints of the carry for gradients if configured.

    ``mode`` is the option ``loop_checkpoint``.
    """
    if mode == "none":
        return lax.scan(step, start, xs)
    step = jax.checkpoint(step, prevent_cse=False)
    inner = math.isqrt(trips)
    if mode != "segments" or inner < 2:
        return lax.scan(step, start, xs)
    whole = trips // inner * inner
    segments = jax.tree.map(lambda x: x[:whole].reshape(whole // inner, inner, *x.shape[1:]), xs)

    def segment(state: Any, x: Any) -> tuple[Any, Any]:
        return lax.scan(step, state, x)

    end, rows = lax.scan(jax.checkpoint(segment, prevent_cse=False), start, segments)
    rows = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), rows)
    if whole < trips:
        end, last = lax.scan(step, end, jax.tree.map(lambda x: x[whole:], xs))
        rows = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), rows, last)
    return end, rows


def _stacked(steps: list[np.ndarray]) -> Any:
    if any(static.is_symbolic(v) for v in steps):
        return jnp.stack([jnp.asarray(static.as_array(v)) for v in steps])
    return static.as_array(np.stack(steps))


def while_loop(loop: Loop, folded: FoldedLoop | None) -> list[Any]:
    """Run a loop as ``lax.while_loop``; its reverse pass recomputes iterations.

    A body that cannot run even once, as it pops from an empty list, does not run.
    """
    carried = [i for i in range(len(loop.start)) if i not in loop.constant]
    carry = loop.carry(carried, folded)
    outer = dict(loop.ctx.trace.state)

    def attempt() -> Any:
        def test(state: Any) -> Any:
            (data, variables), number = state
            go = loop.test(loop.arguments(carry.unpack(data)), {**outer, **variables}, number)
            return carry.keep_running(go, data)

        def step(state: Any) -> Any:
            now, number = state
            data, variables = now
            args = loop.arguments(carry.unpack(data))
            try:
                after = loop.iterate(args, {**outer, **variables}, number, carried)
            except LoweringError as error:
                if isinstance(error.__cause__, IMPOSSIBLE):
                    impossible.append(error)
                raise
            return carry.check(now, after), number + 1

        max_trips = None if folded is None else folded.trips
        end, differentiable = derivatives.while_loop(test, step, (carry.initial(), jnp.zeros((), np.int32)), max_trips)
        again[:] = [differentiable]
        return end[0]

    impossible: list[LoweringError] = []
    again: list[bool] = []
    try:
        data, variables = find_fixpoint(carry, attempt)
    except LoweringError:
        if not impossible:
            raise
        return list(loop.start)
    if not all(again):
        data, variables = _forward_only(loop, (data, variables), folded)
    loop.ctx.trace.state.update(variables)
    return loop.arguments(data)


def _forward_only(loop: Loop, results: Any, folded: FoldedLoop | None) -> Any:
    """Return results that raise an error in reverse mode."""
    node, path = loop.ctx.step.node, loop.ctx.frame.path
    where = f"node {node.name!r} ({node.op})" + (f" in {' > '.join(path)}" if path else "")
    if folded is not None:
        advice = f"At most {folded.trips} iterations are possible: convert with override_config('loop_bound', 'scan')"
    else:
        advice = "Give tf.while_loop maximum_iterations and convert with override_config('loop_bound', 'scan')"
    message = (
        f"{where}: a gradient is taken in reverse mode through a loop with a data-dependent trip count. That needs its "
        f"iterations again, which have effects (printing, assertions, callbacks) that would be repeated. {advice}, or "
        "differentiate forwards (jax.jvp, jax.jacfwd)."
    )
    return forward_only(results, message=message, node=node.name, op=node.op, path=path)
