"""Cumulative sums, products and log-sum-exps on CPU.

JAX computes them as a tree: some two log(n) passes over all values, with gaps. Row by row there is one pass, where a
step along the axis is a row of values: a third to an eightieth of the time (two cores with AVX-512, JAX 0.10). A long
last axis is split into 16 parts that become rows, whose totals are added to the parts after them: half the time.
Cumulative log-sum-exps are a window of reductions in JAX on CPU, each of all values before it; the tree takes a tenth
of that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from . import cost_model
from .rules import Rule, by_table, with_cpu_rules


def _is_in_parts(x: Any, *, axis: int, **params: Any) -> bool:
    static = all(isinstance(n, int) for n in x.shape)
    return static and axis == x.ndim - 1 and x.shape[axis] >= cost_model.CUMULATIVE_MIN_TRANSPOSED


def _is_by_rows(x: Any, *, axis: int, **params: Any) -> bool:
    static = all(isinstance(n, int) for n in x.shape)
    return static and x.shape[axis] > 1 and math.prod(x.shape[axis + 1 :]) >= cost_model.CUMULATIVE_MIN_ROW


def _by_rows(
    x: Any, *, axis: int, reverse: bool, fn: Callable[..., Any], unrolled: int = cost_model.CUMULATIVE_MAX_UNROLLED
) -> Any:
    shape, count = x.shape, x.shape[axis]
    x = lax.reshape(x, (math.prod(shape[:axis]), count, math.prod(shape[axis + 1 :])))
    if count <= unrolled:
        rows = [lax.slice_in_dim(x, i, i + 1, axis=1) for i in range(count)]
        if reverse:
            rows.reverse()
        for i in range(1, count):
            rows[i] = fn(rows[i - 1], rows[i])
        return lax.reshape(lax.concatenate(rows[::-1] if reverse else rows, 1), shape)
    zero, one = np.int32(0), np.int32(-1 if reverse else 1)
    row = (x.shape[0], 1, x.shape[2])

    def step(index: Any, out: Any) -> Any:
        index = lax.convert_element_type(index, np.int32)  # JAX's own is wider in 64-bit mode
        index = np.int32(count - 1) - index if reverse else index
        before = lax.dynamic_slice(out, (zero, index - one, zero), row, allow_negative_indices=False)
        here = lax.dynamic_slice(out, (zero, index, zero), row, allow_negative_indices=False)
        return lax.dynamic_update_slice(out, fn(before, here), (zero, index, zero), allow_negative_indices=False)

    return lax.reshape(lax.fori_loop(np.int32(1), np.int32(count), step, x), shape)


def _in_parts(x: Any, *, axis: int, reverse: bool, **_: Any) -> Any:
    """Return cumulative sums along a long last axis."""
    shape, count = x.shape, x.shape[axis]
    zero = np.zeros((), x.dtype)
    length = -(-count // cost_model.CUMULATIVE_PARTS)
    padding = cost_model.CUMULATIVE_PARTS * length - count
    first = padding if reverse else 0
    x = lax.reshape(x, (math.prod(shape[:-1]), count))
    x = lax.pad(x, zero, [(0, 0, 0), (first, padding - first, 0)])
    parts = lax.transpose(lax.reshape(x, (x.shape[0], cost_model.CUMULATIVE_PARTS, length)), (0, 2, 1))
    out = _by_rows(parts, axis=1, reverse=reverse, fn=lax.add)
    totals = lax.cumsum(out[:, 0 if reverse else -1], axis=1, reverse=reverse)
    others = lax.pad(totals, zero, [(0, 0, 0), (-1, 1, 0) if reverse else (1, -1, 0)])
    out = lax.add(out, jnp.broadcast_to(others[:, None], out.shape))
    out = lax.reshape(lax.transpose(out, (0, 2, 1)), x.shape)
    return lax.reshape(lax.slice_in_dim(out, first, first + count, axis=1), shape)


def _tree(x: Any, *, axis: int, reverse: bool) -> Any:
    return lax.associative_scan(jnp.logaddexp, x, reverse, axis)


_BY_ROWS = "JAX's tree makes some 2 log(n) passes over all values; row by row there is one."

SUM_RULES = (
    Rule("cumulative_in_parts", _is_in_parts, _in_parts, "A long last axis has no rows: its parts become rows."),
    Rule("cumulative_by_rows", _is_by_rows, _by_rows, _BY_ROWS),
)
# Parts of a product could overflow where the product does not.
PRODUCT_RULES = (Rule("cumulative_by_rows", _is_by_rows, _by_rows, _BY_ROWS),)
LOGSUMEXP_RULES = (
    # Not unrolled, where XLA would recompute each row for all that follow.
    Rule("cumulative_by_rows", _is_by_rows, functools.partial(_by_rows, fn=jnp.logaddexp, unrolled=0), _BY_ROWS),
    Rule(
        "cumulative_logsumexp_tree",
        lambda x, *, axis, **params: isinstance(x.shape[axis], int),
        _tree,
        "JAX reduces all values before each one; the tree takes a tenth of that.",
    ),
)

with_cpu_rules(lax.cumsum_p, by_table(SUM_RULES, fn=lax.add))
with_cpu_rules(lax.cumprod_p, by_table(PRODUCT_RULES, fn=lax.mul))
with_cpu_rules(lax.cumlogsumexp_p, by_table(LOGSUMEXP_RULES))
