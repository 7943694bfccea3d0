"""Nodes that call a function."""

from __future__ import annotations

from typing import Any

from tf2jax_lite import ir
from tf2jax_lite.lowering.interpreter.frame import Context
from tf2jax_lite.lowering.interpreter.partial_eval import run_partially
from tf2jax_lite.ops.registry import op

__all__: list[str] = []


def _host_call(ctx: Context, args: list[Any], *, f: ir.FunctionRef) -> list[Any]:
    program = ctx.trace.program
    return run_partially(ctx.trace, program.plan(program.function(f.name)), args)


@op("PartitionedCall", "StatefulPartitionedCall", fold=_host_call)
def partitioned_call(ctx: Context, args: list[Any], *, f: ir.FunctionRef) -> list[Any]:
    """Call ``f``. See tf.raw_ops.PartitionedCall."""
    function = ctx.trace.program.function(f.name)
    return ctx.trace.call(function, args, ctx.frame.enter(ctx.step))
