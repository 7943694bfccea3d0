"""Run while loops of known trip count as ``lax.scan``, with slices as xs, ys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.parsing.module import Region, TensorType
from tf2jax_lite.support.errors import OpError

from .core import OpContext, materialize, rule
from .induction import Affine, integer
from .scan_rewrite import Access, Plan, Rewrite, is_fixed


def counted_loop(ctx: OpContext, args: Sequence[Any]) -> Plan | None:
    """Return a plan to scan a while loop, or None if its trip count is not known."""
    condition, body = ctx.op.regions
    bound = _bound(ctx, condition, body, args)
    if bound is None:
        return None
    counter, limit = bound
    start = integer(args[counter])
    if start is None:
        return None
    trips = limit - start
    if isinstance(trips, (int, np.integer)):
        trips = max(0, int(trips))
    starts = {i: integer(v) for i, v in enumerate(args)}
    induction = {i for i, v in starts.items() if v is not None and not is_fixed(body, i)}
    blocked: set[int] = set()
    for _ in range(len(args) + 2):
        attempt = Rewrite(ctx.run, body, ctx.env, args, trips, {i: starts[i] for i in induction}, blocked)
        wrong = {i for i in induction if attempt.returned(i) != Affine(1, starts[i] + 1)}
        if counter in wrong:
            return None
        if not wrong and not attempt.invalid_reads():
            return attempt.plan(induction)
        induction -= wrong
        blocked |= attempt.invalid_reads()
    return None


def _bound(ctx: OpContext, condition: Region, body: Region, args: Sequence[Any]) -> tuple[int, Any] | None:
    made = {v: op for op in condition.ops for v in op.results}
    positions = {v: i for i, v in enumerate(condition.args)}
    if len(condition.returns) != 1:
        return None
    op = made.get(condition.returns[0])
    if op is None or op.name != "stablehlo.compare":
        return None
    direction = op.attrs["comparison_direction"]
    left, right = op.operands if direction == "LT" else op.operands[::-1]
    if direction not in ("LT", "GT") or left not in positions:
        return None
    if right in positions:
        limit = integer(args[positions[right]]) if is_fixed(body, positions[right]) else None
    elif right in made:
        limit = integer(made[right].attrs.get("value")) if made[right].name == "stablehlo.constant" else None
    else:
        limit = integer(ctx.env.get(right))
    return None if limit is None else (positions[left], limit)


@rule("loop.expand")
def _expand(ctx: OpContext, x: Any) -> Any:
    return lax.expand_dims(x, (ctx.attr("axis"),))


@rule("loop.squeeze")
def _squeeze(ctx: OpContext, x: Any) -> Any:
    return lax.squeeze(x, (ctx.attr("axis"),))


# ---- evaluation ----


def scan_counted(
    ctx: OpContext, plan: Plan, args: Sequence[Any], strong: Callable[[Any, TensorType], Any]
) -> list[Any]:
    """Run a counted loop as ``lax.scan``."""
    types = ctx.op.types
    results = list(args)
    if isinstance(plan.trips, int) and plan.trips == 0:
        return results
    env = ctx.env
    positions = {number: i for i, number in enumerate(plan.arguments)}
    for i in plan.fixed:
        env[plan.arguments[i]] = args[i]
    accesses = [*plan.reads, *(access for _, access in plan.writes)]
    backwards = bool(accesses) and all(access.a == -1 for access in accesses)

    def source(access: Access) -> Any:
        return args[positions[access.source]] if access.source in positions else env[access.source]

    xs = [_cut(materialize(source(access)), access, plan.trips, backwards) for access in plan.reads]
    count = len(plan.carried)
    kinds = [types[i] for i in plan.carried] + [types[i] for i, _ in plan.writes]

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        made = ctx.run.region(plan.body, [*carry, *slices], env)
        made = [strong(v, t) for v, t in zip(made, kinds, strict=True)]
        return made[:count], made[count:]

    start = [strong(args[i], types[i]) for i in plan.carried]
    # JAX takes a symbolic length only from the arrays.
    length = plan.trips if isinstance(plan.trips, int) or not xs else None
    final, ys = lax.scan(step, start, xs, length=length, reverse=backwards)
    for i, value in zip(plan.carried, final, strict=True):
        results[i] = value
    for (i, access), stacked in zip(plan.writes, ys, strict=True):
        results[i] = _filled(args[i], stacked, access, plan.trips, backwards)
    for i, value in plan.counted.items():
        results[i] = _counted_value(value, types[i])
    return results


def _counted_value(value: Any, type_: TensorType) -> Any:
    if isinstance(value, (int, np.integer)):
        return np.asarray(value).astype(np.int64).astype(type_.dtype)
    out = np.empty((), object)
    out[()] = value
    return out


def _low(access: Access, trips: Any) -> Any:
    return access.b if access.a == 1 else access.b - (trips - 1)


def _cut(x: Any, access: Access, trips: Any, backwards: bool) -> Any:
    low = _low(access, trips)
    if not (low == 0 and trips == x.shape[access.axis]):
        x = lax.slice_in_dim(x, low, low + trips, axis=access.axis)
    if access.axis:
        order = [i for i in range(x.ndim) if i != access.axis]
        x = lax.transpose(x, (access.axis, *order))
    return lax.rev(x, (0,)) if access.a == -1 and not backwards else x


def _filled(buffer: Any, ys: Any, access: Access, trips: Any, backwards: bool) -> Any:
    if access.a == -1 and not backwards:
        ys = lax.rev(ys, (0,))
    if access.axis:
        order = list(range(1, ys.ndim))
        order.insert(access.axis, 0)
        ys = lax.transpose(ys, order)
    low, shape = _low(access, trips), buffer.shape
    if any(d != n for i, (d, n) in enumerate(zip(ys.shape, shape, strict=True)) if i != access.axis):
        raise OpError(f"updates of shape {ys.shape} along axis {access.axis} of an array of shape {shape}")
    if low == 0 and trips == shape[access.axis]:
        return ys
    starts = [low if i == access.axis else 0 for i in range(ys.ndim)]
    return lax.dynamic_update_slice(
        materialize(buffer), ys, [np.int32(s) for s in starts], allow_negative_indices=False
    )
