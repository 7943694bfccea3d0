"""A custom-VJP primitive that also supports forward mode.

``custom_gradient`` returns its results unchanged. Its JVP is ``custom_gradient_tangent``, the transpose of the gradient
function, as TensorFlow's ForwardAccumulator has it around a function. The transpose is taken when tangents are
computed: reverse mode never needs it, so gradient functions that are not linear in upstream gradients fail only in
forward mode. (TensorFlow linearizes those at the upstream gradients of a function whose results all have gradient 1.)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import (
    ClosedJaxpr,
    Primitive,
    Zero,
    bind,
    instantiate_zeros,
    is_undefined_primal,
    jaxpr_as_fun,
    lower_fun,
    register,
    used_inputs,
)
from tf2jax_lite.jaxprs.evaluate import equations, evaluate, parts
from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along
from tf2jax_lite.loops.while_loop import repeat, zero
from tf2jax_lite.support.errors import ForwardModeError

Gradient = Callable[[list[Any], list[Any], list[Any], list[Any]], list[Any]]
"""Returns the cotangents of all arguments, given arguments, results, residuals and cotangents of results."""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An error message, and the node it is about: name, op and enclosing calls."""

    message: str
    node: str
    op: str
    path: tuple[str, ...]


NODE = "custom_gradient"
"""The name of the primitive of results."""
TANGENT = "custom_gradient_tangent"
"""The name of the primitive of tangents of results."""

_node = Primitive(NODE)
_tangent = Primitive(TANGENT)


def with_custom_gradient(
    gradient: Callable[..., list[Any]],
    args: Sequence[Any],
    results: Sequence[Any],
    saved: Any,
    refusal: Refusal,
    *,
    derived: bool = False,
) -> list[Any]:
    """Return results whose derivatives, in both modes, a gradient function gives.

    Args:
      gradient: returns the cotangents of ``args``, given arguments, results, ``saved`` and cotangents of results.
      results: inexact arrays. No gradient flows into them, nor into ``saved``.
      saved: a pytree of arrays that the gradient function reads; its own derivatives depend on them.
      refusal: the error of forward mode, where the gradient function is not linear.
      derived: whether JAX derived the gradient function, of a program that jax2tf wrote.
    """
    leaves, tree = jax.tree.flatten(saved)
    axes = frozenset[str]().union(*map(axes_of, (*args, *results, *leaves)))
    # In jax.shard_map arguments that are the same on all devices get the sum of gradients.
    operands = [varying_along(v, axes) for v in (*args, *results)]

    def call(args: list[Any], results: list[Any], leaves: list[Any], upstream: list[Any]) -> list[Any]:
        return gradient(args, results, jax.tree.unflatten(tree, leaves), upstream)

    counts = {"args": len(args), "results": len(results)}
    return _node.bind(*operands, *leaves, gradient=call, **counts, refusal=refusal, derived=derived)


def evaluate_padded(
    eqn: Any,
    operands: Sequence[Any],
    sizes: Any,
    shape: Callable[[Sequence[Any]], tuple[int, ...]],
    evaluate: Callable[[Any, Any, list[Any]], list[Any]],
) -> list[Any]:
    """Evaluate an equation of these primitives on padded operands.

    Args:
      evaluate: evaluates a closed jaxpr with symbolic shapes, given sizes, the jaxpr and operands.
    """
    params = dict(eqn.params)
    counts, moved = (params["args"], params["results"]), len(params.get("moved", ()))
    avals = [v.aval for v in eqn.invars[: len(eqn.invars) - moved]]
    *parts, leaves = _split([jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals], *counts)
    upstream = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
    flat_sizes, tree = jax.tree.flatten(sizes)

    def gradient(args: list[Any], results: list[Any], saved: list[Any], cotangents: list[Any]) -> list[Any]:
        now, saved = _split(saved, len(flat_sizes))
        closed = jax.make_jaxpr(eqn.params["gradient"])(*parts, leaves, upstream)
        return evaluate(jax.tree.unflatten(tree, now), closed, [*args, *results, *saved, *cotangents])

    params["gradient"] = gradient
    if "avals" in params:
        params["avals"] = tuple(a.update(shape=shape(a.shape), sharding=None) for a in params["avals"])
    front, rest = _split(operands, sum(counts))
    return eqn.primitive.bind(*front, *flat_sizes, *rest, **params)


# ---- results ----
#
# Operands: arguments, results, residuals.


def _split(values: Sequence[Any], *counts: int) -> list[list[Any]]:
    """Return values in parts of the given lengths, and the rest."""
    parts, start = [], 0
    for count in counts:
        parts.append(list(values[start : start + count]))
        start += count
    return [*parts, list(values[start:])]


def _results_of(*operands: Any, args: int, results: int, **_: Any) -> list[Any]:
    return list(operands[args : args + results])


def _node_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    args, results = params["args"], params["results"]
    # The primitive itself, so that derivatives of a higher order use the same gradient function.
    out = _node.bind(*primals, **params)
    moved = tuple(i for i, t in enumerate(tangents[:args]) if type(t) is not Zero)
    if not moved:
        return out, [zero(v) for v in out]
    operands = [*primals[:args], *out, *primals[args + results :]]
    avals = tuple(jax.typeof(v) for v in out)
    found = _tangent.bind(*operands, *(tangents[i] for i in moved), **params, moved=moved, avals=avals)
    return out, found


def _node_batch(operands: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    args, results = params["args"], params["results"]
    size = _size(operands, dims)
    # Unbatched results would get the sum of gradients, for batched arguments.
    of_args, of_results, of_saved = _split(dims, args, results)
    first, own, saved = _split(operands, args, results)
    own = [_batch_first(x, d, size) for x, d in zip(own, of_results, strict=True)]
    gradient = _batched_gradient(params, size, [*of_args, *[0] * results, *of_saved], of_args)
    return _node.bind(*first, *own, *saved, **{**params, "gradient": gradient}), [0] * results


def _size(operands: Sequence[Any], dims: Sequence[Any]) -> int:
    return next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)


def _batch_first(value: Any, dim: int | None, size: int) -> Any:
    return repeat(value, size) if dim is None else jnp.moveaxis(value, dim, 0)


def _batched_gradient(params: Any, size: int, dims: Sequence[Any], kept: Sequence[Any]) -> Gradient:
    """Return the gradient function of a batch."""
    # dims: the batch axes of operands. That of cotangents of results is the first.
    # kept: the batch axes of cotangents of arguments; where None, they are summed.
    gradient = params["gradient"]
    axes = _split(dims, params["args"], params["results"])

    def batched(args: list[Any], results: list[Any], leaves: list[Any], upstream: list[Any]) -> list[Any]:
        every = jax.vmap(gradient, in_axes=(*axes, 0), axis_size=size)(args, results, leaves, upstream)
        pairs = zip(every, kept, strict=True)
        return [jnp.sum(g, 0) if d is None else jnp.moveaxis(g, 0, d) for g, d in pairs]

    return batched


# ---- tangents of results ----
#
# Operands: those of `custom_gradient`, and the tangents of the arguments at the positions `moved`. Linear in tangents.


def _gradients(operands: Sequence[Any], upstream: list[Any], params: Any) -> list[Any]:
    """Return the cotangents of the arguments at the positions `moved`."""
    args, results, saved = _split(operands, params["args"], params["results"])
    found = params["gradient"](args, results, saved, upstream)
    return [varying_along(found[i], axes_of(args[i])) for i in params["moved"]]


def _run(*operands: Any, **params: Any) -> list[Any]:
    count = len(operands) - len(params["moved"])
    ones = [varying_along(jnp.ones(a.shape, a.dtype), axes_of(a)) for a in params["avals"]]

    def gradients(upstream: list[Any]) -> list[Any]:
        return _gradients(operands[:count], upstream, params)

    tangents = list(operands[count:])
    closed = jax.make_jaxpr(lambda at, along: jax.vjp(gradients, at)[1](along)[0])(ones, tangents)
    if any(used_inputs(_without_nodes(closed))[: len(ones)]):  # its derivative is not the same everywhere
        refusal = params["refusal"]
        raise ForwardModeError(refusal.message, node=refusal.node, op=refusal.op, path=refusal.path)
    return jaxpr_as_fun(closed)(*ones, *tangents)


def transposed(eqn: Any) -> ClosedJaxpr:
    """Return the jaxpr that a `TANGENT` equation stands for."""
    return jax.make_jaxpr(functools.partial(_run, **eqn.params))(*(v.aval for v in eqn.invars))


def has_offset(eqn: Any) -> bool:
    """Return whether a `NODE` gradient may be nonzero for zero upstream gradients.

    The transpose of its transpose is zero there. Conservative: a function that is not understood counts as nonzero.
    """
    forms = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in (*eqn.invars, *eqn.outvars)]
    *given, upstream = _split(
        forms, eqn.params["args"], eqn.params["results"], len(eqn.invars) - eqn.params["args"] - eqn.params["results"]
    )
    closed = jax.make_jaxpr(eqn.params["gradient"])(*given, upstream)
    return not is_zero_at_zero(closed, range(len(eqn.invars), len(forms)))


def _without_nodes(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return a jaxpr without custom gradients."""
    # Operands that only a derivative reads do not count as used then.
    if not _has_nodes(closed.jaxpr):
        return closed

    def replaced(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(replaced, value))
        return _without_nodes(value) if isinstance(value, ClosedJaxpr) else value

    def rule(eqn: Any, operands: list[Any]) -> list[Any]:
        if eqn.primitive is _node:
            return _results_of(*operands, **eqn.params)
        return bind(eqn.replace(params={k: replaced(v) for k, v in eqn.params.items()}), *operands)

    return jax.make_jaxpr(lambda *args: evaluate(closed, args, rule))(*closed.in_avals)


def _has_nodes(jaxpr: Any) -> bool:
    return any(e.primitive is _node for outer in jaxpr.eqns for e in equations(outer))


def _run_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    moving = [i for i, t in enumerate(tangents) if type(t) is not Zero]

    def of(*some: Any) -> list[Any]:
        now = list(primals)
        for i, value in zip(moving, some, strict=True):
            now[i] = value
        return _run(*now, **params)

    return jax.jvp(of, tuple(primals[i] for i in moving), tuple(tangents[i] for i in moving))


def _run_transpose(cotangents: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    count = len(operands) - len(params["moved"])
    upstream = [instantiate_zeros(c) for c in cotangents]
    found = _gradients(operands[:count], upstream, params)
    pairs = zip(found, operands[count:], strict=True)
    return [*[None] * count, *(g if is_undefined_primal(x) else None for g, x in pairs)]


def _run_batch(operands: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    size, count = _size(operands, dims), len(operands) - len(params["moved"])
    kept = list(dims[: params["args"]])
    tangents = []
    for i, x, d in zip(params["moved"], operands[count:], dims[count:], strict=True):
        if d is not None or kept[i] is not None:
            # An unbatched argument may have batched tangents (jax.jacfwd), each the counterpart of a gradient.
            x, kept[i] = _batch_first(x, d, size), 0
        tangents.append(x)
    avals = tuple(a.update(shape=(size, *a.shape), sharding=None) for a in params["avals"])
    new = {**params, "gradient": _batched_gradient(params, size, dims[:count], kept), "avals": avals}
    return _tangent.bind(*operands[:count], *tangents, **new), [0] * len(avals)


for primitive, run, aval, jvp, batch in (
    (_node, _results_of, _results_of, _node_jvp, _node_batch),
    (_tangent, _run, lambda *_, avals, **__: list(avals), _run_jvp, _run_batch),
):
    register(
        primitive,
        multiple_results=True,
        impl=run,
        abstract=aval,
        jvp=jvp,
        batch=batch,
        lowering=lower_fun(run, multiple_results=True),
    )
register(_tangent, transpose=_run_transpose)


# Zero if one of these operands is.
_PRODUCTS: dict[str, tuple[int, ...]] = {
    "mul": (0, 1),
    "dot_general": (0, 1),
    "conv_general_dilated": (0, 1),
    "div": (0,),
    **dict.fromkeys(("gather", "dynamic_slice", "reduce_window_sum", "reduce_sum", "cumsum", "expand_dims"), (0,)),
}
# Zero if all operands are.
_SUMS = frozenset(
    """add add_any sub neg concatenate pad complex real imag conj convert_element_type broadcast_in_dim reshape
    transpose squeeze slice rev copy stack tile unstack split materialize""".split()  # noqa: SIM905
)
_CALLS = frozenset({"jit", "pjit", "closed_call"})


def is_zero_at_zero(closed: Any, zeros: Sequence[int]) -> bool:
    """Return whether all results of a jaxpr are zero if some arguments are."""
    return all(zero_results(closed, zeros))


def zero_results(closed: Any, zeros: Sequence[int] = ()) -> list[bool]:
    """Return for each result of a jaxpr whether it is zero if some arguments are.

    Infinite and undefined factors count as finite: the question is whether the function is linear.
    """
    return _results(closed, [i in zeros for i in range(len(closed.in_avals))])


def _results(closed: Any, args: Sequence[bool]) -> list[bool]:
    return evaluate(closed, args, _of, consts=list(map(_is_zero, parts(closed)[1])), literal=_is_zero)


def _of(eqn: Any, operands: list[bool]) -> list[bool]:
    name, count = eqn.primitive.name, len(eqn.outvars)
    if name in _CALLS:
        return _results(eqn.params["jaxpr"], operands)
    if name == "custom_gradient":
        return operands[eqn.params["args"] :][:count]
    if name == "select_n":
        return [all(operands[1:])]
    if name in _PRODUCTS:
        return [any(operands[i] for i in _PRODUCTS[name])] * count
    return [name in _SUMS and all(operands)] * count


def _is_zero(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | float | int | complex) and not np.any(value)
