"""Derivatives of dynamic while loops: both modes, any order, under vmap.

JAX differentiates ``lax.while_loop`` in forward mode only, as reverse mode needs memory for an unknown number of
iterations. Three primitives complete it, each a loop (`functions`) applied to its operands: the tangents of results
(``while_jvp``), the transpose of that, which recomputes iterations (``while_vjp``, see `checkpointing`), and the
tangents of that with respect to operands (``while_hessian``). They are one another's derivatives and transposes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Primitive, Zero, is_undefined_primal, lower_fun, register
from tf2jax_lite.jaxprs.shard_map import axes_of
from tf2jax_lite.support.errors import OpError

from .checkpointing import pullback
from .functions import Batched, Functions, WithTangents, batched
from .while_loop import WITH_RESIDUALS, batch_first, repeat, while_loop, with_residuals_p, zero

__all__ = ["DERIVATIVES", "WITH_RESIDUALS", "as_loops", "while_loop"]

_tangents = Primitive("while_jvp")
_cotangents = Primitive("while_vjp")
_hessians = Primitive("while_hessian")


def _inexact(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)


def _with_residuals_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, max_trips = params["loop"], params["results"], params["max_trips"]
    size = len(results)
    found = with_residuals_p.bind(*primals, **params)
    operands = primals[size:]
    moved = {p: t for p, t in enumerate(tangents[size:]) if type(t) is not Zero and _inexact(operands[p])}
    return found, _tangents_of(loop, results, max_trips, operands, moved, found)


register(with_residuals_p, jvp=_with_residuals_jvp)


def _tangents_of(
    loop: Functions,
    results: Sequence[int],
    max_trips: int | None,
    operands: Sequence[Any],
    moved: dict[int, Any],
    like: Any,
) -> list[Any]:
    """Return the results' tangents, given those of some operands by position."""
    linear = tuple(moved)
    moving = set(loop.moving(linear))
    some = tuple(k for k in results if k in moving)
    out = iter(())
    if some:
        out = iter(
            _tangents.bind(*operands, *moved.values(), loop=loop, results=some, linear=linear, max_trips=max_trips)
        )
    return [next(out) if k in moving else zero(v) for k, v in zip(results, like, strict=True)]


def _compiled(run: Callable[..., list[Any]], *args: Any, **params: Any) -> list[Any]:
    return jax.jit(functools.partial(run, **params))(*args)


# ---- tangents ----
#
# Operands: the loop's, and tangents of those at the positions `linear`. Results: tangents of the carried arrays
# `results` at the end. Linear in the tangents; the transpose is `_cotangents`.


def _run_tangents(*args: Any, loop: Any, results: Any, linear: Any, max_trips: Any) -> list[Any]:
    del max_trips
    both = WithTangents(loop, linear)
    operands = both.operands(args)
    constants, start = operands[: both.constants], operands[both.constants :]
    end = lax.while_loop(lambda s: both.cond(constants, s), lambda s: both.body(constants, s), start)
    return [end[k] for k in _with_tangents(both, results)]


def _with_tangents(both: WithTangents, results: Sequence[int]) -> list[int]:
    """Return the indices of some carried arrays' tangents in a tangent loop."""
    first = len(both.inexact) - len(both.with_tangents)
    return [first + both.with_tangents.index(k) for k in results]


def _tangents_aval(*avals: Any, loop: Any, results: Any, linear: Any, max_trips: Any) -> list[Any]:
    del linear, max_trips
    return [avals[loop.constants + k] for k in results]


def _tangents_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, max_trips = (params[name] for name in ("loop", "results", "linear", "max_trips"))
    found = _tangents.bind(*primals, **params)
    both = WithTangents(loop, linear)
    operands = both.operands(primals)
    moved = {}
    for p, source in enumerate(both.operand_sources()):
        tangent = None if source is None else tangents[source]
        if tangent is not None and type(tangent) is not Zero and _inexact(operands[p]):
            moved[p] = tangent
    return found, _tangents_of(both, _with_tangents(both, results), max_trips, operands, moved, found)


def _tangents_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    loop, results, linear, max_trips = (params[name] for name in ("loop", "results", "linear", "max_trips"))
    size = len(args) - len(linear)
    wanted = [i for i, x in enumerate(args[size:]) if is_undefined_primal(x)]
    given = [(k, c) for k, c in zip(results, cotangents, strict=True) if type(c) is not Zero]
    found: list[Any] = [None] * len(args)
    if not given:
        for i in wanted:
            found[size + i] = Zero(args[size + i].aval)
        return found
    which, cts = zip(*given, strict=True)
    some = tuple(linear[i] for i in wanted)
    out = _cotangents.bind(*args[:size], *cts, loop=loop, results=which, linear=some, max_trips=max_trips)
    for i, value in zip(wanted, out, strict=True):
        found[size + i] = value
    return found


def _tangents_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results, linear = params["loop"], params["results"], params["linear"]
    size, args, mapped = batch_first(args, dims)
    count = len(args) - len(linear)
    differ = {p for p in range(count) if mapped[p]}
    differ |= {p for i, p in enumerate(linear) if mapped[count + i]}
    new = batched(loop, size, differ)
    operands = new.operands(args[:count], mapped[:count], differ)
    moved = _tangents_of_many(new, linear, args[count:], mapped[count:], differ, size)
    out = _tangents.bind(*operands, *moved, **{**params, "loop": new})
    return out, [0 if new.carried[k] else None for k in results]


def _tangents_of_many(
    new: Batched, linear: Sequence[int], tangents: Sequence[Any], mapped: Sequence[bool], differ: set[int], size: int
) -> list[Any]:
    """Return tangents with a batch axis where their operands have one."""
    own = differ | {new.constants + k for k, carried in enumerate(new.carried) if carried}
    some = zip(linear, tangents, mapped, strict=True)
    return [repeat(t, size) if p in own and not m else t for p, t, m in some]


def _cotangents_of_many(
    new: Batched, results: Sequence[int], cotangents: Sequence[Any], mapped: Sequence[bool], size: int
) -> list[Any]:
    some = zip(results, cotangents, mapped, strict=True)
    return [repeat(c, size) if new.carried[k] and not m else c for k, c, m in some]


# ---- cotangents ----
#
# Operands: the loop's, and cotangents of `results`. Results: cotangents of the operands at the positions `linear`.


def _run_cotangents(*args: Any, loop: Any, results: Any, linear: Any, max_trips: Any) -> list[Any]:
    size = len(args) - len(results)
    return pullback(lax.while_loop, loop, results, linear, max_trips, args[:size], args[size:])


def _cotangents_aval(*avals: Any, linear: Any, **_: Any) -> list[Any]:
    axes = frozenset[str]().union(*map(axes_of, avals))
    if any(axes - axes_of(avals[p]) for p in linear):
        # Devices would sum over iterations, and they run different numbers of them.
        raise OpError(
            "a gradient is taken through a loop with a data-dependent trip count, with respect to an array that is the "
            f"same on all devices along {', '.join(map(repr, sorted(axes)))} of a mesh. Let it vary "
            "(jax.lax.pcast(array, axes, to='varying')), and add the gradients up (jax.lax.psum)"
        )
    return [avals[p] for p in linear]


def _cotangents_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, max_trips = (params[name] for name in ("loop", "results", "linear", "max_trips"))
    found = _cotangents.bind(*primals, **params)
    size = len(primals) - len(results)
    sums = [_cotangents_by_some(primals[:size], tangents[size:], _cotangents, params)]
    moved = {p: t for p, t in enumerate(tangents[:size]) if type(t) is not Zero and _inexact(primals[p])}
    if moved and loop.base.plain:
        sums.append(_hessians_of(loop, results, linear, max_trips, primals[:size], primals[size:], moved))
    elif moved:
        sums.append(_of_the_pullback(loop, results, linear, max_trips, primals[:size], primals[size:], moved))
    return found, _added(sums, found)


def _cotangents_by_some(
    operands: Sequence[Any], tangents: Sequence[Any], primitive: Any, params: Any, *others: Any
) -> list[Any] | None:
    """Return a function linear in cotangents, of tangents; None if they are zero."""
    some = [(k, t) for k, t in zip(params["results"], tangents, strict=True) if type(t) is not Zero]
    if not some:
        return None
    which, cts = zip(*some, strict=True)
    return primitive.bind(*operands, *cts, *others, **{**params, "results": which})


def _of_the_pullback(
    loop: Functions,
    results: Sequence[int],
    linear: Sequence[int],
    max_trips: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    moved: dict[int, Any],
) -> list[Any]:
    """Return cotangents' tangents where second derivatives may be asymmetric."""
    # The loops of the reverse pass are differentiated like any others; their number multiplies with each order.

    def of(values: Sequence[Any]) -> list[Any]:
        now = list(operands)
        for p, value in zip(moved, values, strict=True):
            now[p] = value
        return pullback(lambda *loop: while_loop(*loop)[0], loop, results, linear, max_trips, now, cotangents)

    return jax.jvp(of, ([operands[p] for p in moved],), (list(moved.values()),))[1]


def _added(sums: Sequence[list[Any] | None], like: Sequence[Any]) -> list[Any]:
    found = [some for some in sums if some is not None]
    if not found:
        return list(map(zero, like))
    return [functools.reduce(jnp.add, values) for values in zip(*found, strict=True)]


def _cotangents_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    loop, results, linear, max_trips = (params[name] for name in ("loop", "results", "linear", "max_trips"))
    size = len(args) - len(results)
    moved = {p: c for p, c in zip(linear, cotangents, strict=True) if type(c) is not Zero}
    return _by_cotangents(loop, results, max_trips, args[:size], args[size:], moved, len(args))


def _by_cotangents(
    loop: Functions,
    results: Sequence[int],
    max_trips: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    moved: dict[int, Any],
    count: int,
) -> list[Any]:
    """Return the results' tangents as the transpose for ``count`` cotangents."""
    wanted = [i for i, x in enumerate(cotangents) if is_undefined_primal(x)]
    which = [results[i] for i in wanted]
    out = _tangents_of(loop, which, max_trips, operands, moved, [cotangents[i].aval for i in wanted])
    found: list[Any] = [None] * count
    for i, value in zip(wanted, out, strict=True):
        found[len(operands) + i] = value
    return found


def _cotangents_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results, linear = params["loop"], params["results"], params["linear"]
    size, args, mapped = batch_first(args, dims)
    count = len(args) - len(results)
    differ = {p for p in range(count) if mapped[p]} | set(linear)
    differ |= {loop.constants + k for i, k in enumerate(results) if mapped[count + i]}
    new = batched(loop, size, differ)
    operands = new.operands(args[:count], mapped[:count], differ)
    cts = _cotangents_of_many(new, results, args[count:], mapped[count:], size)
    return _cotangents.bind(*operands, *cts, **{**params, "loop": new}), [0] * len(linear)


# ---- tangents of cotangents with respect to operands ----
#
# Operands: the loop's, cotangents of `results`, and tangents of the operands at the positions `moved`. Results: the
# tangents of the cotangents of the operands at the positions `linear`. Linear in the cotangents, and in the tangents;
# the transpose with respect to the latter is the same with `linear` and `moved` exchanged, as second derivatives are
# symmetric. For that reason, too, it is the cotangents of a loop that carries those tangents: no loop differentiates
# the backward pass of another, and higher orders need no more loops than the first.


def _hessians_of(
    loop: Functions,
    results: Sequence[int],
    linear: Sequence[int],
    max_trips: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    moved: dict[int, Any],
) -> list[Any] | None:
    """Return cotangents' tangents with respect to operands; None if zero."""
    moving = set(loop.moving(moved))
    some = [(k, c) for k, c in zip(results, cotangents, strict=True) if k in moving]
    if not some:
        return None
    which, cts = zip(*some, strict=True)
    params = {"loop": loop, "results": which, "linear": tuple(linear), "moved": tuple(moved), "max_trips": max_trips}
    return _hessians.bind(*operands, *cts, *moved.values(), **params)


def _parts(args: Sequence[Any], params: Any) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Return operands, cotangents and tangents separately."""
    end = len(args) - len(params["moved"])
    size = end - len(params["results"])
    return args[:size], args[size:end], args[end:]


def _carrying(args: Sequence[Any], params: Any) -> tuple[WithTangents, list[Any], tuple[int, ...]]:
    """Return the loop with tangents, its operands, and result tangent indices."""
    operands, _, tangents = _parts(args, params)
    both = WithTangents(params["loop"], params["moved"])
    return both, both.operands([*operands, *tangents]), tuple(_with_tangents(both, params["results"]))


def _run_hessians(*args: Any, **params: Any) -> list[Any]:
    both, operands, results = _carrying(args, params)
    linear = [both.position(p) for p in params["linear"]]
    return pullback(lax.while_loop, both, results, linear, params["max_trips"], operands, _parts(args, params)[1])


def _hessians_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, max_trips = (params[name] for name in ("loop", "results", "linear", "max_trips"))
    found = _hessians.bind(*primals, **params)
    operands, cotangents, directions = _parts(primals, params)
    by_operands, by_cotangents, by_directions = _parts(tangents, params)
    moved = {p: t for p, t in zip(params["moved"], by_directions, strict=True) if type(t) is not Zero}
    sums = [
        _cotangents_by_some(operands, by_cotangents, _hessians, params, *directions),
        _hessians_of(loop, results, linear, max_trips, operands, cotangents, moved) if moved else None,
    ]
    moved = {p: t for p, t in enumerate(by_operands) if type(t) is not Zero and _inexact(operands[p])}
    if moved:
        both, values, which = _carrying(primals, params)
        moved = {both.position(p): t for p, t in moved.items()}
        positions = [both.position(p) for p in linear]
        sums.append(_hessians_of(both, which, positions, max_trips, values, cotangents, moved))
    return found, _added(sums, found)


def _hessians_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    loop, results, max_trips = (params[name] for name in ("loop", "results", "max_trips"))
    operands, cts, tangents = _parts(args, params)
    moved_cotangents = {p: c for p, c in zip(params["linear"], cotangents, strict=True) if type(c) is not Zero}
    if any(map(is_undefined_primal, cts)):
        both, values, which = _carrying(args, params)
        moved = {both.position(p): c for p, c in moved_cotangents.items()}
        found = _by_cotangents(both, which, max_trips, values, cts, moved, len(values) + len(cts))
        return [*[None] * len(operands), *found[len(values) :], *[None] * len(tangents)]
    wanted = [i for i, x in enumerate(tangents) if is_undefined_primal(x)]
    out = _hessians_of(loop, results, [params["moved"][i] for i in wanted], max_trips, operands, cts, moved_cotangents)
    found: list[Any] = [None] * len(args)
    for i, value in zip(wanted, out or [Zero(tangents[i].aval) for i in wanted], strict=True):
        found[len(args) - len(tangents) + i] = value
    return found


def _hessians_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, moved = (params[name] for name in ("loop", "results", "linear", "moved"))
    size, args, mapped = batch_first(args, dims)
    (operands, cts, tangents), (mapped, of_cts, of_tangents) = _parts(args, params), _parts(mapped, params)
    differ = {p for p, m in enumerate(mapped) if m} | set(linear)
    differ |= {loop.constants + k for k, m in zip(results, of_cts, strict=True) if m}
    differ |= {p for p, m in zip(moved, of_tangents, strict=True) if m}
    new = batched(loop, size, differ)
    operands = new.operands(operands, mapped, differ)
    cts = _cotangents_of_many(new, results, cts, of_cts, size)
    tangents = _tangents_of_many(new, moved, tangents, of_tangents, differ, size)
    return _hessians.bind(*operands, *cts, *tangents, **{**params, "loop": new}), [0] * len(linear)


for primitive, run, aval, jvp, transpose, batch in (
    (_tangents, _run_tangents, _tangents_aval, _tangents_jvp, _tangents_transpose, _tangents_batch),
    (_cotangents, _run_cotangents, _cotangents_aval, _cotangents_jvp, _cotangents_transpose, _cotangents_batch),
    (_hessians, _run_hessians, _cotangents_aval, _hessians_jvp, _hessians_transpose, _hessians_batch),
):
    register(
        primitive,
        multiple_results=True,
        impl=functools.partial(_compiled, run),
        abstract=aval,
        jvp=jvp,
        transpose=transpose,
        batch=batch,
        lowering=lower_fun(run, multiple_results=True),
    )


_RUN = {_tangents.name: _run_tangents, _cotangents.name: _run_cotangents, _hessians.name: _run_hessians}

DERIVATIVES = frozenset(_RUN)
"""Names of the primitives of derivatives."""


def as_loops(eqn: Any) -> ClosedJaxpr:
    """Return the jaxpr of an equation of `DERIVATIVES`, with ``lax.while_loop``."""
    return jax.make_jaxpr(functools.partial(_RUN[eqn.primitive.name], **eqn.params))(*(v.aval for v in eqn.invars))
