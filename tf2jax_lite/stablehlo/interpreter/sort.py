"""Sorting: key comparators become ``lax.sort``; others rank all pairs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .core import OpContext, rule
from .elementwise import order_key
from .reductions import expression


@rule("stablehlo.sort")
def _sort(ctx: OpContext, *operands: Any) -> Any:
    axis = ctx.attr("dimension", -1)
    stable = bool(ctx.attr("is_stable", False))
    region = ctx.op.regions[0]

    def constant(number: int) -> Any:
        value = ctx.env.get(number)
        return value.item() if isinstance(value, (np.ndarray, np.generic)) and value.size == 1 else number

    keys = _keys(expression(region, region.returns[0], constant))
    if keys is not None:
        plain = [(k, "LT") for k, _, _ in keys]
        count = len({k for k, _, _ in keys})
        natural = list(dict.fromkeys(plain)) == [(k, "LT") for k in range(count)]
        if natural and all(d == "LT" and (normal or _is_exact(operands[k])) for k, d, normal in keys):
            return lax.sort(operands, dimension=axis, is_stable=stable, num_keys=count)
        if not any(jnp.iscomplexobj(operands[k]) for k, _, _ in keys):
            made = [_ascending(operands[k], direction, normal) for k, direction, normal in keys]
            return lax.sort((*made, *operands), dimension=axis, is_stable=True, num_keys=len(made))[len(made) :]
    rank = _ranks(ctx, operands, axis)
    return lax.sort((rank, *operands), dimension=axis, is_stable=True, num_keys=1)[1:]


def _is_exact(x: Any) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def _ascending(x: Any, direction: str, normal: bool) -> Any:
    if _is_exact(x):
        return x if direction == "LT" else lax.bitwise_not(x)
    if direction == "LT" and normal:
        return x
    key = order_key(jnp.where(jnp.isnan(x), jnp.array(np.nan, x.dtype), x + jnp.zeros((), x.dtype)) if normal else x)
    return key if direction == "LT" else lax.bitwise_not(key)


def _keys(tree: Any) -> list[tuple[int, str, bool]] | None:
    """Read a comparator's keys: operand, direction, and equality of 0s and NaNs."""
    if tree[0] == "compare" and tree[1] in ("LT", "GT"):
        key = _key(tree[2], tree[3])
        return None if key is None else [(key[0], tree[1], key[1])]
    if tree[0] == "or":
        for first, rest in ((tree[2], tree[3]), (tree[3], tree[2])):
            head = _keys(first)
            if head is None or len(head) != 1 or rest[0] != "and":
                continue
            for same, tail in ((rest[2], rest[3]), (rest[3], rest[2])):
                if same[0] == "compare" and same[1] == "EQ" and {same[2], same[3]} == {first[2], first[3]}:
                    more = _keys(tail)
                    if more is not None:
                        return head + more
    return None


def _key(left: Any, right: Any) -> tuple[int, bool] | None:
    a, b = _unwrapped(left), _unwrapped(right)
    if a is None or b is None or a[1:] != b[1:] or b[0] != a[0] + 1 or a[0] % 2:
        return None
    return a[0] // 2, a[1]


def _unwrapped(tree: Any) -> tuple[int, bool, str] | None:
    """Return the argument, whether jax normalized it, and its part."""
    if tree[0] == "arg":
        return tree[1], False, ""
    if tree[0] in ("real", "imag") and tree[2][0] == "arg":
        return tree[2][1], False, tree[0]
    if tree[0] != "select" or len(tree) != 5:
        return None
    _, _, pred, nan, inner = tree
    if pred[:2] != ("compare", "NE") or pred[2] != pred[3] or nan != ("constant", "nan"):
        return None
    if inner[0] != "select" or inner[2][:2] != ("compare", "EQ") or inner[3] != ("constant", 0.0):
        return None
    if not inner[4] == inner[2][2] == pred[2] or inner[2][3] != ("constant", 0.0):
        return None
    found = _unwrapped(pred[2])
    return None if found is None or found[1] else (found[0], True, found[2])


def _ranks(ctx: OpContext, operands: tuple[Any, ...], axis: int) -> Any:
    """Return ranks by pairwise comparison, in quadratic time and space."""
    compare = ctx.region(0)
    size = operands[0].shape[axis]
    moved = [jnp.moveaxis(x, axis, -1) for x in operands]
    flat = [x.reshape(-1, size) for x in moved]

    def less(first: list[Any], second: list[Any]) -> Any:
        return compare(*(v for pair in zip(first, second, strict=True) for v in pair))[0]

    rows = jax.vmap(jax.vmap(jax.vmap(less, in_axes=(None, 0)), in_axes=(0, None)))
    before = rows(flat, flat)  # of [row, i, j]: whether i comes before j
    earlier = lax.broadcasted_iota(np.int32, (size, size), 0) < lax.broadcasted_iota(np.int32, (size, size), 1)
    ahead = before | (~jnp.swapaxes(before, -1, -2) & earlier)
    rank = ahead.astype(np.int32).sum(-2)
    return jnp.moveaxis(rank.reshape(moved[0].shape), -1, axis)
