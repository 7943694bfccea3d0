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

from tf2jax_lite.ops.manual_axes import axes_of

from .all_steps import consecutive, for_all_steps, is_number, on_numbers

__all__ = ["Body", "body_of"]

_PLACES = {lax.add_p, lax.sub_p, lax.lt_p, lax.select_n_p, lax.convert_element_type_p, lax.broadcast_in_dim_p}
_INDEXING = {*_PLACES, lax.dynamic_slice_p, lax.squeeze_p, lax.reshape_p}


@dataclasses.dataclass(frozen=True)
class Written:
    """A stack that every iteration puts one element into.

    Attributes:
      value: what an iteration puts there: a variable of the jaxpr, or a literal.
      first: the least place.
      step: 1, or -1 if places decrease.
    """

    value: Any
    first: int
    step: int

    def end(self, start: Any, rows: Any) -> Any:
        """Returns the stack after the loop, given what it was before, and the elements of all iterations."""
        if self.step < 0:
            rows = lax.rev(rows, (0,))
        if rows.shape[0] == start.shape[0]:
            return rows
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
    _start: Sequence[Any]
    _tree: Any

    def end(self, results: Sequence[Any]) -> Any:
        """Returns what the loop carries at the end, of what running this body does: carried, then of all iterations."""
        count = len(self.carried)
        whole, rows = iter(results[:count]), results[count:]
        stacks = {i: w.end(self._start[i], r) for (i, w), r in zip(self._written.items(), rows, strict=True)}
        ends = [stacks[i] if i in stacks else next(whole) for i in range(len(self._start))]
        return jax.tree.unflatten(self._tree, ends)

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
    same = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    inputs = dict(zip(jaxpr.invars[len(carried) :], leaves, strict=True))
    places = _places(eqns, {v: c for v, c in same.items() if is_number(c)}, inputs)
    read = _read(eqns, same, places)
    written = _written(jaxpr, eqns, places, len(carried))
    gone = {*read, *(jaxpr.outvars[i] for i in written)}
    kept = [i for i in range(len(carried)) if i not in written]
    smaller = Parts(
        jaxpr.constvars,
        [*(jaxpr.invars[i] for i in kept), *inputs],
        [*(jaxpr.outvars[i] for i in kept), *(w.value for w in written.values())],
        [e for e in eqns if gone.isdisjoint(e.outvars)],
        jaxpr.effects,
        jaxpr.debug_info.with_unknown_names(),
    )
    return Body(smaller, closed.consts, [carried[i] for i in kept], leaves, read, trips, written, carried, result)


def _places(eqns: Sequence[Any], known: Mapping[Any, Any], steps: Mapping[Any, Any]) -> dict[Any, np.ndarray]:
    """Returns what is computed of whole numbers that are known of all iterations."""
    found = dict(steps)
    for eqn in eqns:
        if eqn.primitive not in _PLACES or not any(isinstance(v, jex.Var) and v in found for v in eqn.invars):
            continue
        result = eqn.outvars[0].aval
        if not (jnp.issubdtype(result.dtype, jnp.integer) or result.dtype == jnp.bool_) or result.shape not in (
            (),
            (1,),
        ):
            continue
        args: list[Any] = [v.val if isinstance(v, jex.Literal) else found.get(v, known.get(v)) for v in eqn.invars]
        if any(a is None for a in args) or any(v.aval.shape not in ((), (1,)) for v in eqn.invars):
            continue
        if eqn.primitive in (lax.broadcast_in_dim_p, lax.convert_element_type_p):
            found[eqn.outvars[0]] = np.reshape(args[0], (-1, *result.shape)).astype(result.dtype)
            continue
        numbers = on_numbers(eqn, args)
        if numbers is not None:
            found[eqn.outvars[0]] = numbers[0]
    return found


def _read(eqns: Sequence[Any], same: Mapping[Any, Any], places: Mapping[Any, np.ndarray]) -> dict[Any, Any]:
    """Returns the variables that are elements of stacks, with those of all iterations."""
    slices = [e for e in eqns if e.primitive is lax.dynamic_slice_p and e.invars[0] in same]
    found = {e.outvars[0]: _taken(e, same, places) for e in slices}
    return {v: values for v, values in found.items() if values is not None}


def _taken(eqn: Any, same: Mapping[Any, Any], places: Mapping[Any, np.ndarray]) -> Any:
    """Returns what all iterations take along the first axis, if they take one element after the other."""
    stack, start, *others = eqn.invars
    if start not in places if isinstance(start, jex.Var) else True:
        return None
    if not all(isinstance(v, jex.Literal) for v in others) or eqn.params["slice_sizes"][0] != 1:
        return None
    if consecutive(places[start], stack.aval.shape[0]) is None:
        return None
    return for_all_steps([eqn], {stack: same[stack]}, {start: places[start]})[eqn.outvars[0]]


def _written(jaxpr: Any, eqns: Sequence[Any], places: Mapping[Any, np.ndarray], count: int) -> dict[int, Written]:
    uses = collections.Counter(v for e in eqns for v in e.invars if isinstance(v, jex.Var))
    uses.update(v for v in jaxpr.outvars if isinstance(v, jex.Var))
    made = {v: e for e in eqns for v in e.outvars}
    found = {}
    for i in range(count):
        stack, result = jaxpr.invars[i], jaxpr.outvars[i]
        eqn = made.get(result) if isinstance(result, jex.Var) else None
        if eqn is None or eqn.primitive is not lax.scatter_p or uses[stack] != 1 or uses[result] != 1:
            continue
        operand, indices, value = eqn.invars
        if operand is not stack or not _is_one_element(eqn.params["dimension_numbers"], stack.aval.ndim):
            continue
        numbers = places.get(indices) if isinstance(indices, jex.Var) else None
        order = None if numbers is None else consecutive(numbers.reshape(-1), stack.aval.shape[0])
        if order is not None:
            found[i] = Written(value, *order)
    return found


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
    if consts or not kinds <= _INDEXING or lax.dynamic_slice_p not in kinds:
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
