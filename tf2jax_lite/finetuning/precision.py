"""Mixed precision of bfloat16 and float32.

Matrix products and convolutions are in bfloat16, reductions and transcendental functions in float32.

It works on the jaxpr of a step's gradient, so models need no changes. Params, gradients and all results keep their
dtypes. A value is bfloat16 from a product on, through data movement and elementwise arithmetic with other such values,
params and constants; any other operation takes it as float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tf2jax_lite.jaxprs.compat import Var, bind
from tf2jax_lite.jaxprs.evaluate import evaluate, parts, retrace_bodies
from tf2jax_lite.learning.model import Model

from .exports import LOOPS_AND_BRANCHES, call_body, evaluate_export

_PRODUCTS = {"dot_general", "conv_general_dilated"}
_ELEMENTWISE = {"add", "add_any", "sub", "mul", "neg", "max", "min", "abs", "sign", "select_n", "clamp", "tanh"}
_ELEMENTWISE |= {"logistic", "copy", "copy_p"}
_MOVEMENT = {"reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "dynamic_slice", "rev"}
_MOVEMENT |= {"concatenate", "pad", "gather", "reduce_max", "reduce_min", "sharding_constraint"}
# A product whose result reaches a result of the jaxpr through these alone is the gradient of a kernel: a sum over
# the examples, which keeps float32.
_TO_RESULTS = {"reshape", "transpose", "squeeze", "neg", "add_any", "convert_element_type", "sharding_constraint"}


class _Value(NamedTuple):
    """A value while a jaxpr is evaluated.

    Attributes:
      array: in the jaxpr's dtype, or bfloat16 in place of float32.
      adapts: whether it may become bfloat16: it is an input, a constant, or a copy of one.
    """

    array: Any
    adapts: bool


def float32_predictions(model: Model) -> Model:
    """Return a model whose predictions are float32 under `in_bfloat16`.

    Its loss and metrics are then computed in float32.
    """

    def exact(leaf: Any) -> Any:
        if jnp.result_type(leaf) != jnp.float32:
            return leaf
        return jax.lax.reduce_precision(leaf, 8, 23)  # float32's own: an identity that is not elementwise here

    def apply_for_train(weights: Any, batch: Any, rng: Any) -> Any:
        output = model.apply_for_train(weights, batch, rng)
        return output._replace(predictions=jax.tree.map(exact, output.predictions))

    apply_for_train.given = model.apply_for_train  # type: ignore[attr-defined]  # for error messages
    return dataclasses.replace(model, apply_for_train=apply_for_train)


def in_bfloat16(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes in mixed precision.

    Its arguments and results keep their dtypes.
    """

    def mixed(*args: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        found = _run(closed, [_Value(leaf, True) for leaf in jax.tree.leaves(args)], [True] * len(closed.out_avals))
        results = [_as(value, aval) for value, aval in zip(found, closed.out_avals, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return mixed


def _as(value: _Value, aval: Any) -> Any:
    """Return an array in the dtype that the jaxpr has for it."""
    if jnp.result_type(value.array) == jnp.bfloat16 and aval.dtype == jnp.float32:
        return jnp.asarray(value.array, jnp.float32)
    return value.array


def _run(closed: Any, operands: Sequence[_Value], exact: Sequence[bool]) -> list[_Value]:
    """Evaluate a jaxpr in mixed precision.

    Args:
      closed: the jaxpr.
      operands: a value for each input.
      exact: for each result, whether a product that it copies is computed in float32.
    """
    jaxpr, consts = parts(closed)
    kept = _exact_variables(jaxpr, exact)

    def rule(eqn: Any, values: list[_Value]) -> list[_Value]:
        flags = [variable in kept for variable in eqn.outvars]
        return _equation(eqn, values, flags)

    found = [_Value(const, True) for const in consts]
    return evaluate(jaxpr, operands, rule, consts=found, literal=lambda number: _Value(number, True))


def _exact_variables(jaxpr: Any, exact: Sequence[bool]) -> set[Any]:
    kept = {v for v, flag in zip(jaxpr.outvars, exact, strict=True) if flag and isinstance(v, Var)}
    for eqn in reversed(jaxpr.eqns):
        if eqn.primitive.name in _TO_RESULTS and not kept.isdisjoint(eqn.outvars):
            kept.update(v for v in eqn.invars if isinstance(v, Var))
    return kept


def _equation(eqn: Any, values: list[_Value], exact: list[bool]) -> list[_Value]:
    name = eqn.primitive.name
    body = call_body(eqn)
    if body is not None:
        return _run(body, values, exact)
    if name == "call_exported":
        return evaluate_export(
            eqn, values, lambda closed, given: _run(closed, given, exact), lambda array: _Value(array, True)
        )
    floats = [value for value, atom in zip(values, eqn.invars, strict=True) if atom.aval.dtype == jnp.float32]
    narrow = [jnp.result_type(value.array) == jnp.bfloat16 for value in floats]
    if name in _PRODUCTS and len(floats) == 2 and eqn.outvars[0].aval.dtype == jnp.float32:
        dtype = jnp.dtype(jnp.float32 if exact[0] else jnp.bfloat16)
        changed = eqn.replace(params={**eqn.params, "preferred_element_type": dtype})
        arrays = [jnp.asarray(value.array, jnp.bfloat16) for value in values]
        if exact[0] and jax.default_backend() == "cpu":
            # XLA:CPU lacks such products in rematerialized blocks ("BF16 x BF16 = F32"), and widens others itself.
            arrays = [_rounded(value.array) for value in values]
        (result,) = bind(changed, *arrays)
        return [_Value(result, False)]
    if name in _ELEMENTWISE | _MOVEMENT:
        if any(narrow) and all(is_narrow or v.adapts for v, is_narrow in zip(floats, narrow, strict=True)):
            arrays = [
                jnp.asarray(v.array, jnp.bfloat16) if atom.aval.dtype == jnp.float32 else v.array
                for v, atom in zip(values, eqn.invars, strict=True)
            ]
            return [_Value(result, False) for result in bind(eqn, *arrays)]
        adapts = all(value.adapts for value in floats)
    else:
        adapts = not floats
    arrays = [_as(value, atom.aval) for value, atom in zip(values, eqn.invars, strict=True)]
    changed = retrace_bodies(eqn, _run_body) if name in LOOPS_AND_BRANCHES else eqn
    return [_Value(result, adapts) for result in bind(changed, *arrays)]


def _rounded(array: Any) -> Any:
    """Return an array rounded to bfloat16, in float32."""
    if jnp.result_type(array) == jnp.bfloat16:
        return jnp.asarray(array, jnp.float32)
    return jax.lax.reduce_precision(array, 8, 7)  # XLA may drop a conversion and its inverse


def _run_body(closed: Any, args: list[Any]) -> list[Any]:
    """Evaluate a body of a loop or branch in mixed precision.

    Its inputs and results keep their dtypes.
    """
    outvars = parts(closed)[0].outvars
    found = _run(closed, [_Value(arg, False) for arg in args], [False] * len(outvars))
    return [_as(result, atom.aval) for result, atom in zip(found, outvars, strict=True)]
