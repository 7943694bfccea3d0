"""Switches and Merges of an acyclic function to If nodes.

Every node runs under a condition (`node_conditions`). Nodes whose condition tests the same predicate first go into
the two branches of an If on it, and recursively inside, where that predicate is known. A graph may test one predicate
several times, each test depending on results of the one before, so nodes have a *level*, which increases where a value
leaves the branches of its predicate. Nodes with the same predicate and level, a *region*, form one If. A result that
only the other branch computes is ``_Undefined``; no live node reads it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Container, Iterable, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import FunctionLibrary, constant, redirected
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError

from .node_conditions import ALWAYS, FALSE, TRUE, Item, Liveness, find_liveness

_Region = tuple[int, int]
"""The level and the predicate of an If."""


def function_of(
    library: FunctionLibrary,
    name: str,
    args: Sequence[ir.Argument],
    nodes: Sequence[ir.Node],
    outputs: Sequence[ir.TensorRef],
    *,
    role: str,
    control_outputs: Sequence[str] = (),
    attributes: ir.Function | None = None,
    constant: Container[str] = (),
) -> ir.Function:
    """Return a function of ``nodes`` with If nodes in place of Switch and Merge.

    Args:
      nodes: its nodes, in topological order, without cycles.
      control_outputs: names of nodes that must run although no node reads them; if there are none, all sinks.
      constant: of a loop's function, the arguments that are the same in all iterations. What the next iteration
        needs may be alive under a condition on these: the loop as a whole then runs under it.
    """
    if any(node.op in ("Switch", "Merge") for node in nodes):
        live = find_liveness(name, nodes)
        total = functools.reduce(live.conditions.both, map(live.condition, outputs), TRUE)
        literals = live.literals(total)
        if literals and all(ref.node in constant for ref in literals):
            live = find_liveness(name, nodes, literals)
        for ref in outputs:
            if live.condition(ref) != TRUE:
                raise UnsupportedError(
                    f"{role} {ref} in {name!r} is alive only under a condition (on {live.describe(live.condition(ref))}"
                    "), and no Merge joins it with the value of the other branch. Fetch the Merge, or a tensor before "
                    "the Switch."
                )
        builder = _Builder(live, library, {arg.name: arg.dtype for arg in args}, nodes)
        outputs = [live.resolve(ref) for ref in outputs]
        context = builder.build(live.items, outputs)
        outputs = [context.refs.get(ref, ref) for ref in outputs]
        control_outputs = list(dict.fromkeys(n for c in control_outputs for n in context.names.get(c, ())))
        nodes = context.nodes
    if attributes is not None:
        return dataclasses.replace(
            attributes, nodes=tuple(nodes), outputs=tuple(outputs), control_outputs=tuple(control_outputs)
        )
    return ir.Function(name, tuple(args), tuple(nodes), tuple(outputs), control_outputs=sinks(nodes))


def sinks(nodes: Iterable[ir.Node]) -> tuple[str, ...]:
    """Return the names of nodes that no other node waits for."""
    nodes = list(nodes)
    used = {name for node in nodes for name in (*(ref.node for ref in node.inputs), *node.control)}
    return tuple(node.name for node in nodes if node.name not in used)


@dataclasses.dataclass(slots=True)
class _Context:
    """A function body under construction.

    Attributes:
      refs: the new tensor of each value that moved into a branch.
      names: for each item, the names of the nodes to wait for in order to wait for it.
      outside: names of items of outer bodies that must have run before.
    """

    nodes: list[ir.Node] = dataclasses.field(default_factory=list)
    refs: dict[ir.TensorRef, ir.TensorRef] = dataclasses.field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    outside: dict[str, None] = dataclasses.field(default_factory=dict)


class _Builder:
    def __init__(self, live: Liveness, library: FunctionLibrary, args: dict[str, ir.DType], nodes: Sequence[ir.Node]):
        self._live = live
        self._conditions = live.conditions
        self._library = library
        self._dtypes: dict[ir.TensorRef, ir.DType] = {ir.TensorRef(name): dtype for name, dtype in args.items()}
        for node in nodes:
            for index, dtype in enumerate(node.output_dtypes):
                self._dtypes[ir.TensorRef(node.name, index)] = dtype
        self._names = {*args, *(node.name for node in nodes)}

    def build(self, items: Sequence[Item], needed: Sequence[ir.TensorRef]) -> _Context:
        """Return a body of ``items``; ``needed`` are its values that are read outside."""
        own = {item.node.name: index for index, item in enumerate(items)}
        sources = [self._sources(item, own) for item in items]
        regions = self._regions(items, sources)
        groups: dict[_Region, list[int]] = {}
        for index, region in enumerate(regions):
            groups.setdefault(region, []).append(index)
        exported = self._exported(items, own, regions, needed)
        context = _Context()
        for region in sorted(groups, key=lambda region: (region[0], -region[1])):
            members = [items[index] for index in groups[region]]
            if region[1] == ALWAYS:
                for item in members:
                    self._emit(item, context, own)
            else:
                self._branches(region[1], members, exported.get(region, {}), context, own)
        return context

    def _sources(self, item: Item, own: dict[str, int]) -> list[int]:
        names = dict.fromkeys([*(ref.node for ref in (*item.inputs, *item.tests)), *item.control])
        return [own[name] for name in names if name in own]

    def _variable(self, item: Item) -> int:
        """Return the predicate whose branches an item moves to."""
        # A Merge moves with its inputs.
        if item.is_merge:
            return min(self._conditions.first(c) for c in item.conditions if c != FALSE)
        return self._conditions.first(item.condition)

    def _regions(self, items: Sequence[Item], sources: Sequence[Sequence[int]]) -> list[_Region]:
        """Return the level and predicate of each item."""
        # Edges between regions increase (level, -predicate).
        variables = [self._variable(item) for item in items]
        levels = [0] * len(items)
        latest = [-1] * len(items)
        for index, befores in enumerate(sources):
            for before in befores:
                levels[index] = max(levels[index], levels[before] + (variables[index] > variables[before]))
        # Move conditional items as late as possible: values computed in the region of their users need not leave it.
        for index in reversed(range(len(items))):
            if variables[index] != ALWAYS and latest[index] > levels[index]:
                levels[index] = latest[index]
            for before in sources[index]:
                level = levels[index] - (variables[index] > variables[before])
                latest[before] = level if latest[before] < 0 else min(latest[before], level)
        return list(zip(levels, variables, strict=True))

    def _exported(
        self, items: Sequence[Item], own: dict[str, int], regions: Sequence[_Region], needed: Iterable[ir.TensorRef]
    ) -> dict[_Region, dict[ir.TensorRef, None]]:
        """Return the tensors of each region that are read outside of it."""
        exported: dict[_Region, dict[ir.TensorRef, None]] = {}
        for index, item in enumerate(items):
            for ref in item.inputs:
                source = own.get(ref.node)
                if source is not None and regions[source] != regions[index]:
                    exported.setdefault(regions[source], {})[ref] = None
        for ref in needed:
            if ref.node in own:
                exported.setdefault(regions[own[ref.node]], {})[ref] = None
        # Every If on a predicate reads it: also nested ones, and later ones on the same predicate.
        tested: dict[tuple[_Region, int], None] = {}
        for index, item in enumerate(items):
            if regions[index][1] != ALWAYS:
                tested.update(((regions[index], c), None) for c in (item.condition, *item.conditions))
        for region, condition in tested:
            for variable in self._conditions.support(condition):
                ref = self._live.predicates[variable]
                source = own.get(ref.node)
                if source is not None and regions[source] != region:
                    exported.setdefault(regions[source], {})[ref] = None
        return exported

    def _emit(self, item: Item, context: _Context, own: dict[str, int]) -> None:
        node = item.node
        control = self._control(item.control, context, own)
        inputs = item.inputs
        if item.is_merge:
            alive = [index for index, c in enumerate(item.conditions) if c != FALSE]
            (position,) = alive
            inputs = (item.inputs[position],)
            index = ir.TensorRef(node.name, 1)
            name = ir.free_name(f"{node.name}/value_index", self._names)
            context.nodes.append(constant(name, np.int32(position)))
            context.refs[index] = ir.TensorRef(name)
            node = build.node("Identity", *inputs, T=node.output_dtypes[0], like=node)
        inputs = tuple(context.refs.get(ref, ref) for ref in inputs)
        context.nodes.append(dataclasses.replace(node, inputs=inputs, control=control))
        context.names[node.name] = (node.name,)

    def _control(self, names: Iterable[str], context: _Context, own: dict[str, int]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for name in names:
            if name in own:
                found.update(dict.fromkeys(context.names[name]))
            else:
                context.outside[name] = None
        return tuple(found)

    def _branches(
        self,
        variable: int,
        members: Sequence[Item],
        exported: dict[ir.TensorRef, None],
        context: _Context,
        own: dict[str, int],
    ) -> None:
        predicate = self._live.predicates[variable]
        merges = [item.node.name for item in members if item.is_merge]
        name = ir.free_name(f"{(merges or [members[0].node.name])[0]}/If", self._names)
        results = list(exported)
        bodies = []
        for value in (True, False):
            chosen = self._restricted(members, variable, value)
            present = {item.node.name for item in chosen}
            bodies.append((self.build(chosen, [ref for ref in results if ref.node in present]), present))
        inputs: dict[ir.TensorRef, None] = {}
        for body, _ in bodies:
            made = {node.name for node in body.nodes}
            for node in body.nodes:
                inputs.update((ref, None) for ref in node.inputs if ref.node not in made)
        args = [ir.Argument(str(ref), self._dtype(ref, name)) for ref in inputs]
        moved = {ref: ir.TensorRef(str(ref)) for ref in inputs}
        refs = []
        outside: dict[str, None] = {}
        for (body, present), branch in zip(bodies, ("then", "else"), strict=True):
            refs.append(self._library.add(self._function(f"{name}/{branch}", args, moved, body, present, results)))
            outside.update(body.outside)
        # A Merge may wait for a node that is dead in one of the branches: choosing the branch satisfies it.
        waits = outside.keys() - {item.node.name for item in members}
        control = self._control((name for name in outside if name in waits), context, own)
        context.nodes.append(
            build.node(
                "If",
                context.refs.get(predicate, predicate),
                [context.refs.get(ref, ref) for ref in inputs],
                name=name,
                control=control,
                then_branch=refs[0],
                else_branch=refs[1],
                dtypes=[self._dtype(ref, name) for ref in results],
            )
        )
        for index, ref in enumerate(results):
            context.refs[ref] = ir.TensorRef(name, index)
            self._dtypes[context.refs[ref]] = self._dtypes[ref]
        for item in members:
            context.names[item.node.name] = (name,)

    def _dtype(self, ref: ir.TensorRef, where: str) -> ir.DType:
        if ref not in self._dtypes:
            raise InvalidModelError(f"{where!r} takes {ref}, which no node computes where it runs.")
        return self._dtypes[ref]

    def _restricted(self, members: Sequence[Item], variable: int, value: bool) -> list[Item]:
        def given(condition: int) -> int:
            return self._conditions.given(condition, variable, value)

        chosen = []
        for item in members:
            condition = given(item.condition)
            if condition != FALSE:
                chosen.append(
                    dataclasses.replace(item, condition=condition, conditions=tuple(map(given, item.conditions)))
                )
        return chosen

    def _function(
        self,
        wanted: str,
        args: Sequence[ir.Argument],
        moved: dict[ir.TensorRef, ir.TensorRef],
        body: _Context,
        present: set[str],
        results: Sequence[ir.TensorRef],
    ) -> ir.Function:
        nodes = [redirected(node, moved) for node in body.nodes]
        outputs = []
        for ref in results:
            if ref.node in present:
                current = body.refs.get(ref, ref)
                outputs.append(moved.get(current, current))
                continue
            name = ir.free_name(f"{ref.node}/undefined_{ref.index}", self._names)
            nodes.append(build.node("_Undefined", name=name, dtype=self._dtypes[ref]))
            outputs.append(ir.TensorRef(name))
        function = self._library.name(wanted)
        return ir.Function(function, tuple(args), tuple(nodes), tuple(outputs), control_outputs=sinks(nodes))
