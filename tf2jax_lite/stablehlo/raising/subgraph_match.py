"""Subgraph isomorphism: finds one computation inside another, op by op.

Names that a module's author or compiler chose do not matter, so a match computes the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.stablehlo.parsing.module import Function, Module, Op, Region


class Makers:
    """The defining op of each value of a function, including values of nested regions."""

    def __init__(self, function: Function):
        self.ops: dict[int, tuple[Op, int]] = {}
        self.types: dict[int, Any] = {}
        self._add(function.body)

    def _add(self, region: Region) -> None:
        self.types.update(zip(region.args, region.types, strict=True))
        for op in region.ops:
            for i, (value, type_) in enumerate(zip(op.results, op.types, strict=True)):
                self.ops[value] = (op, i)
                self.types[value] = type_
            for inner in op.regions:
                self._add(inner)

    def source(self, value: int) -> int:
        """Return the source of a value, through conversions to its own type."""
        while value in self.ops:
            op, _ = self.ops[value]
            if op.name != "stablehlo.convert" or op.types != op.operand_types:
                break
            value = op.operands[0]
        return value


class Matcher:
    """Compares values of a pattern's main function with values of a module's function."""

    def __init__(self, pattern: Module, module: Module, makers: Makers):
        self.pattern, self.module = pattern, module
        main = pattern.functions["main"]
        self.body = main.body
        self._ours = Makers(main)
        self._theirs = makers
        self._functions: dict[tuple[str, str], bool] = {}

    def match(self, output: int, value: int) -> dict[int, int] | None:
        """Compare one result of the pattern with a value.

        Returns:
          The pattern's values with the matching values of the searched function, or None if they differ.
        """
        found: dict[int, int] = {}
        return found if self._value(self.body.returns[output], value, found) else None

    def _value(self, ours: int, theirs: int, found: dict[int, int]) -> bool:
        stack = [(ours, theirs)]  # chains of thousands of ops are common: no recursion along operands
        while stack:
            ours, theirs = stack.pop()
            ours, theirs = self._ours.source(ours), self._theirs.source(theirs)
            if ours in found:
                if found[ours] != theirs:
                    return False
                continue
            if self._ours.types[ours] != self._theirs.types.get(theirs):
                return False
            if ours not in self._ours.ops:  # an argument
                if ours not in self.body.args:
                    return False
                found[ours] = theirs
                continue
            if theirs not in self._theirs.ops:
                return False
            (op, i), (other, j) = self._ours.ops[ours], self._theirs.ops[theirs]
            if i != j or not self._same_op(op, other):
                return False
            for region, inner in zip(op.regions, other.regions, strict=True):
                if not self._region(region, inner, found):
                    return False
            found.update(zip(op.results, other.results, strict=True))
            stack.extend(zip(op.operands, other.operands, strict=True))
        return True

    def _region(self, ours: Region, theirs: Region, found: dict[int, int]) -> bool:
        if ours.types != theirs.types or len(ours.returns) != len(theirs.returns):
            return False
        found.update(zip(ours.args, theirs.args, strict=True))
        return all(self._value(a, b, found) for a, b in zip(ours.returns, theirs.returns, strict=True))

    def _same_op(self, op: Op, other: Op) -> bool:
        if op.name != other.name or op.types != other.types or op.operand_types != other.operand_types:
            return False
        if len(op.regions) != len(other.regions):
            return False
        if op.name == "func.call":
            return self._same_function(op.attrs["callee"], other.attrs["callee"])
        if op.name == "stablehlo.composite":
            bodies = [{**o.attrs, "decomposition": None} for o in (op, other)]
            return same_attributes(*bodies) and self._same_function(
                op.attrs["decomposition"], other.attrs["decomposition"]
            )
        return same_attributes(op.attrs, other.attrs)

    def _same_function(self, ours: str, theirs: str) -> bool:
        """Return whether two functions, of their arguments alone, are equal."""
        key = ours, theirs
        if key not in self._functions:
            self._functions[key] = False  # during the comparison: recursive functions do not match
            first, second = self.pattern.functions.get(ours), self.module.functions.get(theirs)
            if first is not None and second is not None:
                inner = Matcher(self.pattern, self.module, Makers(second))
                inner._functions = self._functions
                inner._ours = Makers(first)
                self._functions[key] = inner._region(first.body, second.body, {})
        return self._functions[key]


def same_attributes(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether two ops have the same attributes."""
    return ours.keys() == theirs.keys() and all(_same(ours[name], theirs[name]) for name in ours)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()  # NaN equals itself, 0 not -0
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return same_attributes(a, b)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and a == b


def renamed_uses(ops: Sequence[Op], names: Mapping[int, int]) -> list[Op]:
    """Return ops with uses of some values renamed."""

    def region(r: Region) -> Region:
        return dataclasses.replace(
            r, ops=tuple(renamed_uses(r.ops, names)), returns=tuple(names.get(v, v) for v in r.returns)
        )

    return [
        dataclasses.replace(
            op, operands=tuple(names.get(v, v) for v in op.operands), regions=tuple(region(r) for r in op.regions)
        )
        for op in ops
    ]
