"""Weight gradients of a scan's matmuls, of all iterations at once at the end.

JAX accumulates such a gradient iteration by iteration: with few rows each term is a matmul whose result is as large as
the weights, read and written every time. Here the derivative of ``h @ w`` with respect to ``w`` leaves the loop. For a
body ``c' = f(c, h(c) @ w)`` with tangents ``c_dot`` and ``w_dot``, iteration ``t`` of the linearized loop is

    c'_dot[t] = f_c(c_dot[t]) + f_y(h_dot[t] @ w + s[t]),  where  s = h @ w_dot  for all iterations at once.

``h`` is saved for all iterations (as JAX does, too), ``s`` is an input of the linearized loop. Its transpose is the
gradient: ``w_bar = h^T @ s_bar``, one matmul over all iterations.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tf2jax_lite.jaxprs.compat import Var, bind
from tf2jax_lite.jaxprs.evaluate import evaluate, size
from tf2jax_lite.loops.body import Body, variables
from tf2jax_lite.xla_cpu import cost_model

Loop = Callable[[Body], tuple[list[Any], list[Any]]]


class _Matmul(NamedTuple):
    """A matmul of an iteration's value and loop-invariant weights.

    Attributes:
      side: the position of the weights among its operands.
    """

    eqn: Any
    side: int

    @property
    def weights(self) -> Any:
        """The variable of the weights."""
        return self.eqn.invars[self.side]

    def operands(self, factor: Any, weights: Any) -> tuple[Any, Any]:
        """Return the other factor and weights in the order of the equation."""
        return (factor, weights) if self.side else (weights, factor)


def run(body: Body) -> Body:
    """Batch weight gradients of matmuls of few rows over iterations."""
    matmuls = [] if body.effects else _matmuls_by_weights(body)
    return dataclasses.replace(body, loop=_Differentiated(body.loop, matmuls).run) if matmuls else body


def _matmuls_by_weights(body: Body) -> list[_Matmul]:
    """Return the matmuls of few rows by loop-invariant weights."""
    weights = {v for v in body.constants if jnp.issubdtype(v.aval.dtype, jnp.inexact)}
    found = []
    for eqn in body.eqns:
        if eqn.primitive is not lax.dot_general_p or any(eqn.params["dimension_numbers"][1]):
            continue
        sides = [i for i, v in enumerate(eqn.invars) if isinstance(v, Var) and v in weights]
        if len(sides) != 1 or size(eqn.outvars[0], body.trips) > cost_model.MAX_STACKED_ELEMENTS:
            continue
        (side,) = sides
        other = eqn.invars[1 - side].aval
        contract = eqn.params["dimension_numbers"][0][1 - side]
        rows = np.prod([n for d, n in enumerate(other.shape) if d not in contract], dtype=int)
        if rows <= cost_model.MAX_BATCHED_MATMUL_ROWS:
            found.append(_Matmul(eqn, side))
    return found


@dataclasses.dataclass(frozen=True)
class _Differentiated:
    """A loop with a derivative rule of its own.

    Attributes:
      matmuls: those of the body whose weight gradients are batched.
    """

    loop: Loop
    matmuls: Sequence[_Matmul]

    def run(self, body: Body) -> tuple[list[Any], list[Any]]:
        """Run the loop of a body, and return its last carry and its stacked ``ys``."""
        groups = [body.constants, body.carry, body.xs]
        counts = list(itertools.accumulate(map(len, groups)))
        inputs = [v for group in groups for v in group]

        def with_values(values: Sequence[Any]) -> Body:
            given = dict(zip(inputs, values, strict=True))
            constants, carry, xs = ({v: given[v] for v in group} for group in groups)
            return dataclasses.replace(body, constants=constants, carry=carry, xs=xs)

        @jax.custom_jvp
        def call(*values: Any) -> list[Any]:
            carry, ys = self.loop(with_values(values))
            return [*carry, *ys]

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            return self._jvp(with_values(primals), inputs, primals, tangents)

        call.defjvp(rule, symbolic_zeros=True)
        found = call(*(x for group in groups for x in group.values()))
        count = counts[1] - counts[0]
        return found[:count], found[count:]

    def _jvp(
        self, body: Body, inputs: Sequence[Any], primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Return results and tangents, given the values and tangents of the body's inputs."""
        # `SymbolicZero` tangents stay out, as zeros would meet derivatives that are not finite.
        is_moving = [type(t) is not SymbolicZero and t.dtype != jax.dtypes.float0 for t in tangents]
        moving = {v for v, m in zip(inputs, is_moving, strict=True) if m}
        tangent_of = dict(zip(inputs, tangents, strict=True))
        matmuls = [m for m in self.matmuls if m.weights in moving]
        # Weights that only these matmuls read have no other tangents in the loop.
        moving &= _used_elsewhere(body, matmuls)
        linear = [i for i, v in enumerate(inputs) if v in moving]
        transposed = [_with_contraction_last(m, body.constants[m.weights]) for m in matmuls]
        counts = len(body.constants), len(body.constants) + len(body.carry)

        def primal(values: Sequence[Any], addends: Sequence[Any]) -> tuple[list[Any], Any]:
            args = list(primals)
            for i, value in zip(linear, values, strict=True):
                args[i] = value
            constants, carry, xs = args[: counts[0]], args[counts[0] : counts[1]], args[counts[1] :]

            def step(carry: Any, x: Any) -> tuple[list[Any], tuple[list[Any], list[Any]]]:
                x, addends = x
                results, factors = _iteration(body, [*constants, *carry, *x], matmuls, transposed, addends)
                return results[: len(carry)], (results[len(carry) :], factors)

            end, (ys, factors) = lax.scan(step, carry, (xs, addends), body.trips)
            end = [*end, *ys]
            return [v for v in end if jnp.issubdtype(v.dtype, jnp.inexact)], (end, factors)

        results = [m.eqn.outvars[0].aval for m in matmuls]
        zeros = [jnp.zeros((body.trips, *a.shape), a.dtype) for a in results]
        _, pushforward, (end, factors) = jax.linearize(primal, [primals[i] for i in linear], zeros, has_aux=True)
        addends = [_over_iterations(m, f, tangent_of[m.weights]) for m, f in zip(matmuls, factors, strict=True)]
        found = iter(pushforward([tangents[i] for i in linear], addends))
        return end, [
            next(found) if jnp.issubdtype(v.dtype, jnp.inexact) else np.zeros(v.shape, jax.dtypes.float0) for v in end
        ]


def _used_elsewhere(body: Body, matmuls: Sequence[_Matmul]) -> set[Any]:
    """Return the variables that are read other than as the weights of the matmuls."""
    sides = {id(m.eqn): m.side for m in matmuls}
    used = {v for e in body.eqns for i, v in enumerate(e.invars) if sides.get(id(e)) != i and isinstance(v, Var)}
    return used.union(variables(body.results))


@jax.custom_jvp
def _with_tangent_of(value: Any, addend: Any) -> Any:
    """Return ``value``, with the tangent of ``addend`` added to its own."""
    return value


@_with_tangent_of.defjvp
def _with_tangent_of_jvp(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[0] + tangents[1]


def _with_contraction_last(matmul: _Matmul, weights: Any) -> tuple[dict[str, Any], Any]:
    """Return a matmul's parameters, and weights with contracted axes last."""
    # With few rows, the matmul that the gradient comes back by is faster with them: it contracts the first dimensions.
    contract, batch = matmul.eqn.params["dimension_numbers"]
    own = contract[matmul.side]
    kept = [d for d in range(weights.ndim) if d not in own]
    last = tuple(range(len(kept), weights.ndim))
    dims = (contract[0], last) if matmul.side else (last, contract[1])
    return {**matmul.eqn.params, "dimension_numbers": (dims, batch)}, jnp.transpose(weights, (*kept, *own))


def _matmul(matmul: _Matmul, factor: Any, weights: Any, params: dict[str, Any], transposed: Any) -> Any:
    """Return a matmul with its tangent made with transposed weights."""

    @jax.custom_jvp
    def product(factor: Any, weights: Any, transposed: Any) -> Any:
        return bind(matmul.eqn, *matmul.operands(factor, weights))[0]

    def rule(primals: Any, tangents: Any) -> Any:
        factor, weights, transposed = primals
        factor_dot, weights_dot, _ = tangents
        result = product(factor, weights, transposed)
        tangent = jnp.zeros_like(result)
        if type(factor_dot) is not SymbolicZero:
            tangent = lax.dot_general_p.bind(*matmul.operands(factor_dot, transposed), **params)
        if type(weights_dot) is not SymbolicZero:  # where this is differentiated again
            tangent = tangent + bind(matmul.eqn, *matmul.operands(factor, weights_dot))[0]
        return result, tangent

    product.defjvp(rule, symbolic_zeros=True)
    return product(factor, weights, transposed)


def _iteration(
    body: Body,
    args: Sequence[Any],
    matmuls: Sequence[_Matmul],
    transposed: Sequence[tuple[dict[str, Any], Any]],
    addends: Sequence[Any],
) -> tuple[list[Any], list[Any]]:
    """Run an iteration with weights that have no tangents in the matmuls."""
    # Returns its results, and for each matmul the value that it multiplies the weights by.
    factors: list[Any] = []
    numbers = {id(m.eqn): n for n, m in enumerate(matmuls)}

    def rule(eqn: Any, operands: list[Any]) -> list[Any] | None:
        number = numbers.get(id(eqn))
        if number is None:
            return None
        matmul = matmuls[number]
        factors.append(operands[1 - matmul.side])
        result = _matmul(matmul, factors[-1], body.constants[matmul.weights], *transposed[number])
        return [_with_tangent_of(result, addends[number])]

    return evaluate(body.jaxpr, args, rule), factors


def _over_iterations(matmul: _Matmul, factors: Any, weights: Any) -> Any:
    """Return the matmuls of all iterations' factors by the same weights."""
    axes = matmul.operands(0, None)
    return jax.vmap(lambda *a: bind(matmul.eqn, *a)[0], in_axes=axes)(*matmul.operands(factors, weights))
