"""`tf.repeat` with data-dependent counts to one node.

The length of the node comes from the tensors that its result meets.

TensorFlow expands `tf.repeat` to a mask over the values tiled to the largest count, whose size is not static. Ragged
tensors compute row ids with it: a sum over each row is a segment sum of values whose number is static.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import constant_value, producer
from tf2jax_lite.support.config import Config

_IDIOM = frozenset({"GatherV2", "Where", "Less", "Range", "Tile"})
_TRANSPARENT = ("Identity", "Cast")
# Results are as long along the first axis as the longer operand, and as the other unless that has length 1 there.
_ELEMENTWISE = frozenset(
    """
    Add AddV2 Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv FloorMod TruncateDiv Maximum Minimum Pow SquaredDifference
    Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr
    """.split()  # noqa: SIM905
)
_SEGMENTED = ("UnsortedSegment", "Segment")
_MAX_SOURCES = 4  # tensors that determine the length; the others are redundant


def run(graph: ir.Graph, config: Config) -> ir.Graph:
    """Replace each such idiom by a ``_Repeat`` node."""
    del config
    return graph.mapped(_function) if graph.ops.issuperset(_IDIOM) else graph


def _function(function: ir.Function) -> ir.Function:
    if not function.ops.issuperset(_IDIOM):
        return function
    idioms = _Idioms(function)
    found = {node.name: parts for node in function.nodes if (parts := idioms.parts(node)) is not None}
    if not found:
        return function
    consumers = _Consumers(function, found)
    before: dict[int, list[ir.Node]] = {}
    for name, (data, counts) in found.items():
        # As late as possible, so that more tensors that determine the length come before it.
        position = consumers.first(name)
        node = idioms.nodes[name]
        likes, pairs = consumers.lengths(name, data, position)
        repeat = build.node(
            "_Repeat",
            data,
            counts,
            likes,
            pairs,
            name=name,
            control=node.control,
            location=node.location,
            Tparams=node.output_dtypes[0],
        )
        before.setdefault(position, []).append(repeat)
    out: list[ir.Node] = []
    for position, node in enumerate((*function.nodes, None)):
        out += before.get(position, [])
        if node is not None and node.name not in found:
            out.append(node)
    return dataclasses.replace(function, nodes=tuple(out))


class _Idioms:
    """Finds the idiom in a function."""

    def __init__(self, function: ir.Function):
        self.nodes: Mapping[str, ir.Node] = {node.name: node for node in function.nodes}

    def _made(self, ref: ir.TensorRef, *ops: str) -> ir.Node | None:
        """Return the node that computes a tensor if it is one of these ops."""
        node = producer(ref, self.nodes)
        return node if node is not None and node.op in ops else None

    def _number(self, ref: ir.TensorRef) -> int | None:
        value = constant_value(ref, self.nodes)
        return int(value.reshape(())) if value is not None and value.size == 1 and value.dtype.kind in "iu" else None

    def _through(self, ref: ir.TensorRef, op: str, operands: int = 1) -> tuple[ir.TensorRef, ...] | None:
        node = self._made(ref, op)
        return node.inputs if node is not None and len(node.inputs) >= operands else None

    def parts(self, node: ir.Node) -> tuple[ir.TensorRef, ir.TensorRef] | None:
        """Return the values and counts if a gather is the last node of the idiom."""
        if node.op != "GatherV2" or self._number(node.inputs[2]) != 0 or node.attrs.get("batch_dims", 0) != 0:
            return None
        masked = self._mask(node.inputs[1])
        flat = self._through(node.inputs[0], "Reshape", 2)
        tiled = self._through(flat[0], "Tile", 2) if flat else None
        expanded = self._through(tiled[0], "ExpandDims", 2) if tiled else None
        if masked is None or expanded is None or tiled is None:
            return None
        counts, largest = masked
        axis = self._number(expanded[1])
        multiples = self._made(tiled[1], "Pack")
        if multiples is None or axis is None or not 0 <= axis < len(multiples.inputs):
            return None
        others = [self._number(ref) for i, ref in enumerate(multiples.inputs) if i != axis]
        if multiples.inputs[axis] != largest or any(number != 1 for number in others):
            return None
        return expanded[0], counts

    def _mask(self, ref: ir.TensorRef) -> tuple[ir.TensorRef, ir.TensorRef] | None:
        """Return counts and maximum, for the indices of a mask ``range(max) < counts``."""
        squeezed = self._made(ref, "Squeeze")
        if squeezed is None or list(squeezed.attrs.get("squeeze_dims", ())) not in ([1], [-1]):
            return None
        where = self._through(squeezed.inputs[0], "Where")
        flat = self._through(where[0], "Reshape", 2) if where else None
        below = self._through(flat[0], "Less", 2) if flat and self._number(flat[1]) == -1 else None
        if below is None:
            return None
        positions = self._through(below[0], "Range", 3)
        column = self._made(below[1], *_TRANSPARENT, "ExpandDims")
        while column is not None and column.op == "Cast":
            column = self._made(column.inputs[0], *_TRANSPARENT, "ExpandDims")
        if positions is None or column is None or self._number(column.inputs[1]) != -1:
            return None
        if self._number(positions[0]) != 0 or self._number(positions[2]) != 1:
            return None
        counts = column.inputs[0]
        return (counts, positions[1]) if self._is_largest(positions[1], counts) else None

    def _is_largest(self, ref: ir.TensorRef, counts: ir.TensorRef) -> bool:
        """Return whether a tensor is ``maximum(0, reduce_max(counts))``."""
        clamped = self._through(ref, "Maximum", 2)
        if clamped is None or 0 not in map(self._number, clamped):
            return False
        largest = clamped[1] if self._number(clamped[0]) == 0 else clamped[0]
        reduced = self._through(largest, "Max", 2)
        return reduced is not None and reduced[0] == counts


class _Consumers:
    """The users of the tensors of a function.

    Args:
      function: the function.
      late: names of nodes that are to move right before their first user.
    """

    def __init__(self, function: ir.Function, late: Iterable[str]):
        self._nodes = function.nodes
        self._positions = {node.name: i for i, node in enumerate(function.nodes)}
        self._readers: dict[str, list[int]] = {}
        for i, node in enumerate(function.nodes):
            for name in {*(ref.node for ref in node.inputs), *node.control}:
                self._readers.setdefault(name, []).append(i)
        self._positions |= {name: self.first(name) for name in late}

    def first(self, name: str) -> int:
        """Return the position of the first node that waits for this one."""
        return min(self._readers.get(name, ()), default=len(self._nodes))

    def _read(self, ref: ir.TensorRef) -> Iterator[tuple[ir.Node, int]]:
        """Yield a tensor's users and their inputs' indices, behind shape-preserving ops."""
        pending = [ref]
        while pending:
            ref = pending.pop()
            for i in self._readers.get(ref.node, ()):
                node = self._nodes[i]
                if node.op in _TRANSPARENT:
                    pending.append(ir.TensorRef(node.name))
                else:
                    yield from ((node, k) for k, own in enumerate(node.inputs) if own == ref)

    def lengths(self, name: str, data: ir.TensorRef, position: int) -> tuple[list[ir.TensorRef], list[ir.TensorRef]]:
        """Return tensors before ``position`` that determine the length of a node's result.

        Returns:
          Tensors that have the same length; and, flat, pairs of which the first has it if both have the same rank and
          its length is not 1, as it is combined with the elements that the result gathers from the second.
        """
        likes: list[ir.TensorRef] = []
        pairs: list[ir.TensorRef] = []
        result = ir.TensorRef(name)
        for node, own in self._read(result):
            if node.op.startswith(_SEGMENTED) and own < 2:
                likes.append(node.inputs[1 - own])
            elif node.op in _ELEMENTWISE:
                pairs += (node.inputs[1 - own], data)
            elif node.op == "GatherV2" and own == 1 and not node.attrs.get("batch_dims", 0):
                for user, index in self._read(ir.TensorRef(node.name)):
                    if user.op in _ELEMENTWISE:
                        pairs += (user.inputs[1 - index], node.inputs[0])
        before = [self._is_before(ref, position) for ref in pairs]
        chosen = [i for i in range(0, len(pairs), 2) if before[i] and before[i + 1]][:_MAX_SOURCES]
        likes = [ref for ref in likes if self._is_before(ref, position)][:_MAX_SOURCES]
        return likes, [ref for i in chosen for ref in pairs[i : i + 2]]

    def _is_before(self, ref: ir.TensorRef, position: int) -> bool:
        return self._positions.get(ref.node, -1) < position
