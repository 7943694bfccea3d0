"""Under which condition each node of a function runs: Switches are resolved, what remains knows its condition."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.errors import UnsupportedError

from .bdd import FALSE, TRUE, Conditions

__all__ = ["Item", "Liveness", "find_liveness"]


@dataclasses.dataclass(slots=True, eq=False)
class Item:
    """A node with conditions.

    Attributes:
      node: the node; its own inputs are not used any more.
      inputs: data inputs, past all Switches.
      conditions: when each input is alive; of a Merge one holds at a time.
      control: names of the items that must have run before.
      condition: when the node runs.
      tests: predicates of the Switches that its inputs came through.
    """

    node: ir.Node
    inputs: tuple[ir.TensorRef, ...]
    conditions: tuple[int, ...]
    control: tuple[str, ...]
    condition: int
    tests: tuple[ir.TensorRef, ...] = ()

    @property
    def is_merge(self) -> bool:
        """Whether the node hands on whichever of its inputs is alive."""
        return self.node.op == "Merge"


def find_liveness(
    function: str, nodes: Sequence[ir.Node], assumed: Mapping[ir.TensorRef, bool] | None = None
) -> Liveness:
    """Returns the conditions of a function's nodes, with predicates tested from the outermost to the innermost."""
    live = Liveness(function, nodes, assumed)
    order = live.nesting_order()
    return live if order == live.predicates else Liveness(function, nodes, assumed, order)


class Liveness:
    """Finds the conditions of a function's nodes, which are given in topological order and form no cycle.

    Args:
      function: the function's name, for messages.
      nodes: its nodes.
      assumed: values of predicates that are known.
      order: predicates in the order in which conditions are to test them; as they come if left out.

    Attributes:
      items: what has to run, in order; Switches, and nodes that are always dead, are gone.
      conditions: the diagrams.
      predicates: for each variable of the diagrams the tensor that it stands for.

    Raises:
      UnsupportedError: two inputs of a Merge can be alive at the same time.
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
        self._sides: dict[ir.TensorRef, int] = {}
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
        """Returns the tensor that arrives where ``ref`` is read: what entered a Switch, or ``ref`` itself."""
        return self._alias.get(ref, ref)

    def condition(self, ref: ir.TensorRef) -> int:
        """Returns when a tensor is alive."""
        side = self._sides.get(ref)
        return self._alive.get(ref.node, TRUE) if side is None else side

    def describe(self, condition: int) -> str:
        """Returns a condition's first predicate as text."""
        first = self.conditions.first(condition)
        return str(self.predicates[first]) if first < len(self.predicates) else "nothing"

    def literals(self, condition: int) -> dict[ir.TensorRef, bool] | None:
        """Returns the predicates' values that a condition asks for; None if it is more than a conjunction of such."""
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
        """Returns the predicates so that outer ones come before those that are tested inside their branches.

        A predicate that is tested in several places counts as being where it is deepest, but stays behind those that
        it is itself computed under.
        """
        depths: dict[int, int] = {}
        for index in self._depths:  # in the order in which they came
            under = max((depths.get(need, 0) + 1 for need in self._needs[index]), default=0)
            depths[index] = max(self._depths[index], under)
        return [self.predicates[index] for index in sorted(depths, key=lambda index: depths[index])]

    def _note(self, index: int, predicate: ir.TensorRef, condition: int) -> None:
        """Keeps at which depth a predicate is tested, and which others say whether it is there at all."""
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
        elif node.op == "ControlTrigger":  # runs after its inputs, be they dead or alive
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
                # Such a Switch leaves no node behind; who waits for it waits for what entered it.
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
                    f"({', '.join(map(str, node.inputs))}) can be alive at the same time, so that what it returns "
                    "depends on which comes first. Cut the graph behind it."
                )
            total = self.conditions.either(total, condition)
        return total

    def _switch(self, node: ir.Node, condition: int) -> None:
        data, predicate = node.inputs
        source = self.resolve(data)
        if node.control and condition != FALSE:  # an Identity keeps what the Switch waits for
            identity = dataclasses.replace(
                node, op="Identity", attrs={"T": node.output_dtypes[0]}, groups=(None,), input_types=("T",),
                output_dtypes=node.output_dtypes[:1], output_shapes=None,
            )  # fmt: skip
            tests = self._tests.get(data, ())
            self.items.append(Item(identity, (source,), (self.condition(data),), self._control(node), condition, tests))
            source = ir.TensorRef(node.name)
        outcomes, more = self._outcomes(predicate, condition)
        tests = tuple(dict.fromkeys((*self._tests.get(data, ()), *more)))
        for index, side in enumerate(outcomes):
            ref = ir.TensorRef(node.name, index)
            self._tests[ref] = tests
            self._sides[ref] = self.conditions.both(condition, side)
            if ref != source:
                self._alias[ref] = source

    def _source(self, ref: ir.TensorRef) -> tuple[ir.TensorRef, bool]:
        """Returns the tensor that a predicate is copied from, and whether it is its negation."""
        negated = False
        ref = self.resolve(ref)
        node = self._nodes.get(ref.node)
        while node is not None and node.op in ("Identity", "LogicalNot"):
            negated ^= node.op == "LogicalNot"
            ref = self.resolve(node.inputs[0])
            node = self._nodes.get(ref.node)
        return ref, negated

    def _outcomes(self, predicate: ir.TensorRef, condition: int) -> tuple[tuple[int, int], tuple[ir.TensorRef, ...]]:
        """Returns the conditions that a predicate is false, and true, and the predicates to know for that."""
        ref, negated = self._source(predicate)
        node = self._nodes.get(ref.node)
        known = self._number(ref)
        tests: tuple[ir.TensorRef, ...] = ()
        if known is None or known.dtype != np.bool_:
            known = self._assumed.get(ref)
        if known is not None:
            outcomes = (FALSE, TRUE) if known else (TRUE, FALSE)
        elif node is not None and (sides := self._tests_merge(node)) is not None:
            outcomes = sides
            support = self.conditions.support(sides[0]) | self.conditions.support(sides[1])
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
        """Returns what a test for a Merge's value_index says: gradients of gradients of branches hold such tests."""
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
        node = self._nodes.get(self.resolve(ref).node)
        value = None if node is None or node.op != "Const" else node.attrs.get("value")
        return value if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "bi" else None
