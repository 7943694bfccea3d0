"""Primitives that JAX spells differently on CPU: the same equations, lowered to what runs fast there.

XLA's CPU backend runs some convolutions and poolings many times slower than the same sums written as other
operations. Which spelling is faster depends on the platform and on the shape, and is known only when a program is
compiled, after differentiation and batching. So a *twin* of a primitive has its name, parameters, abstract value and
derivatives, and differs in one thing: its lowering on CPU asks a rule first. On other platforms, in programs exported
for them, and where the rule has nothing to say, the primitive itself is lowered.

Derivatives and batching are JAX's own: the rule of the primitive is traced, and what comes out is written with twins
again. So gradients, too, are spelled by shape, and forward mode and gradients of gradients work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Primitive, Zero, is_undefined_primal, register
from tf2jax_lite.jaxprs.evaluate import evaluate
from tf2jax_lite.jaxprs.shard_map import axes_of, lower_fun

__all__ = ["CpuRule", "call", "emit", "twin", "twin_of"]

CpuRule = Callable[..., Any]
"""Takes a primitive's operands and parameters; returns the result, or None for the primitive itself."""

_TWINS: dict[Any, Any] = {}


def twin(primitive: Any, rule: CpuRule | None = None) -> Any:
    """Makes a primitive's twin.

    Args:
      primitive: a JAX primitive with one result.
      rule: its spelling on CPU; None for a primitive that only leads to others with a rule (by its derivative).

    Returns:
      The new primitive; `call` and `emit` use it from now on.
    """
    made = Primitive(primitive.name)
    register(
        made,
        impl=functools.partial(_run, made),
        abstract=primitive,
        jvp=functools.partial(_jvp, primitive),
        transpose=functools.partial(_transpose, primitive),
        batch=functools.partial(_batch, primitive),
        lowering=lower_fun(primitive.bind, multiple_results=False),
    )
    if rule is not None:

        def spelled(*args: Any, **params: Any) -> Any:
            found = rule(*args, **params)
            return primitive.bind(*args, **params) if found is None else found

        register(made, cpu_lowering=lower_fun(spelled, multiple_results=False))
    _TWINS[primitive] = made
    return made


def twin_of(primitive: Any) -> Any:
    """Returns a primitive's twin, or the primitive itself where it has none."""
    return _TWINS.get(primitive, primitive)


def call(fn: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Returns ``fn(*args, **params)``, its equations written with twins.

    Args:
      fn: a function of the module level, of arrays and keywords; it gives one array.
      *args: arrays.
      **params: hashable values.
    """
    return emit(_traced(fn, params, args), args)[0]


def emit(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """Evaluates a jaxpr with twins in the place of the primitives that have one."""

    def rule(eqn: Any, operands: list[Any]) -> list[Any] | None:
        return [_TWINS[eqn.primitive].bind(*operands, **eqn.params)] if eqn.primitive in _TWINS else None

    return evaluate(closed, args, rule)


def _struct(aval: Any) -> Any:
    return aval if axes_of(aval) else jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _traced(fn: Callable[..., Any], params: Mapping[str, Hashable], args: Sequence[Any]) -> ClosedJaxpr:
    structs = tuple(_struct(jax.typeof(a)) for a in args)
    key = _frozen(params)
    if all(isinstance(d, int) for s in structs for d in s.shape) and not any(map(axes_of, args)):
        return _trace_once(fn, key, structs, jax.config.read("jax_enable_x64"))
    # Symbolic sizes of different scopes cannot be compared, and mesh axes mean something in their mesh only.
    return _trace(fn, key, structs)


def _trace(fn: Callable[..., Any], params: tuple[tuple[str, Any], ...], structs: tuple[Any, ...]) -> ClosedJaxpr:
    return jax.make_jaxpr(functools.partial(fn, **dict(params)))(*structs)


@functools.lru_cache(maxsize=4096)
def _trace_once(fn: Any, params: Any, structs: Any, x64: bool) -> ClosedJaxpr:
    return _trace(fn, params, structs)


@functools.lru_cache(maxsize=4096)
def _compiled(made: Any, params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(functools.partial(made.bind, **dict(params)))


def _run(made: Any, /, *args: Any, **params: Any) -> Any:
    return _compiled(made, _frozen(params))(*args)


# The rules of a primitive as functions of arrays alone; ``chosen`` says which operands take part.


def _jvp_of(*args: Any, primitive: Any, chosen: tuple[int, ...], params: Any) -> Any:
    primals, tangents = args[: -len(chosen)], args[-len(chosen) :]

    def fn(*some: Any) -> Any:
        full = list(primals)
        for i, value in zip(chosen, some, strict=True):
            full[i] = value
        return primitive.bind(*full, **dict(params))

    return jax.jvp(fn, [primals[i] for i in chosen], list(tangents))[1]


def _transpose_of(
    cotangent: Any, *args: Any, primitive: Any, unknown: tuple[Any, ...], where: tuple[int, ...], params: Any
) -> Any:
    def fn(*some: Any) -> Any:
        rest, given = iter(args), dict(zip(where, some, strict=True))
        full = [given[i] if i in given else next(rest) for i in range(len(args) + len(where))]
        return primitive.bind(*full, **dict(params))

    return jax.linear_transpose(fn, *unknown)(cotangent)


def _batch_of(*args: Any, primitive: Any, axes: tuple[int | None, ...], params: Any) -> Any:
    return jax.vmap(lambda *values: primitive.bind(*values, **dict(params)), in_axes=axes)(*args)


def _frozen(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any) -> tuple[Any, Any]:
    result = _TWINS[primitive].bind(*primals, **params)
    chosen = tuple(i for i, t in enumerate(tangents) if not isinstance(t, Zero))
    args = (*primals, *(tangents[i] for i in chosen))
    closed = _traced(_jvp_of, {"primitive": primitive, "chosen": chosen, "params": _frozen(params)}, args)
    return result, emit(closed, args)[0]


def _transpose(primitive: Any, cotangent: Any, /, *args: Any, **params: Any) -> list[Any]:
    where = tuple(i for i, a in enumerate(args) if is_undefined_primal(a))
    out: list[Any] = [None] * len(args)
    if isinstance(cotangent, Zero):
        return out
    known = (cotangent, *(a for i, a in enumerate(args) if i not in where))
    unknown = tuple(_struct(args[i].aval) for i in where)
    keywords = {"primitive": primitive, "unknown": unknown, "where": where, "params": _frozen(params)}
    for i, value in zip(where, emit(_traced(_transpose_of, keywords, known), known), strict=True):
        out[i] = value
    return out


def _batch(primitive: Any, args: Sequence[Any], axes: Sequence[int | None], /, **params: Any) -> tuple[Any, int]:
    closed = _traced(_batch_of, {"primitive": primitive, "axes": tuple(axes), "params": _frozen(params)}, args)
    return emit(closed, args)[0], 0
