"""Carried buffers that become inputs and outputs of the scan.

TensorFlow's loops read their inputs from lists, and write their results into lists that they carry. Gradients of loops
do the same. XLA copies such a buffer in each iteration, as one element is read and another written, so that a gradient
takes quadratic time in the number of iterations. As the ``xs`` and ``ys`` of ``lax.scan`` elements are not copied.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Literal, Var
from tf2jax_lite.jaxprs.evaluate import evaluate_equations
from tf2jax_lite.values.tensor_list import TensorList

from .batch_steps import batch_equations, consecutive, is_static
from .body import Body
from .index_analysis import INDEXING, index_values, induction_variables
from .loop_invariants import invariant_variables, live_equations, variables


@dataclasses.dataclass(frozen=True)
class _OutputBuffer:
    """A carried buffer with one element written per iteration, consecutively.

    Attributes:
      value: the element that an iteration writes: a variable of the jaxpr, or a literal.
      first: the least index.
      step: 1, or -1 if indices decrease.
      rows: the elements of all iterations, if they are known before the loop.
      element: the element, if all iterations write the same one and fill the buffer.
    """

    value: Any
    first: int
    step: int
    rows: Any = None
    element: Any = None

    def after_loop(self, start: Any, rows: Any) -> Any:
        """Return the buffer after the loop, given iterations' elements."""
        if self.step < 0:
            rows = rows[::-1] if isinstance(rows, np.ndarray) else lax.rev(rows, (0,))
        if rows.shape[0] == start.shape[0]:
            return rows
        if isinstance(rows, np.ndarray) and isinstance(start, np.ndarray):
            return np.concatenate([start[: self.first], rows, start[self.first + len(rows) :]])
        return lax.dynamic_update_slice_in_dim(start, rows, self.first, 0)


def run(body: Body) -> Body:
    """Replace carried buffers by xs and ys where access is consecutive.

    Carried counters and carried values that no iteration changes are not carried either.
    """
    eqns = [inner for eqn in body.eqns for inner in _inlined(eqn)]
    counters = induction_variables(body, eqns)
    unchanged = {v: x for (v, x), after in zip(body.carry.items(), body.carry_out, strict=True) if v is after}
    constants, xs = {**body.constants, **unchanged}, {**body.xs, **{v: n[:-1] for v, n in counters.items()}}
    indices = index_values(eqns, {v: c for v, c in constants.items() if is_static(c)}, xs)
    buffers = _output_buffers(body, eqns, indices)
    inputs = _input_elements(eqns, constants | {v: body.carry[v] for v in buffers}, indices)
    invariants = _invariant_values(eqns, constants, [b.value for b in buffers.values()])
    buffers = {v: _with_static_rows(b, body.carry[v], invariants, indices, body.trips) for v, b in buffers.items()}
    carried = [v for v in body.carry if not (v in buffers or v in counters or v in unchanged)]
    after = dict(zip(body.carry, body.carry_out, strict=True))
    removed = {*inputs, *(after[v] for v in buffers)}
    stacked = [v for v, b in buffers.items() if b.rows is None]

    def finish(carry: list[Any], ys: list[Any]) -> Any:
        ends = dict(zip(carried, carry, strict=True)) | unchanged | {v: n[-1] for v, n in counters.items()}
        rows = dict(zip(stacked, ys, strict=False))
        ends |= {v: b.after_loop(body.carry[v], rows.get(v, b.rows)) for v, b in buffers.items()}
        element = [buffers[v].element if v in buffers else None for v in body.carry]
        result = body.finish([ends[v] for v in body.carry], ys[len(stacked) :])
        return _with_marks(result, body.finish(element, [])) if any(a is not None for a in element) else result

    return dataclasses.replace(
        body,
        eqns=[e for e in eqns if removed.isdisjoint(e.outvars)],
        constants=constants,
        carry={v: body.carry[v] for v in carried},
        carry_out=[after[v] for v in carried],
        xs={**xs, **inputs},
        ys=[*(buffers[v].value for v in stacked), *body.ys],
        finish=finish,
    )


def _input_elements(
    eqns: Sequence[Any], stacks: Mapping[Any, Any], indices: Mapping[Any, np.ndarray]
) -> dict[Any, Any]:
    """Return the variables that are stacks' elements, with all iterations'."""
    slices = [e for e in eqns if e.primitive is lax.dynamic_slice_p and e.invars[0] in stacks]
    found = {}
    for eqn in slices:
        if _reads_consecutive(eqn, indices):
            stack, start = eqn.invars[:2]
            result = batch_equations([eqn], {stack: stacks[stack]}, {start: indices[start]})
            found[eqn.outvars[0]] = result[eqn.outvars[0]]
    return found


def _reads_consecutive(eqn: Any, indices: Mapping[Any, np.ndarray]) -> bool:
    """Return whether iterations read consecutive elements of axis 0."""
    stack, start, *others = eqn.invars
    if not (isinstance(start, Var) and start in indices and eqn.params["slice_sizes"][0] == 1):
        return False
    return all(isinstance(v, Literal) for v in others) and consecutive(indices[start], stack.aval.shape[0]) is not None


def _output_buffers(body: Body, eqns: Sequence[Any], indices: Mapping[Any, np.ndarray]) -> dict[Any, _OutputBuffer]:
    """Return carried buffers with consecutive writes, read only before them."""
    uses = collections.Counter(v for e in eqns for v in e.invars if isinstance(v, Var))
    uses.update(variables(body.results))
    defined_by = {v: e for e in eqns for v in e.outvars}
    slices = collections.defaultdict(list)
    for eqn in eqns:
        if eqn.primitive is lax.dynamic_slice_p:
            slices[eqn.invars[0]].append(eqn)
    found = {}
    for buffer, result in zip(body.carry, body.carry_out, strict=True):
        eqn = defined_by.get(result) if isinstance(result, Var) else None
        if eqn is None or eqn.primitive is not lax.scatter_p or uses[result] != 1:
            continue
        operand, index, value = eqn.invars
        if operand is not buffer or not _writes_one_element(eqn.params["dimension_numbers"], buffer.aval.ndim):
            continue
        numbers = indices.get(index) if isinstance(index, Var) else None
        order = None if numbers is None else consecutive(numbers.reshape(-1), buffer.aval.shape[0])
        if numbers is None or order is None or uses[buffer] != 1 + len(slices[buffer]):
            continue
        if all(_reads_before_write(e, numbers.reshape(-1), indices) for e in slices[buffer]):
            found[buffer] = _OutputBuffer(value, *order)
    return found


def _reads_before_write(eqn: Any, written: np.ndarray, indices: Mapping[Any, np.ndarray]) -> bool:
    """Return whether iterations read elements, each before its write."""
    read = indices.get(eqn.invars[1]) if _reads_consecutive(eqn, indices) else None
    if read is None:
        return False
    when = {int(index): trip for trip, index in enumerate(written)}
    return all(trip <= when.get(int(index), trip) for trip, index in enumerate(read))


def _invariant_values(eqns: Sequence[Any], constants: Mapping[Any, Any], wanted: Sequence[Any]) -> dict[Any, Any]:
    """Return ``constants`` with the loop-invariant ones of the wanted variables added."""
    values = dict(constants)
    missing = [v for v in variables(wanted) if v not in values]
    if missing:
        found = invariant_variables(eqns, values)
        evaluate_equations(live_equations([e for e in eqns if not e.effects], found.intersection(missing)), values)
    return values


def _with_static_rows(
    buffer: _OutputBuffer, start: Any, invariants: Mapping[Any, Any], indices: Mapping[Any, np.ndarray], trips: int
) -> _OutputBuffer:
    """Return the buffer with all elements, if static or loop-invariant."""
    value = buffer.value
    if isinstance(value, Var) and value in indices:
        return dataclasses.replace(buffer, rows=indices[value])
    if isinstance(value, Var) and value not in invariants:
        return buffer
    element = jnp.asarray(value.val if isinstance(value, Literal) else invariants[value], value.aval.dtype)
    is_whole = trips == start.shape[0]
    return dataclasses.replace(buffer, rows=lax.broadcast(element, (trips,)), element=element if is_whole else None)


def _with_marks(values: Any, marks: Any) -> Any:
    """Return values with lists of equal elements marked; see ``marks``.

    It has the element as the buffer of such a list.
    """

    def is_list(value: Any) -> bool:
        return isinstance(value, TensorList)

    def marked(value: Any, mark: Any) -> Any:
        if not is_list(value) or not isinstance(mark.buffer, jax.Array):
            return value
        return dataclasses.replace(value, uniform_element=mark.buffer)

    leaves, tree = jax.tree.flatten(values, is_leaf=is_list)
    return jax.tree.unflatten(tree, map(marked, leaves, tree.flatten_up_to(marks)))


def _writes_one_element(dimensions: Any, rank: int) -> bool:
    """Return whether a scatter writes one element along the first axis."""
    return (
        tuple(dimensions.update_window_dims) == tuple(range(rank - 1))
        and tuple(dimensions.inserted_window_dims) == tuple(dimensions.scatter_dims_to_operand_dims) == (0,)
        and not tuple(dimensions.operand_batching_dims)
    )


def _inlined(eqn: Any) -> list[Any]:
    """Return a call's equations if it reads a stack's element, else itself."""
    if eqn.primitive.name != "jit":
        return [eqn]
    inner, consts = eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts
    primitives = {e.primitive for e in inner.eqns}
    defined = {v for e in inner.eqns for v in e.outvars}
    results = inner.outvars
    if consts or not primitives <= INDEXING or lax.dynamic_slice_p not in primitives:
        return [eqn]
    if not all(isinstance(v, Var) and v in defined for v in results) or len(set(results)) < len(results):
        return [eqn]
    names = dict(zip((*inner.invars, *results), (*eqn.invars, *eqn.outvars), strict=True))
    names.update({v: Var(v.aval) for v in defined if v not in names})
    return [
        e.replace(
            invars=[v if isinstance(v, Literal) else names[v] for v in e.invars],
            outvars=[names[v] for v in e.outvars],
        )
        for e in inner.eqns
    ]
