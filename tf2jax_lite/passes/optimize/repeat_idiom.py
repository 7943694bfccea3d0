"""`tf.repeat` with data-dependent counts to one node.

The length of the node comes from the tensors that its result meets.

TensorFlow expands `tf.repeat` to a mask over the values tiled to the largest count, whose size is not static. Ragged
tensors compute row ids with it: a sum over each row is a segment sum of values whose number is static.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.traversal import Nodes
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.patterns import match, op

_IDIOM = frozenset({"GatherV2", "Where", "Less", "Range", "Tile"})
_TRANSPARENT = ("Identity", "Cast")
# Results are as long along the first axis as the longer operand, and as the other unless that has length 1 there.
_ELEMENTWISE = frozenset(
    """
    Add AddV2 Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv FloorMod TruncateDiv Maximum Minimum Pow SquaredDifference
    Less LessEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr
    """.split()  # noqa: SIM905
)
_LARGEST = op("Maximum", 0, op("Max", "counts", ...), commutes=True, name="largest")
_MASK = op("Less", op("Range", 0, _LARGEST, 1), op("ExpandDims", "counts", -1, through=["Cast"]))  # range(max) < counts
_INDICES = op(
    "Squeeze",
    op("Where", op("Reshape", _MASK, -1)),
    where=lambda node: list(node.attrs.get("squeeze_dims", ())) in ([1], [-1]),
)
_TILED = op("Tile", op("ExpandDims", "data", "axis"), op("Pack", name="multiples"))
_REPEAT = op(
    "GatherV2", op("Reshape", _TILED, ...), _INDICES, 0, where=lambda node: node.attrs.get("batch_dims", 0) == 0
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
    nodes = Nodes(function)
    found = {node.name: parts for node in function.nodes if (parts := _parts(node, nodes)) is not None}
    if not found:
        return function
    consumers = _Consumers(function, found)
    before: dict[int, list[ir.Node]] = {}
    for name, (data, counts) in found.items():
        # As late as possible, so that more tensors that determine the length come before it.
        position = consumers.first(name)
        node = nodes.by_name[name]
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


def _parts(node: ir.Node, nodes: Nodes) -> tuple[ir.TensorRef, ir.TensorRef] | None:
    """Return the values and counts if a gather is the last node of the idiom."""
    found = match(_REPEAT, node, nodes)
    if found is None:
        return None
    axis, multiples = nodes.number(found.values["axis"]), found.operations["multiples"].inputs
    if axis is None or not 0 <= axis < len(multiples) or multiples[axis] != found.values["largest"]:
        return None
    if any(nodes.number(ref) != 1 for i, ref in enumerate(multiples) if i != axis):
        return None
    return found.values["data"], found.values["counts"]


class _Consumers:
    """The users of the tensors of a function.

    Args:
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
