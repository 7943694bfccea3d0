"""Consecutive layers of equal form to one node that scans over stacked variables.

``config.scan_layers`` asks for it. The variables of such layers become one variable, with a leading dimension for the
layers, under the name of the first layer's. The layers become a ``_ScanLayers`` node, whose function is a layer.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.calling.params import Variable
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import FunctionLibrary, redirected, with_inputs
from tf2jax_lite.ir.traversal import live_nodes
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.effects import Summaries
from tf2jax_lite.passes.canonicalize.inline_calls import inline_calls
from tf2jax_lite.support.config import Config

_SEEDS = frozenset({"seed", "seed2"})  # of the TensorFlow op; the lowering draws from the caller's key


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace runs of layers by ``_ScanLayers`` nodes, if configured.

    Calls are inlined, as models have layers in functions of their own. Layers with side effects, such as assignments of
    moving statistics, stay.
    """
    if not config.scan_layers:
        return graph
    main = inline_calls(graph).main
    summaries = Summaries(graph.functions, registry.ops_in_force())
    main = dataclasses.replace(main, nodes=live_nodes(main, summaries.effects_in(main)))
    variables = _variables(main, graph.captures)
    found = find_layers(main, _Keys(graph.functions, variables).of_nodes(main, summaries.effects_in(main)), variables)
    if not found:
        return graph
    library = FunctionLibrary([graph.main.name, *graph.functions])
    main = _Rewriter(main, library).rewritten(found)
    stacks = {names[0]: names for layers in found for names in layers.variables}
    graph = dataclasses.replace(graph, main=main, functions={**graph.functions, **library.functions})
    return _with_stacks(graph, stacks)


def _variables(main: ir.Function, captures: Iterable[ir.Capture]) -> dict[str, ir.Variable]:
    """Return the variables that may be stacked, by argument."""
    found = {main.args[c.index].name: c.value for c in captures if isinstance(c.value, ir.Variable)}
    names = [variable.name for variable in found.values()]
    return {
        arg: variable
        for arg, variable in found.items()
        if names.count(variable.name) == 1 and variable.shape is not None and None not in variable.shape
    }


class _Keys:
    """Values that are equal for nodes of equal op, attributes and variables."""

    def __init__(self, functions: Mapping[str, ir.Function], variables: Mapping[str, ir.Variable]):
        self._functions = functions
        self._variables = variables
        self._of_spec: dict[ir.NodeSpec, Hashable] = {}
        self._of_function: dict[str, Hashable] = {}

    def of_nodes(self, main: ir.Function, effects: Collection[str]) -> list[Hashable | None]:
        """Return a key for each node; None for those with effects."""
        return [None if node.name in effects else self._node(node) for node in main.nodes]

    def _node(self, node: ir.Node) -> Hashable:
        if node.op != "ReadVariableOp":
            return self._spec(node)
        variable = self._variables.get(node.inputs[0].node)
        return (self._spec(node), variable and (variable.shape, variable.dtype, variable.trainable))

    def _spec(self, node: ir.Node) -> Hashable:
        key = self._of_spec.get(node.spec)
        if key is None:
            op = registry.lookup(node.op)
            skipped = _SEEDS if op is not None and op.key is not None else ()
            attrs = {k: v for k, v in node.attrs.items() if not k.startswith("_") and k not in skipped}
            key = self._of_spec[node.spec] = (node.op, node.groups, node.output_dtypes, self._value(attrs))
        return key

    def _value(self, value: Any) -> Hashable:
        if isinstance(value, Mapping):
            return tuple((name, self._value(value[name])) for name in sorted(value))
        if isinstance(value, (list, tuple)):
            return tuple(map(self._value, value))
        if isinstance(value, np.ndarray):
            data = tuple(value.ravel().tolist()) if value.dtype == object else value.tobytes()
            return (value.dtype.str, value.shape, data)
        if isinstance(value, ir.FunctionRef):
            return (self._function(value.name), self._value(value.attrs))
        return value

    def _function(self, name: str) -> Hashable:
        """Return a key of a function that does not depend on names."""
        function = self._functions.get(name)
        if function is None:
            return name
        if name not in self._of_function:
            number = {n: i for i, n in enumerate([*(a.name for a in function.args), *(n.name for n in function.nodes)])}

            def locations(refs: Iterable[ir.TensorRef]) -> Hashable:
                return tuple((number[ref.node], ref.index) for ref in refs)

            self._of_function[name] = (
                tuple((arg.dtype, arg.shape) for arg in function.args),
                tuple(
                    (self._spec(n), locations(n.inputs), tuple(number[c] for c in n.control)) for n in function.nodes
                ),
                locations(function.outputs),
                tuple(number[c] for c in function.control_outputs),
            )
        return self._of_function[name]


class _Rewriter:
    """Replaces the layers of a main function."""

    def __init__(self, main: ir.Function, library: FunctionLibrary):
        self._main = main
        self._library = library
        self._taken = {node.name for node in main.nodes} | {arg.name for arg in main.args}
        self._dtypes: dict[ir.TensorRef, ir.DType] = {ir.TensorRef(arg.name): arg.dtype for arg in main.args}
        for node in main.nodes:
            self._dtypes.update((ir.TensorRef(node.name, i), dtype) for i, dtype in enumerate(node.output_dtypes))
        self._moved: dict[ir.TensorRef, ir.TensorRef] = {}
        self._controls: dict[str, str] = {}

    def rewritten(self, found: Iterable[Layers]) -> ir.Function:
        """Return the function with a ``_ScanLayers`` node for each run."""
        nodes: list[ir.Node] = []
        position = 0
        for layers in found:
            nodes += map(self._redirected, self._main.nodes[position : layers.start])
            nodes += map(self._redirected, self._scan(layers))
            position = layers.stop
        nodes += map(self._redirected, self._main.nodes[position:])
        return dataclasses.replace(
            self._main,
            nodes=tuple(nodes),
            outputs=tuple(self._moved.get(ref, ref) for ref in self._main.outputs),
            control_outputs=self._controlled(self._main.control_outputs),
        )

    def _redirected(self, node: ir.Node) -> ir.Node:
        if not self._controls.keys().isdisjoint(node.control):
            node = dataclasses.replace(node, control=self._controlled(node.control))
        return redirected(node, self._moved)

    def _controlled(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._controls.get(name, name) for name in names))

    def _scan(self, layers: Layers) -> list[ir.Node]:
        """Return the nodes that replace a run."""
        run = self._main.nodes[layers.start : layers.stop]
        first, rest = run[: layers.period], len(layers.carry) + len(layers.shared)
        name = ir.free_name("scan_layers", self._taken)
        reads = []
        for i, names in enumerate(layers.variables):
            at = next(at for (at, _), number in layers.operands.items() if number == rest + i)
            read = dataclasses.replace(
                first[at], name=ir.free_name(f"{name}/read", self._taken), control=(), output_shapes=None
            )
            reads.append(with_inputs(read, (ir.TensorRef(names[0]),)))
        outputs = [*(after for _, after in layers.carry), *layers.results]
        body = self._layer(name, first, layers, outputs, reads)
        scan = build.node(
            "_ScanLayers",
            [start for start, _ in layers.carry],
            layers.shared,
            reads,
            name=name,
            control=dict.fromkeys(c for node in run for c in node.control if c not in {n.name for n in run}),
            body=self._library.add(body),
            layers=layers.count,
            dtypes=[self._dtypes[ref] for ref in outputs],
        )
        self._controls.update((node.name, name) for node in run)
        return [*reads, scan, *self._unpacked(name, layers)]

    def _unpacked(self, scan: str, layers: Layers) -> list[ir.Node]:
        """Return the nodes that select layers' results, and redirect readers to them."""
        position = {node.name: i for i, node in enumerate(self._main.nodes[: layers.stop])}

        def of_layer(ref: ir.TensorRef, number: int) -> ir.TensorRef:
            return ref._replace(node=self._main.nodes[position[ref.node] + number * layers.period].name)

        nodes = []
        for i, ref in enumerate(layers.results):
            name = ir.free_name(f"{scan}/unpack", self._taken)
            source = ir.TensorRef(scan, len(layers.carry) + i)
            nodes.append(build.node("Unpack", source, name=name, num=layers.count, T=self._dtypes[ref]))
            self._moved.update((of_layer(ref, k), ir.TensorRef(name, k)) for k in range(layers.count))
        for i, (_, after) in enumerate(layers.carry):
            self._moved[of_layer(after, layers.count - 1)] = ir.TensorRef(scan, i)
        return nodes

    def _layer(
        self, name: str, first: Sequence[ir.Node], layers: Layers, outputs: Sequence[ir.TensorRef], reads: list[ir.Node]
    ) -> ir.Function:
        """Return a layer as a function of carry, shared tensors and variables' values."""
        rest = len(layers.carry) + len(layers.shared)
        taken = {node.name for node in first}
        args = [
            *(ir.Argument(ir.free_name("carry", taken), self._dtypes[start]) for start, _ in layers.carry),
            *(ir.Argument(ir.free_name("shared", taken), self._dtypes[ref]) for ref in layers.shared),
            *(ir.Argument(ir.free_name("variable", taken), read.output_dtypes[0]) for read in reads),
        ]
        values = {
            first[at].name: ir.TensorRef(args[number].name)
            for (at, _), number in layers.operands.items()
            if number >= rest
        }
        inner = {node.name for node in first} - values.keys()
        nodes = []
        for at, node in enumerate(first):
            if node.name in inner:
                inputs = tuple(
                    ir.TensorRef(args[layers.operands[at, i]].name)
                    if (at, i) in layers.operands
                    else values.get(ref.node, ref)
                    for i, ref in enumerate(node.inputs)
                )
                node = with_inputs(node, inputs)
                nodes.append(dataclasses.replace(node, control=tuple(c for c in node.control if c in inner)))
        results = tuple(values.get(ref.node, ref) for ref in outputs)
        return ir.Function(self._library.name(name), tuple(args), tuple(nodes), results)


def _with_stacks(graph: ir.Graph, stacks: Mapping[str, Sequence[str]]) -> ir.Graph:
    """Return the graph with captured variables stacked."""
    # stacks: the argument of a stack, which is the first layer's, to the arguments of the layers.
    captured = {graph.main.args[c.index].name: c.value for c in graph.captures}
    dropped = {name for names in stacks.values() for name in names[1:]}
    args = tuple(arg for arg in graph.main.args if arg.name not in dropped)
    values = {
        **captured,
        **{arg: _stacked([captured[name] for name in names]) for arg, names in stacks.items()},
    }
    captures = tuple(ir.Capture(i, values[arg.name]) for i, arg in enumerate(args) if arg.name in captured)
    main = dataclasses.replace(
        graph.main,
        args=tuple(dataclasses.replace(arg, shape=None) if arg.name in stacks else arg for arg in args),
    )
    return dataclasses.replace(graph, main=main, captures=captures)


def _stacked(variables: Sequence[ir.Variable]) -> ir.Variable:
    values = [variable.value for variable in variables]
    first, value = variables[0], None
    if not any(value is None for value in values):
        value = Variable(np.stack([np.asarray(value) for value in values]), first.trainable, first.name)
    names = tuple(variable.name for variable in variables)
    return dataclasses.replace(first, shape=(len(variables), *(first.shape or ())), value=value, layers=names)


_MAX_PERIODS = 200  # a model has one period per kind of layer, and a few for its parts


@dataclasses.dataclass(frozen=True)
class Layers:
    """A run of layers.

    Attributes:
      start: the position of its first node.
      carry: for each tensor that a layer passes to the next: the first layer's operand, and the tensor of the first
        layer that is the second layer's.
      shared: the tensors from before the run that all layers read.
      variables: for each variable of the first layer, the arguments with the layers' variables.
      operands: for each input of a node of the first layer that comes from outside of it, given by the node's position
        in the layer and the input's: the element of ``carry``, ``shared`` or ``variables``, numbered through.
      results: tensors of the first layer; those that correspond to them are read after the run, in addition to the last
        layer's carry.
    """

    start: int
    period: int
    count: int
    carry: tuple[tuple[ir.TensorRef, ir.TensorRef], ...]
    shared: tuple[ir.TensorRef, ...]
    variables: tuple[tuple[str, ...], ...]
    operands: Mapping[tuple[int, int], int]
    results: tuple[ir.TensorRef, ...]

    @property
    def stop(self) -> int:
        """The position behind its last node."""
        return self.start + self.period * self.count


def find_layers(function: ir.Function, keys: Sequence[Hashable | None], variables: Collection[str]) -> list[Layers]:
    """Return runs of layers that do not overlap, by position; long ones are preferred.

    Args:
      keys: for each node a value that is equal for nodes of the same op, attributes and operand types; None for one
        that no run may hold.
    """
    return _Finder(function, keys, variables).found()


class _Finder:
    def __init__(self, function: ir.Function, keys: Sequence[Hashable | None], variables: Collection[str]) -> None:
        self._nodes = function.nodes
        self._outputs = function.outputs
        self._variables = variables
        self._position = {node.name: i for i, node in enumerate(self._nodes)}
        self._readers: dict[str, list[int]] = collections.defaultdict(list)
        for i, node in enumerate(self._nodes):
            for ref in node.inputs:
                self._readers[ref.node].append(i)
        for ref in function.outputs:
            self._readers[ref.node].append(len(self._nodes))
        numbers: dict[Hashable, int] = {}
        self._keys = np.empty(len(keys), np.int64)
        for i, key in enumerate(keys):
            self._keys[i] = -1 - i if key is None else numbers.setdefault(key, len(numbers))

    def found(self) -> list[Layers]:
        """See `find_layers`."""
        runs = [(start, stop, period) for period in self._periods() for start, stop in self._runs(period)]
        taken = np.zeros(len(self._nodes), bool)
        found = []
        for start, stop, period in sorted(runs, key=lambda run: (run[0] - run[1], run[2])):
            if not taken[start:stop].any() and (layers := self._layers(start, stop, period)) is not None:
                taken[layers.start : layers.stop] = True
                found.append(layers)
        return sorted(found, key=lambda layers: layers.start)

    def _periods(self) -> list[int]:
        """Return the most frequent distances between equal nodes."""
        last: dict[int, int] = {}
        counts: collections.Counter[int] = collections.Counter()
        for i, key in enumerate(self._keys.tolist()):
            if key in last:
                counts[i - last[key]] += 1
            last[key] = i
        return [period for period, _ in counts.most_common(_MAX_PERIODS)]

    def _runs(self, period: int) -> list[tuple[int, int]]:
        """Return ranges of at least two periods where nodes repeat."""
        equal = np.concatenate([[False], self._keys[period:] == self._keys[:-period], [False]])
        edges = np.flatnonzero(equal[1:] != equal[:-1]).reshape(-1, 2)
        return [(start, stop + period) for start, stop in edges.tolist() if stop - start >= period]

    def _layers(self, start: int, stop: int, period: int) -> Layers | None:
        """Return the layers of a range that repeats; None if their operands differ."""
        # A layer may begin at any node. Fewest tensors pass from layer to layer at the residual connection.
        crossing = self._crossing(start, stop)
        begins = sorted(range(min(period, stop - start - 2 * period + 1)), key=lambda o: (crossing[o + period], o))
        for begin in begins[:4]:
            first = start + begin
            count = (stop - first) // period
            # The first layer may read other tensors than the following ones, and the last one may be read otherwise.
            for skip, drop in ((0, 0), (1, 0), (0, 1), (1, 1)):
                layers = self._checked(first + skip * period, period, count - skip - drop)
                if layers is not None:
                    return layers
        return None

    def _crossing(self, start: int, stop: int) -> list[int]:
        """Return how many nodes of a range before each position are read behind it."""
        changes = [0] * (stop - start + 2)
        for i in range(start, stop):
            last = max(self._readers[self._nodes[i].name], default=i)
            changes[i - start + 1] += 1
            changes[min(last, stop) - start + 1] -= 1
        return np.cumsum(changes).tolist()

    def _checked(self, start: int, period: int, count: int) -> Layers | None:
        """Return the layers of a range; None if corresponding operands differ."""
        if count < 2:
            return None
        stop = start + period * count
        carry: dict[tuple[ir.TensorRef, ir.TensorRef], None] = {}
        shared: dict[ir.TensorRef, None] = {}
        variables: dict[tuple[str, ...], None] = {}
        operands: dict[tuple[int, int], Any] = {}

        def location(ref: ir.TensorRef) -> tuple[int, int, int] | None:
            """Return the layer, the position in it and the index; None outside."""
            position = self._position.get(ref.node, -1)
            return (*divmod(position - start, period), ref.index) if start <= position < stop else None

        def are_of(refs: Sequence[ir.TensorRef]) -> bool:
            locations = [location(ref) for ref in refs]
            return locations[0] is not None and locations == [(k, *locations[0][1:]) for k in range(len(locations))]

        layers = [self._nodes[start + k * period : start + (k + 1) * period] for k in range(count)]
        for at, same in enumerate(zip(*layers, strict=True)):
            for i, refs in enumerate(zip(*[node.inputs for node in same], strict=True)):
                if are_of(refs):
                    continue
                if location(refs[0]) is not None:
                    return None
                operand: Any
                if are_of(refs[1:]) and self._is_array(refs[1]):
                    found, operand = carry, (refs[0], refs[1])
                elif len(set(refs)) == 1:
                    found, operand = shared, refs[0]
                elif same[0].op == "ReadVariableOp" and all(ref.node in self._variables for ref in refs):
                    found, operand = variables, tuple(ref.node for ref in refs)
                else:
                    return None
                found[operand] = None
                operands[at, i] = operand
        if not carry or not self._are_separate(variables, start, period):
            return None
        results: dict[ir.TensorRef, None] = {}
        last = {ir.TensorRef(layers[-1][self._position[after.node] - start].name, after.index) for _, after in carry}
        for ref in self._read_behind(start, stop):
            if ref not in last:
                node = layers[0][(self._position[ref.node] - start) % period]
                results[ir.TensorRef(node.name, ref.index)] = None
        if not all(map(self._is_array, results)):
            return None
        number = {operand: i for i, operand in enumerate((*carry, *shared, *variables))}
        numbered = {location: number[operand] for location, operand in operands.items()}
        return Layers(start, period, count, tuple(carry), tuple(shared), tuple(variables), numbered, tuple(results))

    def _is_array(self, ref: ir.TensorRef) -> bool:
        """Return whether a node's result has a numeric dtype."""
        dtypes = self._nodes[self._position[ref.node]].output_dtypes
        return ref.index < len(dtypes) and isinstance(dtypes[ref.index], np.dtype)

    def _are_separate(self, variables: Collection[tuple[str, ...]], start: int, period: int) -> bool:
        """Return whether each variable is one layer's, which alone reads it."""
        names = [name for layers in variables for name in layers]
        return 0 < len(names) == len(set(names)) and all(
            (i - start) // period == k and self._nodes[i].op == "ReadVariableOp"
            for layers in variables
            for k, name in enumerate(layers)
            for i in self._readers[name]
            if i < len(self._nodes)
        )

    def _read_behind(self, start: int, stop: int) -> dict[ir.TensorRef, None]:
        """Return the tensors of a range that are read behind it."""
        read = [ref for node in self._nodes[stop:] for ref in node.inputs] + list(self._outputs)
        return {ref: None for ref in read if start <= self._position.get(ref.node, -1) < stop}
