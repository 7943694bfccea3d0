"""Liveness conditions: predicates under which nodes of a v1 function run.

Each Switch is replaced by its data input; the other nodes carry a condition, a decision diagram over predicates.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_value
from tf2jax_lite.support.errors import UnsupportedError


@dataclasses.dataclass(slots=True, eq=False)
class Item:
    """A node with conditions.

    Attributes:
      node: the node; ``inputs`` replaces its own inputs.
      inputs: data inputs, behind all Switches.
      conditions: the condition under which each input is alive; at most one input of a Merge is alive at a time.
      control: names of the items that must have run before.
      tests: predicates of the Switches between the node and its inputs.
    """

    node: ir.Node
    inputs: tuple[ir.TensorRef, ...]
    conditions: tuple[int, ...]
    control: tuple[str, ...]
    condition: int
    tests: tuple[ir.TensorRef, ...] = ()

    @property
    def is_merge(self) -> bool:
        """Whether the node forwards the input that is alive."""
        return self.node.op == "Merge"


def find_liveness(
    function: str, nodes: Sequence[ir.Node], assumed: Mapping[ir.TensorRef, bool] | None = None
) -> Liveness:
    """Return the nodes' conditions, which test predicates from the outermost inwards."""
    live = Liveness(function, nodes, assumed)
    order = live.nesting_order()
    return live if order == live.predicates else Liveness(function, nodes, assumed, order)


class Liveness:
    """The conditions of a function's nodes.

    Args:
      nodes: its nodes, in topological order, without cycles.
      order: the variable order of the diagrams; by default the order in which Switches test the predicates.

    Attributes:
      items: the nodes to run, in order, without Switches and nodes that are always dead.
      predicates: the predicate of each variable of the diagrams.
    """

    def __init__(
        self,
        function: str,
        nodes: Iterable[ir.Node],
        assumed: Mapping[ir.TensorRef, bool] | None = None,
        order: Sequence[ir.TensorRef] = (),
    ):
        self.conditions = Conditions()
        self.predicates: list[ir.TensorRef] = list(order)
        self.items: list[Item] = []
        self._function = function
        self._assumed = dict(assumed or {})
        self._nodes: dict[str, ir.Node] = {}
        self._alive: dict[str, int] = {}
        self._outputs_alive: dict[ir.TensorRef, int] = {}
        self._alias: dict[ir.TensorRef, ir.TensorRef] = {}
        self._tests: dict[ir.TensorRef, tuple[ir.TensorRef, ...]] = {}
        self._merges: dict[str, tuple[int, ...]] = {}
        self._variables: dict[ir.TensorRef, int] = {ref: index for index, ref in enumerate(order)}
        self._needs: dict[int, frozenset[int]] = {}
        self._depths: dict[int, int] = {}
        for node in nodes:
            self._nodes[node.name] = node
            self._visit(node)

    def resolve(self, ref: ir.TensorRef) -> ir.TensorRef:
        """Return the input of the Switch whose output ``ref`` is, or ``ref`` itself."""
        return self._alias.get(ref, ref)

    def condition(self, ref: ir.TensorRef) -> int:
        """Return the condition under which a tensor is alive."""
        alive = self._outputs_alive.get(ref)
        return self._alive.get(ref.node, TRUE) if alive is None else alive

    def describe(self, condition: int) -> str:
        """Return a condition's first predicate as text."""
        first = self.conditions.first(condition)
        return str(self.predicates[first]) if first < len(self.predicates) else "nothing"

    def literals(self, condition: int) -> dict[ir.TensorRef, bool] | None:
        """Return a conjunction's values of predicates; None for any other condition."""
        found: dict[ir.TensorRef, bool] = {}
        while condition not in (TRUE, FALSE):
            first = self.conditions.first(condition)
            low, high = (self.conditions.given(condition, first, value) for value in (False, True))
            if FALSE not in (low, high):
                return None
            found[self.predicates[first]] = high != FALSE
            condition = high if low == FALSE else low
        return found if condition == TRUE else None

    def nesting_order(self) -> list[ir.TensorRef]:
        """Return the predicates, outer ones before those tested inside their branches.

        A predicate that several Switches test has the depth of the deepest, and comes after those that guard its own
        computation.
        """
        depths: dict[int, int] = {}
        for index in self._depths:  # in the order in which they came
            under = max((depths.get(need, 0) + 1 for need in self._needs[index]), default=0)
            depths[index] = max(self._depths[index], under)
        return [self.predicates[index] for index in sorted(depths, key=lambda index: depths[index])]

    def _note(self, index: int, predicate: ir.TensorRef, condition: int) -> None:
        """Record the depth of a predicate's test, and the predicates that guard it."""
        around = self.conditions.support(condition) - {index}
        depth = max((self._depths.get(other, 0) + 1 for other in around), default=0)
        self._depths[index] = max(depth, self._depths.get(index, 0))
        if index not in self._needs:
            self._needs[index] = self.conditions.support(self.condition(predicate))

    def _visit(self, node: ir.Node) -> None:
        both, alive = self.conditions.both, self.condition
        conditions = tuple(alive(ref) for ref in node.inputs)
        if node.op == "Merge":
            condition = self._merged(node, conditions)
            self._merges[node.name] = conditions
        elif node.op == "ControlTrigger":  # runs after its inputs, dead or alive
            condition = TRUE
        else:
            condition = TRUE
            for each in conditions:
                condition = both(condition, each)
            for name in node.control:
                condition = both(condition, self._alive.get(name, TRUE))
        self._alive[node.name] = condition
        if node.op == "Switch":
            self._switch(node, condition)
        elif condition != FALSE:
            inputs = tuple(map(self.resolve, node.inputs))
            tests = tuple(dict.fromkeys(test for ref in node.inputs for test in self._tests.get(ref, ())))
            self.items.append(Item(node, inputs, conditions, self._control(node), condition, tests))

    def _control(self, node: ir.Node) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for name in node.control:
            source = self._nodes.get(name)
            if source is not None and source.op == "Switch" and not source.control:
                # No node remains of such a Switch; waiting for it becomes waiting for its inputs.
                for ref in source.inputs:
                    names[self.resolve(ref).node] = None
            else:
                names[name] = None
        return tuple(name for name in names if self._alive.get(name) != FALSE)

    def _merged(self, node: ir.Node, conditions: Sequence[int]) -> int:
        total = FALSE
        for condition in conditions:
            if self.conditions.both(total, condition) != FALSE:
                raise UnsupportedError(
                    f"node {node.name!r} (Merge) in {self._function!r}: two of its inputs "
                    f"({', '.join(map(str, node.inputs))}) can be alive at the same time, so that its result "
                    "depends on which comes first. Fetch tensors before it instead."
                )
            total = self.conditions.either(total, condition)
        return total

    def _switch(self, node: ir.Node, condition: int) -> None:
        data, predicate = node.inputs
        source = self.resolve(data)
        if node.control and condition != FALSE:  # an Identity keeps the Switch's control edges
            identity = build.node("Identity", data, T=node.output_dtypes[0], like=node)
            tests = self._tests.get(data, ())
            self.items.append(Item(identity, (source,), (self.condition(data),), self._control(node), condition, tests))
            source = ir.TensorRef(node.name)
        outcomes, more = self._outcomes(predicate, condition)
        tests = tuple(dict.fromkeys((*self._tests.get(data, ()), *more)))
        for index, outcome in enumerate(outcomes):
            ref = ir.TensorRef(node.name, index)
            self._tests[ref] = tests
            self._outputs_alive[ref] = self.conditions.both(condition, outcome)
            if ref != source:
                self._alias[ref] = source

    def _source(self, ref: ir.TensorRef) -> tuple[ir.TensorRef, bool]:
        """Return the tensor that a predicate copies or negates, and whether it negates it."""
        negated = False
        ref = self.resolve(ref)
        node = self._nodes.get(ref.node)
        while node is not None and node.op in ("Identity", "LogicalNot"):
            negated ^= node.op == "LogicalNot"
            ref = self.resolve(node.inputs[0])
            node = self._nodes.get(ref.node)
        return ref, negated

    def _outcomes(self, predicate: ir.TensorRef, condition: int) -> tuple[tuple[int, int], tuple[ir.TensorRef, ...]]:
        """Return the conditions that a predicate is false and true, and their predicates."""
        ref, negated = self._source(predicate)
        node = self._nodes.get(ref.node)
        value = self._number(ref)
        tests: tuple[ir.TensorRef, ...] = ()
        if value is None or value.dtype != np.bool_:
            value = self._assumed.get(ref)
        if value is not None:
            outcomes = (FALSE, TRUE) if value else (TRUE, FALSE)
        elif node is not None and (found := self._tests_merge(node)) is not None:
            outcomes = found
            support = self.conditions.support(found[0]) | self.conditions.support(found[1])
            tests = tuple(self.predicates[index] for index in sorted(support))
        else:
            index = self._variables.setdefault(ref, len(self.predicates))
            if index == len(self.predicates):
                self.predicates.append(ref)
            self._note(index, ref, condition)
            outcomes = (self.conditions.negated_variable(index), self.conditions.variable(index))
            tests = (ref,)
        return ((outcomes[1], outcomes[0]) if negated else outcomes), tests

    def _tests_merge(self, node: ir.Node) -> tuple[int, int] | None:
        """Return both outcomes of a test of a Merge's value_index."""
        # Second-order gradients of branches contain such tests.
        if node.op != "Equal":
            return None
        for one, other in (node.inputs, node.inputs[::-1]):
            inputs = self._merges.get(one.node) if one.index == 1 else None
            number = self._number(other)
            if inputs is not None and number is not None and 0 <= int(number) < len(inputs):
                rest = functools.reduce(
                    self.conditions.either, inputs[: int(number)] + inputs[int(number) + 1 :], FALSE
                )
                return rest, inputs[int(number)]
        return None

    def _number(self, ref: ir.TensorRef) -> np.ndarray | None:
        value = constant_value(self.resolve(ref), self._nodes, through=())
        return value if value is not None and value.shape == () and value.dtype.kind in "bi" else None


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
