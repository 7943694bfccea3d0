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

# The primitives of index arithmetic in numpy: jax.numpy counts a negative index from the end.
_INDEX_ARITHMETIC = {
    lax.add_p: np.add,
    lax.sub_p: np.subtract,
    lax.mul_p: np.multiply,
    lax.lt_p: np.less,
    lax.select_n_p: lambda which, no, yes: np.where(which, yes, no),
}


def batch_equations(eqns: Sequence[Any], constants: Mapping[Any, Any], xs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Evaluate equations for all iterations at once.

    Args:
      eqns: equations of one iteration.
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


def fold_index(eqn: Any, operands: Sequence[Any]) -> list[Any] | None:
    """Evaluate index arithmetic on static operands in numpy; None for other equations.

    JAX would compile a program for each.
    """
    function = _INDEX_ARITHMETIC.get(eqn.primitive)
    if function is None or any(v.aval.shape for v in eqn.invars) or not all(map(is_static, operands)):
        return None
    return [np.asarray(function(*operands), eqn.outvars[0].aval.dtype)]


def is_static(value: Any) -> bool:
    """Return whether a value is static: known while tracing."""
    return isinstance(value, (np.ndarray, np.generic, int, float))


def _folded_if_static(fn: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Call a function, at once for static operands: indices stay static."""
    if all(map(is_static, operands)):
        with jax.ensure_compile_time_eval():
            return [np.asarray(r) for r in fn(*operands)]
    return fn(*operands)


def _slices_in_order(eqn: Any, operands: Sequence[Any], axes: Sequence[int | None]) -> list[Any] | None:
    """Return slices read at consecutive indices, stacked; None for others.

    Dynamic slices at one index per iteration are a gather in general. At consecutive indices they are one slice.
    """
    if eqn.primitive is not lax.dynamic_slice_p or axes[0] == 0:
        return None
    operand, *starts = operands
    sizes, varying = eqn.params["slice_sizes"], [d for d, axis in enumerate(axes[1:]) if axis == 0]
    if len(varying) != 1 or not all(isinstance(s, (np.ndarray, np.generic, int)) for s in starts):
        return None
    (dim,), indices = varying, np.asarray(starts[varying[0]])
    order = consecutive(indices, operand.shape[dim])
    if sizes[dim] != 1 or order is None:
        return None
    first, step = order
    count = len(indices)
    for d, size in enumerate(sizes):
        start = first if d == dim else min(max(int(starts[d]), 0), operand.shape[d] - size)
        stop = start + (count if d == dim else size)
        if stop - start != operand.shape[d]:
            operand = lax.slice_in_dim(operand, start, stop, axis=d)
    operand = jnp.moveaxis(operand, dim, 0)
    return [jnp.expand_dims(operand if step > 0 else lax.rev(operand, (0,)), dim + 1)]


def consecutive(indices: np.ndarray, size: Any) -> tuple[int, int] | None:
    """Return consecutive indices' minimum and step, 1 or -1; None if they are not.

    Args:
      indices: one for each iteration.
      size: of the dimension that they index; all have to be in range.
    """
    count = len(indices)
    for step in (1, -1):
        first = int(indices[::step][0])
        if (
            isinstance(size, int)
            and 0 <= first <= size - count
            and np.array_equal(indices[::step], np.arange(first, first + count))
        ):
            return first, step
    return None
