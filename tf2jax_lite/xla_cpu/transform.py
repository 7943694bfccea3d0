"""The CPU lowering rules for any JAX function: `optimize` and `call`.

A function is traced, and the primitives of its jaxpr that have rules become *CPU variants*, in the jaxprs of calls,
loops and branches, too. A variant has its primitive's name, parameters, abstract value and derivatives, and differs in
one thing: its lowering on CPU asks the rules first. On other platforms, in programs exported for them, and where no
rule applies, the primitive itself is lowered. So the rest of the program is unchanged.

Derivatives and batching are JAX's own: the primitive's rule is traced, and its equations become CPU variants again. So
gradients, too, are lowered by shape, and forward mode and gradients of gradients work. Functions with custom
derivatives are wrapped: their derivative rules are traced when needed, and rewritten then.

There is one variant for each set of rules in force, so that jaxprs, and with them JAX's caches, tell them apart.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import (
    ClosedJaxpr,
    Jaxpr,
    Primitive,
    Zero,
    bind,
    is_traced,
    is_undefined_primal,
    jaxpr_as_fun,
    register,
)
from tf2jax_lite.jaxprs.evaluate import evaluate, parts
from tf2jax_lite.jaxprs.shard_map import axes_of, lower_fun
from tf2jax_lite.jaxprs.tracing_cache import trace_settings
from tf2jax_lite.support.config import get_config

from .catalog import selection
from .rules import Selection, cpu_lowering, current, using

_WITH_JAXPRS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "scan", "while", "cond"}
)


def optimize(fn: Callable[..., Any], *, rules: Any = None) -> Callable[..., Any]:
    """Return a function of the same values and derivatives that runs faster on CPU.

    Convolutions, poolings, cumulative sums, inverse trigonometric functions and others take the CPU lowering rules for
    their shapes, also in derivatives, batches, loops and branches. On other platforms they are lowered as before.
    Values agree up to rounding. The body of ``jax.shard_map`` and of Pallas kernels stays as it is.

    Args:
      fn: a function that `jax.jit` could compile: of pytrees of arrays, by position or keyword. Bind other arguments
        with `functools.partial` before.
      rules: True, False, or names of rules, as the option ``xla_cpu_rules``; None for its present value.

    Returns:
      A function for use under `jax.jit`, `jax.grad`, `jax.vmap` and other transforms. Called outside of them it is
      compiled as by `jax.jit`.

    Raises:
      ConfigError: there is no such rule.
    """
    selected = selection(get_config("xla_cpu_rules") if rules is None else rules)

    @functools.wraps(fn)
    def rewritten(*args: Any, **kwargs: Any) -> Any:
        with using(selected):
            return _rewrite_and_call(fn, *args, **kwargs)

    compiled = jax.jit(rewritten)

    @functools.wraps(fn)
    def optimized(*args: Any, **kwargs: Any) -> Any:
        traced = any(is_traced(leaf) for leaf in jax.tree.leaves((args, kwargs)))
        return (rewritten if traced else compiled)(*args, **kwargs)

    return optimized


# Calls of functions, whose jaxprs are kept.

_NO_RULES: Selection = frozenset()
_MAX_KEPT = 64  # elements of an array that is part of the key
_MAX_CONSTANTS = 1 << 14  # elements of the constants of a jaxpr that is kept


class _Constant:
    """A small array that a function may look at, compared by its elements.

    It is a copy: its owner may change an array, and JAX 0.10 keeps the canonical form of one that a jaxpr holds, even
    where the other mode of ``jax_enable_x64`` has another.
    """

    def __init__(self, value: Any):
        self.value = value.copy() if isinstance(value, np.ndarray) else value
        content = np.asarray(self.value)
        self._key = isinstance(value, np.ndarray), content.dtype, content.shape, content.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class _StaticResultError(Exception):
    """A function returned something else than arrays."""


@dataclasses.dataclass
class _Kind:
    """Calls of a function with the same parameters and dtypes.

    Attributes:
      has_rules: whether its jaxpr may have primitives with rules.
      is_kept: whether its jaxprs are kept; those with large constants are not.
    """

    has_rules: bool = True
    is_kept: bool = True


@functools.lru_cache(maxsize=4096)
def _kind(fn: Callable[..., Any], params: tuple[tuple[str, Any], ...], dtypes: tuple[Any, ...]) -> _Kind:
    del fn, params, dtypes
    return _Kind()


def call(fn: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Return ``fn(*args, **params)``, with CPU variants of its primitives.

    The function is traced once for each set of shapes. Where no primitive has rules, it is called as it is.

    Args:
      fn: a function of the module level that computes results of its arguments alone.
      *args: arrays, pytrees of arrays, and constants. Traced arrays, and floating arrays of two and more dimensions,
        are operands; the function may look at the values of others.
      **params: hashable values, and lists of them, which arrive as tuples.
    """
    leaves, tree = jax.tree.flatten(args)
    where = tuple(i for i, leaf in enumerate(leaves) if _is_operand(leaf))
    rest = [None if i in where else leaf for i, leaf in enumerate(leaves)]
    if not where or current() == _NO_RULES or not all(map(_is_constant, rest)):
        return fn(*args, **params)
    try:
        frozen = _frozen(params)
        kind = _kind(fn, frozen, tuple(getattr(leaf, "dtype", None) for leaf in leaves))
    except TypeError:  # a parameter that is not hashable
        return fn(*args, **params)
    operands = [leaves[i] for i in where]
    found = _with_variants(fn, frozen, tree, rest, operands, kind.is_kept) if kind.has_rules else None
    if found is None:
        kind.has_rules = False
        return fn(*args, **params)
    closed, out = found
    kind.is_kept = sum(np.size(const) for const in closed.consts) <= _MAX_CONSTANTS
    return jax.tree.unflatten(out, evaluate(closed, operands))


def _is_operand(leaf: Any) -> bool:
    if is_traced(leaf):
        return not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return isinstance(leaf, (jax.Array, np.ndarray)) and leaf.ndim > 1 and bool(jnp.issubdtype(leaf.dtype, np.inexact))


def _is_constant(leaf: Any) -> bool:
    return not is_traced(leaf) and isinstance(leaf, (jax.Array, np.ndarray, np.generic, int, float, str, type(None)))


def _with_variants(
    fn: Callable[..., Any],
    params: tuple[tuple[str, Any], ...],
    tree: Any,
    rest: Sequence[Any],
    operands: Sequence[Any],
    is_kept: bool = True,
) -> tuple[ClosedJaxpr, Any] | None:
    """Return a call's rewritten jaxpr and the structure of its results, or None.

    Args:
      fn: the function.
      params: its parameters.
      tree: the structure of its arguments.
      rest: its constants, None for an operand.
      operands: its operands.
      is_kept: whether the jaxpr is kept for further calls.
    """
    structs = tuple(_struct(jax.typeof(operand)) for operand in operands)
    arrays = [leaf for leaf in rest if isinstance(leaf, (jax.Array, np.ndarray))]
    # Symbolic sizes of different scopes cannot be compared, and mesh axes mean something in their mesh only.
    if (
        not is_kept
        or any(leaf.size > _MAX_KEPT or leaf.dtype == object for leaf in arrays)
        or not all(isinstance(d, int) for struct in structs for d in struct.shape)
        or any(map(axes_of, operands))
    ):
        return _traced(fn, params, tree, tuple(rest), structs)
    kept = tuple(_Constant(leaf) if isinstance(leaf, (jax.Array, np.ndarray)) else leaf for leaf in rest)
    return _traced_once(fn, params, tree, kept, structs, trace_settings(), current())


def _traced(
    fn: Callable[..., Any],
    params: tuple[tuple[str, Any], ...],
    tree: Any,
    rest: tuple[Any, ...],
    structs: tuple[Any, ...],
) -> tuple[ClosedJaxpr, Any] | None:
    def run(*operands: Any) -> Any:
        given = iter(operands)
        leaves = (leaf.value if isinstance(leaf, _Constant) else leaf for leaf in rest)
        results = fn(*jax.tree.unflatten(tree, [next(given) if v is None else v for v in leaves]), **dict(params))
        if not all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(results)):
            raise _StaticResultError  # its value is to stay known
        return results

    try:
        closed, shapes = jax.make_jaxpr(run, return_shape=True)(*structs)
    except _StaticResultError:
        return None
    rewritten = _rewritten(closed)
    return None if rewritten is closed else (rewritten, jax.tree.structure(shapes))


@functools.lru_cache(maxsize=4096)
def _traced_once(
    fn: Any, params: Any, tree: Any, rest: Any, structs: Any, settings: Any, selected: Selection
) -> tuple[ClosedJaxpr, Any] | None:
    del settings, selected  # part of the key
    return _traced(fn, params, tree, rest, structs)


# CPU variants of primitives.


@functools.cache
def _variant(primitive: Any, selected: Selection) -> Any:
    variant, several = Primitive(primitive.name), primitive.multiple_results
    lowering: Any = cpu_lowering(primitive)

    def by_rule(*args: Any, **params: Any) -> Any:
        with using(selected):
            found = lowering(*args, **params)
        return primitive.bind(*args, **params) if found is None else found

    register(
        variant,
        multiple_results=several,
        impl="compiled",
        abstract=primitive,
        jvp=functools.partial(_jvp, primitive, selected),
        transpose=functools.partial(_transpose, primitive, selected),
        batch=functools.partial(_batch, primitive, selected),
        lowering=lower_fun(primitive.bind, multiple_results=several),
        cpu_lowering=lower_fun(by_rule, multiple_results=several),
    )
    return variant


def _derived(selected: Selection, fn: Callable[..., Any], keywords: Mapping[str, Any], args: Sequence[Any]) -> Any:
    """Return ``fn(*args, **keywords)`` with CPU variants, its jaxpr traced once."""
    tree, rest = jax.tree.structure(tuple(args)), [None] * len(args)
    with using(selected):
        found = _with_variants(fn, _frozen(keywords), tree, rest, args)
        return fn(*args, **keywords) if found is None else jax.tree.unflatten(found[1], evaluate(found[0], args))


# A primitive's rules as functions of arrays alone; ``chosen`` are the operands that have tangents.


def _jvp_of(*args: Any, primitive: Any, chosen: tuple[int, ...], params: Any) -> Any:
    primals, tangents = args[: -len(chosen)], args[-len(chosen) :]

    def fn(*some: Any) -> Any:
        full = list(primals)
        for i, value in zip(chosen, some, strict=True):
            full[i] = value
        return primitive.bind(*full, **dict(params))

    found = jax.jvp(fn, [primals[i] for i in chosen], list(tangents))[1]
    return [t for t in jax.tree.leaves(found) if t.dtype != jax.dtypes.float0]


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
    return tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in sorted(params.items()))


def _jvp(
    primitive: Any, selected: Selection, primals: Sequence[Any], tangents: Sequence[Any], /, **params: Any
) -> tuple[Any, Any]:
    result = _variant(primitive, selected).bind(*primals, **params)
    results = result if primitive.multiple_results else [result]
    tangents_of: list[Any] = [Zero(jax.typeof(r).to_tangent_aval()) for r in results]
    moving = [i for i, r in enumerate(results) if jnp.issubdtype(r.dtype, np.inexact)]
    if moving:
        chosen = tuple(i for i, t in enumerate(tangents) if not isinstance(t, Zero))
        args = (*primals, *(tangents[i] for i in chosen))
        keywords = {"primitive": primitive, "chosen": chosen, "params": _frozen(params)}
        for i, tangent in zip(moving, _derived(selected, _jvp_of, keywords, args), strict=True):
            tangents_of[i] = tangent
    return result, tangents_of if primitive.multiple_results else tangents_of[0]


def _transpose(primitive: Any, selected: Selection, cotangent: Any, /, *args: Any, **params: Any) -> list[Any]:
    where = tuple(i for i, a in enumerate(args) if is_undefined_primal(a))
    out: list[Any] = [None] * len(args)
    if isinstance(cotangent, Zero):
        return out
    known = (cotangent, *(a for i, a in enumerate(args) if i not in where))
    unknown = tuple(_struct(args[i].aval) for i in where)
    keywords = {"primitive": primitive, "unknown": unknown, "where": where, "params": _frozen(params)}
    for i, value in zip(where, _derived(selected, _transpose_of, keywords, known), strict=True):
        out[i] = value
    return out


def _batch(
    primitive: Any, selected: Selection, args: Sequence[Any], axes: Sequence[int | None], /, **params: Any
) -> tuple[Any, Any]:
    keywords = {"primitive": primitive, "axes": tuple(axes), "params": _frozen(params)}
    found = _derived(selected, _batch_of, keywords, args)
    return found, (0,) * len(found) if primitive.multiple_results else 0


# Jaxprs.


def _rewrite_and_call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args, **kwargs)
    leaves = jaxpr_as_fun(_rewritten(closed))(*jax.tree.leaves((args, kwargs)))
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _rewritten(jaxpr: Any) -> Any:
    """Return a jaxpr with CPU variants; itself if no primitive has a rule."""
    opened, consts = parts(jaxpr)
    if opened is not jaxpr:  # a closed jaxpr; JAX since 0.12 has no other
        inner = _rewritten(opened)
        return jaxpr if inner is opened else ClosedJaxpr(inner, consts)
    eqns = [_rewritten_equation(eqn) for eqn in jaxpr.eqns]
    unchanged = all(new is old for new, old in zip(eqns, jaxpr.eqns, strict=True))
    return jaxpr if unchanged else jaxpr.replace(eqns=eqns)


def _rewritten_equation(eqn: Any) -> Any:
    if cpu_lowering(eqn.primitive) is not None:
        return eqn.replace(primitive=_variant(eqn.primitive, current()))
    if eqn.primitive.name in _CUSTOM:
        return _with_rewritten_derivatives(eqn)
    if eqn.primitive.name not in _WITH_JAXPRS:
        return eqn
    changed = {}
    for name, value in eqn.params.items():
        items = value if isinstance(value, (tuple, list)) else (value,)
        if not items or not all(isinstance(item, (Jaxpr, ClosedJaxpr)) for item in items):
            continue
        new = tuple(map(_rewritten, items))
        if any(a is not b for a, b in zip(new, items, strict=True)):
            changed[name] = type(value)(new) if isinstance(value, (tuple, list)) else new[0]
    return eqn.replace(params={**eqn.params, **changed}) if changed else eqn


def _with_rewritten_derivatives(eqn: Any) -> Any:
    """Return a custom-derivative equation, with all its parts rewritten."""
    closed = eqn.params["call_jaxpr"]
    body = _rewritten(closed)
    if body is closed:
        return eqn
    structs = [_struct(v.aval) for v in eqn.invars]
    moving = _is_differentiable(structs), _is_differentiable([v.aval for v in eqn.outvars])
    wrapped = _CUSTOM[eqn.primitive.name](jaxpr_as_fun(body), functools.partial(bind, eqn), *moving)
    made = jax.make_jaxpr(wrapped)(*structs)
    if made.consts or len(made.eqns) != 1 or list(made.eqns[0].invars) != list(made.jaxpr.invars):
        return eqn
    return eqn.replace(primitive=made.eqns[0].primitive, params=made.eqns[0].params)


def _struct(aval: Any) -> Any:
    # What varies between devices is part of a type only inside of `jax.shard_map`.
    return aval if axes_of(aval) else jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _is_differentiable(values: Sequence[Any]) -> list[bool]:
    return [bool(jnp.issubdtype(v.dtype, np.inexact)) for v in values]


def _chosen(values: Sequence[Any], moving: Sequence[bool]) -> list[Any]:
    return [v for v, moves in zip(values, moving, strict=True) if moves]


def _filled(values: Sequence[Any], like: Sequence[Any], moving: Sequence[bool]) -> list[Any]:
    """Return all (co)tangents: those given, and float0 zeros for others."""
    given = iter(values)
    return [
        next(given) if moves else np.zeros(v.shape, jax.dtypes.float0) for v, moves in zip(like, moving, strict=True)
    ]


# Both take the rewritten function, the original one, and whether each operand and each result has a derivative.


def _custom_jvp(body: Any, original: Any, moving_in: Sequence[bool], moving_out: Sequence[bool]) -> Callable[..., Any]:
    fn = jax.custom_jvp(body)

    @fn.defjvp
    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        def derivative(primals: Sequence[Any], moving: Sequence[Any]) -> Any:
            out, dots = jax.jvp(lambda *args: original(*args), list(primals), _filled(moving, primals, moving_in))
            return out, _chosen(dots, moving_out)

        out, dots = _rewrite_and_call(derivative, list(primals), _chosen(tangents, moving_in))
        return out, _filled(dots, out, moving_out)

    return fn


def _custom_vjp(body: Any, original: Any, moving_in: Sequence[bool], moving_out: Sequence[bool]) -> Callable[..., Any]:
    fn = jax.custom_vjp(body)

    def forward(*args: Any) -> Any:
        return _rewrite_and_call(lambda *args: jax.vjp(original, *args), *args)

    def backward(pull: Any, cotangents: Sequence[Any]) -> Any:
        def gradient(moving: Sequence[Any]) -> Any:
            return _chosen(pull(_filled(moving, cotangents, moving_out)), moving_in)

        found = iter(_rewrite_and_call(gradient, _chosen(cotangents, moving_out)))
        return tuple(next(found) if moves else None for moves in moving_in)

    fn.defvjp(forward, backward)
    return fn


_CUSTOM = {"custom_jvp_call": _custom_jvp, "custom_vjp_call": _custom_vjp}
