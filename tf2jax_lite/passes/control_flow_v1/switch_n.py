"""A Switch with many sides (``_SwitchN``) as a tree of Switches with two, as deep as the logarithm of their number.

TensorFlow lowers Case to ``_SwitchN`` on the branch's number, and so do graphs that
``convert_variables_to_constants_v2`` froze. Side i is alive where the number is i, the last one also where it is below
zero or beyond the last side (``SwitchNOp`` in TensorFlow's ``core/kernels/control_flow_ops.cc``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError

__all__ = ["OP", "with_two_sides"]

OP = "_SwitchN"


def with_two_sides(
    function: str, nodes: Sequence[ir.Node], outputs: Iterable[ir.TensorRef], taken: Iterable[str]
) -> tuple[list[ir.Node], tuple[ir.TensorRef, ...]]:
    """Returns nodes and results with Switch in place of ``_SwitchN``.

    Args:
      function: the function's name, for messages.
      nodes: its nodes.
      outputs: its results.
      taken: names of its arguments.

    Raises:
      InvalidModelError: a ``_SwitchN`` without sides.
    """
    if not any(node.op == OP for node in nodes):
        return list(nodes), tuple(outputs)
    rewriting = _Rewriting({*taken, *(node.name for node in nodes)}, {node.name for node in nodes})
    moved: dict[ir.TensorRef, ir.TensorRef] = {}
    for node in nodes:
        if node.op == OP:
            moved.update(rewriting.named(function, node))
    made: list[ir.Node] = []
    for node in nodes:
        inputs = tuple(moved.get(ref, ref) for ref in node.inputs)
        node = node if inputs == node.inputs else dataclasses.replace(node, inputs=inputs)
        made.extend(rewriting.rewritten(node) if node.op == OP else [node])
    return made, tuple(moved.get(ref, ref) for ref in outputs)


class _Halving(NamedTuple):
    """A Switch: sides below ``middle`` are behind its true side, the others behind its false one."""

    name: str
    source: ir.TensorRef
    middle: int


class _Rewriting:
    """Switches that test the same number share their predicates, so that they are known to agree."""

    def __init__(self, taken: set[str], nodes: set[str]):
        self._taken = taken
        self._nodes = nodes
        self._switches: dict[str, list[_Halving]] = {}
        self._unsigned: dict[ir.TensorRef, ir.TensorRef] = {}
        self._predicates: dict[tuple[ir.TensorRef, int], ir.TensorRef] = {}

    def named(self, function: str, node: ir.Node) -> dict[ir.TensorRef, ir.TensorRef]:
        """Names the Switches of a ``_SwitchN``, and returns where its sides are to be.

        The first keeps the name: what waits for the node goes on doing so.
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
        """Returns the Switches, and the predicates that are new. The inputs are where they are to be already."""
        value, number = node.inputs
        dtypes = node.output_dtypes
        plain = {"attrs": {"T": dtypes[0]}, "implied": frozenset({"T"}), "output_shapes": None}
        if len(dtypes) == 1:
            return [
                dataclasses.replace(node, op="Identity", inputs=(value,), groups=(None,), input_types=("T",), **plain)
            ]
        made: list[ir.Node] = []
        switch = dataclasses.replace(
            node, op="Switch", groups=(None, None), input_types=("T", ""), output_dtypes=dtypes[:1] * 2, **plain
        )
        for index, halving in enumerate(self._switches[node.name]):
            source = halving.source if index else value
            predicate = self._predicate(number, halving.middle, made)
            made.append(ir.node_like(switch.form, halving.name, (source, predicate), node.control))
        return made

    def _predicate(self, number: ir.TensorRef, middle: int, made: list[ir.Node]) -> ir.TensorRef:
        found = self._predicates.get((number, middle))
        if found is not None:
            return found
        where = str(number).replace(":", "_")
        unsigned = np.dtype(np.uint32)  # in which numbers below zero are beyond the last side
        if number not in self._unsigned:
            bits = ir.Node(
                ir.free_name(f"{where}/unsigned", self._taken), "Bitcast", (number,), (None,), (),
                {"T": np.dtype(np.int32), "type": unsigned}, frozenset({"T"}), ("T",), (unsigned,),
            )  # fmt: skip
            made.append(bits)
            self._unsigned[number] = ir.TensorRef(bits.name)
        # In the frame of the number, as TensorFlow's own constants in loops.
        control = (number.node,) if number.node in self._nodes else ()
        limit = ir.Node(
            ir.free_name(f"{where}/limit_{middle}", self._taken), "Const", (), (), control,
            {"value": np.asarray(middle, unsigned), "dtype": unsigned}, output_dtypes=(unsigned,),
        )  # fmt: skip
        test = ir.Node(
            ir.free_name(f"{where}/is_below_{middle}", self._taken), "Less",
            (self._unsigned[number], ir.TensorRef(limit.name)), (None, None), (),
            {"T": unsigned}, frozenset({"T"}), ("T", "T"), (np.dtype(np.bool_),),
        )  # fmt: skip
        made.extend((limit, test))
        self._predicates[number, middle] = ir.TensorRef(test.name)
        return ir.TensorRef(test.name)
