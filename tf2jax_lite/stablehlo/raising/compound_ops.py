"""Raise several ops to one jax.lax call: powers, select chains, tiles, stacks."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable, MutableMapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.interpreter.core import OpContext, is_splat, materialize, rule, scalar_of
from tf2jax_lite.stablehlo.interpreter.elementwise import elementwise, folding
from tf2jax_lite.stablehlo.parsing.module import Op, Region, TensorType, finish
from tf2jax_lite.stablehlo.parsing.peepholes import Values, by_kind, replaced
from tf2jax_lite.support.patterns import Match
from tf2jax_lite.support.patterns import op as pattern


def raise_compound_ops(region: Region, outer: MutableMapping[int, Op], effectful: Callable[[str], bool]) -> Region:
    """Return a region with compound ops raised, including those of inner regions.

    Args:
      effectful: whether a function, by name, has side effects.
    """
    compounds = _Compounds(ChainMap({}, outer))
    ops = []
    for op in region.ops:
        inner = tuple(raise_compound_ops(r, compounds.made, effectful) for r in op.regions)
        if any(a is not b for a, b in zip(inner, op.regions, strict=True)):
            op = dataclasses.replace(op, regions=inner)
        found = compounds.compound(op) or op
        compounds.made.update(dict.fromkeys(op.results, found))
        ops.append(found)
    if all(a is b for a, b in zip(ops, region.ops, strict=True)):
        return region
    return dataclasses.replace(region, ops=finish(region.args, ops, region.returns, effectful))


@dataclasses.dataclass(frozen=True)
class _Power:
    """A value to the power of a positive integer."""

    base: int
    exponent: int


@dataclasses.dataclass(frozen=True)
class _Choice:
    """The first of ``values`` whose bound an integer is below; the last one has none."""

    which: int
    bounds: tuple[int, ...]
    values: tuple[int, ...]


def _is_below(test: Op) -> bool:
    return test.attrs["comparison_direction"] == "LT" and test.operand_types[0].dtype == np.int32


_PRODUCT = pattern("stablehlo.multiply")
_INVERSE = pattern("stablehlo.divide", 1, "power")
_SEARCH = pattern("stablehlo.select", pattern("stablehlo.compare", "which", "bound", where=_is_below))
_JOINED = pattern("stablehlo.concatenate")
# [a, b] to [1, a, 1, b] to [m, a, n, b] to [m * a, n * b].
_TILE = pattern(
    "stablehlo.reshape",
    pattern("stablehlo.broadcast_in_dim", pattern("stablehlo.reshape", name="expanded"), name="broadcast"),
)


class _Compounds:
    def __init__(self, made: ChainMap[int, Op]):
        self.made = made
        self._values = Values(made)
        self._rules = by_kind(
            [
                (_PRODUCT, self._power),
                (_INVERSE, self._inverse),
                (_SEARCH, self._choice),
                (_TILE, _as_tile),
                (_JOINED, _as_stack),
            ]
        )
        self.powers: dict[int, _Power] = {}
        self.choices: dict[int, _Choice] = {}

    def compound(self, op: Op) -> Op | None:
        """Return the compound op that computes the same, or None."""
        found = replaced(self._rules, op, self._values)
        return None if found is op else found

    # ---- powers ----

    def _power(self, op: Op, found: Match, values: Values) -> Op | None:
        """Return repeated squaring, in the order of factors of lax.integer_pow."""
        type_ = op.types[0]
        if not isinstance(type_, TensorType) or type_.dtype == np.bool_:
            return None
        low, high = sorted((self.powers.get(v, _Power(v, 1)) for v in op.operands), key=lambda p: p.exponent)
        if low.base != high.base or high.exponent & (high.exponent - 1) or values.number(low.base) is not None:
            return None
        power = _Power(low.base, low.exponent + high.exponent)
        self.powers[op.results[0]] = power
        return self._as_power(op, power) if power.exponent > 2 else None

    def _inverse(self, op: Op, found: Match, values: Values) -> Op | None:
        below = self.powers.get(found.values["power"])
        if below is None or not _is_inexact(op.types[0]):
            return None
        return self._as_power(op, _Power(below.base, -below.exponent))

    @staticmethod
    def _as_power(op: Op, power: _Power) -> Op:
        attrs = {"y": power.exponent}
        return dataclasses.replace(
            op, name="lax.integer_pow", operands=(power.base,), operand_types=op.operand_types[1:], attrs=attrs
        )

    # ---- select chains ----

    def _choice(self, op: Op, found: Match, values: Values) -> Op | None:
        """Return a binary search over comparisons, as select_n is lowered."""
        which, bound = found.values["which"], values.number(found.values["bound"])
        if bound is None:
            return None
        bound = int(bound)
        below, rest = (self._part(v, which) for v in op.operands[1:])
        if below.bounds and below.bounds[-1] >= bound:
            below = _Choice(which, (), (op.operands[1],))
        if rest.bounds and rest.bounds[0] <= bound:
            rest = _Choice(which, (), (op.operands[2],))
        choice = _Choice(which, (*below.bounds, bound, *rest.bounds), (*below.values, *rest.values))
        self.choices[op.results[0]] = choice
        if len(choice.bounds) < 2 or choice.bounds != tuple(range(1, len(choice.bounds) + 1)):
            return None
        test = self.made[op.operands[0]]
        types = (test.operand_types[0], *op.operand_types[1:2] * len(choice.values))
        return dataclasses.replace(op, name="lax.select_n", operands=(which, *choice.values), operand_types=types)

    def _part(self, value: int, which: int) -> _Choice:
        found = self.choices.get(value)
        return found if found is not None and found.which == which else _Choice(which, (), (value,))


def _as_tile(op: Op, found: Match, values: Values) -> Op | None:
    expanded, broadcast = found.operations["expanded"], found.operations["broadcast"]
    shape, sizes = expanded.operand_types[0].shape, broadcast.types[0].shape
    repeats = sizes[::2]
    if tuple(broadcast.attrs["broadcast_dimensions"]) != tuple(range(len(sizes))) or sizes[1::2] != shape:
        return None
    if len(repeats) != len(shape) or expanded.types[0].shape != tuple(d for n in shape for d in (1, n)):
        return None
    if op.types[0].shape != tuple(m * n for m, n in zip(repeats, shape, strict=True)):
        return None
    return dataclasses.replace(
        op, name="lax.tile", operands=expanded.operands, operand_types=expanded.operand_types, attrs={"reps": repeats}
    )


def _as_stack(op: Op, found: Match, values: Values) -> Op | None:
    """Return a stack for arrays that are expanded and concatenated along an axis."""
    axis, sources = op.attrs["dimension"], []
    for value, type_ in zip(op.operands, op.operand_types, strict=True):
        broadcast = values.producer(value)
        if broadcast is None or broadcast.name != "stablehlo.broadcast_in_dim" or type_.shape[axis] != 1:
            return None
        kept = tuple(i for i in range(len(type_.shape)) if i != axis)
        inner = broadcast.operand_types[0].shape
        if tuple(broadcast.attrs["broadcast_dimensions"]) != kept or inner != tuple(type_.shape[i] for i in kept):
            return None
        sources.append(broadcast)
    # Integers joined to a vector are mostly sizes or indices: see `core.Vector`.
    if len(sources) < 2 or (not sources[0].operand_types[0].shape and not _is_inexact(op.types[0])):
        return None
    return dataclasses.replace(
        op,
        name="lax.stack",
        operands=tuple(w.operands[0] for w in sources),
        operand_types=tuple(w.operand_types[0] for w in sources),
        attrs={"axis": axis},
    )


def _is_inexact(type_: object) -> bool:
    return isinstance(type_, TensorType) and jnp.issubdtype(type_.dtype, jnp.inexact)


def _fold_power_on(ctx: OpContext, x: Any) -> Any:
    return folding(lambda v: v ** ctx.attr("y"))(ctx, x)


@rule("lax.integer_pow", lazy=True, fold=_fold_power_on)
def _integer_pow(ctx: OpContext, x: Any) -> Any:
    return elementwise(lambda v: lax.integer_pow(v, ctx.attr("y")), (x,), [ctx.op.operand_types[0].dtype])


@rule("lax.select_n", lazy=True)
def _select_n(ctx: OpContext, which: Any, *cases: Any) -> Any:
    if is_splat(which):
        return cases[min(max(int(scalar_of(which)), 0), len(cases) - 1)]
    return lax.select_n(materialize(which), *(materialize(v, ctx.dtype) for v in cases))


@rule("lax.tile")
def _tile(ctx: OpContext, x: Any) -> Any:
    return getattr(lax, "tile", jnp.tile)(x, ctx.attr("reps"))  # jax 0.9 has none


@rule("lax.stack", fold=lambda ctx, *xs: np.stack(xs, ctx.attr("axis")), exact=True)
def _stack(ctx: OpContext, *xs: Any) -> Any:
    return getattr(lax, "stack", jnp.stack)(xs, ctx.attr("axis"))  # jax 0.9 has none
