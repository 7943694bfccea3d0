"""The compiled loops: lax.scan where the number of iterations is known or bounded, a while loop otherwise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.autodiff.refuse_reverse_mode import forward_only
from tf2jax_lite.loops import derivatives
from tf2jax_lite.lowering.interpreter.trace import Context, Frame
from tf2jax_lite.lowering.merging.branch_merge import IMPOSSIBLE, is_carried
from tf2jax_lite.lowering.planning.plan import Plan
from tf2jax_lite.lowering.scan_opt import carry_to_xs, hoist_matmuls
from tf2jax_lite.support.errors import LoweringError
from tf2jax_lite.values import static

from .carry import Carry, settle
from .growing_carry import Growing
from .trip_count import HostLoop

__all__ = ["MAX_UNROLL", "Loop", "scan_loop", "while_loop"]

MAX_UNROLL = 256
"""A loop that cannot be compiled is unrolled up to this many iterations."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """What is fixed about one While node in one trace.

    Attributes:
      ctx: the node and where it stands.
      cond: the condition.
      body: the body.
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
        """Whether iterations do anything besides giving values."""
        effects = self.ctx.trace.program.effects
        return bool(self.written) or any(bool(effects(function)) for function in (self.cond, self.body))

    def frame(self, counter: Any) -> Frame:
        """Returns the frame of an iteration: whether one happens is certain if its number is known."""
        return self.ctx.frame.enter(self.ctx.step, counter, certain=static.static_value(counter) is not None)

    def arguments(self, changed: Mapping[int, Any]) -> list[Any]:
        """Returns all loop variables, given those that differ from the start."""
        return [changed.get(i, value) for i, value in enumerate(self.start)]

    def test(self, args: list[Any], state: dict[str, Any], counter: Any) -> Any:
        """Returns the condition as a bool scalar."""
        plan = self.ctx.trace.program.plan(self.cond)
        (result,) = self._run(plan, args, state, counter)[0]
        result = jnp.asarray(static.as_array(result))
        return result.reshape(()) if result.dtype == jnp.bool_ else lax.ne(result, jnp.zeros((), result.dtype))

    def iterate(
        self, args: list[Any], state: dict[str, Any], counter: Any, wanted: list[int]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Runs the body once and returns the results that are wanted, and the variables that the loop assigns to."""
        plan = self.ctx.trace.program.narrowed(self.body, [self.body.outputs[i] for i in wanted])
        results, state = self._run(plan, args, state, counter)
        return results, {name: state[name] for name in self.written if name in state}

    def _run(
        self, plan: Plan, args: list[Any], state: dict[str, Any], counter: Any
    ) -> tuple[list[Any], dict[str, Any]]:
        trace = self.ctx.trace
        outer = trace.state
        trace.state = dict(state)
        try:
            return trace.run(plan, args, self.frame(counter)), trace.state
        finally:
            trace.state = outer

    def carry(self, indices: list[int], host: HostLoop | None) -> Carry:
        """Returns the initial values of what a loop carries."""
        trace = self.ctx.trace
        return Carry(
            names={i: self.body.args[i].name for i in indices},
            data={i: self.start[i] for i in indices},
            variables={name: trace.state[name] for name in self.written if name in trace.state},
            trips=None if host is None else host.trips,
            host=host,
            bound=trace.program.config.dynamic_shape_bound,
            pops=trace.program.holds(self.body, "TensorListPopBack"),
            growing=self._growing(host),
        )

    def _growing(self, host: HostLoop | None) -> Growing | None:
        """Returns what carries arrays that change their sizes; None where there are no sizes that data decides."""
        if self.ctx.trace.extents is None:
            return None
        if host is None:
            return Growing(self.ctx.trace.extents, None, is_exact=False, can_unroll=False)
        can_unroll = host.exact and host.trips <= MAX_UNROLL
        return Growing(self.ctx.trace.extents, host.trips, host.exact, can_unroll)

    def gated(self, go: Any, args: list[Any], state: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns what an iteration works on, cut off from gradients where it does not count.

        Under vmap both sides of a ``lax.cond`` run. What a body makes of values that the loop has left behind may have
        no derivative, and NaN times 0 is NaN: this stops it before it reaches anything else.
        """

        def gate(value: Any) -> Any:
            if not isinstance(value, jax.Array) or not jnp.issubdtype(value.dtype, jnp.inexact):
                return value
            return jnp.where(go, value, lax.stop_gradient(value))

        read = {v.name for v in self.start if isinstance(v, static.VariableHandle)} | set(self.written)
        gated_args = [jax.tree.map(gate, v) if is_carried(v) and not static.is_static(v) else v for v in args]
        return gated_args, {name: jax.tree.map(gate, value) if name in read else value for name, value in state.items()}


def scan_loop(loop: Loop, host: HostLoop) -> list[Any]:
    """Runs a loop as ``lax.scan`` over the iterations that the host counted.

    The static variables' histories are its inputs, so that nothing is computed of them. If data may end the loop
    earlier, iterations from there on do nothing.

    Raises:
      OpError: loop variables change their shape or dtype.
    """
    history = {i: _stacked(steps) for i, steps in host.history.items() if i not in host.uneven}
    carried = [i for i in range(len(loop.start)) if i not in loop.constant and i not in history]
    known_lists = {i: lst for i, lst in host.lists.items() if lst.buffer is not static.UNKNOWN}
    if host.exact and not (set(carried) - known_lists.keys()) and not loop.has_effects:
        return loop.arguments({**host.final, **known_lists})  # nothing is left to compute
    carry = loop.carry(carried, host)
    outer = dict(loop.ctx.trace.state)
    counter = np.arange(host.trips, dtype=np.int32)
    trips: list[Any] = []

    def attempt() -> Any:
        def body(values_: Any, number: Any, slices: dict[int, Any], go: Any = None) -> Any:
            data, variables = values_
            args = loop.arguments({**carry.opened(data), **slices})
            state = {**outer, **variables}
            if go is not None:
                args, state = loop.gated(go, args, state)
            return carry.check(values_, loop.iterate(args, state, number, carried))

        def step(state: Any, x: Any) -> tuple[Any, None]:
            return body(state, *x), None

        def masked(state: Any, x: Any) -> tuple[Any, None]:
            now, running, count = state
            number, slices = x
            args = loop.arguments({**carry.opened(now[0]), **slices})
            test = carry.goes_on(loop.test(args, {**outer, **now[1]}, number), now[0])
            go = carry.check_condition(jnp.logical_and(running, test))
            after = lax.cond(go, lambda: body(now, number, slices, go), lambda: now)
            return (after, go, count + go), None

        mode = loop.ctx.trace.program.config.loop_checkpoint
        start, xs = carry.initial(), (counter, history)
        if host.exact:
            return _scan(step, start, xs, host.trips, mode)
        flags = carry.flag(np.bool_(True)), carry.flag(np.int32(0))
        end, _, count = _scan(masked, (start, *flags), xs, host.trips, mode)
        trips[:] = [count]
        return end

    data, variables = settle(carry, attempt)
    loop.ctx.trace.state.update(variables)
    results = loop.arguments(data)
    for i, steps in host.history.items():
        if host.exact:
            results[i] = host.final[i]
        elif i in history:
            # Data decides where in its history a variable stays.
            reached = jnp.asarray(_stacked([*steps, host.final[i]]))
            results[i] = lax.dynamic_index_in_dim(reached, trips[0], 0, keepdims=False)
    if host.exact:
        for i, lst in known_lists.items():
            results[i] = lst
    return results


def _scan(step: Callable[..., Any], start: Any, xs: Any, trips: int, mode: str) -> Any:
    """Runs ``lax.scan`` and returns what it carries at the end; ``mode`` is the option ``loop_checkpoint``."""
    if mode == "none":
        return hoist_matmuls.scan(step, start, xs, trips)
    body = carry_to_xs.body_of(step, start, xs, trips)
    if body is None:
        return _checkpointed(step, start, xs, trips, mode)[0]
    one, inputs = body.step()
    end, rows = _checkpointed(one, list(body.carried), inputs, trips, mode)
    return body.end([*end, *rows])


def _checkpointed(step: Callable[..., Any], start: Any, xs: Any, trips: int, mode: str) -> tuple[Any, Any]:
    """Runs ``lax.scan`` so that it keeps what (some) iterations start with, and computes the rest anew."""
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


def while_loop(loop: Loop, host: HostLoop | None) -> list[Any]:
    """Runs a loop as ``lax.while_loop``; gradients that go backwards through it compute its iterations again.

    A body that cannot run even once, as it takes elements from a list that has none, does not run.

    Raises:
      OpError: loop variables change their shape or dtype.
    """
    carried = [i for i in range(len(loop.start)) if i not in loop.constant]
    carry = loop.carry(carried, host)
    outer = dict(loop.ctx.trace.state)

    def attempt() -> Any:
        def test(state: Any) -> Any:
            (data, variables), number = state
            go = loop.test(loop.arguments(carry.opened(data)), {**outer, **variables}, number)
            return carry.goes_on(go, data)

        def step(state: Any) -> Any:
            now, number = state
            data, variables = now
            args = loop.arguments(carry.opened(data))
            try:
                after = loop.iterate(args, {**outer, **variables}, number, carried)
            except LoweringError as error:
                if isinstance(error.__cause__, IMPOSSIBLE):
                    impossible.append(error)
                raise
            return carry.check(now, after), number + 1

        most = None if host is None else host.trips
        end, differentiable = derivatives.while_loop(test, step, (carry.initial(), jnp.zeros((), np.int32)), most)
        again[:] = [differentiable]
        return end[0]

    impossible: list[LoweringError] = []
    again: list[bool] = []
    try:
        data, variables = settle(carry, attempt)
    except LoweringError:
        if not impossible:
            raise
        loop.ctx.trace.state = outer
        return list(loop.start)
    if not all(again):
        data, variables = _forward_only(loop, (data, variables), host)
    loop.ctx.trace.state.update(variables)
    return loop.arguments(data)


def _forward_only(loop: Loop, results: Any, host: HostLoop | None) -> Any:
    """Marks results as such that no gradient goes backwards through."""
    node, path = loop.ctx.step.node, loop.ctx.frame.path
    where = f"node {node.name!r} ({node.op})" + (f" in {' > '.join(path)}" if path else "")
    if host is not None:
        way = f"At most {host.trips} iterations are possible: convert with override_config('loop_bound', 'scan')"
    else:
        way = "Give tf.while_loop maximum_iterations and convert with override_config('loop_bound', 'scan')"
    message = (
        f"{where}: a gradient is taken backwards through a loop that runs until data ends it. That needs its "
        f"iterations again, which have effects (printing, assertions, callbacks) that would be repeated. {way}, or "
        "differentiate forwards (jax.jvp, jax.jacfwd)."
    )
    return forward_only(results, message=message, node=node.name, op=node.op, path=path)
