"""A StableHLO module as plain data: no MLIR object outlives the parser."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

numbers = itertools.count(1 << 40)
"""Numbers for values that no parsed function has."""


@dataclasses.dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's dtype and shape; None stands for a dynamic dimension."""

    dtype: np.dtype
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('?' if d is None else str(d) for d in self.shape)}]"

    @property
    def is_static(self) -> bool:
        """Return whether every dimension is known."""
        return None not in self.shape


@dataclasses.dataclass(frozen=True, slots=True)
class TokenType:
    """The type of tokens, which order side effects."""

    def __str__(self) -> str:
        return "token"


TOKEN = TokenType()


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One operation; values are numbers, unique within a function.

    Attributes:
      name: with its dialect, such as ``stablehlo.add``.
      attrs: attributes as Python and numpy values.
      where: the name that the program's author would know it by, or "".
      used: for each result whether anything reads it.
      release: values that nothing reads after this op.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Any, ...]
    operand_types: tuple[Any, ...]
    attrs: Mapping[str, Any]
    regions: tuple[Region, ...] = ()
    where: str = ""
    used: tuple[bool, ...] = ()
    release: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Region:
    """A block of ops with arguments; it may read values of the function around it."""

    args: tuple[int, ...]
    types: tuple[Any, ...]
    ops: tuple[Op, ...]
    returns: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A function: its name, its body, and the attributes of each argument."""

    name: str
    body: Region
    result_types: tuple[Any, ...]
    arg_attrs: tuple[Mapping[str, Any], ...]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Module:
    """All functions of a module, by name, and the module's own attributes."""

    functions: Mapping[str, Function]
    attrs: Mapping[str, Any]


# Ops that are kept although nothing reads their results.
_EFFECTS = {"stablehlo.custom_call", "stablehlo.outfeed", "stablehlo.send", "stablehlo.infeed", "stablehlo.recv"}


def _has_effect(op: Op, effectful: Callable[[str], bool]) -> bool:
    if op.name == "stablehlo.custom_call":
        return bool(op.attrs.get("has_side_effect", False)) or not op.results
    if op.name in _EFFECTS:
        return True
    if op.name in ("func.call", "stablehlo.composite"):
        return effectful(str(op.attrs.get("callee", op.attrs.get("decomposition", ""))))
    return any(_has_effect(inner, effectful) for region in op.regions for inner in region.ops)


def effects_of(functions: Mapping[str, Function]) -> Callable[[str], bool]:
    """Return a predicate of function names: whether a call has side effects."""
    found: dict[str, bool] = {}

    def effectful(name: str) -> bool:
        if name not in found:
            found[name] = True  # for recursive functions, and those that are not in the module
            if name in functions:
                found[name] = any(_has_effect(op, effectful) for op in functions[name].body.ops)
        return found[name]

    return effectful


def free_values(region: Region) -> set[int]:
    """Return the values of outer regions that a region reads."""
    own = set(region.args)
    free: set[int] = set()
    for op in region.ops:
        free.update(v for v in op.operands if v not in own)
        for inner in op.regions:
            free |= free_values(inner) - own
        own.update(op.results)
    free.update(v for v in region.returns if v not in own)
    return free


def finish(
    args: Sequence[int], ops: Sequence[Op], returns: Iterable[int], effectful: Callable[[str], bool] = lambda _: True
) -> tuple[Op, ...]:
    """Drop unused ops; record each op's read results and last uses."""
    needed = set(returns)
    out: list[Op] = []
    seen = set(needed)
    own = {*args, *(v for op in ops for v in op.results)}
    for op in reversed(ops):
        used = tuple(v in needed for v in op.results)
        if not any(used) and not _has_effect(op, effectful):
            continue
        reads = set(op.operands)
        for region in op.regions:
            reads |= free_values(region)
        needed |= reads
        last = ({*reads, *op.results} & own) - seen
        seen |= reads | set(op.results)
        out.append(dataclasses.replace(op, used=used, release=tuple(last)))
    return tuple(reversed(out))


def renamed(region: Region, mapping: Mapping[int, int]) -> Region:
    """Copy a region with new numbers for its values, mapped outer ones."""
    inner = dict(mapping)
    args = tuple(next(numbers) for _ in region.args)
    inner.update(zip(region.args, args, strict=True))
    ops = []
    for op in region.ops:
        operands = tuple(inner.get(v, v) for v in op.operands)
        regions = tuple(renamed(r, inner) for r in op.regions)
        results = tuple(next(numbers) for _ in op.results)
        inner.update(zip(op.results, results, strict=True))
        ops.append(dataclasses.replace(op, operands=operands, results=results, regions=regions))
    returns = tuple(inner.get(v, v) for v in region.returns)
    return Region(args, region.types, finish(args, ops, returns), returns)
