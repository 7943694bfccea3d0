"""Induction variables: integers of a body with static values throughout.

They come from static inputs, from carried counters (such as the length of a list that each iteration extends), and
from static stacks of indices (such as those that an earlier loop saved for its gradient).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Literal, Var

from .batch_steps import fold_index
from .body import Body

_ARITHMETIC = {lax.add_p, lax.sub_p, lax.lt_p, lax.select_n_p, lax.convert_element_type_p, lax.broadcast_in_dim_p}
_RESHAPES = {lax.broadcast_in_dim_p, lax.convert_element_type_p, lax.squeeze_p, lax.reshape_p}
INDEXING = frozenset({*_ARITHMETIC, lax.dynamic_slice_p, lax.squeeze_p, lax.reshape_p})
"""The primitives that an element is read from a stack with."""


def induction_variables(body: Body, eqns: Sequence[Any]) -> dict[Any, np.ndarray]:
    """Return the carried static integers that each iteration changes by a constant.

    Args:
      body: the loop's body.
      eqns: its equations.

    Returns:
      For each such variable its values at the start of all iterations, and the one after the last.
    """
    defined_by = {v: e for e in eqns for v in e.outvars}
    found = {}
    for (before, first), after in zip(body.carry.items(), body.carry_out, strict=True):
        eqn = defined_by.get(after) if isinstance(after, Var) else None
        if eqn is None or not isinstance(first, np.ndarray) or before.aval.shape or eqn.invars[0] is not before:
            continue
        if eqn.primitive not in (lax.add_p, lax.sub_p) or not isinstance(eqn.invars[1], Literal):
            continue
        step = int(eqn.invars[1].val) * (1 if eqn.primitive is lax.add_p else -1)
        if jnp.issubdtype(first.dtype, jnp.integer):
            found[before] = (int(first) + step * np.arange(body.trips + 1, dtype=np.int64)).astype(first.dtype)
    return found


def index_values(
    eqns: Sequence[Any], constants: Mapping[Any, np.ndarray], xs: Mapping[Any, np.ndarray]
) -> dict[Any, np.ndarray]:
    """Return the static integers and booleans that are computed of static ones.

    Args:
      eqns: equations of one iteration.
      constants: loop-invariant numbers, and stacks of numbers.
      xs: numbers of all iterations, stacked along the first axis.

    Returns:
      ``xs`` with the results of equations added.
    """
    found = dict(xs)
    for eqn in eqns:
        if not any(isinstance(v, Var) and v in found for v in eqn.invars):
            continue
        result = eqn.outvars[0].aval if len(eqn.outvars) == 1 else None
        if result is None or result.shape not in ((), (1,)) or not _is_integer(result.dtype):
            continue
        operands: list[Any] = [v.val if isinstance(v, Literal) else found.get(v, constants.get(v)) for v in eqn.invars]
        if any(a is None for a in operands):
            continue
        value = _folded(eqn, operands, result)
        if value is not None:
            found[eqn.outvars[0]] = value
    return found


def _is_integer(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_


def _folded(eqn: Any, operands: Sequence[Any], result: Any) -> np.ndarray | None:
    shapes = [v.aval.shape for v in eqn.invars]
    if eqn.primitive in _RESHAPES:
        return np.reshape(operands[0], (-1, *result.shape)).astype(result.dtype) if shapes[0] in ((), (1,)) else None
    if eqn.primitive is lax.dynamic_slice_p:
        stack, index = operands
        if len(shapes[0]) != 1 or np.ndim(stack) != 1:
            return None
        return np.asarray(stack)[np.clip(index, 0, len(stack) - 1)][:, None].astype(result.dtype)
    numbers = fold_index(eqn, operands) if eqn.primitive in _ARITHMETIC else None
    return None if numbers is None else numbers[0]
