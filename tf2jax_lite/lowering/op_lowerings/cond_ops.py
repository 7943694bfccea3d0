"""Calls; If and Case: a branch picked while tracing, or lax.cond and lax.switch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.lowering.interpreter.constant_folding import run_partially
from tf2jax_lite.lowering.interpreter.diagnostics import located
from tf2jax_lite.lowering.interpreter.frame import Context
from tf2jax_lite.lowering.merging.branch_merge import IMPOSSIBLE, UNDEFINED, merge_branches, same_static
from tf2jax_lite.lowering.merging.branch_variants import in_branch
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import LoweringError, OpError
from tf2jax_lite.values import static
from tf2jax_lite.values.tensor_list import TensorList


def _host_if(ctx: Context, cond: Any, input: list[Any], *, then_branch: Any, else_branch: Any) -> Any:
    if cond is not static.UNKNOWN:
        return _run_partially(ctx, then_branch if _truth(cond) else else_branch, input)
    results = []
    for branch, truth in ((then_branch, True), (else_branch, False)):
        # `a and b` is If(a, b, a): inside a branch the predicate is static.
        is_predicate = [slot == ctx.step.inputs[0] for slot in ctx.step.inputs[1:]]
        args = [np.asarray(truth) if same else v for same, v in zip(is_predicate, input, strict=True)]
        results.append(_run_partially(ctx, branch, args))
    return _in_all_branches(results)


def _in_all_branches(results: list[list[Any]]) -> list[Any]:
    """Return the static part of results if the branch is not static."""
    return [functools.reduce(_in_both, column) for column in zip(*results, strict=True)]


def _in_both(a: Any, b: Any) -> Any:
    if static.is_static(a) and static.is_static(b):
        return a if same_static(a, b) else static.UNKNOWN
    if isinstance(a, TensorList) and isinstance(b, TensorList) and a.length == b.length:
        return dataclasses.replace(a.abstracted(), max_length=max(a.max_length, b.max_length))
    return static.UNKNOWN


def _truth(found: Any) -> bool:
    # TensorFlow: a non-scalar is true if it has elements, a string if it is not empty.
    return bool(found.size) if found.ndim else (bool(found != b"") if found.dtype == object else bool(found))


def _host_case(ctx: Context, branch_index: Any, input: list[Any], *, branches: list[ir.FunctionRef]) -> Any:
    if branch_index is static.UNKNOWN:
        return _in_all_branches([_run_partially(ctx, ref, input) for ref in branches])
    index, last = int(branch_index), len(branches) - 1
    return _run_partially(ctx, branches[index if 0 <= index <= last else last], input)


def _run_partially(ctx: Context, ref: ir.FunctionRef, args: Sequence[Any]) -> list[Any]:
    program = ctx.trace.program
    return run_partially(ctx.trace, program.plan(program.function(ref.name)), args)


@op("If", "StatelessIf", "XlaIf", "_If", fold=_host_if)
def if_(ctx: Context, cond: Any, input: list[Any], *, then_branch: ir.FunctionRef, else_branch: ir.FunctionRef) -> Any:
    """Run one of two functions. See tf.raw_ops.If."""
    found = static.static_value(cond)
    if found is not None:
        return _run(ctx, then_branch if _truth(found) else else_branch, input)
    if cond.ndim:  # TensorFlow: a non-scalar is true if it has elements
        return _run(ctx, then_branch if cond.size else else_branch, input)
    truth = cond if cond.dtype == jnp.bool_ else lax.ne(cond, jnp.zeros((), cond.dtype))
    return select_branch(ctx, truth.astype(np.int32), [else_branch, then_branch], input)


@op("Case", "StatelessCase", fold=_host_case)
def case(ctx: Context, branch_index: Any, input: list[Any], *, branches: list[ir.FunctionRef]) -> Any:
    """Run the function at an index, or the last one. See tf.raw_ops.Case."""
    found = static.static_value(branch_index)
    last = len(branches) - 1
    if found is not None:
        index = int(found)
        return _run(ctx, branches[index if 0 <= index <= last else last], input)
    inside = (branch_index >= 0) & (branch_index <= last)
    return select_branch(ctx, jnp.where(inside, branch_index, last).astype(np.int32), branches, input)


def _run(ctx: Context, ref: ir.FunctionRef, args: Sequence[Any]) -> list[Any]:
    return ctx.trace.call(ctx.trace.program.function(ref.name), args, ctx.frame.enter(ctx.step))


def select_branch(ctx: Context, index: Any, refs: Sequence[ir.FunctionRef], args: Sequence[Any]) -> list[Any]:
    """Trace every branch under ``lax.switch``; assigned variables are results."""
    trace = ctx.trace
    functions = [trace.program.function(ref.name) for ref in refs]
    written = sorted({name for function in functions for name in written_variables(ctx, function, args)})
    frame = ctx.frame.enter(ctx.step, unconditional=False)

    impossible: list[LoweringError] = []

    def runner(branch: int, function: ir.Function) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            inner = trace.with_state(trace.state)
            given = args
            if trace.tracker is not None:
                given = [in_branch(value, trace.tracker, index, branch) for value in args]
            try:
                results = inner.call(function, given, frame)
            except LoweringError as error:  # a branch that cannot run is not the one that is taken
                impossible.append(error)
                if not isinstance(error.__cause__, IMPOSSIBLE) or len(impossible) == len(functions):
                    raise
                results, inner = [UNDEFINED] * len(function.outputs), trace
            # A variable that only some branches create has no value in the others: it starts as zeros there.
            return [*results, *(inner.state.get(name) for name in written)]

        return run

    results = merge_branches(
        index,
        [runner(*item) for item in enumerate(functions)],
        [f.name for f in functions],
        functools.partial(located, step=ctx.step, frame=ctx.frame),
        trace.tracker,
    )
    count = len(results) - len(written)
    trace.state.update(zip(written, results[count:], strict=True))
    return results[:count]


def written_variables(ctx: Context, function: ir.Function, args: Sequence[Any]) -> list[str]:
    """Return names of variables that ``function`` called with ``args`` assigns."""
    names = []
    for kind, which in ctx.trace.program.effects(function).writes:
        if kind == "name":
            names.append(str(which))
            continue
        handle = args[int(which)]
        if not isinstance(handle, static.VariableHandle):
            raise OpError(f"function {function.name!r} assigns to argument {which}, which is not a variable")
        names.append(handle.name)
    return sorted(set(names))


def _host_call(ctx: Context, args: list[Any], *, f: ir.FunctionRef) -> list[Any]:
    program = ctx.trace.program
    return run_partially(ctx.trace, program.plan(program.function(f.name)), args)


@op("PartitionedCall", "StatefulPartitionedCall", fold=_host_call)
def partitioned_call(ctx: Context, args: list[Any], *, f: ir.FunctionRef) -> list[Any]:
    """Call ``f``. See tf.raw_ops.PartitionedCall."""
    function = ctx.trace.program.function(f.name)
    return ctx.trace.call(function, args, ctx.frame.enter(ctx.step))


@op("_Undefined")
def undefined(ctx: Context, *, dtype: Any = None) -> list[Any]:
    """Return a placeholder for a result that only the other branch of an If has.

    No live node reads it.

    `passes.control_flow_v1` makes such nodes; where branches meet, zeros take the place
    (lowering/merging/branch_merge.py).
    """
    return [UNDEFINED]
