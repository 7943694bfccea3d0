"""Equality assumptions between dynamic dimensions, collected across traces.

TensorFlow compares sizes at run time. Here a program is traced: where a node fails because two sizes meet that are not
known to be equal, `Unifier` assumes that they are, and `driver` traces the program again with one dimension for both.
The evaluator checks each assumption at run time (`assumptions`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .bounds import dim_upper_bound, equal_where_large, is_data_dependent
from .dim_expr import DYNAMIC, parsed, value

SINGLE = f"{DYNAMIC}0"
"""Variable of dimensions that are 1 in a call and symbolic in the signature, where 1 must not broadcast."""


def variable_of(dim: Any) -> str:
    """Return the variable v of a dimension ``v - 1``, "" for any other dimension."""
    found = re.fullmatch(rf"({DYNAMIC}\d+) - 1", str(dim))
    return "" if found is None else found[1]


@dataclasses.dataclass
class Equalities:
    """Assumptions about dimensions that hold for all traces of a program.

    Attributes:
      dims: for a variable's name, the dimension (as text) that equals the variable less 1.
      capacities: for a variable's name, the assumed upper bound of its dimension.
      expressions: for a dimension that is not a single variable (as text), the dimension (as text) that equals it.
    """

    dims: dict[str, str] = dataclasses.field(default_factory=dict)
    capacities: dict[str, Any] = dataclasses.field(default_factory=dict)
    expressions: dict[str, str] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.dims) + len(self.capacities) + len(self.expressions)


@dataclasses.dataclass
class Unifier:
    """Adds equalities between dimensions that a node cannot combine otherwise.

    Attributes:
      equalities: the assumptions, of earlier traces too.
      unbounded: variables without an upper bound.
      expected: for a variable of those, the upper bound that holds for valid inputs.
      capacities: for each variable of this trace, the capacity of its arrays.
    """

    equalities: Equalities
    unbounded: set[str]
    expected: Mapping[str, Any]
    capacities: Mapping[str, Any]

    def unify(
        self, shapes: Sequence[Sequence[Any]], problem: str, fitting: Callable[[], Sequence[Mapping[str, int]]]
    ) -> bool:
        """Assume two dimensions of a node's operands equal; False if impossible.

        Args:
          shapes: of the operands.
          problem: the node's error; if it names dimensions, only those are considered.
          fitting: returns values of variables for which the node works. Dimensions that differ for one of them need not
            be equal, such as the sizes along the axis of a concatenation.
        """
        named = _bracketed(problem)
        named = named if any(DYNAMIC in text for text in named) else set()
        found = fitting()

        def may_differ(one: Any, other: Any) -> bool:
            trees = parsed(str(one)), parsed(str(other))
            return any(value(trees[0], sizes) != value(trees[1], sizes) for sizes in found)

        for a, b in itertools.combinations(shapes, 2):
            # Align the shapes at their last axes, as broadcasting does, or at their first: first the alignment with
            # fewer mismatches.
            alignments = [_broadcast_pairs(a, b), list(zip(a, b, strict=False))]
            alignments.sort(key=_mismatches)
            pairs = [pair for pair in itertools.chain(*alignments) if not may_differ(*pair)]
            if any(self._replace_where_large(*sorted(pair, key=_text_length)) for pair in pairs):
                return True
            # Dimensions that do not face each other: fixed sizes may be anything, so only data-dependent ones.
            others = [*zip(a[-1:], b[-2:-1], strict=False)]
            others += [pair for pair in itertools.product(a, b) if all(map(is_data_dependent, pair))]
            for one, other in (*pairs, *(pair for pair in others if not may_differ(*pair))):
                if named and not named.issuperset((str(one), str(other))):
                    continue
                if self._equate(one, other) or self._equate(other, one):
                    return True
            for one, other in pairs:
                both = is_data_dependent(one) and is_data_dependent(other)
                if both and (self._replace(one, other) or self._replace(other, one)):
                    return True
        # Last, fixed sizes: equal to a dynamic one unless they broadcast.
        for a, b in itertools.combinations(shapes, 2):
            pairs = itertools.product(a, b) if found else _broadcast_pairs(a, b)
            if any(not may_differ(*pair) and self._equate_to_fixed(*pair, is_needed=bool(found)) for pair in pairs):
                return True
        return False

    def unify_counts(self, shape: Sequence[Any], other: Sequence[Any]) -> bool:
        """Assume the equality that makes element counts equal, if there is just one."""
        one, two = list(shape), list(other)
        for dim in shape:
            if dim in two:
                one.remove(dim)
                two.remove(dim)
        a, b = ([math.prod(d for d in dims if isinstance(d, int))] for dims in (one, two))
        a += [dim for dim in one if not isinstance(dim, int)]
        b += [dim for dim in two if not isinstance(dim, int)]
        if len(a) > len(b):
            a, b = b, a
        if len(b) != 2 or not b[0] or a[0] % b[0] or (len(a) == 2 and a[0] != b[0]):
            return False
        size = a[1] if len(a) == 2 else a[0] // b[0]
        return (
            self._equate(b[1], size, must=True)
            or self._equate(size, b[1], must=True)
            or (not is_data_dependent(size) and self._replace_by_fixed(b[1], size))
        )

    def _equate_to_fixed(self, one: Any, other: Any, *, is_needed: bool) -> bool:
        """Equate a dynamic to a fixed dimension; to 1 only if it does not broadcast."""
        fixed, dim = sorted((one, other), key=is_data_dependent)
        if is_data_dependent(fixed) or not (is_needed or fixed not in (0, 1)):
            return False
        return self._equate(dim, fixed, must=True) or self._replace_by_fixed(dim, fixed)

    def _replace_by_fixed(self, dim: Any, fixed: Any) -> bool:
        """Replace a sum of dimensions by a fixed one."""
        known = not is_data_dependent(dim) or variable_of(dim) or str(dim) in self.equalities.expressions
        if known or SINGLE in f"{dim} {fixed}":
            return False
        self.equalities.expressions[str(dim)] = str(fixed)
        return True

    def _replace(self, dim: Any, other: Any) -> bool:
        """Replace a dimension that is not a single variable by another one that is older."""
        last, first = (max(int(n) for n in re.findall(rf"\b{DYNAMIC}(\d+)", str(d))) for d in (dim, other))
        if last <= first or str(dim) in self.equalities.expressions or SINGLE in f"{dim} {other}":
            return False
        self.equalities.expressions[str(dim)] = str(other)
        return True

    def _replace_where_large(self, other: Any, dim: Any) -> bool:
        """Replace a dimension by a shorter one, equal for large enough variables.

        The sizes of a zero and of all but the last of n parts are ``max(n - 1, 0) + 1`` together, so n.
        """
        shorter = _text_length(other) < _text_length(dim) and is_data_dependent(dim) and SINGLE not in str(dim)
        if not shorter or str(dim) in self.equalities.expressions or not equal_where_large(dim, other):
            return False
        self.equalities.expressions[str(dim)] = str(other)
        return True

    def _equate(self, dim: Any, other: Any, *, must: bool = False) -> bool:
        """Equate ``v - 1`` to an older dimension, or bound v if it is unbounded.

        Args:
          dim: the dimension.
          other: the other dimension.
          must: whether nothing but equality works; of two operands one could broadcast.
        """
        found = re.fullmatch(rf"({DYNAMIC}(\d+)) - 1", str(dim))
        if found is None or not (must or is_data_dependent(other) or self._is_plausible(found[1], other)):
            return False
        numbers = [int(n) for n in re.findall(rf"\b{DYNAMIC}(\d+)", str(other))]
        number, name, size = int(found[2]), found[1], dim_upper_bound(other)
        if number in numbers or (str(other) == SINGLE and name not in self.expected):
            return False
        if max(numbers, default=0) > number:
            if name not in self.unbounded or size is None:
                return False
            self.equalities.capacities[name] = size  # the next trace equates the other dimension to this one
        elif name in self.equalities.dims:
            return False
        else:
            self.equalities.dims[name] = str(other)
        return True

    def _is_plausible(self, name: str, fixed: Any) -> bool:
        """Return whether a fixed size may be a dynamic one: its capacity, or unknown."""
        return fixed != 1 and (name in self.unbounded or self.capacities.get(name) == fixed)


def _bracketed(text: str) -> set[str]:
    """Return the items of lists in brackets of any kind within a text."""
    found, starts = set(), []
    for i, sign in enumerate(text):
        if sign in "([":
            starts.append(i + 1)
        elif sign in "),]" and starts:
            found.add(text[starts.pop() : i].strip())
            if sign == ",":
                starts.append(i + 1)
    return found


def _broadcast_pairs(a: Sequence[Any], b: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of dimensions that broadcasting compares."""
    return list(zip(a[::-1], b[::-1], strict=False))


def _text_length(dim: Any) -> int:
    return len(str(dim))


def _mismatches(pairs: list[tuple[Any, Any]]) -> int:
    return sum(one is not other and one != other and 1 not in (one, other) for one, other in pairs)
