"""Whole numbers that are known of every iteration of a loop: what stacks are indexed with.

They come from the loop's known inputs, from what it carries and counts (the length of a list that each iteration makes
longer or shorter), and from known stacks of numbers (the places that an earlier loop kept for this one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Literal, Var

from .batch_steps import on_numbers

__all__ = ["INDEXING", "counters", "places_of"]

_PLACES = {lax.add_p, lax.sub_p, lax.lt_p, lax.select_n_p, lax.convert_element_type_p, lax.broadcast_in_dim_p}
_RESHAPING = {lax.broadcast_in_dim_p, lax.convert_element_type_p, lax.squeeze_p, lax.reshape_p}
INDEXING = frozenset({*_PLACES, lax.dynamic_slice_p, lax.squeeze_p, lax.reshape_p})
"""What an element is taken from a stack with."""


def counters(jaxpr: Any, eqns: Sequence[Any], start: Sequence[Any], trips: int) -> dict[int, np.ndarray]:
    """Returns, of what is carried, known numbers that each iteration changes by the same.

    Args:
      jaxpr: the loop's body.
      eqns: its equations.
      start: what it starts with.
      trips: how many iterations there are.

    Returns:
      For each such number, by its place among what is carried: its values before all iterations, and the last one.
    """
    made = {v: e for e in eqns for v in e.outvars}
    found = {}
    for i, first in enumerate(start):
        before, after = jaxpr.invars[i], jaxpr.outvars[i]
        eqn = made.get(after) if isinstance(after, Var) else None
        if eqn is None or not isinstance(first, np.ndarray) or before.aval.shape or eqn.invars[0] is not before:
            continue
        if eqn.primitive not in (lax.add_p, lax.sub_p) or not isinstance(eqn.invars[1], Literal):
            continue
        by = int(eqn.invars[1].val) * (1 if eqn.primitive is lax.add_p else -1)
        if jnp.issubdtype(first.dtype, jnp.integer):
            found[i] = (int(first) + by * np.arange(trips + 1, dtype=np.int64)).astype(first.dtype)
    return found


def places_of(
    eqns: Sequence[Any], known: Mapping[Any, np.ndarray], steps: Mapping[Any, np.ndarray]
) -> dict[Any, np.ndarray]:
    """Returns what is computed of whole numbers that are known of all iterations.

    Args:
      eqns: of one iteration.
      known: numbers, and stacks of them, that are the same in all.
      steps: numbers with one entry for each iteration along the first axis.

    Returns:
      ``steps`` with results added.
    """
    found = dict(steps)
    for eqn in eqns:
        if not any(isinstance(v, Var) and v in found for v in eqn.invars):
            continue
        result = eqn.outvars[0].aval if len(eqn.outvars) == 1 else None
        if result is None or result.shape not in ((), (1,)) or not _is_whole(result.dtype):
            continue
        args: list[Any] = [v.val if isinstance(v, Literal) else found.get(v, known.get(v)) for v in eqn.invars]
        if any(a is None for a in args):
            continue
        value = _evaluated(eqn, args, result)
        if value is not None:
            found[eqn.outvars[0]] = value
    return found


def _is_whole(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_


def _evaluated(eqn: Any, args: Sequence[Any], result: Any) -> np.ndarray | None:
    shapes = [v.aval.shape for v in eqn.invars]
    if eqn.primitive in _RESHAPING:
        return np.reshape(args[0], (-1, *result.shape)).astype(result.dtype) if shapes[0] in ((), (1,)) else None
    if eqn.primitive is lax.dynamic_slice_p:
        stack, at = args
        if len(shapes[0]) != 1 or np.ndim(stack) != 1:
            return None
        return np.asarray(stack)[np.clip(at, 0, len(stack) - 1)][:, None].astype(result.dtype)
    numbers = on_numbers(eqn, args) if eqn.primitive in _PLACES else None
    return None if numbers is None else numbers[0]
