"""Evaluation of a loop body's equations for all iterations, as ``jax.vmap``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Var, bind
from tf2jax_lite.jaxprs.evaluate import evaluate_equations

from .induction import Access, consecutive, fold_index, is_static


def batch_equations(eqns: Sequence[Any], constants: Mapping[Any, Any], xs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Evaluate equations for all iterations at once.

    Args:
      constants: values of loop-invariant variables.
      xs: values of other variables in all iterations, stacked along the first axis.

    Returns:
      ``xs`` with the stacked results of the equations added. Invariant results are not among them.
    """
    env, stacked = {**constants, **xs}, set(xs)

    def rule(eqn: Any, operands: list[Any]) -> list[Any] | None:
        axes = [0 if isinstance(v, Var) and v in stacked else None for v in eqn.invars]
        if 0 not in axes:
            return None
        results = _slices_in_order(eqn, operands, axes)
        if results is None and eqn.primitive.name == "jit":  # jax.numpy's indexing
            results = _batched_call(eqn.params["jaxpr"], operands, axes)
        if results is None:
            results = fold_index(eqn, operands)
        if results is None:
            results = _folded_if_static(jax.vmap(lambda *a: bind(eqn, *a), in_axes=axes), operands)
        stacked.update(eqn.outvars)
        return results

    evaluate_equations(eqns, env, rule)
    return {v: value for v, value in env.items() if v in stacked}


def _batched_call(closed: Any, operands: Sequence[Any], axes: Sequence[int | None]) -> list[Any] | None:
    """Evaluate a called jaxpr; None where a result is the same in all iterations."""
    args = list(zip(closed.jaxpr.invars, operands, axes, strict=True))
    constants = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    constants |= {v: value for v, value, axis in args if axis is None}
    found = batch_equations(closed.jaxpr.eqns, constants, {v: value for v, value, axis in args if axis == 0})
    outputs = closed.jaxpr.outvars
    return [found[v] for v in outputs] if all(isinstance(v, Var) and v in found for v in outputs) else None


def _folded_if_static(fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Call a function, at once for static operands: indices stay static."""
    if all(map(is_static, operands)):
        with jax.ensure_compile_time_eval():
            return [np.asarray(r) for r in fn(*operands)]
    return fn(*operands)


def _slices_in_order(eqn: Any, operands: Sequence[Any], axes: Sequence[int | None]) -> list[Any] | None:
    """Return slices read at consecutive indices, stacked; None for others."""
    # Dynamic slices at one index per iteration are a gather in general. At consecutive indices they are one slice.
    if eqn.primitive is not lax.dynamic_slice_p or axes[0] == 0:
        return None
    operand, *starts = operands
    varying = [d for d, axis in enumerate(axes[1:]) if axis == 0]
    if len(varying) != 1 or not all(isinstance(s, (np.ndarray, np.generic, int)) for s in starts):
        return None
    access = consecutive(np.asarray(starts[varying[0]]), varying[0], operand.shape)
    if eqn.params["slice_sizes"][varying[0]] != 1 or access is None:
        return None
    elements = read_elements(operand, starts, eqn.params["slice_sizes"], access, len(starts[varying[0]]))
    return [jnp.expand_dims(elements, varying[0] + 1)]


def read_elements(stack: Any, starts: Sequence[Any], sizes: Sequence[Any], access: Access, trips: Any) -> Any:
    """Return the slices of a stack in all iterations, without the indexed axis.

    Args:
      starts: the slices' first indices, integers where a slice is not the whole axis.
    """
    axis, shape = access.axis, stack.shape
    for d, size in enumerate(sizes):
        count = trips if d == axis else size
        if count == shape[d]:
            continue
        start = access.first if d == axis else min(max(int(starts[d]), 0), shape[d] - size)
        stack = lax.slice_in_dim(stack, start, start + count, axis=d)
    stack = jnp.moveaxis(stack, axis, 0)
    return stack if access.step > 0 else lax.rev(stack, (0,))
