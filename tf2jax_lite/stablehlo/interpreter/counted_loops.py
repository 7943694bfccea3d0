"""Counted loops: a while that only counts, cuts its arrays at the counter and fills others there is a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.parsing.module import Region, TensorType
from tf2jax_lite.support.errors import OpError

from .core import Site, forced, rule
from .induction import Affine, integer
from .scan_rewrite import Place, Plan, Rewrite, is_fixed

__all__ = ["counted_loop", "scan_counted"]


def counted_loop(site: Site, args: Sequence[Any]) -> Plan | None:
    """Returns how to scan a while loop, or None if its number of iterations is not known."""
    condition, body = site.op.regions
    bound = _bound(site, condition, body, args)
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
    counting = {i for i, v in starts.items() if v is not None and not is_fixed(body, i)}
    barred: set[int] = set()
    for _ in range(len(args) + 2):
        attempt = Rewrite(site.run, body, site.env, args, trips, {i: starts[i] for i in counting}, barred)
        wrong = {i for i in counting if attempt.returned(i) != Affine(1, starts[i] + 1)}
        if counter in wrong:
            return None
        if not wrong and not attempt.wrong_reads():
            return attempt.plan(counting)
        counting -= wrong
        barred |= attempt.wrong_reads()
    return None


def _bound(site: Site, condition: Region, body: Region, args: Sequence[Any]) -> tuple[int, Any] | None:
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
        limit = integer(site.env.get(right))
    return None if limit is None else (positions[left], limit)


@rule("loop.expand")
def _expand(site: Site, x: Any) -> Any:
    return lax.expand_dims(x, (site.attr("axis"),))


@rule("loop.squeeze")
def _squeeze(site: Site, x: Any) -> Any:
    return lax.squeeze(x, (site.attr("axis"),))


# ---- running it ----


def scan_counted(site: Site, plan: Plan, args: Sequence[Any], strong: Callable[[Any, TensorType], Any]) -> list[Any]:
    """Runs a counted loop as ``lax.scan``."""
    types = site.op.types
    results = list(args)
    if isinstance(plan.trips, int) and plan.trips == 0:
        return results
    env = site.env
    positions = {number: i for i, number in enumerate(plan.arguments)}
    for i in plan.fixed:
        env[plan.arguments[i]] = args[i]
    places = [*plan.reads, *(place for _, place in plan.writes)]
    backwards = bool(places) and all(place.a == -1 for place in places)

    def source(place: Place) -> Any:
        return args[positions[place.source]] if place.source in positions else env[place.source]

    xs = [_cut(forced(source(place)), place, plan.trips, backwards) for place in plan.reads]
    count = len(plan.carried)
    kinds = [types[i] for i in plan.carried] + [types[i] for i, _ in plan.writes]

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        made = site.run.region(plan.body, [*carry, *slices], env)
        made = [strong(v, t) for v, t in zip(made, kinds, strict=True)]
        return made[:count], made[count:]

    start = [strong(args[i], types[i]) for i in plan.carried]
    # JAX takes a symbolic length from the arrays alone.
    length = plan.trips if isinstance(plan.trips, int) or not xs else None
    final, ys = lax.scan(step, start, xs, length=length, reverse=backwards)
    for i, value in zip(plan.carried, final, strict=True):
        results[i] = value
    for (i, place), stacked in zip(plan.writes, ys, strict=True):
        results[i] = _filled(args[i], stacked, place, plan.trips, backwards)
    for i, value in plan.counted.items():
        results[i] = _counted_value(value, types[i])
    return results


def _counted_value(value: Any, type_: TensorType) -> Any:
    if isinstance(value, (int, np.integer)):
        return np.asarray(value).astype(np.int64).astype(type_.dtype)
    out = np.empty((), object)
    out[()] = value
    return out


def _low(place: Place, trips: Any) -> Any:
    return place.b if place.a == 1 else place.b - (trips - 1)


def _cut(x: Any, place: Place, trips: Any, backwards: bool) -> Any:
    low = _low(place, trips)
    if not (low == 0 and trips == x.shape[place.axis]):
        x = lax.slice_in_dim(x, low, low + trips, axis=place.axis)
    if place.axis:
        order = [i for i in range(x.ndim) if i != place.axis]
        x = lax.transpose(x, (place.axis, *order))
    return lax.rev(x, (0,)) if place.a == -1 and not backwards else x


def _filled(buffer: Any, ys: Any, place: Place, trips: Any, backwards: bool) -> Any:
    if place.a == -1 and not backwards:
        ys = lax.rev(ys, (0,))
    if place.axis:
        order = list(range(1, ys.ndim))
        order.insert(place.axis, 0)
        ys = lax.transpose(ys, order)
    low, shape = _low(place, trips), buffer.shape
    if any(d != n for i, (d, n) in enumerate(zip(ys.shape, shape, strict=True)) if i != place.axis):
        raise OpError(f"updates of shape {ys.shape} along axis {place.axis} of an array of shape {shape}")
    if low == 0 and trips == shape[place.axis]:
        return ys
    starts = [low if i == place.axis else 0 for i in range(ys.ndim)]
    return lax.dynamic_update_slice(forced(buffer), ys, [np.int32(s) for s in starts], allow_negative_indices=False)
