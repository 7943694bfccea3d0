"""SwitchN lowering: ``_SwitchN`` to a balanced tree of Switches.

TensorFlow lowers Case to ``_SwitchN`` on the branch index, also in graphs that ``convert_variables_to_constants_v2``
froze. Output i is alive if the index is i; the last one also if the index is negative or too large (``SwitchNOp`` in
TensorFlow's ``core/kernels/control_flow_ops.cc``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir import build
from tf2jax_lite.ir.build import constant, redirected
from tf2jax_lite.support.errors import InvalidModelError

OP = "_SwitchN"


def with_binary_switches(
    function: str, nodes: Sequence[ir.Node], outputs: Iterable[ir.TensorRef], taken: Iterable[str]
) -> tuple[list[ir.Node], tuple[ir.TensorRef, ...]]:
    """Return a function's nodes and outputs with Switch in place of ``_SwitchN``."""
    if not any(node.op == OP for node in nodes):
        return list(nodes), tuple(outputs)
    rewriting = _Rewriting({*taken, *(node.name for node in nodes)}, {node.name for node in nodes})
    moved: dict[ir.TensorRef, ir.TensorRef] = {}
    for node in nodes:
        if node.op == OP:
            moved.update(rewriting.named(function, node))
    made: list[ir.Node] = []
    for node in nodes:
        node = redirected(node, moved)
        made.extend(rewriting.rewritten(node) if node.op == OP else [node])
    return made, tuple(moved.get(ref, ref) for ref in outputs)


class _Halving(NamedTuple):
    """A Switch: outputs below ``middle`` are behind its true output."""

    name: str
    source: ir.TensorRef
    middle: int


class _Rewriting:
    """Builder of the Switches.

    Switches on the same index share predicates, so that liveness conditions agree.
    """

    def __init__(self, taken: set[str], nodes: set[str]):
        self._taken = taken
        self._nodes = nodes
        self._switches: dict[str, list[_Halving]] = {}
        self._unsigned: dict[ir.TensorRef, ir.TensorRef] = {}
        self._predicates: dict[tuple[ir.TensorRef, int], ir.TensorRef] = {}

    def named(self, function: str, node: ir.Node) -> dict[ir.TensorRef, ir.TensorRef]:
        """Name the Switches of a ``_SwitchN``; return the replacements of its outputs.

        The first keeps the name, so that control edges from the node remain valid.
        """
        count = len(node.output_dtypes)
        if count == 0:
            raise InvalidModelError(f"node {node.name!r} ({OP}) in {function!r} has no output.")
        switches = self._switches[node.name] = []
        moved: dict[ir.TensorRef, ir.TensorRef] = {}
        parts = [(0, count, ir.TensorRef(node.name))]
        while parts:
            low, high, source = parts.pop()
            if high - low == 1:
                moved[ir.TensorRef(node.name, low)] = source
                continue
            name = node.name if not switches else ir.free_name(f"{node.name}/sides_{low}_to_{high - 1}", self._taken)
            middle = (low + high) // 2
            switches.append(_Halving(name, source, middle))
            parts += [(low, middle, ir.TensorRef(name, 1)), (middle, high, ir.TensorRef(name, 0))]
        return moved if switches else {}

    def rewritten(self, node: ir.Node) -> list[ir.Node]:
        """Return the Switches and their new predicates, for a node with redirected inputs."""
        value, index = node.inputs
        dtypes = node.output_dtypes
        if len(dtypes) == 1:
            return [build.node("Identity", value, T=dtypes[0], like=node)]
        made: list[ir.Node] = []
        for position, halving in enumerate(self._switches[node.name]):
            source = halving.source if position else value
            predicate = self._predicate(index, halving.middle, made)
            made.append(build.node("Switch", source, predicate, T=dtypes[0], name=halving.name, like=node))
        return made

    def _predicate(self, index: ir.TensorRef, middle: int, made: list[ir.Node]) -> ir.TensorRef:
        found = self._predicates.get((index, middle))
        if found is not None:
            return found
        where = str(index).replace(":", "_")
        unsigned = np.dtype(np.uint32)  # as which a negative index is too large
        if index not in self._unsigned:
            name = ir.free_name(f"{where}/unsigned", self._taken)
            bits = build.node("Bitcast", index, name=name, T=np.dtype(np.int32), type=unsigned)
            made.append(bits)
            self._unsigned[index] = ir.TensorRef(bits.name)
        # The control edge puts the constant in the frame of the index, as TensorFlow does in loops.
        control = (index.node,) if index.node in self._nodes else ()
        limit = constant(ir.free_name(f"{where}/limit_{middle}", self._taken), np.uint32(middle), control)
        name = ir.free_name(f"{where}/is_below_{middle}", self._taken)
        test = build.node("Less", self._unsigned[index], limit, name=name, T=unsigned)
        made.extend((limit, test))
        self._predicates[index, middle] = ir.TensorRef(test.name)
        return ir.TensorRef(test.name)
