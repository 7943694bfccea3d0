"""Matrix products that an iteration makes of its inputs alone are made for all iterations at once, before the loop.

TensorFlow's recurrent layers multiply each step's input by the kernel inside of the loop. Of few rows a product costs
as much as reading the weights, so one product for all steps is many times cheaper, and so is its gradient: one product
for the weights in the place of one for each step that are added up.

What an iteration makes of such a product alone (adding a bias, cutting it into gates) is made before the loop, too.
XLA fuses the reading of an iteration's values into what computes with them. On CPU, where a fusion takes an array at
several places, it looks for the iteration's number at each of them for each element, and LLVM makes no vectors of it:
14 ns an element of a GRU instead of about one. Read from an array for each gate, a loop takes 0.5 to 0.9 of the time
(widths 64 and 256, 16 to 128 steps, most batches from 1 to 128; about the same with width 1024: its products are all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from .pieces import cut_early

__all__ = ["hoisted"]

_MOST_ROWS = 128  # of a step's product: with more, each step uses the weights as well as all steps together
_MOST_GROWTH = 2  # of what products are cut into, to the products
_MOST_VALUES = 1 << 26  # of all steps together, of any value on the way: 256 MiB in float32


def hoisted(step: Callable[..., Any], start: Any, xs: Any, trips: int) -> tuple[Callable[..., Any], Any]:
    """Takes products out of a loop's body.

    Args:
      step: the body as ``lax.scan`` takes it, from (carry, x) to (carry, y).
      start: the initial carry.
      xs: a tree of arrays, an entry for each iteration along the first axis.
      trips: how many iterations there are.

    Returns:
      A body and inputs for ``lax.scan`` that do the same. Where inputs are not known numbers they are those given.
    """
    (carried, carry_tree), (leaves, xs_tree) = jax.tree.flatten(start), jax.tree.flatten(xs)
    if trips < 2 or not all(isinstance(x, np.ndarray) for x in leaves):
        return step, xs
    result: Any = None

    def flat(*values: Any) -> Any:  # trees of shapes would not do: what a list looks like depends on what it holds
        nonlocal result
        carry, x = values[: len(carried)], values[len(carried) :]
        found, result = jax.tree.flatten(step(jax.tree.unflatten(carry_tree, carry), jax.tree.unflatten(xs_tree, x)))
        return found

    one = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in leaves]
    closed = jax.make_jaxpr(flat)(*map(jax.typeof, carried), *one)
    jaxpr = closed.jaxpr
    inputs = jaxpr.invars[len(jaxpr.invars) - len(leaves) :]
    found = _products(jaxpr, inputs, trips)
    eqns, outputs = _with_pieces(jaxpr, found) if found else (jaxpr.eqns, [])
    known = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    made = _for_all_steps(
        _needed([e for e in eqns if not e.effects], outputs), known, dict(zip(inputs, leaves, strict=True))
    )
    rest = _needed([e for e in eqns if set(outputs).isdisjoint(e.outvars)], jaxpr.outvars)
    invars, names = [*jaxpr.constvars, *jaxpr.invars, *outputs], jaxpr.debug_info.with_unknown_names()
    body = jex.ClosedJaxpr(jex.Jaxpr((), invars, jaxpr.outvars, rest, jaxpr.effects, names), ())

    def smaller(carry: Any, x: Any) -> Any:
        x, products = x
        found = jex.jaxpr_as_fun(body)(*closed.consts, *jax.tree.leaves(carry), *jax.tree.leaves(x), *products)
        return jax.tree.unflatten(result, found)

    return smaller, (xs, [made[v] for v in outputs])


def _products(jaxpr: Any, inputs: Sequence[Any], trips: int) -> list[Any]:
    """Returns the equations that multiply something made of an iteration's inputs by what is the same in all."""
    same, varying, found = set(jaxpr.constvars), set(inputs), []
    for eqn in jaxpr.eqns:
        used = {v for v in eqn.invars if isinstance(v, jex.Var)}
        if not used <= same | varying or not _is_plain(eqn):
            continue
        if not used & varying:
            same.update(eqn.outvars)
        elif all(_size(v, trips) <= _MOST_VALUES for v in eqn.outvars):
            varying.update(eqn.outvars)
            if eqn.primitive is lax.dot_general_p and len(used & varying) == 1 and _has_few_rows(eqn, varying):
                found.append(eqn)
    return found


def _with_pieces(jaxpr: Any, found: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Returns a body's equations, and what of them is made before the loop: the products, or what becomes of them."""
    products = [eqn.outvars[0] for eqn in found]
    eqns = cut_early(jaxpr.eqns, jaxpr.outvars, _followers(jaxpr.eqns, jaxpr.constvars, products))
    eqns = _needed(eqns, jaxpr.outvars)
    followers = _followers(eqns, jaxpr.constvars, products)
    used = {v for v in jaxpr.outvars if isinstance(v, jex.Var)}
    used.update(v for e in eqns if not followers.issuperset(e.outvars) for v in e.invars if isinstance(v, jex.Var))
    outputs = [v for e in eqns for v in e.outvars if v in followers and v in used]
    if sum(map(_size, outputs)) <= _MOST_GROWTH * sum(map(_size, products)):
        return eqns, outputs
    return list(jaxpr.eqns), products


def _followers(eqns: Sequence[Any], constants: Sequence[Any], products: Sequence[Any]) -> set[Any]:
    """Returns products and what is made of them and of what is the same in all iterations, without getting larger."""
    same, found = set(constants), set(products)
    for eqn in eqns:
        used = {v for v in eqn.invars if isinstance(v, jex.Var)}
        if used <= same | found and not found.issuperset(eqn.outvars) and _is_plain(eqn):
            if not used & found:
                same.update(eqn.outvars)
            elif sum(map(_size, eqn.outvars)) <= sum(map(_size, used & found)):
                found.update(eqn.outvars)
    return found


def _is_plain(eqn: Any) -> bool:
    """Whether an equation may as well run for all iterations at once.

    Not so: effects, keys (some generators draw other bits under vmap), branches (both would run) and loops.
    """
    keys = (jnp.issubdtype(v.aval.dtype, jax.dtypes.extended) for v in (*eqn.invars, *eqn.outvars))
    if eqn.effects or any(keys):
        return False
    if eqn.primitive.name == "jit":
        return all(map(_is_plain, eqn.params["jaxpr"].jaxpr.eqns))
    values = [v for p in eqn.params.values() for v in (p if isinstance(p, (tuple, list)) else [p])]
    return not any(isinstance(v, (jex.Jaxpr, jex.ClosedJaxpr)) for v in values)


def _size(var: Any, trips: int = 1) -> float:
    shape = var.aval.shape
    return trips * math.prod(shape) if all(isinstance(n, int) for n in shape) else math.inf


def _has_few_rows(eqn: Any, varying: set[Any]) -> bool:
    contract, batch = eqn.params["dimension_numbers"]
    (side,) = (i for i, v in enumerate(eqn.invars) if v in varying)
    shape = eqn.invars[side].aval.shape
    rows = math.prod(n for d, n in enumerate(shape) if d not in contract[side])
    return not any(batch) and rows <= _MOST_ROWS


def _needed(eqns: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Returns the equations that results are computed with, and those with effects, in order."""
    wanted, kept = {v for v in results if isinstance(v, jex.Var)}, []
    for eqn in reversed(eqns):
        if eqn.effects or wanted.intersection(eqn.outvars):
            kept.append(eqn)
            wanted.update(v for v in eqn.invars if isinstance(v, jex.Var))
    return kept[::-1]


def _for_all_steps(eqns: Sequence[Any], known: dict[Any, Any], steps: dict[Any, Any]) -> dict[Any, Any]:
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
        args = [v.val if isinstance(v, jex.Literal) else steps[v] if v in steps else known[v] for v in eqn.invars]
        axes = [0 if isinstance(v, jex.Var) and v in steps else None for v in eqn.invars]
        if 0 not in axes:
            results = _bind(eqn, *args)
            known.update(zip(eqn.outvars, results, strict=True))
            continue
        results = _cut(eqn, args, axes)
        if results is None and eqn.primitive.name == "jit":  # what jax.numpy makes of indexing
            results = _called(eqn.params["jaxpr"], args, axes)
        if results is None:
            results = _now(jax.vmap(lambda *a, eqn=eqn: _bind(eqn, *a), in_axes=axes), args)
        steps.update(zip(eqn.outvars, results, strict=True))
    return steps


def _called(closed: Any, args: Sequence[Any], axes: Sequence[int | None]) -> list[Any] | None:
    """Evaluates what an equation calls; None where a result is the same in all iterations."""
    given = list(zip(closed.jaxpr.invars, args, axes, strict=True))
    known = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    known |= {v: value for v, value, axis in given if axis is None}
    made = _for_all_steps(closed.jaxpr.eqns, known, {v: value for v, value, axis in given if axis == 0})
    outputs = closed.jaxpr.outvars
    return [made[v] for v in outputs] if all(isinstance(v, jex.Var) and v in made for v in outputs) else None


def _now(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls a function, at once where everything is known: indices are numbers then."""
    if all(isinstance(a, (np.ndarray, np.generic, int, float)) for a in args):
        with jax.ensure_compile_time_eval():
            return [np.asarray(r) for r in fn(*args)]
    return fn(*args)


def _bind(eqn: Any, *args: Any) -> list[Any]:
    found = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # JAX before 0.10: a pair
    results = eqn.primitive.bind(*functions, *args, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


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
    first, count = int(places[0]), len(places)
    inside = 0 <= first <= operand.shape[dim] - count
    if sizes[dim] != 1 or not inside or not np.array_equal(places, np.arange(first, first + count)):
        return None
    for d, size in enumerate(sizes):
        start = first if d == dim else min(max(int(starts[d]), 0), operand.shape[d] - size)
        size = count if d == dim else size
        if size != operand.shape[d]:
            operand = lax.slice_in_dim(operand, start, start + size, axis=d)
    return [jnp.expand_dims(jnp.moveaxis(operand, dim, 0), dim + 1)]
