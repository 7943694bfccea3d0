"""What a loop's body reads of an iteration and cuts into pieces is read once.

Recurrent layers add the product of a step's input, that of its state and a bias, and cut the sum into gates. Where the
first was made before the loop (`hoisting`), XLA fuses the reading of an iteration's values into what computes with each
gate, and on CPU, where a fusion takes an array at several places, it looks for the iteration's number at each of them
for each element, and LLVM makes no vectors of it: 14 ns an element of a GRU instead of about one. A mark on the sum
(`xla_cpu.materialize`) ends this: it is one kernel, and the gates are cut out of its result.

Of a batch of one, XLA lays out anew what has an axis of size one. Without that axis nothing is to do.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.equations import size
from tf2jax_lite.xla_cpu.materialize import materialize

__all__ = ["read_once", "state_without_unit_axes", "without_unit_axes"]


def read_once(eqns: Sequence[Any], read: Collection[Any]) -> list[Any]:
    """Marks what is made of an iteration's values without getting larger, and cut into several pieces.

    Args:
      eqns: equations of a jaxpr, in order.
      read: variables with an iteration's values.

    Returns:
      Equations that compute the same values of all variables.
    """
    light, pieces = set(read), collections.Counter[Any]()
    used = {v for eqn in eqns for v in eqn.invars if isinstance(v, jex.Var)}
    for eqn in eqns:
        taken = [v for v in eqn.invars if isinstance(v, jex.Var) and v in light]
        if taken and _is_cut(eqn):
            pieces[taken[0]] += sum(v in used for v in eqn.outvars)
        elif len(eqn.outvars) == 1 and any(size(v) == size(eqn.outvars[0]) < math.inf for v in taken):
            light.add(eqn.outvars[0])
    marked = {v: jex.Var(v.aval) for v, n in pieces.items() if n > 1 and jnp.issubdtype(v.aval.dtype, jnp.inexact)}
    found = [_mark(v, marked[v]) for v in read if v in marked]
    for eqn in eqns:
        found.append(eqn.replace(invars=[v if isinstance(v, jex.Literal) else marked.get(v, v) for v in eqn.invars]))
        found += [_mark(v, marked[v]) for v in eqn.outvars if v in marked]
    return found


def without_unit_axes(variables: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Leaves out the axes of size one of what a loop is given: XLA lays them out anew, with a copy in a kernel for it.

    Args:
      variables: what an iteration takes.

    Returns:
      Variables to take in their places, and the equations that make them of these.
    """
    found, eqns = [], []
    for var in variables:
        shape = tuple(n for n in var.aval.shape if n != 1)
        found.append(var if len(shape) == len(var.aval.shape) else jex.Var(var.aval.update(shape=shape)))
        if found[-1] is not var:
            eqns.append(_reshaping(found[-1], var))
    return found, eqns


def state_without_unit_axes(
    eqns: Sequence[Any], state: Sequence[Any], results: Sequence[Any]
) -> tuple[list[Any], list[Any], list[Any]]:
    """Leaves out the axes of size one of what a loop carries and multiplies.

    Args:
      eqns: equations of the loop's body, in order.
      state: what an iteration takes.
      results: what it hands on.

    Returns:
      The three with others in their places.
    """
    factors = {v for e in eqns if e.primitive is lax.dot_general_p for v in e.invars if isinstance(v, jex.Var)}
    chosen = [n for n, v in enumerate(state) if v in factors and isinstance(results[n], jex.Var)]
    state, results = list(state), list(results)
    narrow, widening = without_unit_axes([state[n] for n in chosen])
    found = [*widening, *eqns]
    for n, var in zip(chosen, narrow, strict=True):
        if var is not state[n]:
            result, state[n], results[n] = results[n], var, jex.Var(var.aval)
            found.append(_reshaping(result, results[n]))
    return state, results, found


def _is_cut(eqn: Any) -> bool:
    return eqn.primitive is lax.slice_p or eqn.primitive is lax.split_p


def _mark(var: Any, result: Any) -> Any:
    return _marking(var.aval).replace(invars=[var], outvars=[result])


@functools.lru_cache(maxsize=64)
def _marking(aval: Any) -> Any:
    return jax.make_jaxpr(materialize)(aval).jaxpr.eqns[0]


def _reshaping(var: Any, result: Any) -> Any:
    return _reshape(var.aval, result.aval.shape).replace(invars=[var], outvars=[result])


@functools.lru_cache(maxsize=64)
def _reshape(aval: Any, shape: tuple[int, ...]) -> Any:
    return jax.make_jaxpr(lambda x: lax.reshape(x, shape))(aval).jaxpr.eqns[0]
