"""Primitives with a CPU lowering rule; other platforms lower as JAX does.

XLA's CPU backend runs some convolutions and poolings many times slower than the same sums written as other
operations. Which is faster depends on the platform and on the shape, and is known only when a program is compiled,
after differentiation and batching. So the *CPU variant* of a primitive has its name, parameters, abstract value and
derivatives, and differs in one thing: its lowering on CPU asks a rule first. On other platforms, in programs exported
for them, and where no rule applies, the primitive itself is lowered.

Derivatives and batching are JAX's own: the primitive's rule is traced, and its equations become CPU variants again. So
gradients, too, are lowered by shape, and forward mode and gradients of gradients work.

There is one variant for each set of rules (`selection`), so that jaxprs, and with them JAX's caches, tell them apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Primitive, Zero, is_undefined_primal, register
from tf2jax_lite.jaxprs.evaluate import evaluate
from tf2jax_lite.jaxprs.shard_map import axes_of, lower_fun
from tf2jax_lite.jaxprs.tracing_cache import trace_settings

from .selection import Selection, current, using

CpuLowering = Callable[..., Any]
"""Takes a primitive's operands and parameters; returns the result, or None for the primitive itself."""

_LOWERINGS: dict[Any, CpuLowering | None] = {}


def with_cpu_rule(primitive: Any, lowering: CpuLowering | None = None) -> None:
    """Give a primitive a CPU variant, which `call` and `emit` use from now on.

    Args:
      primitive: a JAX primitive with one result.
      lowering: its lowering on CPU; None for a primitive that only leads to others with a rule (by its derivative).
    """
    _LOWERINGS[primitive] = lowering


def has_cpu_rule(primitive: Any) -> bool:
    """Return whether a primitive has a CPU variant."""
    return primitive in _LOWERINGS


def variant_of(primitive: Any) -> Any:
    """Return a primitive's CPU variant with the rules in force, or itself."""
    return _variant(primitive, current()) if primitive in _LOWERINGS else primitive


@functools.cache
def _variant(primitive: Any, selected: Selection) -> Any:
    variant = Primitive(primitive.name)
    register(
        variant,
        impl="compiled",
        abstract=primitive,
        jvp=functools.partial(_jvp, primitive, selected),
        transpose=functools.partial(_transpose, primitive, selected),
        batch=functools.partial(_batch, primitive, selected),
        lowering=lower_fun(primitive.bind, multiple_results=False),
    )
    lowering = _LOWERINGS[primitive]
    if lowering is not None:

        def by_rule(*args: Any, **params: Any) -> Any:
            with using(selected):
                found = lowering(*args, **params)
            return primitive.bind(*args, **params) if found is None else found

        register(variant, cpu_lowering=lower_fun(by_rule, multiple_results=False))
    return variant


def call(fn: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Return ``fn(*args, **params)``, with CPU variants of its primitives.

    Args:
      fn: a function of the module level, of arrays and keywords, that returns one array.
      *args: arrays.
      **params: hashable values.
    """
    return emit(_traced(fn, params, args), args)[0]


def emit(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr with CPU variants in the place of the primitives that have one."""

    def rule(eqn: Any, operands: list[Any]) -> list[Any] | None:
        if eqn.primitive not in _LOWERINGS:
            return None
        return [variant_of(eqn.primitive).bind(*operands, **eqn.params)]

    return evaluate(closed, args, rule)


def _struct(aval: Any) -> Any:
    return aval if axes_of(aval) else jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _traced(fn: Callable[..., Any], params: Mapping[str, Hashable], args: Sequence[Any]) -> ClosedJaxpr:
    structs = tuple(_struct(jax.typeof(a)) for a in args)
    key = _frozen(params)
    if all(isinstance(d, int) for s in structs for d in s.shape) and not any(map(axes_of, args)):
        return _trace_once(fn, key, structs, trace_settings())
    # Symbolic sizes of different scopes cannot be compared, and mesh axes mean something in their mesh only.
    return _trace(fn, key, structs)


def _trace(fn: Callable[..., Any], params: tuple[tuple[str, Any], ...], structs: tuple[Any, ...]) -> ClosedJaxpr:
    return jax.make_jaxpr(functools.partial(fn, **dict(params)))(*structs)


@functools.lru_cache(maxsize=4096)
def _trace_once(fn: Any, params: Any, structs: Any, settings: Any) -> ClosedJaxpr:
    return _trace(fn, params, structs)


# A primitive's rules as functions of arrays alone; ``chosen`` are the operands that have tangents.


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


def _emit(selected: Selection, fn: Callable[..., Any], keywords: Mapping[str, Any], args: Sequence[Any]) -> list[Any]:
    with using(selected):
        return emit(_traced(fn, keywords, args), args)


def _jvp(
    primitive: Any, selected: Selection, primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any
) -> tuple[Any, Any]:
    result = _variant(primitive, selected).bind(*primals, **params)
    chosen = tuple(i for i, t in enumerate(tangents) if not isinstance(t, Zero))
    args = (*primals, *(tangents[i] for i in chosen))
    keywords = {"primitive": primitive, "chosen": chosen, "params": _frozen(params)}
    return result, _emit(selected, _jvp_of, keywords, args)[0]


def _transpose(primitive: Any, selected: Selection, cotangent: Any, /, *args: Any, **params: Any) -> list[Any]:
    where = tuple(i for i, a in enumerate(args) if is_undefined_primal(a))
    out: list[Any] = [None] * len(args)
    if isinstance(cotangent, Zero):
        return out
    known = (cotangent, *(a for i, a in enumerate(args) if i not in where))
    unknown = tuple(_struct(args[i].aval) for i in where)
    keywords = {"primitive": primitive, "unknown": unknown, "where": where, "params": _frozen(params)}
    for i, value in zip(where, _emit(selected, _transpose_of, keywords, known), strict=True):
        out[i] = value
    return out


def _batch(
    primitive: Any, selected: Selection, args: Sequence[Any], axes: Sequence[int | None], /, **params: Any
) -> tuple[Any, int]:
    keywords = {"primitive": primitive, "axes": tuple(axes), "params": _frozen(params)}
    return _emit(selected, _batch_of, keywords, args)[0], 0
