"""Find layers of equal form that follow one another in a function.

A run of layers is a sequence of nodes that consists of equal parts. Corresponding nodes have the same op, attributes
and constants; they read the same tensor, corresponding tensors of their own layer or of the layer before, or variables
of equal shape and dtype.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir

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

        def are_of(refs: Sequence[ir.TensorRef], first: int) -> bool:
            locations = [location(ref) for ref in refs]
            return locations[0] is not None and locations == [
                (first + k, *locations[0][1:]) for k in range(len(locations))
            ]

        layers = [self._nodes[start + k * period : start + (k + 1) * period] for k in range(count)]
        for at, same in enumerate(zip(*layers, strict=True)):
            for i, refs in enumerate(zip(*[node.inputs for node in same], strict=True)):
                if are_of(refs, 0):
                    continue
                if location(refs[0]) is not None:
                    return None
                operand: Any
                if are_of(refs[1:], 0) and self._is_array(refs[1]):
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
