"""Reduced ordered binary decision diagrams (ROBDD) of liveness conditions.

In control flow v1, a Switch forwards its input to one of its outputs; nodes that depend on the other one are *dead*.
The condition under which a value is alive is a boolean function of the predicates of Switches. Diagrams are
hash-consed: equal functions are the same integer. Conditions of properly nested branches have one node per level.
"""

from __future__ import annotations

FALSE, TRUE = 0, 1
"""The conditions of values that are always dead, and of values that are always alive."""

ALWAYS = 1 << 60
"""The variable of the constant conditions; it comes after every other variable."""


class Conditions:
    """A set of diagrams over variables 0, 1, 2 and so on, tested in this order.

    A condition is an int.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, int]] = [(ALWAYS, FALSE, FALSE), (ALWAYS, TRUE, TRUE)]
        self._ids: dict[tuple[int, int, int], int] = {}
        self._memo: dict[tuple[bool, int, int], int] = {}
        self._support: dict[int, frozenset[int]] = {FALSE: frozenset(), TRUE: frozenset()}

    def variable(self, index: int) -> int:
        """Return the condition that variable ``index`` is true."""
        return self._node(index, FALSE, TRUE)

    def negated_variable(self, index: int) -> int:
        """Return the condition that variable ``index`` is false."""
        return self._node(index, TRUE, FALSE)

    def first(self, condition: int) -> int:
        """Return the first variable that a condition tests, or `ALWAYS`."""
        return self._nodes[condition][0]

    def support(self, condition: int) -> frozenset[int]:
        """Return all variables that a condition tests."""
        found = self._support.get(condition)
        if found is None:
            variable, low, high = self._nodes[condition]
            found = self._support[condition] = self.support(low) | self.support(high) | {variable}
        return found

    def given(self, condition: int, index: int, value: bool) -> int:
        """Return a condition given that variable ``index`` has ``value``.

        The condition must not test variables before ``index``.
        """
        variable, low, high = self._nodes[condition]
        return condition if variable != index else (high if value else low)

    def both(self, a: int, b: int) -> int:
        """Return the condition that ``a`` and ``b`` hold."""
        if a in (b, FALSE) or b == TRUE:
            return a
        if a == TRUE or b == FALSE:
            return b
        return self._combined(True, a, b)

    def either(self, a: int, b: int) -> int:
        """Return the condition that ``a`` or ``b`` holds."""
        if a in (b, TRUE) or b == FALSE:
            return a
        if a == FALSE or b == TRUE:
            return b
        return self._combined(False, a, b)

    def _combined(self, conjunction: bool, a: int, b: int) -> int:
        key = (conjunction, min(a, b), max(a, b))
        found = self._memo.get(key)
        if found is None:
            variable = min(self.first(a), self.first(b))
            join = self.both if conjunction else self.either
            low = join(self.given(a, variable, False), self.given(b, variable, False))
            high = join(self.given(a, variable, True), self.given(b, variable, True))
            found = self._memo[key] = self._node(variable, low, high)
        return found

    def _node(self, variable: int, low: int, high: int) -> int:
        if low == high:
            return low
        key = (variable, low, high)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._nodes)
            self._nodes.append(key)
        return found
