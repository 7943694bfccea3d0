"""Calls, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.loops import derivatives
from tf2jax_lite.stablehlo.parsing.module import TOKEN, TensorType
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from .core import RULES, Site, forced, is_splat, rule, scalar_of
from .counted_loops import counted_loop, scan_counted

__all__: list[str] = []


@rule("func.call", lazy=True)
def _call(site: Site, *args: Any) -> Any:
    function = site.run.function(site.attr("callee"))
    with jax.named_scope(function.name):
        return site.run.call(function, args)


@rule("stablehlo.composite", lazy=True)
def _composite(site: Site, *args: Any) -> Any:
    entry = RULES.get(site.attr("name"))
    if entry is not None:
        return entry.fn(site, *(forced(v) for v in args))
    function = site.run.function(site.attr("decomposition"))
    with jax.named_scope(site.attr("name")):
        return site.run.call(function, args)


def _data(types: Sequence[Any]) -> list[int]:
    return [i for i, t in enumerate(types) if isinstance(t, TensorType)]


def _strong(value: Any, type_: TensorType) -> Any:
    """Returns a value in the form that control flow carries."""
    dtype = canonical(type_.dtype)
    value = jnp.asarray(forced(value, dtype))
    if value.dtype != dtype or getattr(value, "weak_type", False):
        return lax.convert_element_type(value, dtype)
    return value


@rule("stablehlo.case", "stablehlo.if", lazy=True)
def _case(site: Site, index: Any) -> Any:
    run, regions = site.run, site.op.regions
    count = len(regions)
    is_if = site.op.name == "stablehlo.if"
    found = scalar_of(index) if is_splat(index) else static_value(forced(index))
    if found is not None:
        number = (0 if found else 1) if is_if else int(found)
        return run.region(regions[number if 0 <= number < count else count - 1], (), site.env)
    if count == 1:
        return run.region(regions[0], (), site.env)
    data = _data(site.op.types)

    def branch(region: Any) -> Any:
        def trace() -> list[Any]:
            results = run.region(region, (), site.env)
            return [_strong(results[i], site.op.types[i]) for i in data]

        return trace

    branches = [branch(region) for region in regions]
    index = forced(index)
    if not is_if and not _is_in_range(site):  # any index out of range is the last branch; lax.switch takes -1 for 0
        index = lax.select(lax.lt(index, jnp.zeros_like(index)), jnp.full_like(index, count - 1), index)
    made = lax.cond(index, *branches) if is_if else lax.switch(index, branches)
    results: list[Any] = [TOKEN] * len(site.op.types)
    for i, value in zip(data, made, strict=True):
        results[i] = value
    return results


def _is_in_range(site: Site) -> bool:
    """Whether an index is not negative: jax clamps it, or makes it of a boolean."""
    (number,) = site.op.operands
    maker = next((op for op in site.ops if number in op.results), None)
    if maker is None:
        return False
    from_bool = maker.name == "stablehlo.convert" and maker.operand_types[0].dtype == bool
    return maker.name == "stablehlo.clamp" or from_bool


@rule("stablehlo.while", lazy=True)
def _while(site: Site, *args: Any) -> Any:
    plan = counted_loop(site, args)
    if plan is not None:
        return scan_counted(site, plan, args, _strong)
    condition, body = site.op.regions
    fixed = [a == r for a, r in zip(body.args, body.returns, strict=True)]
    carried = [i for i in _data(site.op.types) if not fixed[i]]
    env = site.env

    def bind(region: Any, carry: Sequence[Any]) -> list[Any]:
        full = list(args)
        for i, value in zip(carried, carry, strict=True):
            full[i] = value
        return site.run.region(region, full, env)

    def test(carry: Sequence[Any]) -> Any:
        (result,) = bind(condition, carry)
        return jnp.asarray(forced(result))

    def step(carry: Sequence[Any]) -> list[Any]:
        results = bind(body, carry)
        return [_strong(results[i], site.op.types[i]) for i in carried]

    start = [_strong(args[i], site.op.types[i]) for i in carried]
    if not start:
        raise OpError("a loop that changes nothing")
    final, _ = derivatives.while_loop(test, step, start)
    results = list(args)
    for i, value in zip(carried, final, strict=True):
        results[i] = value
    return results


# ---- tokens ----


@rule("stablehlo.create_token", "stablehlo.after_all", lazy=True)
def _token(site: Site, *args: Any) -> Any:
    return [TOKEN]


@rule("stablehlo.partition_id", "stablehlo.replica_id", lazy=True)
def _place(site: Site) -> Any:
    return jnp.zeros((), site.dtype)
