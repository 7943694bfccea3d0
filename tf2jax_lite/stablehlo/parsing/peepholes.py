"""Peepholes: ops that JAX expands, with original derivatives and sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.support.patterns import Match, Pattern, match
from tf2jax_lite.support.patterns import op as pattern

from .module import Op, TensorType


class Values:
    """The ops of a region, as `tf2jax_lite.support.patterns.match` reads a graph.

    Args:
      made: the ops by the values that they define.
    """

    def __init__(self, made: Mapping[int, Op]):
        self.made = made

    def producer(self, value: int, through: Collection[str] = ()) -> Op | None:
        """Return a value's op, behind forwarding ops; None for an argument."""
        op = self.made.get(value)
        while op is not None and op.name in through:
            op = self.made.get(op.operands[0])
        return op

    def kind(self, operation: Op) -> str:
        """Return an op's name."""
        return operation.name

    def operands(self, operation: Op) -> Sequence[int]:
        """Return an op's operands."""
        return operation.operands

    def number(self, value: int) -> Any:
        """Return the scalar that a constant repeats."""
        op = self.producer(value, _BROADCASTS)
        if op is None or op.name != "stablehlo.constant":
            return None
        constant = op.attrs["value"]
        return constant.reshape(-1)[0] if constant.size == 1 or not any(constant.strides) else None


_BROADCASTS = ("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
_SAME_ELEMENTS = ("stablehlo.broadcast_in_dim", "stablehlo.reshape")

Rule = tuple[Pattern, Callable[[Op, Match, Values], Op | None]]
"""A pattern and its replacement: returns the op that computes the same as the pattern's last one, or None."""


def by_kind(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """Return rules by the names of the ops at which they apply."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        for kind in rule[0].kinds:
            found.setdefault(kind, []).append(rule)
    return found


def replaced(rules: Mapping[str, Iterable[Rule]], op: Op, values: Values) -> Op:
    """Return the replacement of the first rule that applies to an op, or the op."""
    for wanted, replacement in rules.get(op.name, ()):
        found = match(wanted, op, values)
        made = None if found is None else replacement(op, found, values)
        if made is not None:
            return made
    return op


def restore(ops: Sequence[Op], outer: Mapping[int, Op], returns: Sequence[int], *, names: bool) -> list[Op]:
    """Return a region's ops with peephole rewrites.

    `finish` drops ops that become dead.
    """
    made: dict[int, Op] = dict(outer)
    values = Values(made)
    out = []
    for op in _named(ops, returns) if names else ops:
        found = replaced(_RULES, op, values)
        made.update(dict.fromkeys(op.results, found))
        out.append(found)
    return out


def _logistic(op: Op, found: Match, values: Values) -> Op:
    """Return the logistic, whose derivative has no inf * 0."""
    negate = found.operations["negate"]
    return dataclasses.replace(
        op, name="stablehlo.logistic", operands=negate.operands, operand_types=negate.operand_types
    )


def _filled_gather(op: Op, found: Match, values: Values) -> Op | None:
    """Return a gather in JAX's mode "fill"."""
    gather, fill = found.operations["gather"], values.number(found.values["fill"])
    numbers = gather.attrs["dimension_numbers"]
    if fill is None or numbers["index_vector_dim"] != len(gather.operand_types[1].shape) - 1:
        return None
    shape, sizes = gather.operand_types[0].shape, gather.attrs["slice_sizes"]
    bounds = values.producer(found.values["bounds"], _SAME_ELEMENTS)
    expected = [None if shape[d] is None else shape[d] - sizes[d] for d in numbers["start_index_map"]]
    if bounds is None or bounds.name != "stablehlo.constant" or None in expected:
        return None
    if list(np.broadcast_to(np.ravel(bounds.attrs["value"]), len(expected))) != expected:
        return None
    return dataclasses.replace(
        gather, results=op.results, types=op.types, attrs={**gather.attrs, "fill": fill}, where=op.where
    )


def _compare(direction: str, *operands: Any) -> Pattern:
    return pattern("stablehlo.compare", *operands, where=lambda op: op.attrs["comparison_direction"] == direction)


_INSIDE = pattern("stablehlo.and", _compare("GE", "indices", 0), _compare("LE", "indices", "bounds"))
_RULES = by_kind(
    (
        (
            pattern(  # 1 / (1 + exp(-x))
                "stablehlo.divide",
                1,
                pattern(
                    "stablehlo.add",
                    1,
                    pattern("stablehlo.exponential", pattern("stablehlo.negate", name="negate")),
                    commutes=True,
                ),
            ),
            _logistic,
        ),
        (
            pattern(  # select(indices inside, gather, fill)
                "stablehlo.select",
                pattern("stablehlo.reduce", _INSIDE, through=_SAME_ELEMENTS),
                pattern("stablehlo.gather", ..., "indices", name="gather"),
                "fill",
            ),
            _filled_gather,
        ),
    )
)


# ---- special functions ----

# Primitives of one argument that jax writes out as polynomials under their own name.
_SPECIAL = {"bessel_i1e", "digamma", "erf_inv", "lgamma"}


def _named(ops: Sequence[Op], returns: Sequence[int]) -> list[Op]:
    """Replace runs of ops by the special function that names them."""
    # They take its arguments and make one result.
    groups: dict[str, list[int]] = {}
    for i, op in enumerate(ops):
        if op.name != "stablehlo.constant" and op.where.rpartition("/")[2] in _SPECIAL:
            groups.setdefault(op.where, []).append(i)
    if not groups:
        return list(ops)
    constants = {v for op in ops if op.name == "stablehlo.constant" for v in op.results}
    replaced: dict[int, Op] = {}
    dropped: set[int] = set()
    for where, members in groups.items():
        name = f"chlo.{where.rpartition('/')[2]}"
        for part in _runs(ops, members):
            made = [v for i in part for v in ops[i].results]
            read = dict.fromkeys(v for i in part for v in ops[i].operands if v not in made and v not in constants)
            inside = set(part)
            needed = {v for i, op in enumerate(ops) if i not in inside for v in _reads(op)} | set(returns)
            results = [v for v in made if v in needed]
            last = ops[part[-1]]
            # Fewer ops than this are not a polynomial.
            if len(part) < 12 or len(results) != 1 or len(read) != 1 or results[0] != last.results[0]:
                continue
            types = {v: t for i in part for v, t in zip(ops[i].operands, ops[i].operand_types, strict=True)}
            if any(types[v] != last.types[0] for v in read) or not isinstance(last.types[0], TensorType):
                continue
            operands = tuple(read)
            replaced[part[-1]] = Op(
                name, operands, last.results, last.types, tuple(types[v] for v in operands), {}, where=where
            )
            dropped.update(part[:-1])
    return [replaced.get(i, op) for i, op in enumerate(ops) if i not in dropped]


def _runs(ops: Sequence[Op], members: list[int]) -> list[list[int]]:
    """Split into runs that only constants interrupt."""
    runs = [[members[0]]]
    for i in members[1:]:
        if all(ops[j].name == "stablehlo.constant" for j in range(runs[-1][-1] + 1, i)):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _reads(op: Op) -> list[int]:
    found = list(op.operands)
    for region in op.regions:
        for inner in region.ops:
            found.extend(_reads(inner))
        found.extend(region.returns)
    return found
