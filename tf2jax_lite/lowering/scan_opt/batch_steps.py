"""Equations of a loop's body, evaluated for all iterations at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Literal, Var, bind

__all__ = ["consecutive", "for_all_steps", "is_number", "on_numbers"]

# How numpy computes what jax.numpy makes of an index: counted from the end where it is negative.
_ON_NUMBERS = {
    lax.add_p: np.add,
    lax.sub_p: np.subtract,
    lax.mul_p: np.multiply,
    lax.lt_p: np.less,
    lax.select_n_p: lambda which, no, yes: np.where(which, yes, no),
}


def for_all_steps(eqns: Sequence[Any], known: dict[Any, Any], steps: dict[Any, Any]) -> dict[Any, Any]:
    """Evaluates equations for all iterations at once.

    Args:
      eqns: of one iteration.
      known: values that are the same in all.
      steps: values with one entry for each iteration.

    Returns:
      ``steps`` with the equations' results added.
    """
    known, steps = dict(known), dict(steps)
    for eqn in eqns:
        args = [v.val if isinstance(v, Literal) else steps[v] if v in steps else known[v] for v in eqn.invars]
        axes = [0 if isinstance(v, Var) and v in steps else None for v in eqn.invars]
        if 0 not in axes:
            results = bind(eqn, *args)
            known.update(zip(eqn.outvars, results, strict=True))
            continue
        results = _cut(eqn, args, axes)
        if results is None and eqn.primitive.name == "jit":  # what jax.numpy makes of indexing
            results = _called(eqn.params["jaxpr"], args, axes)
        if results is None:
            results = on_numbers(eqn, args)
        if results is None:
            results = _now(jax.vmap(lambda *a, eqn=eqn: bind(eqn, *a), in_axes=axes), args)
        steps.update(zip(eqn.outvars, results, strict=True))
    return steps


def _called(closed: Any, args: Sequence[Any], axes: Sequence[int | None]) -> list[Any] | None:
    """Evaluates what an equation calls; None where a result is the same in all iterations."""
    given = list(zip(closed.jaxpr.invars, args, axes, strict=True))
    known = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known |= {v: value for v, value, axis in given if axis is None}
    made = for_all_steps(closed.jaxpr.eqns, known, {v: value for v, value, axis in given if axis == 0})
    outputs = closed.jaxpr.outvars
    return [made[v] for v in outputs] if all(isinstance(v, Var) and v in made for v in outputs) else None


def on_numbers(eqn: Any, args: Sequence[Any]) -> list[Any] | None:
    """Evaluates what indices are made with, of known numbers: JAX would compile a program for each; None for others."""
    function = _ON_NUMBERS.get(eqn.primitive)
    if function is None or any(v.aval.shape for v in eqn.invars) or not all(map(is_number, args)):
        return None
    return [np.asarray(function(*args), eqn.outvars[0].aval.dtype)]


def is_number(value: Any) -> bool:
    """Whether a value is known while tracing."""
    return isinstance(value, (np.ndarray, np.generic, int, float))


def _now(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls a function, at once where everything is known: indices are numbers then."""
    if all(map(is_number, args)):
        with jax.ensure_compile_time_eval():
            return [np.asarray(r) for r in fn(*args)]
    return fn(*args)


def _cut(eqn: Any, args: Sequence[Any], axes: Sequence[int | None]) -> list[Any] | None:
    """Returns the entries of an array that iterations take one after the other; None where they do something else.

    In general each takes a slice at its own place, and together they gather. One after the other they are a slice.
    """
    if eqn.primitive is not lax.dynamic_slice_p or axes[0] == 0:
        return None
    operand, *starts = args
    sizes, moving = eqn.params["slice_sizes"], [d for d, axis in enumerate(axes[1:]) if axis == 0]
    if len(moving) != 1 or not all(isinstance(s, (np.ndarray, np.generic, int)) for s in starts):
        return None
    (dim,), places = moving, np.asarray(starts[moving[0]])
    order = consecutive(places, operand.shape[dim])
    if sizes[dim] != 1 or order is None:
        return None
    first, step = order
    count = len(places)
    for d, taken in enumerate(sizes):
        start = first if d == dim else min(max(int(starts[d]), 0), operand.shape[d] - taken)
        stop = start + (count if d == dim else taken)
        if stop - start != operand.shape[d]:
            operand = lax.slice_in_dim(operand, start, stop, axis=d)
    operand = jnp.moveaxis(operand, dim, 0)
    return [jnp.expand_dims(operand if step > 0 else lax.rev(operand, (0,)), dim + 1)]


def consecutive(places: np.ndarray, size: Any) -> tuple[int, int] | None:
    """Returns the least of places along an axis, and 1 or -1 if they follow one another so; else None."""
    count = len(places)
    for step in (1, -1):
        first = int(places[::step][0])
        if (
            isinstance(size, int)
            and 0 <= first <= size - count
            and np.array_equal(places[::step], np.arange(first, first + count))
        ):
            return first, step
    return None
