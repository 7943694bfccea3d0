"""Derivatives of loops that data ends: forwards, backwards, of any order and of many at once.

JAX differentiates ``lax.while_loop`` forwards only, as it cannot know what to make room for. Three primitives do the
rest, each a loop (`loop_functions`) applied to its operands: how results move with them (``data_ended_jvp``), the
transpose of that, which computes the iterations again (``data_ended_vjp``, see `recomputed`), and how that moves
(``data_ended_hessian``). They are one another's derivatives and transposes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, Zero, is_undefined_primal, lower_fun, register
from tf2jax_lite.jaxprs.shard_map import axes_of
from tf2jax_lite.support.errors import OpError

from .checkpointing import pullback
from .functions import Batched, Functions, WithTangents, batched
from .while_loop import MARK, in_front, mark, spread, while_loop, zero

__all__ = ["MARK", "while_loop"]

_tangents = Primitive("data_ended_jvp")
_cotangents = Primitive("data_ended_vjp")
_curvature = Primitive("data_ended_hessian")


def _inexact(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)


def _mark_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, most = params["loop"], params["results"], params["most"]
    size = len(results)
    found = mark.bind(*primals, **params)
    operands = primals[size:]
    moved = {p: t for p, t in enumerate(tangents[size:]) if type(t) is not Zero and _inexact(operands[p])}
    return found, _tangents_of(loop, results, most, operands, moved, found)


register(mark, jvp=_mark_jvp)


def _tangents_of(
    loop: Functions, results: Sequence[int], most: int | None, operands: Sequence[Any], moved: dict[int, Any], like: Any
) -> list[Any]:
    """Returns the tangents of results, given those of some operands."""
    linear = tuple(moved)
    moving = set(loop.moving(linear))
    some = tuple(k for k in results if k in moving)
    out = iter(())
    if some:
        out = iter(_tangents.bind(*operands, *moved.values(), loop=loop, results=some, linear=linear, most=most))
    return [next(out) if k in moving else zero(v) for k, v in zip(results, like, strict=True)]


def _compiled(run: Callable[..., list[Any]], *args: Any, **params: Any) -> list[Any]:
    return jax.jit(functools.partial(run, **params))(*args)


# ---- tangents ----
#
# Operands: the loop's, and tangents of those at the positions `linear`. Results: tangents of the carried arrays
# `results` at the end. Linear in the tangents; the transpose is `_cotangents`.


def _run_tangents(*args: Any, loop: Any, results: Any, linear: Any, most: Any) -> list[Any]:
    del most
    both = WithTangents(loop, linear)
    operands = both.operands(args)
    constants, start = operands[: both.constants], operands[both.constants :]
    end = lax.while_loop(lambda s: both.cond(constants, s), lambda s: both.body(constants, s), start)
    return [end[k] for k in _with_tangents(both, results)]


def _with_tangents(both: WithTangents, results: Sequence[int]) -> list[int]:
    """Returns where a loop with tangents carries those of some arrays."""
    first = len(both.inexact) - len(both.with_tangents)
    return [first + both.with_tangents.index(k) for k in results]


def _tangents_aval(*avals: Any, loop: Any, results: Any, linear: Any, most: Any) -> list[Any]:
    del linear, most
    return [avals[loop.constants + k] for k in results]


def _tangents_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, most = (params[name] for name in ("loop", "results", "linear", "most"))
    found = _tangents.bind(*primals, **params)
    both = WithTangents(loop, linear)
    operands = both.operands(primals)
    moved = {}
    for p, place in enumerate(both.places()):
        tangent = None if place is None else tangents[place]
        if tangent is not None and type(tangent) is not Zero and _inexact(operands[p]):
            moved[p] = tangent
    return found, _tangents_of(both, _with_tangents(both, results), most, operands, moved, found)


def _tangents_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    loop, results, linear, most = (params[name] for name in ("loop", "results", "linear", "most"))
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
    out = _cotangents.bind(*args[:size], *cts, loop=loop, results=which, linear=some, most=most)
    for i, value in zip(wanted, out, strict=True):
        found[size + i] = value
    return found


def _tangents_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results, linear = params["loop"], params["results"], params["linear"]
    size, args, mapped = in_front(args, dims)
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
    """Returns tangents as the operands they belong to are: one for all of a batch, or one for each."""
    own = differ | {new.constants + k for k, carried in enumerate(new.carried) if carried}
    some = zip(linear, tangents, mapped, strict=True)
    return [spread(t, size) if p in own and not m else t for p, t, m in some]


def _cotangents_of_many(
    new: Batched, results: Sequence[int], cotangents: Sequence[Any], mapped: Sequence[bool], size: int
) -> list[Any]:
    some = zip(results, cotangents, mapped, strict=True)
    return [spread(c, size) if new.carried[k] and not m else c for k, c, m in some]


# ---- cotangents ----
#
# Operands: the loop's, and cotangents of `results`. Results: cotangents of the operands at the positions `linear`.


def _run_cotangents(*args: Any, loop: Any, results: Any, linear: Any, most: Any) -> list[Any]:
    size = len(args) - len(results)
    return pullback(lax.while_loop, loop, results, linear, most, args[:size], args[size:])


def _cotangents_aval(*avals: Any, linear: Any, **_: Any) -> list[Any]:
    axes = frozenset[str]().union(*map(axes_of, avals))
    if any(axes - axes_of(avals[p]) for p in linear):
        # Devices would add up what iterations give, and they run different numbers of them.
        raise OpError(
            "a gradient goes backwards through a loop that data ends, by an array that is the same on all devices "
            f"along {', '.join(map(repr, sorted(axes)))} of a mesh. Let it vary (jax.lax.pcast(array, axes, "
            "to='varying')), and add the gradients up (jax.lax.psum)"
        )
    return [avals[p] for p in linear]


def _cotangents_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, most = (params[name] for name in ("loop", "results", "linear", "most"))
    found = _cotangents.bind(*primals, **params)
    size = len(primals) - len(results)
    sums = [_cotangents_by_some(primals[:size], tangents[size:], _cotangents, params)]
    moved = {p: t for p, t in enumerate(tangents[:size]) if type(t) is not Zero and _inexact(primals[p])}
    if moved and loop.base.plain:
        sums.append(_curvature_of(loop, results, linear, most, primals[:size], primals[size:], moved))
    elif moved:
        sums.append(_of_the_pullback(loop, results, linear, most, primals[:size], primals[size:], moved))
    return found, _added(sums, found)


def _cotangents_by_some(
    operands: Sequence[Any], tangents: Sequence[Any], primitive: Any, params: Any, *others: Any
) -> list[Any] | None:
    """Returns what is linear in cotangents, of their tangents."""
    some = [(k, t) for k, t in zip(params["results"], tangents, strict=True) if type(t) is not Zero]
    if not some:
        return None
    which, cts = zip(*some, strict=True)
    return primitive.bind(*operands, *cts, *others, **{**params, "results": which})


def _of_the_pullback(
    loop: Functions,
    results: Sequence[int],
    linear: Sequence[int],
    most: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    moved: dict[int, Any],
) -> list[Any]:
    """Returns how cotangents move with operands, where second derivatives need not be symmetric.

    The loops that make them are differentiated like any others; of each order there are several times as many.
    """

    def of(values: Sequence[Any]) -> list[Any]:
        now = list(operands)
        for p, value in zip(moved, values, strict=True):
            now[p] = value
        return pullback(lambda *loop: while_loop(*loop)[0], loop, results, linear, most, now, cotangents)

    return jax.jvp(of, ([operands[p] for p in moved],), (list(moved.values()),))[1]


def _added(sums: Sequence[list[Any] | None], like: Sequence[Any]) -> list[Any]:
    found = [some for some in sums if some is not None]
    if not found:
        return list(map(zero, like))
    return [functools.reduce(jnp.add, values) for values in zip(*found, strict=True)]


def _cotangents_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    loop, results, linear, most = (params[name] for name in ("loop", "results", "linear", "most"))
    size = len(args) - len(results)
    moved = {p: c for p, c in zip(linear, cotangents, strict=True) if type(c) is not Zero}
    return _by_cotangents(loop, results, most, args[:size], args[size:], moved, len(args))


def _by_cotangents(
    loop: Functions,
    results: Sequence[int],
    most: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    moved: dict[int, Any],
    count: int,
) -> list[Any]:
    """Returns the tangents of the results that cotangents are of, as a transpose of ``count`` arguments gives them."""
    wanted = [i for i, x in enumerate(cotangents) if is_undefined_primal(x)]
    which = [results[i] for i in wanted]
    out = _tangents_of(loop, which, most, operands, moved, [cotangents[i].aval for i in wanted])
    found: list[Any] = [None] * count
    for i, value in zip(wanted, out, strict=True):
        found[len(operands) + i] = value
    return found


def _cotangents_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results, linear = params["loop"], params["results"], params["linear"]
    size, args, mapped = in_front(args, dims)
    count = len(args) - len(results)
    differ = {p for p in range(count) if mapped[p]} | set(linear)
    differ |= {loop.constants + k for i, k in enumerate(results) if mapped[count + i]}
    new = batched(loop, size, differ)
    operands = new.operands(args[:count], mapped[:count], differ)
    cts = _cotangents_of_many(new, results, args[count:], mapped[count:], size)
    return _cotangents.bind(*operands, *cts, **{**params, "loop": new}), [0] * len(linear)


# ---- how cotangents move with operands ----
#
# Operands: the loop's, cotangents of `results`, and tangents of the operands at the positions `moved`. Results: how the
# cotangents of the operands at the positions `linear` move. Linear in the cotangents, and in the tangents; by them the
# transpose is the same with `linear` and `moved` exchanged, as second derivatives are symmetric. For that reason, too,
# it is the cotangents of a loop that carries those tangents: no loop is there that differentiates another's backward
# pass, and those of higher orders are no more than those of the first.


def _curvature_of(
    loop: Functions,
    results: Sequence[int],
    linear: Sequence[int],
    most: int | None,
    operands: Sequence[Any],
    cotangents: Sequence[Any],
    moved: dict[int, Any],
) -> list[Any] | None:
    """Returns how cotangents move with operands; None if they do not."""
    moving = set(loop.moving(moved))
    some = [(k, c) for k, c in zip(results, cotangents, strict=True) if k in moving]
    if not some:
        return None
    which, cts = zip(*some, strict=True)
    params = {"loop": loop, "results": which, "linear": tuple(linear), "moved": tuple(moved), "most": most}
    return _curvature.bind(*operands, *cts, *moved.values(), **params)


def _parts(args: Sequence[Any], params: Any) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Returns operands, cotangents and tangents."""
    end = len(args) - len(params["moved"])
    size = end - len(params["results"])
    return args[:size], args[size:end], args[end:]


def _carrying(args: Sequence[Any], params: Any) -> tuple[WithTangents, list[Any], tuple[int, ...]]:
    """Returns the loop that carries the tangents, its operands, and which it carries of the results."""
    operands, _, tangents = _parts(args, params)
    both = WithTangents(params["loop"], params["moved"])
    return both, both.operands([*operands, *tangents]), tuple(_with_tangents(both, params["results"]))


def _run_curvature(*args: Any, **params: Any) -> list[Any]:
    both, operands, results = _carrying(args, params)
    linear = [both.place(p) for p in params["linear"]]
    return pullback(lax.while_loop, both, results, linear, params["most"], operands, _parts(args, params)[1])


def _curvature_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, most = (params[name] for name in ("loop", "results", "linear", "most"))
    found = _curvature.bind(*primals, **params)
    operands, cotangents, directions = _parts(primals, params)
    by_operands, by_cotangents, by_directions = _parts(tangents, params)
    moved = {p: t for p, t in zip(params["moved"], by_directions, strict=True) if type(t) is not Zero}
    sums = [
        _cotangents_by_some(operands, by_cotangents, _curvature, params, *directions),
        _curvature_of(loop, results, linear, most, operands, cotangents, moved) if moved else None,
    ]
    moved = {p: t for p, t in enumerate(by_operands) if type(t) is not Zero and _inexact(operands[p])}
    if moved:
        both, values, which = _carrying(primals, params)
        moved = {both.place(p): t for p, t in moved.items()}
        places = [both.place(p) for p in linear]
        sums.append(_curvature_of(both, which, places, most, values, cotangents, moved))
    return found, _added(sums, found)


def _curvature_transpose(cotangents: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    loop, results, most = (params[name] for name in ("loop", "results", "most"))
    operands, cts, tangents = _parts(args, params)
    turned = {p: c for p, c in zip(params["linear"], cotangents, strict=True) if type(c) is not Zero}
    if any(map(is_undefined_primal, cts)):
        both, values, which = _carrying(args, params)
        moved = {both.place(p): c for p, c in turned.items()}
        found = _by_cotangents(both, which, most, values, cts, moved, len(values) + len(cts))
        return [*[None] * len(operands), *found[len(values) :], *[None] * len(tangents)]
    wanted = [i for i, x in enumerate(tangents) if is_undefined_primal(x)]
    out = _curvature_of(loop, results, [params["moved"][i] for i in wanted], most, operands, cts, turned)
    found: list[Any] = [None] * len(args)
    for i, value in zip(wanted, out or [Zero(tangents[i].aval) for i in wanted], strict=True):
        found[len(args) - len(tangents) + i] = value
    return found


def _curvature_batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    loop, results, linear, moved = (params[name] for name in ("loop", "results", "linear", "moved"))
    size, args, mapped = in_front(args, dims)
    (operands, cts, tangents), (mapped, of_cts, of_tangents) = _parts(args, params), _parts(mapped, params)
    differ = {p for p, m in enumerate(mapped) if m} | set(linear)
    differ |= {loop.constants + k for k, m in zip(results, of_cts, strict=True) if m}
    differ |= {p for p, m in zip(moved, of_tangents, strict=True) if m}
    new = batched(loop, size, differ)
    operands = new.operands(operands, mapped, differ)
    cts = _cotangents_of_many(new, results, cts, of_cts, size)
    tangents = _tangents_of_many(new, moved, tangents, of_tangents, differ, size)
    return _curvature.bind(*operands, *cts, *tangents, **{**params, "loop": new}), [0] * len(linear)


for primitive, run, aval, jvp, transpose, batch in (
    (_tangents, _run_tangents, _tangents_aval, _tangents_jvp, _tangents_transpose, _tangents_batch),
    (_cotangents, _run_cotangents, _cotangents_aval, _cotangents_jvp, _cotangents_transpose, _cotangents_batch),
    (_curvature, _run_curvature, _cotangents_aval, _curvature_jvp, _curvature_transpose, _curvature_batch),
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
