"""The body of a ``lax.scan`` as equations, and the loop's initial values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr, Var, jaxpr_as_fun
from tf2jax_lite.jaxprs.shard_map import axes_of

Scan = Callable[[Callable[..., Any], list[Any], list[Any], int], tuple[Any, Any]]
"""Runs a loop as ``lax.scan`` does, given the body, the initial carry, the inputs and the number of iterations."""


@dataclasses.dataclass(frozen=True)
class Deferred:
    """A carried value in the first iteration that is made only if it is read."""

    aval: Any
    make: Callable[[], Any]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its shape."""
        return self.aval.shape


def value_of(value: Any) -> Any:
    """Return a value, which is made if it is deferred."""
    return value.make() if isinstance(value, Deferred) else value


@dataclasses.dataclass(frozen=True)
class Body:
    """The body of a scan. Optimizations return another one that computes the same.

    Attributes:
      eqns: the equations of an iteration, in order.
      constants: the loop-invariant variables and their values.
      carry: the carried variables and their values in the first iteration, which may be `Deferred`.
      carry_out: for each carried variable the variable or literal that an iteration passes to the next.
      xs: an iteration's inputs and their values in all iterations, stacked along the first axis.
      ys: variables and literals that an iteration returns besides.
      trips: the number of iterations, an integer or a symbolic dimension.
      finish: returns what the original loop returns, given the last carry and the stacked ``ys`` of this one.
      loop: runs the loop of a body and returns its last carry and its stacked ``ys``.
    """

    eqns: Sequence[Any]
    constants: Mapping[Any, Any]
    carry: Mapping[Any, Any]
    carry_out: Sequence[Any]
    xs: Mapping[Any, Any]
    ys: Sequence[Any]
    trips: Any
    effects: Any
    debug_info: Any
    finish: Callable[[list[Any], list[Any]], Any]
    loop: Callable[[Body], tuple[list[Any], list[Any]]]

    @property
    def results(self) -> list[Any]:
        """The variables and literals that an iteration returns."""
        return [*self.carry_out, *self.ys]

    @property
    def jaxpr(self) -> Jaxpr:
        """The body as a jaxpr of constants, carry and inputs, to `results`."""
        # JAX 0.11 does not construct jaxprs with constants whose values are not given: all are inputs.
        invars = [*self.constants, *self.carry, *self.xs]
        return Jaxpr((), invars, self.results, list(self.eqns), self.effects, self.debug_info)

    def run(self) -> Any:
        """Run the loop and return what the original loop returns."""
        return self.finish(*self.loop(self))


def run_loop(body: Body, scan: Scan = lax.scan) -> tuple[list[Any], list[Any]]:
    """Run the loop of a body, and return its last carry and its stacked ``ys``."""
    fn, constants = jaxpr_as_fun(ClosedJaxpr(body.jaxpr, ())), list(body.constants.values())

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        results = fn(*constants, *carry, *x)
        return results[: len(carry)], results[len(carry) :]

    return scan(step, list(map(value_of, body.carry.values())), list(body.xs.values()), body.trips)


def trace_body(
    step: Callable[..., Any],
    start: Any,
    xs: Any,
    trips: Any,
    loop: Callable[[Body], tuple[list[Any], list[Any]]] = run_loop,
) -> Body | None:
    """Trace the body of a scan.

    Args:
      step: the body as ``lax.scan`` takes it, from (carry, x) to (carry, None).
      xs: a pytree of arrays with an entry for each iteration along the first axis.

    Returns:
      The body, whose `Body.finish` returns the last carry as a pytree. None where inputs are not static, and where
      values vary between the devices of a mesh.
    """
    (carry, carry_tree), (inputs, xs_tree) = jax.tree.flatten(start), jax.tree.flatten(xs)
    if not all(isinstance(x, np.ndarray) for x in inputs):
        return None
    result: Any = None

    def flat(*args: Any) -> Any:  # a tree of shapes is not enough: the structure of a list depends on its elements
        nonlocal result
        now, x = args[: len(carry)], args[len(carry) :]
        after, _ = step(jax.tree.unflatten(carry_tree, now), jax.tree.unflatten(xs_tree, x))
        leaves, result = jax.tree.flatten(after)
        return leaves

    slices = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in inputs]
    avals = [v.aval if isinstance(v, Deferred) else jax.typeof(v) for v in carry]
    closed = jax.make_jaxpr(flat)(*avals, *slices)
    jaxpr = closed.jaxpr
    if any(axes_of(v.aval) for e in jaxpr.eqns for v in e.outvars):  # `jax.shard_map` keeps account of all operands
        return None
    return Body(
        eqns=jaxpr.eqns,
        constants=dict(zip(jaxpr.constvars, closed.consts, strict=True)),
        carry=dict(zip(jaxpr.invars, carry, strict=False)),
        carry_out=jaxpr.outvars,
        xs=dict(zip(jaxpr.invars[len(carry) :], inputs, strict=True)),
        ys=[],
        trips=trips,
        effects=jaxpr.effects,
        debug_info=jaxpr.debug_info.with_unknown_names(),
        finish=lambda carry, ys: jax.tree.unflatten(result, carry),
        loop=loop,
    )


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Return the variables among variables and literals."""
    return [v for v in atoms if isinstance(v, Var)]


def reshaped(var: Any, result: Any) -> Any:
    """Return the equation that reshapes a variable to another one."""
    return _reshape(var.aval, tuple(result.aval.shape)).replace(invars=[var], outvars=[result])


@functools.lru_cache(maxsize=64)
def _reshape(aval: Any, shape: tuple[Any, ...]) -> Any:
    return jax.make_jaxpr(lambda x: lax.reshape(x, shape))(aval).jaxpr.eqns[0]
