"""Elements that iterations take from stacks, and put into them, one after the other.

TensorFlow's loops read their inputs from lists, and write their results into lists that they carry. What goes through
backwards then is such a list, too: XLA copies all of it in each iteration, as one element is read and then cleared, so
that a gradient takes time with the square of the number of iterations. As ``lax.scan``'s own inputs and outputs they
take none of it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.shard_map import axes_of
from tf2jax_lite.values.tensor_list import TensorList

from .batch_steps import consecutive, for_all_steps, is_number
from .index_analysis import INDEXING, counters, places_of
from .loop_invariants import evaluated, needed, unchanging, variables

__all__ = ["Body", "body_of"]


@dataclasses.dataclass(frozen=True)
class Written:
    """A stack that every iteration puts one element into.

    Attributes:
      value: what an iteration puts there: a variable of the jaxpr, or a literal.
      first: the least place.
      step: 1, or -1 if places decrease.
      rows: what all iterations put there, along the first axis, if that is known before the loop runs.
      alike: what each of them is, if all are the same, and there are no others.
    """

    value: Any
    first: int
    step: int
    rows: Any = None
    alike: Any = None

    def end(self, start: Any, rows: Any) -> Any:
        """Returns the stack after the loop, given what it was before, and the elements of all iterations."""
        if self.step < 0:
            rows = rows[::-1] if isinstance(rows, np.ndarray) else lax.rev(rows, (0,))
        if rows.shape[0] == start.shape[0]:
            return rows
        if isinstance(rows, np.ndarray) and isinstance(start, np.ndarray):
            return np.concatenate([start[: self.first], rows, start[self.first + len(rows) :]])
        return lax.dynamic_update_slice_in_dim(start, rows, self.first, 0)


@dataclasses.dataclass(frozen=True)
class Parts:
    """What a jaxpr consists of. JAX 0.11 makes no jaxpr that has constants without their values."""

    constvars: Sequence[Any]
    invars: Sequence[Any]
    outvars: Sequence[Any]
    eqns: Sequence[Any]
    effects: Any
    debug_info: Any


@dataclasses.dataclass(frozen=True)
class Body:
    """A loop's body that takes and returns elements, where it carried stacks.

    Attributes:
      jaxpr: from what is carried, and an iteration's inputs, to what is carried on, and what else comes out.
      consts: the values of its constants: what is the same in all iterations.
      carried: what the first iteration takes.
      leaves: the iteration's inputs, an entry for each iteration along the first axis: known numbers.
      read: for each of further variables of the jaxpr its values of all iterations.
      trips: how many iterations there are.
    """

    jaxpr: Parts
    consts: Sequence[Any]
    carried: Sequence[Any]
    leaves: Sequence[np.ndarray]
    read: dict[Any, Any]
    trips: int
    _written: dict[int, Written]
    _ends: dict[int, Any]
    _start: Sequence[Any]
    _tree: Any

    def end(self, results: Sequence[Any]) -> Any:
        """Returns what the loop carries at the end, of what running this body does: carried, then of all iterations."""
        count = len(self.carried)
        whole, rows = iter(results[:count]), iter(results[count:])
        ends = dict(self._ends)
        for i, w in self._written.items():
            ends[i] = w.end(self._start[i], next(rows) if w.rows is None else w.rows)
        leaves = [ends[i] if i in ends else next(whole) for i in range(len(self._start))]
        alike = [self._written[i].alike if i in self._written else None for i in range(len(leaves))]
        return _with_marks(jax.tree.unflatten(self._tree, leaves), jax.tree.unflatten(self._tree, alike))

    def step(self) -> tuple[Any, list[Any]]:
        """Returns the body as ``lax.scan`` takes it, on flat lists, and an entry for each iteration of its inputs."""
        jaxpr, count = self.jaxpr, len(self.carried)
        invars = [*jaxpr.constvars, *jaxpr.invars, *self.read]
        closed = jex.ClosedJaxpr(jex.Jaxpr((), invars, jaxpr.outvars, jaxpr.eqns, jaxpr.effects, jaxpr.debug_info), ())
        fn = jex.jaxpr_as_fun(closed)

        def step(now: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
            results = fn(*self.consts, *now, *x)
            return results[:count], results[count:]

        return step, [*self.leaves, *self.read.values()]


def body_of(step: Callable[..., Any], start: Any, xs: Any, trips: int) -> Body | None:
    """Returns a loop's body without the stacks that it takes elements from and puts elements into at known places.

    Args:
      step: the body as ``lax.scan`` takes it, from (carry, x) to (carry, None).
      start: the initial carry.
      xs: a tree of arrays, an entry for each iteration along the first axis.
      trips: how many iterations there are.

    Returns:
      The body; None where inputs are not known numbers, and where values differ between devices.
    """
    (carried, carry_tree), (leaves, xs_tree) = jax.tree.flatten(start), jax.tree.flatten(xs)
    if trips < 2 or not all(isinstance(x, np.ndarray) for x in leaves):
        return None
    result: Any = None

    def flat(*values: Any) -> Any:  # trees of shapes would not do: what a list looks like depends on what it holds
        nonlocal result
        carry, x = values[: len(carried)], values[len(carried) :]
        after, _ = step(jax.tree.unflatten(carry_tree, carry), jax.tree.unflatten(xs_tree, x))
        found, result = jax.tree.flatten(after)
        return found

    one = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in leaves]
    closed = jax.make_jaxpr(flat)(*map(jax.typeof, carried), *one)
    jaxpr = closed.jaxpr
    if any(axes_of(v.aval) for e in jaxpr.eqns for v in e.outvars):  # `jax.shard_map` keeps account of all operands
        return None
    eqns = [inner for eqn in jaxpr.eqns for inner in _inlined(eqn)]
    inputs = dict(zip(jaxpr.invars[len(carried) :], leaves, strict=True))
    counted = counters(jaxpr, eqns, carried, trips)
    inputs |= {jaxpr.invars[i]: numbers[:-1] for i, numbers in counted.items()}
    # What iterations hand on as it is is the same in all of them.
    handed_on = [i for i in range(len(carried)) if jaxpr.invars[i] is jaxpr.outvars[i]]
    same = dict(zip(jaxpr.constvars, closed.consts, strict=True)) | {jaxpr.invars[i]: carried[i] for i in handed_on}
    places = places_of(eqns, {v: c for v, c in same.items() if is_number(c)}, inputs)
    written = _written(jaxpr, eqns, places, len(carried))
    stacks = same | {jaxpr.invars[i]: carried[i] for i in written}
    read = _read(eqns, stacks, places)
    alike = _values_before(eqns, same, [w.value for w in written.values()])
    written = {i: _with_known_rows(w, carried[i], alike, places, trips) for i, w in written.items()}
    gone = {*read, *(jaxpr.outvars[i] for i in written)}
    kept = [i for i in range(len(carried)) if not (i in written or i in counted or i in handed_on)]
    smaller = Parts(
        list(same),
        [*(jaxpr.invars[i] for i in kept), *inputs],
        [*(jaxpr.outvars[i] for i in kept), *(w.value for w in written.values() if w.rows is None)],
        [e for e in eqns if gone.isdisjoint(e.outvars)],
        jaxpr.effects,
        jaxpr.debug_info.with_unknown_names(),
    )
    return Body(
        smaller,
        list(same.values()),
        [carried[i] for i in kept],
        list(inputs.values()),
        read,
        trips,
        written,
        {i: carried[i] for i in handed_on} | {i: numbers[-1] for i, numbers in counted.items()},
        carried,
        result,
    )


def _read(eqns: Sequence[Any], stacks: Mapping[Any, Any], places: Mapping[Any, np.ndarray]) -> dict[Any, Any]:
    """Returns the variables that are elements of stacks, with those of all iterations."""
    slices = [e for e in eqns if e.primitive is lax.dynamic_slice_p and e.invars[0] in stacks]
    found = {e.outvars[0]: _taken(e, stacks, places) for e in slices}
    return {v: values for v, values in found.items() if values is not None}


def _taken(eqn: Any, stacks: Mapping[Any, Any], places: Mapping[Any, np.ndarray]) -> Any:
    """Returns what all iterations take along the first axis, if they take one element after the other."""
    if not _is_taken(eqn, places):
        return None
    stack, start = eqn.invars[:2]
    return for_all_steps([eqn], {stack: stacks[stack]}, {start: places[start]})[eqn.outvars[0]]


def _is_taken(eqn: Any, places: Mapping[Any, np.ndarray]) -> bool:
    """Whether iterations take elements of a stack along the first axis, one after the other."""
    stack, start, *others = eqn.invars
    if not (isinstance(start, jex.Var) and start in places and eqn.params["slice_sizes"][0] == 1):
        return False
    return (
        all(isinstance(v, jex.Literal) for v in others) and consecutive(places[start], stack.aval.shape[0]) is not None
    )


def _written(jaxpr: Any, eqns: Sequence[Any], places: Mapping[Any, np.ndarray], count: int) -> dict[int, Written]:
    uses = collections.Counter(v for e in eqns for v in e.invars if isinstance(v, jex.Var))
    uses.update(v for v in jaxpr.outvars if isinstance(v, jex.Var))
    made = {v: e for e in eqns for v in e.outvars}
    slices = collections.defaultdict(list)
    for eqn in eqns:
        if eqn.primitive is lax.dynamic_slice_p:
            slices[eqn.invars[0]].append(eqn)
    found = {}
    for i in range(count):
        stack, result = jaxpr.invars[i], jaxpr.outvars[i]
        eqn = made.get(result) if isinstance(result, jex.Var) else None
        if eqn is None or eqn.primitive is not lax.scatter_p or uses[result] != 1:
            continue
        operand, indices, value = eqn.invars
        if operand is not stack or not _is_one_element(eqn.params["dimension_numbers"], stack.aval.ndim):
            continue
        numbers = places.get(indices) if isinstance(indices, jex.Var) else None
        order = None if numbers is None else consecutive(numbers.reshape(-1), stack.aval.shape[0])
        if numbers is None or order is None or uses[stack] != 1 + len(slices[stack]):
            continue
        if all(_read_before(e, numbers.reshape(-1), places) for e in slices[stack]):
            found[i] = Written(value, *order)
    return found


def _read_before(eqn: Any, written: np.ndarray, places: Mapping[Any, np.ndarray]) -> bool:
    """Whether all iterations take one element after the other, each before one is written to its place."""
    at = places.get(eqn.invars[1]) if _is_taken(eqn, places) else None
    if at is None:
        return False
    when = {int(place): number for number, place in enumerate(written)}
    return all(number <= when.get(int(place), number) for number, place in enumerate(at))


def _values_before(eqns: Sequence[Any], same: Mapping[Any, Any], wanted: Sequence[Any]) -> dict[Any, Any]:
    """Returns ``same`` with those of the wanted values that are the same in all iterations, too."""
    missing = [v for v in variables(wanted) if v not in same]
    found = unchanging(eqns, same) if missing else set[Any]()
    made = needed([e for e in eqns if not e.effects], [v for v in missing if v in found])
    return evaluated(made, dict(same))


def _with_known_rows(
    one: Written, stack: Any, same: Mapping[Any, Any], places: Mapping[Any, np.ndarray], trips: int
) -> Written:
    """Returns how a stack is written, with what is written where that is the same in all iterations, or known."""
    value = one.value
    if isinstance(value, jex.Var) and value in places:
        return dataclasses.replace(one, rows=places[value])
    if isinstance(value, jex.Var) and value not in same:
        return one
    alike = jnp.asarray(value.val if isinstance(value, jex.Literal) else same[value], value.aval.dtype)
    whole = trips == stack.shape[0]
    return dataclasses.replace(one, rows=lax.broadcast(alike, (trips,)), alike=alike if whole else None)


def _with_marks(values: Any, marks: Any) -> Any:
    """Returns values with those lists marked whose elements are all alike; ``marks`` has their element for a buffer."""

    def is_list(value: Any) -> bool:
        return isinstance(value, TensorList)

    def marked(value: Any, mark: Any) -> Any:
        if not is_list(value) or not isinstance(mark.buffer, jax.Array):
            return value
        return dataclasses.replace(value, uniform_element=mark.buffer)

    leaves, tree = jax.tree.flatten(values, is_leaf=is_list)
    return jax.tree.unflatten(tree, map(marked, leaves, tree.flatten_up_to(marks)))


def _is_one_element(numbers: Any, rank: int) -> bool:
    """Whether a scatter sets one element along the first axis."""
    return (
        tuple(numbers.update_window_dims) == tuple(range(rank - 1))
        and tuple(numbers.inserted_window_dims) == tuple(numbers.scatter_dims_to_operand_dims) == (0,)
        and not tuple(numbers.operand_batching_dims)
    )


def _inlined(eqn: Any) -> list[Any]:
    """Returns the equations of a call that takes an element from a stack; others as they are."""
    if eqn.primitive.name != "jit":
        return [eqn]
    inner, consts = eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts
    kinds = {e.primitive for e in inner.eqns}
    outputs = {v for e in inner.eqns for v in e.outvars}
    ends = inner.outvars
    if consts or not kinds <= INDEXING or lax.dynamic_slice_p not in kinds:
        return [eqn]
    if not all(isinstance(v, jex.Var) and v in outputs for v in ends) or len(set(ends)) < len(ends):
        return [eqn]
    names = dict(zip((*inner.invars, *ends), (*eqn.invars, *eqn.outvars), strict=True))
    names.update({v: jex.Var(v.aval) for v in outputs if v not in names})
    return [
        e.replace(
            invars=[v if isinstance(v, jex.Literal) else names[v] for v in e.invars],
            outvars=[names[v] for v in e.outvars],
        )
        for e in inner.eqns
    ]
