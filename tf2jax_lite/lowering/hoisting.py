"""Matrix products that an iteration makes of its inputs alone are made for all iterations at once, before the loop.

TensorFlow's recurrent layers multiply each step's input by the kernel inside of the loop. Of few rows a product costs
as much as reading the weights, so one product for all steps is cheaper. What an iteration makes of such a product alone
(adding a bias, cutting it into gates) is made before the loop, too: XLA fuses the reading of an iteration's values into
what computes with them, and on CPU, where a fusion takes an array at several places, it looks for the iteration's
number at each of them for each element, and LLVM makes no vectors of it: 14 ns an element of a GRU instead of about
one. From an array for each gate the loop takes 0.5 to 0.9 of the time of one that reads the products uncut.

Time of a loop with the products before it, divided by that of one with them inside (LSTM on two cores with AVX-512):

| rows | width 256, 128 steps | its gradient | width 64, 128 steps | width 512, 32 steps |
| ---- | -------------------- | ------------ | ------------------- | ------------------- |
| 1    |                      |              | 0.6                 |                     |
| 4    | 0.5                  | 0.9          | 1.1                 |                     |
| 8    | 0.6                  | 0.8          | 1.0                 | 0.8                 |
| 16   | 0.8                  | 1.3          |                     | 0.9                 |
| 32   | 1.2                  | 1.1          | 1.0                 |                     |
| 64   | 1.5                  | 1.0          |                     |                     |
| 128  | 1.6                  | 1.2          | 1.1                 |                     |

With more rows a step's product is as fast as that of all steps, and its results stay in the caches. The gradients by
the weights are made for all steps at once in either case (`weights`). On GPU a loop's length counts its kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.equations import bind, size

from . import weights
from .pieces import constants_first, cut_early, is_cut

__all__ = ["scan"]

_MOST_ROWS = 128  # of a step's product: with more, each step uses the weights as well as all steps together
_MOST_ROWS_ON_CPU = 16
_MOST_GROWTH = 2  # of what products are cut into, to the products
# How numpy computes what jax.numpy makes of an index: counted from the end where it is negative.
_ON_NUMBERS = {
    lax.add_p: np.add,
    lax.lt_p: np.less,
    lax.select_n_p: lambda which, no, yes: np.where(which, yes, no),
}
_MOST_VALUES = 1 << 26  # of all steps together, of any value on the way: 256 MiB in float32


def scan(step: Callable[..., Any], start: Any, xs: Any, trips: int) -> Any:
    """Runs ``lax.scan``, with the products before it that need nothing of it.

    Args:
      step: the body as ``lax.scan`` takes it, from (carry, x) to (carry, None).
      start: the initial carry.
      xs: a tree of arrays, an entry for each iteration along the first axis.
      trips: how many iterations there are.

    Returns:
      What is carried at the end. Where inputs are not known numbers the loop is run as it is.
    """
    (carried, carry_tree), (leaves, xs_tree) = jax.tree.flatten(start), jax.tree.flatten(xs)
    if trips < 2 or not all(isinstance(x, np.ndarray) for x in leaves):
        return lax.scan(step, start, xs)[0]
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
    inputs = jaxpr.invars[len(jaxpr.invars) - len(leaves) :]
    found = _products(jaxpr, inputs, trips)
    eqns, outputs = _with_pieces(jaxpr, found) if found else (jaxpr.eqns, [])
    ready = set(outputs)
    cuts = [e for e in eqns if is_cut(e) and not ready.isdisjoint(e.outvars)]
    cut = {v for e in cuts for v in e.outvars}
    wholes = list(dict.fromkeys(e.invars[0] for e in cuts))
    outputs = [v for v in outputs if v not in cut]
    known = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    made = _for_all_steps(
        _needed([e for e in eqns if not e.effects], [*outputs, *wholes]),
        known,
        dict(zip(inputs, leaves, strict=True)),
    )
    before = {*outputs, *cut}
    rest = _needed([e for e in eqns if before.isdisjoint(e.outvars)], jaxpr.outvars)
    rest, factors = _without_constant_factors(rest, known, jaxpr.outvars)
    invars = [*jaxpr.constvars, *factors, *jaxpr.invars, *outputs, *(v for e in cuts for v in e.outvars)]
    body = jex.Jaxpr((), invars, jaxpr.outvars, rest, jaxpr.effects, jaxpr.debug_info.with_unknown_names())
    end = weights.scan(
        weights.Loop(body, [(e, wholes.index(e.invars[0])) for e in cuts], trips),
        [*closed.consts, *factors.values()],
        carried,
        [*leaves, *(made[v] for v in outputs)],
        [made[v] for v in wholes],
    )
    return jax.tree.unflatten(result, end)


def _products(jaxpr: Any, inputs: Sequence[Any], trips: int) -> list[Any]:
    """Returns the equations that multiply something made of an iteration's inputs by what is the same in all."""
    same, varying, found = set(jaxpr.constvars), set(inputs), []
    for eqn in jaxpr.eqns:
        used = {v for v in eqn.invars if isinstance(v, jex.Var)}
        if not used <= same | varying or not _is_plain(eqn):
            continue
        if not used & varying:
            same.update(eqn.outvars)
        elif all(size(v, trips) <= _MOST_VALUES for v in eqn.outvars):
            varying.update(eqn.outvars)
            if eqn.primitive is lax.dot_general_p and len(used & varying) == 1 and _has_few_rows(eqn, varying):
                found.append(eqn)
    return found


def _with_pieces(jaxpr: Any, found: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Returns a body's equations, and what of them is made before the loop: the products, or what becomes of them."""
    products = [eqn.outvars[0] for eqn in found]
    followers, same = _followers(jaxpr.eqns, jaxpr.constvars, products)
    eqns = constants_first(jaxpr.eqns, jaxpr.outvars, followers, same)
    followers, _ = _followers(eqns, jaxpr.constvars, products)
    eqns = _needed(cut_early(eqns, jaxpr.outvars, followers), jaxpr.outvars)
    followers, _ = _followers(eqns, jaxpr.constvars, products)
    used = {v for v in jaxpr.outvars if isinstance(v, jex.Var)}
    used.update(v for e in eqns if not followers.issuperset(e.outvars) for v in e.invars if isinstance(v, jex.Var))
    outputs = [v for e in eqns for v in e.outvars if v in followers and v in used]
    if sum(map(size, outputs)) <= _MOST_GROWTH * sum(map(size, products)):
        return eqns, outputs
    return list(jaxpr.eqns), products


def _followers(eqns: Sequence[Any], constants: Iterable[Any], products: Sequence[Any]) -> tuple[set[Any], set[Any]]:
    """Returns two sets of variables.

    The first are products, and what is made of them and of what is the same in all iterations, without getting larger.
    The second is what is the same in all iterations.
    """
    same, found = set(constants), set(products)
    for eqn in eqns:
        used = {v for v in eqn.invars if isinstance(v, jex.Var)}
        if used <= same | found and not found.issuperset(eqn.outvars) and _is_plain(eqn):
            if not used & found:
                same.update(eqn.outvars)
            elif sum(map(size, eqn.outvars)) <= sum(map(size, used & found)):
                found.update(eqn.outvars)
    return found, same


def _without_constant_factors(
    eqns: Sequence[Any], known: dict[Any, Any], results: Sequence[Any]
) -> tuple[list[Any], dict[Any, Any]]:
    """Makes what products take, and what is the same in all iterations (a piece of the weights), before the loop.

    Returns:
      The equations that are left, and the values made.
    """
    _, same = _followers(eqns, known, ())
    taken = [v for e in eqns if e.primitive is lax.dot_general_p for v in e.invars if isinstance(v, jex.Var)]
    wanted = {v: None for v in taken if v in same and v not in known}
    values = dict(known)
    for eqn in _needed([e for e in eqns if not e.effects], wanted):
        args = [v.val if isinstance(v, jex.Literal) else values[v] for v in eqn.invars]
        values.update(zip(eqn.outvars, bind(eqn, *args), strict=True))
    left = [e for e in eqns if not wanted or wanted.keys().isdisjoint(e.outvars)]
    return _needed(left, results), {v: values[v] for v in wanted}


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


def _has_few_rows(eqn: Any, varying: set[Any]) -> bool:
    contract, batch = eqn.params["dimension_numbers"]
    (side,) = (i for i, v in enumerate(eqn.invars) if v in varying)
    shape = eqn.invars[side].aval.shape
    rows = math.prod(n for d, n in enumerate(shape) if d not in contract[side])
    return not any(batch) and rows <= (_MOST_ROWS_ON_CPU if jax.default_backend() == "cpu" else _MOST_ROWS)


def _needed(eqns: Sequence[Any], results: Iterable[Any]) -> list[Any]:
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
            results = bind(eqn, *args)
            known.update(zip(eqn.outvars, results, strict=True))
            continue
        results = _cut(eqn, args, axes)
        if results is None and eqn.primitive.name == "jit":  # what jax.numpy makes of indexing
            results = _called(eqn.params["jaxpr"], args, axes)
        if results is None:
            results = _on_numbers(eqn, args)
        if results is None:
            results = _now(jax.vmap(lambda *a, eqn=eqn: bind(eqn, *a), in_axes=axes), args)
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


def _on_numbers(eqn: Any, args: Sequence[Any]) -> list[Any] | None:
    """Evaluates what indices are made with, of known numbers: JAX would compile a program for each; None for others."""
    function = _ON_NUMBERS.get(eqn.primitive)
    if function is None or any(v.aval.shape for v in eqn.invars) or not all(map(_is_number, args)):
        return None
    return [np.asarray(function(*args), eqn.outvars[0].aval.dtype)]


def _is_number(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, int, float))


def _now(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls a function, at once where everything is known: indices are numbers then."""
    if all(map(_is_number, args)):
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
    first, count = int(places[0]), len(places)
    inside = 0 <= first <= operand.shape[dim] - count
    if sizes[dim] != 1 or not inside or not np.array_equal(places, np.arange(first, first + count)):
        return None
    for d, taken in enumerate(sizes):
        start = first if d == dim else min(max(int(starts[d]), 0), operand.shape[d] - taken)
        stop = start + (count if d == dim else taken)
        if stop - start != operand.shape[d]:
            operand = lax.slice_in_dim(operand, start, stop, axis=d)
    return [jnp.expand_dims(jnp.moveaxis(operand, dim, 0), dim + 1)]
