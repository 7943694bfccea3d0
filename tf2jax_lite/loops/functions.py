"""Condition and body of a while loop, of its tangents and of its batches.

`Traced` has the jaxprs. `WithTangents` carries tangents as well, as JVP of a loop does; `Batched` runs a batch of loops
until all have ended, as `jax.vmap` of a loop does. Derivative rules and batching rules combine them.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from tf2jax_lite.jaxprs.evaluate import evaluate
from tf2jax_lite.jaxprs.shard_map import axes_of, varying_along


class Functions:
    """A condition and a body, functions of constants and of carried arrays.

    Operands are the constants, followed by the initial values of carried arrays; positions count operands.
    """

    constants: int
    inexact: tuple[bool, ...]
    base: Traced

    @functools.cached_property
    def reads(self) -> list[frozenset[int]]:
        """For each carried array, positions of operands read in one iteration."""
        return self._reads()

    @functools.cached_property
    def tests(self) -> frozenset[int]:
        """The positions of the operands that the condition depends on."""
        return self._tests()

    def _reads(self) -> list[frozenset[int]]:
        raise NotImplementedError

    def _tests(self) -> frozenset[int]:
        raise NotImplementedError

    def cond(self, constants: Sequence[Any], carry: Sequence[Any]) -> Any:
        """Return whether there is another iteration."""
        raise NotImplementedError

    def body(self, constants: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
        """Return the carried arrays after an iteration."""
        raise NotImplementedError

    def reached(self, positions: Iterable[int], among: Sequence[bool]) -> tuple[int, ...]:
        """Return carried arrays, among some, that depend on operands at last."""
        found = set(positions)
        grows = True
        while grows:
            more = {
                self.constants + k
                for k, read in enumerate(self.reads)
                if among[k] and self.constants + k not in found and not found.isdisjoint(read)
            }
            found |= more
            grows = bool(more)
        return tuple(k for k in range(len(self.reads)) if among[k] and self.constants + k in found)

    def moving(self, linear: Iterable[int]) -> tuple[int, ...]:
        """Return carried arrays with tangents if operands at positions have."""
        return self.reached(linear, self.inexact)


class Traced(Functions):
    """The jaxprs of a traced loop.

    Args:
      cond: the condition, a function of constants of its own and of carried arrays.
      counts: the numbers of constants of the condition and of the body, the loop's constants in that order.
    """

    def __init__(self, cond: Any, body: Any, counts: tuple[int, int]):
        self.jaxprs = (cond, body)
        self.of_cond, self.constants = counts[0], sum(counts)
        self.inexact = tuple(jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in cond.jaxpr.invars[counts[0] :])
        self.base = self

    @functools.cached_property
    def plain(self) -> bool:
        """Whether it has no custom derivatives, so that second ones are symmetric."""
        return all(map(_is_plain, self.jaxprs))

    def __repr__(self) -> str:
        return f"<loop of {len(self.jaxprs[1].jaxpr.eqns)} equations>"

    def cond(self, constants: Sequence[Any], carry: Sequence[Any]) -> Any:
        """See `Functions`."""
        return jaxpr_as_fun(self.jaxprs[0])(*constants[: self.of_cond], *carry)[0]

    def body(self, constants: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
        """See `Functions`."""
        return jaxpr_as_fun(self.jaxprs[1])(*constants[self.of_cond :], *carry)

    def _reads(self) -> list[frozenset[int]]:
        size = len(self.inexact)
        return _read(self.jaxprs[1], [*range(self.of_cond, self.constants + size)])

    def _tests(self) -> frozenset[int]:
        carried = range(self.constants, self.constants + len(self.inexact))
        return _read(self.jaxprs[0], [*range(self.of_cond), *carried])[0]


def _read(closed: Any, positions: Sequence[int]) -> list[frozenset[int]]:
    """Return for each result of a jaxpr the positions of the arguments it reads."""

    def rule(eqn: Any, operands: list[int]) -> list[int]:
        return [functools.reduce(int.__or__, operands, 0)] * len(eqn.outvars)

    bits = [1 << p for p in positions]  # sets as bits of integers, as bodies can be long
    found = evaluate(closed, bits, rule, consts=[0] * len(closed.consts), literal=lambda _: 0)
    return [frozenset(p for p in positions if v >> p & 1) for v in found]


def _is_plain(closed: Any) -> bool:
    """Return whether a jaxpr and those in it have no custom derivative rules."""
    for eqn in getattr(closed, "jaxpr", closed).eqns:
        if eqn.primitive.name.startswith(("custom_jvp", "custom_vjp", "custom_gradient")):
            return False
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if isinstance(inner, Functions):
                    if not inner.base.plain:
                        return False
                elif isinstance(inner, ClosedJaxpr | Jaxpr) and not _is_plain(inner):
                    return False
    return True


class WithTangents(Functions):
    """A loop that carries tangents as well.

    Its operands are the constants, tangents of some of them, the carried arrays, and tangents of some of those.
    """

    def __init__(self, of: Functions, linear: Sequence[int]):
        self._of, self.base = of, of.base
        self._all_linear = tuple(linear)
        self._linear = [p for p in linear if p < of.constants]
        self.with_tangents = of.moving(linear)
        self.constants = of.constants + len(self._linear)
        self.inexact = (*of.inexact, *[True] * len(self.with_tangents))

    def _reads(self) -> list[frozenset[int]]:
        of = self._of
        tangents = {p: of.constants + i for i, p in enumerate(self._linear)}
        first = self.constants + len(of.inexact)
        tangents.update({of.constants + k: first + i for i, k in enumerate(self.with_tangents)})
        values = [frozenset(map(self.position, read)) for read in of.reads]
        moved = [frozenset(tangents[p] for p in read if p in tangents) for read in of.reads]
        return [*values, *(values[k] | moved[k] for k in self.with_tangents)]

    def _tests(self) -> frozenset[int]:
        return frozenset(map(self.position, self._of.tests))

    def position(self, position: int) -> int:
        """Return the position of an operand of the loop without tangents."""
        return position if position < self._of.constants else position + len(self._linear)

    def operand_sources(self) -> list[int | None]:
        """Return each operand's index among the plain loop's, then all tangents.

        None stands for a zero tangent.
        """
        of = self._of
        size = of.constants + len(of.inexact)
        tangents: dict[int, int] = {p: size + i for i, p in enumerate(self._all_linear)}
        constants, start = range(of.constants), range(of.constants, size)
        first = [tangents[p] for p in self._linear]
        return [*constants, *first, *start, *(tangents.get(of.constants + k) for k in self.with_tangents)]

    def operands(self, values: Sequence[Any]) -> list[Any]:
        """Return operands, given the plain loop's, followed by tangents."""
        found = [None if source is None else jnp.asarray(values[source]) for source in self.operand_sources()]
        first = len(found) - len(self.with_tangents)
        for i, k in enumerate(self.with_tangents, first):
            like = jnp.asarray(values[self._of.constants + k])
            tangent = jnp.zeros(like.shape, like.dtype) if found[i] is None else found[i]
            found[i] = varying_along(tangent, axes_of(like))
        return found

    def cond(self, constants: Sequence[Any], carry: Sequence[Any]) -> Any:
        """See `Functions`."""
        return self._of.cond(constants[: self._of.constants], carry[: len(self._of.inexact)])

    def body(self, constants: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
        """See `Functions`."""
        of = self._of
        values, size = constants[: of.constants], len(of.inexact)
        now, moving = list(carry[:size]), list(carry[size:])

        def iterate(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
            return of.body(_with(values, self._linear, some), _with(now, self.with_tangents, others))

        primals = ([values[p] for p in self._linear], [now[k] for k in self.with_tangents])
        after, tangents = jax.jvp(iterate, primals, (list(constants[of.constants :]), moving))
        return [*after, *(varying_along(tangents[k], axes_of(now[k])) for k in self.with_tangents)]


def _with(values: Sequence[Any], positions: Iterable[int], others: Iterable[Any]) -> list[Any]:
    """Return values with some replaced."""
    result = list(values)
    for position, other in zip(positions, others, strict=True):
        result[position] = other
    return result


class Batched(Functions):
    """A batch of loops that runs until all end; ended ones keep their carry.

    Args:
      constants: for each constant whether it is batched, along its first axis.
    """

    def __init__(self, of: Functions, size: int, constants: Sequence[bool], carried: Sequence[bool]):
        self._of, self.base, self._size = of, of.base, size
        self.constants, self.inexact = of.constants, of.inexact
        self.carried = tuple(carried)
        self._axes = ([0 if b else None for b in constants], [0 if b else None for b in carried])
        which = (*constants, *carried)
        self._ends_separately = any(which[p] for p in of.tests)

    def _reads(self) -> list[frozenset[int]]:
        if not self._ends_separately:
            return self._of.reads
        return [read | self.tests | {self.constants + k} for k, read in enumerate(self._of.reads)]

    def _tests(self) -> frozenset[int]:
        return self._of.tests

    def operands(self, values: Sequence[Any], mapped: Sequence[bool], also: Collection[int] = ()) -> list[Any]:
        """Return its operands, given those of the loop."""
        own = {*also, *(self.constants + k for k, carried in enumerate(self.carried) if carried)}
        broadcasts = [p in own and not m for p, m in enumerate(mapped)]
        return [lax.broadcast(v, (self._size,)) if a else v for v, a in zip(values, broadcasts, strict=True)]

    def cond(self, constants: Sequence[Any], carry: Sequence[Any]) -> Any:
        """See `Functions`."""
        if not self._ends_separately:
            # All of the batch end together.
            return self._of.cond(constants, carry)
        return jnp.any(jax.vmap(self._of.cond, self._axes, axis_size=self._size)(list(constants), list(carry)))

    def body(self, constants: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
        """See `Functions`."""
        iterate = jax.vmap(self._of.body, self._axes, self._axes[1], axis_size=self._size)
        if not self._ends_separately:
            return iterate(list(constants), list(carry))
        going = jax.vmap(self._of.cond, self._axes, axis_size=self._size)(list(constants), list(carry))
        first = jnp.argmax(going)

        def stand_in(value: Any, axis: int | None) -> Any:
            """Return values with a running loop's operands where loops have ended.

            Of their own operands the body may have no derivative, and NaN times 0 is NaN.
            """
            if axis is None:
                return value
            other = lax.stop_gradient(lax.dynamic_index_in_dim(value, first, 0))
            return _chosen(going, value, jnp.broadcast_to(other, value.shape))

        given = list(map(stand_in, [*constants, *carry], [*self._axes[0], *self._axes[1]]))
        after = iterate(given[: self.constants], given[self.constants :])
        return [_chosen(going, new, old) for new, old in zip(after, carry, strict=True)]


def _chosen(which: Any, yes: Any, no: Any) -> Any:
    shape = (which.shape[0],) + (1,) * (yes.ndim - 1)
    return jnp.where(which.reshape(shape), yes, no)


def batched(of: Functions, size: int, positions: Collection[int]) -> Batched:
    """Return a batch of loops as one."""
    count = len(of.inexact)
    everything = [True] * count
    carried = set(of.reached(positions, everything))
    which = {p for p in positions if p < of.constants} | {of.constants + k for k in carried}
    if not which.isdisjoint(of.tests):
        carried = set(range(count))
    return Batched(of, size, [p in which for p in range(of.constants)], [k in carried for k in range(count)])
