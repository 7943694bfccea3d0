"""Matrix products that an iteration makes of its inputs alone are made for all iterations at once, before the loop.

TensorFlow's recurrent layers multiply each step's input by the kernel inside of the loop. Of few rows a product costs
as much as reading the weights, so one product for all steps is cheaper. What is made of it (a bias, gates) stays in the
loop: made before it for all steps, each gate would be a kernel of its own to compile. `pieces` has it read once. What
every iteration overwrites, such as a list that keeps the last result alone, is made after the loop.

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
from jax import lax

from tf2jax_lite.jaxprs.compat import Jaxpr, Literal, Var
from tf2jax_lite.jaxprs.walk import size
from tf2jax_lite.lowering.scheduling.materialize_slices import read_once, state_without_unit_axes, without_unit_axes

from . import carry_to_xs, sink_accumulators, weight_gradients
from .batch_steps import for_all_steps
from .loop_invariants import evaluated, is_plain, needed, unchanging, variables

__all__ = ["scan"]

_MOST_ROWS = 128  # of a step's product: with more, each step uses the weights as well as all steps together
_MOST_ROWS_ON_CPU = 16
_MOST_VALUES = 1 << 26  # of all steps together, of any value on the way: 256 MiB in float32


def scan(step: Callable[..., Any], start: Any, xs: Any, trips: int) -> Any:
    """Runs ``lax.scan``, with the products before it that need nothing of it.

    Its arguments are those of `carry_to_xs.body_of`.

    Returns:
      What is carried at the end. Where inputs are not known numbers the loop is run as it is, and where values differ
      between devices.
    """
    body = carry_to_xs.body_of(step, start, xs, trips)
    if body is None:
        return lax.scan(step, start, xs)[0]
    smaller, whole = sink_accumulators.after_loop(body)
    return body.end(whole(_run(smaller)))


def _run(body: carry_to_xs.Body) -> list[Any]:
    """Runs a loop.

    Returns:
      What is carried at the end, and what else iterations return, of all of them.
    """
    jaxpr, trips, carried = body.jaxpr, body.trips, body.carried
    inputs = jaxpr.invars[len(carried) :]
    steps = {**dict(zip(inputs, body.leaves, strict=True)), **body.read}
    products = [eqn.outvars[0] for eqn in _products(jaxpr, steps, trips)]
    rest = needed([e for e in jaxpr.eqns if not e.outvars or e.outvars[0] not in products], jaxpr.outvars)
    used = {v for e in rest for v in e.invars if isinstance(v, Var)}.union(variables(jaxpr.outvars))
    outputs = [v for v in (*body.read, *products) if v in used]
    known = dict(zip(jaxpr.constvars, body.consts, strict=True))
    made = for_all_steps(needed([e for e in jaxpr.eqns if not e.effects], outputs), known, steps)
    kept, after = _overwritten(jaxpr, rest, len(carried))
    results = [*(jaxpr.outvars[i] for i in kept), *jaxpr.outvars[len(carried) :]]
    rest, factors = _without_constant_factors(read_once(rest, outputs), known, results)
    state, ends, rest = state_without_unit_axes(rest, [jaxpr.invars[i] for i in kept], results)
    narrow, widening = without_unit_axes(outputs)
    invars, effects = [*jaxpr.constvars, *factors, *state, *inputs, *narrow], jaxpr.effects
    found = weight_gradients.scan(
        Jaxpr((), invars, ends, [*widening, *rest], effects, jaxpr.debug_info),
        [*body.consts, *factors.values()],
        [_shaped(carried[i], v.aval.shape) for i, v in zip(kept, state, strict=True)],
        [*body.leaves, *(_shaped(made[v], (trips, *n.aval.shape)) for v, n in zip(outputs, narrow, strict=True))],
        trips,
    )
    given = zip(results, found[: len(kept)], strict=False)  # what an iteration hands on may be a number, too
    end = {v: _shaped(value, v.aval.shape) for v, value in given if isinstance(v, Var)}
    known = evaluated(after, {**known, **end})
    last = [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars[: len(carried)]]
    return [*last, *found[len(kept) :]]


def _overwritten(jaxpr: Any, eqns: Sequence[Any], count: int) -> tuple[list[int], list[Any]]:
    """Finds what is carried, but read by no iteration, and can be made of what the loop gives besides.

    So are lists that keep the last iteration's result alone.

    Args:
      jaxpr: the body.
      eqns: those of its equations that are not run before the loop.
      count: how much is carried.

    Returns:
      The numbers of what has to be carried, and the equations that make the rest after the loop.
    """
    read = {v for e in eqns for v in e.invars if isinstance(v, Var)}.union(variables(jaxpr.outvars))
    unread = {i for i in range(count) if jaxpr.invars[i] not in read}
    # What else comes out of iterations is no value of the last one alone.
    ends = {v for i, v in enumerate(jaxpr.outvars[:count]) if i not in unread and isinstance(v, Var)}
    found = unchanging(eqns, {*jaxpr.constvars, *ends})
    made = {i for i in unread if isinstance(jaxpr.outvars[i], Literal) or jaxpr.outvars[i] in found}
    after = [e for e in eqns if found.issuperset(e.outvars) and not ends.issuperset(e.outvars)]
    return [i for i in range(count) if i not in made], needed(after, [jaxpr.outvars[i] for i in made])


def _shaped(value: Any, shape: tuple[int, ...]) -> Any:
    return value if tuple(value.shape) == tuple(shape) else lax.reshape(value, shape)


def _products(jaxpr: Any, inputs: Iterable[Any], trips: int) -> list[Any]:
    """Returns the equations that multiply something made of an iteration's inputs by what is the same in all."""
    same, varying, found = set(jaxpr.constvars), set(inputs), []
    for eqn in jaxpr.eqns:
        used = {v for v in eqn.invars if isinstance(v, Var)}
        if not used <= same | varying or not is_plain(eqn):
            continue
        if not used & varying:
            same.update(eqn.outvars)
        elif all(size(v, trips) <= _MOST_VALUES for v in eqn.outvars):
            varying.update(eqn.outvars)
            sides = [v for v in variables(eqn.invars) if v in varying]  # a product of something with itself has two
            if eqn.primitive is lax.dot_general_p and len(sides) == 1 and _has_few_rows(eqn, varying):
                found.append(eqn)
    return found


def _without_constant_factors(
    eqns: Sequence[Any], known: dict[Any, Any], results: Sequence[Any]
) -> tuple[list[Any], dict[Any, Any]]:
    """Makes what products take, and what is the same in all iterations (a piece of the weights), before the loop.

    Returns:
      The equations that are left, and the values made.
    """
    same = unchanging(eqns, known)
    taken = [v for e in eqns if e.primitive is lax.dot_general_p for v in e.invars if isinstance(v, Var)]
    wanted = {v: None for v in taken if v in same and v not in known}
    values = evaluated(needed([e for e in eqns if not e.effects], wanted), known)
    left = [e for e in eqns if not wanted or wanted.keys().isdisjoint(e.outvars)]
    return needed(left, results), {v: values[v] for v in wanted}


def _has_few_rows(eqn: Any, varying: set[Any]) -> bool:
    contract, batch = eqn.params["dimension_numbers"]
    (side,) = (i for i, v in enumerate(eqn.invars) if v in varying)
    shape = eqn.invars[side].aval.shape
    rows = math.prod(n for d, n in enumerate(shape) if d not in contract[side])
    return not any(batch) and rows <= (_MOST_ROWS_ON_CPU if jax.default_backend() == "cpu" else _MOST_ROWS)
