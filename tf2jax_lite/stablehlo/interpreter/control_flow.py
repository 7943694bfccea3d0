"""Calls, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from tf2jax_lite.loops import derivatives
from tf2jax_lite.loops.body import Deferred
from tf2jax_lite.loops.counted import scan_counted
from tf2jax_lite.stablehlo.parsing.module import TOKEN, TensorType
from tf2jax_lite.support.errors import OpError, UnsupportedError
from tf2jax_lite.values.static import canonical, dims_array, static_value

from .core import RULES, OpContext, is_splat, materialize, rule, scalar_of


@rule("func.call", lazy=True)
def _call(ctx: OpContext, *args: Any) -> Any:
    function = ctx.run.function(ctx.attr("callee"))
    with jax.named_scope(function.name):
        return ctx.run.call(function, args)


@rule("stablehlo.composite", lazy=True)
def _composite(ctx: OpContext, *args: Any) -> Any:
    entry = RULES.get(ctx.attr("name"))
    if entry is not None:
        return entry.fn(ctx, *(materialize(v) for v in args))
    function = ctx.run.function(ctx.attr("decomposition"))
    with jax.named_scope(ctx.attr("name")):
        return ctx.run.call(function, args)


def _data(types: Sequence[Any]) -> list[int]:
    return [i for i, t in enumerate(types) if isinstance(t, TensorType)]


def _strong(value: Any, type_: TensorType) -> Any:
    """Return a value in the form that control flow carries."""
    dtype = canonical(type_.dtype)
    value = jnp.asarray(materialize(value, dtype))
    if value.dtype != dtype or getattr(value, "weak_type", False):
        return lax.convert_element_type(value, dtype)
    return value


def _deferred(value: Any, type_: TensorType) -> Deferred:
    aval = jax.ShapeDtypeStruct(value.shape, canonical(type_.dtype))
    return Deferred(aval, lambda: _strong(value, type_))


@rule("stablehlo.case", "stablehlo.if", lazy=True)
def _case(ctx: OpContext, index: Any) -> Any:
    run, regions = ctx.run, ctx.op.regions
    count = len(regions)
    is_if = ctx.op.name == "stablehlo.if"
    found = scalar_of(index) if is_splat(index) else static_value(materialize(index))
    if found is not None:
        number = (0 if found else 1) if is_if else int(found)
        return run.region(regions[number if 0 <= number < count else count - 1], (), ctx.env)
    if count == 1:
        return run.region(regions[0], (), ctx.env)
    data = _data(ctx.op.types)

    def branch(region: Any) -> Any:
        def trace() -> list[Any]:
            results = run.region(region, (), ctx.env)
            return [_strong(results[i], ctx.op.types[i]) for i in data]

        return trace

    branches = [branch(region) for region in regions]
    index = materialize(index)
    if not is_if and not _is_in_range(ctx):  # any index out of range is the last branch; lax.switch takes -1 for 0
        index = lax.select(lax.lt(index, jnp.zeros_like(index)), jnp.full_like(index, count - 1), index)
    made = lax.cond(index, *branches) if is_if else lax.switch(index, branches)
    results: list[Any] = [TOKEN] * len(ctx.op.types)
    for i, value in zip(data, made, strict=True):
        results[i] = value
    return results


def _is_in_range(ctx: OpContext) -> bool:
    """Return whether an index is not negative, as jax clamps or makes it."""
    (number,) = ctx.op.operands
    maker = next((op for op in ctx.ops if number in op.results), None)
    if maker is None:
        return False
    from_bool = maker.name == "stablehlo.convert" and maker.operand_types[0].dtype == bool
    return maker.name == "stablehlo.clamp" or from_bool


@rule("stablehlo.while", lazy=True)
def _while(ctx: OpContext, *args: Any) -> Any:
    condition, body = ctx.op.regions
    fixed = [a == r for a, r in zip(body.args, body.returns, strict=True)]
    carried = [i for i in _data(ctx.op.types) if not fixed[i]]
    env = ctx.env

    def bind(region: Any, carry: Sequence[Any]) -> list[Any]:
        full = list(args)
        for i, value in zip(carried, carry, strict=True):
            full[i] = value
        return ctx.run.region(region, full, env)

    def test(carry: Sequence[Any]) -> Any:
        (result,) = bind(condition, carry)
        return jnp.asarray(materialize(result))

    def step(carry: Sequence[Any]) -> list[Any]:
        results = bind(body, carry)
        return [_strong(results[i], ctx.op.types[i]) for i in carried]

    if not carried:
        raise OpError("a loop that changes nothing")
    static = {n: value for n, i in enumerate(carried) if (value := _static_integer(args[i])) is not None}
    final = scan_counted(test, step, [_deferred(args[i], ctx.op.types[i]) for i in carried], static)
    if final is None:
        final, _ = derivatives.while_loop(test, step, [_strong(args[i], ctx.op.types[i]) for i in carried])
    results = list(args)
    for i, value in zip(carried, final, strict=True):
        is_counter = isinstance(value, int) or is_symbolic_dim(value)
        results[i] = dims_array((value,), ctx.op.types[i].dtype).reshape(()) if is_counter else value
    return results


def _static_integer(value: Any) -> Any:
    """Return a static integer scalar, or a symbolic dimension; None for other values."""
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 0:
        return value.item()
    return int(scalar_of(value)) if is_splat(value) and np.ndim(value) == 0 and value.dtype.kind in "iu" else None


# ---- tokens ----


@rule("stablehlo.create_token", "stablehlo.after_all", lazy=True)
def _token(ctx: OpContext, *args: Any) -> Any:
    return [TOKEN]


@rule("stablehlo.partition_id", "stablehlo.replica_id", lazy=True)
def _place(ctx: OpContext) -> Any:
    return jnp.zeros((), ctx.dtype)


@rule(
    "stablehlo.all_reduce",
    "stablehlo.all_gather",
    "stablehlo.all_to_all",
    "stablehlo.reduce_scatter",
    "stablehlo.collective_broadcast",
)
def _among_one(ctx: OpContext, *args: Any) -> Any:
    groups = ctx.attr("replica_groups")
    alone = _devices(ctx) == 1 if groups is None or not np.size(groups) else np.shape(groups)[-1] == 1
    if not alone or ctx.op.types != ctx.op.operand_types:
        raise _refused(ctx)
    return args


@rule("stablehlo.collective_permute")
def _permute(ctx: OpContext, x: Any) -> Any:
    pairs = np.asarray(ctx.attr("source_target_pairs")).reshape(-1, 2).tolist()
    if _devices(ctx) != 1 or any(pair != [0, 0] for pair in pairs):
        raise _refused(ctx)
    return x if pairs else jnp.zeros_like(x)  # devices without a sender get zeros


def _devices(ctx: OpContext) -> int:
    attrs = ctx.run.module.attrs
    return int(attrs.get("mhlo.num_partitions", 1)) * int(attrs.get("mhlo.num_replicas", 1))


def _refused(ctx: OpContext) -> UnsupportedError:
    return UnsupportedError(
        "a collective among several devices: there is one inside of a module here, so export the function that "
        "shard_map or pmap is given"
    )
