"""Custom gradients, recomputation, and gradients of functions as nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.autodiff.custom_gradient import Refusal, with_custom_gradient
from tf2jax_lite.autodiff.one_mode import forward_only, reverse_only
from tf2jax_lite.ir.traversal import CALLS
from tf2jax_lite.lowering.interpreter.diagnostics import NOT_LINEAR, describe
from tf2jax_lite.lowering.interpreter.frame import Context, Frame
from tf2jax_lite.lowering.interpreter.trace import Trace
from tf2jax_lite.lowering.merging.branch_merge import as_traced, is_carried
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values import static as values


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray | np.generic) and jnp.issubdtype(value.dtype, jnp.inexact)


def _moves(value: Any) -> bool:
    return _is_differentiable(value) and not values.is_static(value)


@dataclasses.dataclass(frozen=True)
class _GradientCall:
    """Arguments of a gradient function, and of the primitive made of them.

    The arguments are an upstream gradient for each result of the node, then the captured values:

    | argument | made of |
    | --- | --- |
    | gradient of a differentiated result | its cotangent |
    | gradient of another result | zeros |
    | captured result of the node itself | the primitive's result, so that its own gradient is used again |
    | captured data | a residual |
    | captured symbol or static value | itself |

    Attributes:
      own: for each captured value the index of the result of the node that it is, or -1.
    """

    output: Sequence[Any]
    differentiated: Sequence[int]
    captured: Sequence[Any]
    own: Sequence[int]

    def residuals(self) -> list[Any]:
        """Return for each captured value the array to save, or None."""
        data = [as_traced(v) if is_carried(v) and not values.is_static(v) else None for v in self.captured]
        return [None if o >= 0 else v for v, o in zip(data, self.own, strict=True)]

    def upstream(self, cotangents: Sequence[Any]) -> list[Any]:
        """Return upstream gradients, given the differentiated results' cotangents."""
        # TensorFlow's complex gradients are conjugates of JAX's cotangents.
        given = dict(zip(self.differentiated, map(jnp.conj, cotangents), strict=True))
        return [given[i] if i in given else _zero_gradient(value) for i, value in enumerate(self.output)]

    def captures(self, results: Sequence[Any], residuals: Sequence[Any]) -> list[Any]:
        """Return the captured values, given the differentiated results and the residuals."""
        given = dict(zip(self.differentiated, results, strict=True))
        found = []
        for value, residual, position in zip(self.captured, residuals, self.own, strict=True):
            value = value if residual is None else residual
            found.append(given.get(position, value))
        return found


def _zero_gradient(value: Any) -> Any:
    if _is_differentiable(value):
        return jnp.zeros(value.shape, values.canonical(value.dtype))
    if is_carried(value) and not values.is_string(value):
        return jax.tree.map(jnp.zeros_like, as_traced(value))
    return value


_WITHOUT_NUMBERS = frozenset(
    """Const Identity IdentityN NoOp PartitionedCall PreventGradient ReadVariableOp StatefulPartitionedCall StopGradient
    XlaCallModule _CustomGradient _NoFurtherGradient""".split()  # noqa: SIM905
)
"""Ops of gradient functions that jax2tf wrote."""


def _is_derived(trace: Trace, function: ir.Function) -> bool:
    """Return whether a gradient function does nothing but call StableHLO modules."""
    ops: set[str] = set()
    pending, seen = [function], {function.name}
    while pending:
        found = pending.pop()
        ops |= found.ops
        names = {ref.name for node in found.callers if node.op in CALLS for ref in node.functions} - seen
        seen |= names
        pending += map(trace.program.function, names)
    return "XlaCallModule" in ops and ops <= _WITHOUT_NUMBERS


@op("_CustomGradient")
def custom_gradient(
    ctx: Context,
    output: list[Any],
    input: list[Any],
    captured: list[Any],
    *,
    gradient: ir.FunctionRef,
    positions: Sequence[int],
    own: Sequence[int],
) -> list[Any]:
    """Return ``output``, with the gradient that a gradient function computes.

    No other value gets a gradient.

    Args:
      captured: further arguments of the gradient function, after the gradients of the results.
      positions: for each of its results the index of the input that it is the gradient with respect to.
      own: for each captured value the index of the result of this node that it is, or -1.
    See tf.custom_gradient and tf.Graph.gradient_override_map. A second derivative goes through the gradient function,
    what it captures, and this node's own gradient again, as in TensorFlow.
    """
    trace, frame = ctx.trace, ctx.frame.enter(ctx.step)
    function = trace.program.function(gradient.name)
    slots = [(r, i) for r, i in enumerate(positions) if _moves(input[i])]
    if not slots:
        # No gradient can reach the inputs. Constants stay constants.
        return [lax.stop_gradient(v) if isinstance(v, jax.Array) else v for v in output]
    args = [as_traced(input[i]) for _, i in slots]
    # An IdentityN returns its arguments as well as its results; of those, constants stay constants.
    forwarded = set(positions) if len(output) == len(input) else set()
    # Unused results get no gradient either.
    unused = {i for i, slot in enumerate(ctx.step.outputs) if slot in ctx.step.release} - set(own)
    moving = [
        i
        for i, v in enumerate(output)
        if i not in unused and _is_differentiable(v) and not (i in forwarded and values.is_static(v))
    ]
    if not moving:
        return list(output)
    # In TensorFlow the forward code has no gradient. JAX does not differentiate stopped values: zeros could become NaN.
    results = [lax.stop_gradient(as_traced(output[i])) for i in moving]
    call = _GradientCall(output, moving, captured, own)
    # The gradient function reads the values that variables have now, not those of when the gradient is taken.
    state = _variables(trace, [v for v in captured if isinstance(v, values.VariableHandle)])
    key = _key_of_gradient(trace, function, frame)

    def cotangents(args: list[Any], results: list[Any], residuals: Any, given: list[Any]) -> list[Any]:
        saved, state, key = residuals
        inner, at = _inside(trace, state, key, frame)
        found = inner.call(function, [*call.upstream(given), *call.captures(results, saved)], at)
        return [_as_gradient(ctx, i, found[r], a) for (r, i), a in zip(slots, args, strict=True)]

    message = f"{describe(ctx.step, ctx.frame)}: {NOT_LINEAR}"
    refusal = Refusal(message, ctx.step.node.name, ctx.step.node.op, frame.path)
    out = list(output)
    residuals = (call.residuals(), state, key)
    derived = _is_derived(trace, function)
    found = with_custom_gradient(cotangents, args, results, residuals, refusal, derived=derived)
    for i, value in zip(moving, found, strict=True):
        out[i] = value
    return out


@op("_NoFurtherGradient")
def no_further_gradient(ctx: Context, input: list[Any], *, order: int) -> list[Any]:
    """Return ``input``; derivatives of it, in either mode, raise an error.

    Args:
      input: results of a node with a custom gradient, in the gradient function of a gradient function, ``order`` deep.
    """
    message = (
        f"{describe(ctx.step, ctx.frame)}: a derivative of order {order + 1} is taken through custom gradients inside "
        f"custom gradients, of which orders up to {order} are converted. Convert with "
        "override_config('convert_custom_gradient', False) to differentiate the forward code instead"
    )
    where = {"message": message, "node": ctx.step.node.name, "op": ctx.step.node.op, "path": ctx.frame.path}
    arrays = [as_traced(v) if _is_differentiable(v) and not values.is_static(v) else v for v in input]
    return [reverse_only(forward_only(v, **where), **where) for v in arrays]


@op("_Recompute")
def recompute(ctx: Context, input: list[Any], *, f: ir.FunctionRef, stopped: Sequence[int]) -> list[Any]:
    """Call ``f`` under jax.checkpoint, with the same random numbers in both passes.

    Args:
      stopped: arguments that get no gradient.
    See tf.recompute_grad. ``f`` is cut out of the function that calls it, so nodes keep their keys.
    """
    trace, frame = ctx.trace, ctx.frame
    function = trace.program.function(f.name)
    carried = [i for i, v in enumerate(input) if is_carried(v) and not values.is_static(v)]
    key = _key_of_gradient(trace, function, frame)
    results_or_none: list[Any] = []

    def run(data: list[Any], state: Variables, key: Any) -> list[Any]:
        args = list(input)
        for i, value in zip(carried, data, strict=True):
            args[i] = jax.tree.map(lax.stop_gradient, value) if i in stopped else value
        inner, at = _inside(trace, state, key, frame)
        results = inner.call(function, args, at)
        results_or_none[:] = [None if is_carried(v) and not values.is_static(v) else v for v in results]
        return [as_traced(v) for v in results if is_carried(v) and not values.is_static(v)]

    state = _variables(trace, [v for v in input if isinstance(v, values.VariableHandle)])
    data = iter(jax.checkpoint(run)([as_traced(input[i]) for i in carried], state, key))
    return [next(data) if v is None else v for v in results_or_none]


def _key_of_gradient(trace: Trace, function: ir.Function, frame: Frame) -> Any:
    """Return key data for a function that draws after its trace has ended."""
    if trace.key_impl is not None and trace.program.effects(function).needs_key:
        return jax.random.key_data(frame.key())
    return None


Variables = tuple[dict[str, Any], dict[str, Any] | None]
"""Variables by name: their values, and their initial values (see `Trace`)."""


def _variables(trace: Trace, handles: Sequence[values.VariableHandle]) -> Variables:
    """Return handles' variables as arrays, for a function in another trace."""

    def of(values: Mapping[str, Any]) -> dict[str, Any]:
        return {v.name: jax.tree.map(as_traced, values[v.name]) for v in handles if v.name in values}

    return of(trace.state), None if trace.initial is None else of(trace.initial)


def _inside(trace: Trace, variables: Variables, key: Any, frame: Frame) -> tuple[Trace, Frame]:
    """Return evaluator and frame of another trace, for variables and key data."""
    typed = None if key is None else jax.random.wrap_key_data(key, impl=trace.key_impl)
    state, initial = variables
    inner = Trace(
        trace.program,
        dict(state),
        typed,
        promote_dtypes=trace.promote_dtypes,
        initial=initial,
        suppress_effects=trace.suppress_effects,
        tracker=trace.tracker,
        inconclusive=trace.inconclusive,
    )
    return inner, Frame(frame.path, inner.root_frame().key, frame.unconditional)


def _as_gradient(ctx: Context, position: int, gradient: Any, value: Any) -> Any:
    """Return a gradient as the cotangent of ``value``."""
    gradient = jnp.conj(jnp.asarray(values.as_array(gradient))).astype(value.dtype)
    try:
        return jnp.broadcast_to(gradient, value.shape)
    except ValueError:
        raise OpError(
            f"the custom gradient at node {ctx.step.node.name!r} returns shape {gradient.shape} for input {position} "
            f"of shape {value.shape}"
        ) from None


@op("SymbolicGradient")
def symbolic_gradient(ctx: Context, input: list[Any], *, f: ir.FunctionRef) -> list[Any]:
    """Return gradients with respect to ``f``'s arguments. See SymbolicGradient."""
    trace, frame = ctx.trace, ctx.frame.enter(ctx.step)
    function = trace.program.function(f.name)
    count = len(function.args)
    args = [as_traced(v) for v in input[:count]]
    inexact = [i for i, v in enumerate(args) if jnp.issubdtype(v.dtype, jnp.inexact)]

    def call(chosen: list[Any]) -> list[Any]:
        given = list(args)
        for i, value in zip(inexact, chosen, strict=True):
            given[i] = value
        return [as_traced(v) for v in trace.call(function, given, frame)]

    results, pull = jax.vjp(call, [args[i] for i in inexact])
    upstream = [
        jnp.conj(as_traced(g)) if jnp.issubdtype(r.dtype, jnp.inexact) else np.zeros(r.shape, jax.dtypes.float0)
        for r, g in zip(results, input[count:], strict=True)
    ]
    (chosen,) = pull(upstream)
    grads = [jnp.zeros_like(v) for v in args]
    for i, value in zip(inexact, chosen, strict=True):
        grads[i] = jnp.conj(value)
    return grads
