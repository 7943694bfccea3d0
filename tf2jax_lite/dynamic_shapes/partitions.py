"""Masks that partition an array: their counts add up to its size.

A mask is read as a formula (see provenance.py): logical ops and comparisons over values that are not analyzed further.
Each of these takes sample values, of which at least one stands for every possible value: the constants that it is
compared with, their neighbors, and NaN. Masks partition the array if exactly one is true for every sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import constant_of, equation_of

from .intervals import interval_of
from .provenance import FORWARDING, name_of

_COMPARISONS: Mapping[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_LOGIC: Mapping[str, Any] = {
    "not": np.logical_not,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_MAX_DEPTH = 32
_MAX_SAMPLES = 1 << 12
_MAX_MASKS = 64
_MAX_FOUND = 8
_MAX_STEPS = 1 << 10

_Evaluate = Callable[[Mapping[Any, np.ndarray]], Any]


@dataclasses.dataclass
class _Leaf:
    """A value that formulas have in common.

    Attributes:
      value: one or two traced arrays, which live as long as the leaf's key, since it holds their ids.
      is_certain: whether samples do without the interval of integers, which NaN that was cast may leave.
    """

    samples: set[Any]
    value: Any
    is_certain: bool = True

    def add_around(self, number: Any) -> None:
        """Add a constant that the value is compared with, and its neighbors."""
        dtype = np.dtype(self.value.dtype)
        if dtype.kind not in "iu" or not isinstance(number, int):
            wide = np.float64(number)
            self.samples |= {float(wide), float(np.nextafter(wide, np.inf)), float(np.nextafter(wide, -np.inf)), np.nan}
            return
        limits, interval = np.iinfo(dtype), interval_of(self.value)
        lower = max(limits.min, limits.min if interval.lower is None else int(interval.lower))
        upper = min(limits.max, interval.upper if isinstance(interval.upper, int) else limits.max)
        self.is_certain &= (lower, upper) == (limits.min, limits.max)
        found = {n for n in (number - 1, number, number + 1, lower, upper) if lower <= n <= upper}
        self.samples |= found or {number}


@dataclasses.dataclass
class _Mask:
    shape: tuple[Any, ...]
    dim: Any
    evaluate: _Evaluate
    leaves: dict[Any, _Leaf]


class Partitions:
    """The masks of one trace whose true values are counted."""

    def __init__(self) -> None:
        self._masks: list[_Mask] = []

    def add(self, mask: Any, dim: Any) -> Iterator[tuple[list[Any], bool]]:
        """Add a mask; yield each set of masks with it that partitions the array.

        Args:
          dim: the dimension that is the number of true values.

        Yields:
          The masks' dimensions, and whether that is certain; if not, casts of NaN could violate it.
        """
        leaves: dict[Any, _Leaf] = {}
        new = _Mask(tuple(mask.shape), dim, _formula(mask, leaves, _MAX_DEPTH), leaves)
        same = [m for m in self._masks if m.shape == new.shape]
        if len(same) >= _MAX_MASKS or any(m.dim is dim or m.dim == dim for m in same):
            return
        self._masks.append(new)
        related = [m for m in same if not leaves.keys().isdisjoint(m.leaves)]
        for others in (related, [m for m in related if m.leaves.keys() <= leaves.keys()]):
            if (tables := _tables([new, *others])) is not None:
                masks = [new, *others]
                for chosen in _covers(tables):
                    is_certain = all(leaf.is_certain for i in chosen for leaf in masks[i].leaves.values())
                    yield [masks[i].dim for i in chosen], is_certain
                return


def _tables(masks: list[_Mask]) -> list[int] | None:
    """Return masks' truth tables as bits of ints, and all bits; None if too large."""
    samples: dict[Any, set[Any]] = {}
    for mask in masks:
        for key, leaf in mask.leaves.items():
            samples.setdefault(key, set()).update(leaf.samples)
    if np.prod([len(v) for v in samples.values()], dtype=float) > _MAX_SAMPLES:
        return None
    grid = np.meshgrid(*(np.array(list(v)) for v in samples.values()), indexing="ij")
    given = {key: values.reshape(-1) for key, values in zip(samples, grid, strict=True)}
    count = grid[0].size if grid else 1
    tables = [np.broadcast_to(mask.evaluate(given), (count,)) for mask in masks]
    return [int.from_bytes(np.packbits(table).tobytes(), "big") for table in (*tables, np.ones(count, bool))]


def _covers(tables: list[int]) -> Iterator[list[int]]:
    """Yield sets of disjoint tables, with the first, whose union is the last."""
    *masks, everything = tables
    left, found = _MAX_STEPS, 0
    pending = [([0], masks[0], 1)]
    while pending and left and found < _MAX_FOUND:
        left -= 1
        chosen, union, first = pending.pop()
        if union == everything:
            found += 1
            yield chosen
            continue
        following = [i for i in range(first, len(masks)) if masks[i] and not masks[i] & union]
        pending += [([*chosen, i], union | masks[i], i + 1) for i in reversed(following)]


def _formula(value: Any, leaves: dict[Any, _Leaf], depth: int) -> _Evaluate:
    """Return a function from samples of leaves to bools; add its leaves."""
    constant = _uniform(value)
    if constant is not None:
        return lambda _: constant
    value = _source(value)
    name, operands, _ = equation_of(value) if depth else ("", [], {})
    if name in _LOGIC:
        parts = [_formula(o, leaves, depth - 1) for o in operands]
        return lambda given: _LOGIC[name](*[part(given) for part in parts])
    if name in _COMPARISONS:
        return _comparison(name, operands, leaves, depth - 1)
    if name == "convert_element_type" and operands[0].dtype.kind in "iu":
        return _comparison("ne", [operands[0], np.zeros((), operands[0].dtype)], leaves, depth - 1)
    key = name_of(value)
    leaves.setdefault(key, _Leaf({False, True}, value))
    return lambda given: given[key]


def _comparison(name: str, operands: Sequence[Any], leaves: dict[Any, _Leaf], depth: int) -> _Evaluate:
    sources = [_source(o) for o in operands]
    numbers = [_uniform(o) for o in operands]
    if all(n is None for n in numbers) and any(v.dtype != bool for v in sources):
        return _sign_comparison(name, sources, leaves)
    parts = [
        _side(source, number, other, leaves, depth)
        for source, number, other in zip(sources, numbers, numbers[::-1], strict=True)
    ]
    return lambda given: _COMPARISONS[name](*[part(given) for part in parts])


def _side(source: Any, number: Any, other: Any, leaves: dict[Any, _Leaf], depth: int) -> _Evaluate:
    """Return an operand of a comparison with a number or another bool."""
    if number is not None:
        return lambda _: number
    if source.dtype == bool:
        return _formula(source, leaves, depth)
    key = name_of(source)
    leaf = leaves.setdefault(key, _Leaf(set(), source))
    leaf.add_around(other)
    return lambda given: given[key]


def _sign_comparison(name: str, sources: Sequence[Any], leaves: dict[Any, _Leaf]) -> _Evaluate:
    """Compare two values by samples of the sign of their difference, and NaN."""
    keys = [name_of(source) for source in sources]
    turned = str(keys[0]) > str(keys[1])
    key = ("sign", *(keys[::-1] if turned else keys))
    unordered = {np.nan} if any(jnp.issubdtype(v.dtype, jnp.inexact) for v in sources) else set[Any]()
    leaves.setdefault(key, _Leaf({-1.0, 0.0, 1.0} | unordered, sources))
    return lambda given: _COMPARISONS[name](-given[key] if turned else given[key], 0.0)


def _source(value: Any) -> Any:
    """Return the value that was only reshaped, or cast to a wider dtype."""
    for _ in range(_MAX_DEPTH):
        name, operands, _ = equation_of(value)
        if name not in FORWARDING or operands[0].size != value.size:
            break
        before, after = operands[0].dtype, value.dtype
        is_wider = {before.kind, after.kind} <= set("iu") and np.can_cast(before, after)
        if before != after and not is_wider and not (before.kind == "b" and after.kind in "iuf"):
            break
        value = operands[0]
    return value


def _uniform(value: Any) -> Any:
    """Return the number that all elements of a constant are, or None."""
    for _ in range(_MAX_DEPTH):
        constant = constant_of(value)
        if constant is not None:
            is_number = constant.dtype.kind in "biuf" and constant.size
            return constant.flat[0].item() if is_number and (constant == constant.flat[0]).all() else None
        name, operands, _ = equation_of(value)
        if name not in FORWARDING or operands[0].dtype != value.dtype:
            return None
        value = operands[0]
    return None
