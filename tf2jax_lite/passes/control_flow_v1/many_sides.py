"""A Switch with many sides (``_SwitchN``) as Switches with two, one behind the other.

TensorFlow lowers Case to ``_SwitchN`` on the branch's number, and so do graphs that
``convert_variables_to_constants_v2`` froze. Side i is alive where the number is i, the last one also where it is below
zero or beyond the last side (``SwitchNOp`` in TensorFlow's ``core/kernels/control_flow_ops.cc``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.errors import InvalidModelError

__all__ = ["OP", "with_two_sides"]

OP = "_SwitchN"
_BOOL = np.dtype(np.bool_)


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


class _Rewriting:
    """Switches that test the same number share their predicates, so that they are known to agree."""

    def __init__(self, taken: set[str], nodes: set[str]):
        self._taken = taken
        self._nodes = nodes
        self._switches: dict[str, list[str]] = {}
        self._predicates: dict[tuple[ir.TensorRef, int], ir.TensorRef] = {}

    def named(self, function: str, node: ir.Node) -> dict[ir.TensorRef, ir.TensorRef]:
        """Names the Switches of a ``_SwitchN``, and returns where its sides are to be.

        The first keeps the name: what waits for the node goes on doing so.
        """
        count = len(node.output_dtypes)
        if count == 0:
            raise InvalidModelError(f"node {node.name!r} ({OP}) in {function!r} has no output.")
        names = [node.name, *(self._fresh(f"{node.name}/side_{side}") for side in range(1, count - 1))]
        self._switches[node.name] = names
        if count == 1:
            return {}
        moved = {ir.TensorRef(node.name, side): ir.TensorRef(name, 1) for side, name in enumerate(names)}
        return {**moved, ir.TensorRef(node.name, count - 1): ir.TensorRef(names[-1], 0)}

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
        for side, name in enumerate(self._switches[node.name]):
            predicate = self._predicate(number, side, made)
            made.append(
                dataclasses.replace(
                    node, name=name, op="Switch", inputs=(value, predicate), groups=(None, None),
                    input_types=("T", ""), output_dtypes=dtypes[:1] * 2, **plain,
                )
            )  # fmt: skip
            value = ir.TensorRef(name, 0)
        return made

    def _predicate(self, number: ir.TensorRef, side: int, made: list[ir.Node]) -> ir.TensorRef:
        found = self._predicates.get((number, side))
        if found is not None:
            return found
        where = str(number).replace(":", "_")
        # In the frame of the number, as TensorFlow's own constants in loops.
        control = (number.node,) if number.node in self._nodes else ()
        integer = np.dtype(np.int32)
        constant = ir.Node(
            self._fresh(f"{where}/side_{side}"), "Const", (), (), control,
            {"value": np.asarray(side, integer), "dtype": integer}, output_dtypes=(integer,),
        )  # fmt: skip
        test = ir.Node(
            self._fresh(f"{where}/is_{side}"), "Equal", (number, ir.TensorRef(constant.name)), (None, None), (),
            {"T": integer, "incompatible_shape_error": True}, frozenset({"T"}), ("T", "T"), (_BOOL,),
        )  # fmt: skip
        made.extend((constant, test))
        self._predicates[number, side] = ir.TensorRef(test.name)
        return ir.TensorRef(test.name)

    def _fresh(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name
