"""Carried buffers as inputs and outputs of the scan, by `loops.counted`.

For the optimizations that follow, counters become inputs, too, and elements keep the indexed axis. Iterations do not
return elements that are static or loop-invariant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Literal, Var
from tf2jax_lite.jaxprs.evaluate import evaluate_equations
from tf2jax_lite.loops.batch_steps import read_elements
from tf2jax_lite.loops.body import Body, variables
from tf2jax_lite.loops.counted import find_accesses, inline_reads, replace_buffers, unchanged_values, without_axis
from tf2jax_lite.loops.induction import Access, index_values, induction_variables, is_static
from tf2jax_lite.values.tensor_list import TensorList

from .code_motion import invariant_variables, live_equations


def run(body: Body) -> Body:
    """Replace carried buffers by xs and ys where access is consecutive.

    Carried counters and carried values that no iteration changes are not carried either.
    """
    eqns = inline_reads(body.eqns)
    starts = {v: int(x) for v, x in body.carry.items() if _is_integer(x)}
    counters = {
        v: n.values(body.trips + 1, body.carry[v].dtype) for v, n in induction_variables(body, eqns, starts).items()
    }
    unchanged = unchanged_values(body)
    constants, xs = {**body.constants, **unchanged}, {**body.xs, **{v: n[:-1] for v, n in counters.items()}}
    indices = index_values(eqns, {v: c for v, c in constants.items() if is_static(c)}, xs, body.trips)
    reads, writes = find_accesses(body, eqns, constants, indices)
    stacks = constants | {v: body.carry[v] for v in writes}
    elements = {v: _elements(eqn, stacks[eqn.invars[0]], access, body.trips) for v, (eqn, access) in reads.items()}
    writes, squeezes = without_axis(writes, eqns)
    eqns += squeezes
    invariants = _invariant_values(eqns, constants, [w.value for w in writes.values()])
    rows, uniform = {}, {}
    for v, write in writes.items():
        value = write.value
        if isinstance(value, Var) and isinstance(indices.get(value), np.ndarray):
            rows[v] = indices[value]
        elif isinstance(value, Literal) or value in invariants:
            element = value.val if isinstance(value, Literal) else invariants[value]
            element = jnp.asarray(element, value.aval.dtype)
            rows[v] = lax.broadcast(element, (body.trips,))
            if body.trips == body.carry[v].shape[write.access.axis]:
                uniform[v] = element
    ends = unchanged | {v: n[-1] for v, n in counters.items()}
    found = replace_buffers(
        dataclasses.replace(body, constants=constants), eqns, writes, {**xs, **elements}, ends, rows
    )
    if not uniform:
        return found

    def finish(carry: list[Any], ys: list[Any]) -> Any:
        return _with_marks(found.finish(carry, ys), body.finish([uniform.get(v) for v in body.carry], []))

    return dataclasses.replace(found, finish=finish)


def _is_integer(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.shape and jnp.issubdtype(value.dtype, jnp.integer)


def _elements(eqn: Any, stack: Any, access: Access, trips: int) -> Any:
    """Return the slices of a stack in all iterations, along the first axis."""
    starts = [v.val if isinstance(v, Literal) else 0 for v in eqn.invars[1:]]
    elements = read_elements(stack, starts, eqn.params["slice_sizes"], access, trips)
    return jnp.expand_dims(elements, access.axis + 1)


def _invariant_values(eqns: Sequence[Any], constants: Mapping[Any, Any], wanted: Sequence[Any]) -> dict[Any, Any]:
    """Return ``constants`` with the loop-invariant ones of the wanted variables added."""
    values = dict(constants)
    missing = [v for v in variables(wanted) if v not in values]
    if missing:
        found = invariant_variables(eqns, values)
        evaluate_equations(live_equations([e for e in eqns if not e.effects], found.intersection(missing)), values)
    return values


def _with_marks(values: Any, marks: Any) -> Any:
    """Return values with lists of equal elements marked; see ``marks``."""
    # It has the element as the buffer of such a list.

    def is_list(value: Any) -> bool:
        return isinstance(value, TensorList)

    def marked(value: Any, mark: Any) -> Any:
        if not is_list(value) or not isinstance(mark.buffer, jax.Array):
            return value
        return dataclasses.replace(value, uniform_element=mark.buffer)

    leaves, tree = jax.tree.flatten(values, is_leaf=is_list)
    return jax.tree.unflatten(tree, map(marked, leaves, tree.flatten_up_to(marks)))
