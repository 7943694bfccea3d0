"""Frames: which loop each node of a function runs in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError

__all__ = ["Frame", "find_frames", "ordered"]


@dataclasses.dataclass(eq=False)
class Frame:
    """A loop, or (without a parent) the function around all loops.

    Attributes:
      name: the frame's name, as its Enter nodes give it.
      parent: the frame that its Enter nodes read from.
      depth: number of frames around it.
      nodes: what runs in it, without Enter and Exit.
      enters: what brings values in.
      exits: what takes values out.
      children: the loops in it.
    """

    name: str
    parent: Frame | None = None
    depth: int = 0
    nodes: list[ir.Node] = dataclasses.field(default_factory=list)
    enters: list[ir.Node] = dataclasses.field(default_factory=list)
    exits: list[ir.Node] = dataclasses.field(default_factory=list)
    children: dict[str, Frame] = dataclasses.field(default_factory=dict)

    def is_inside(self, other: Frame) -> bool:
        """Whether this is ``other`` or a loop within it."""
        frame: Frame | None = self
        while frame is not None and frame.depth > other.depth:
            frame = frame.parent
        return frame is other


def find_frames(function: str, nodes: Iterable[ir.Node]) -> Frame:
    """Returns the tree of frames of a function's nodes.

    Args:
      function: the function's name, for messages.
      nodes: in topological order, but for what goes back from NextIteration to Merge.

    Raises:
      UnsupportedError: a node reads values of two loops, neither within the other.
      InvalidModelError: an Exit outside all loops.
    """
    root = Frame("")
    homes: dict[str, Frame] = {}

    def home(node: ir.Node) -> Frame:
        deepest, source = root, ""
        for name in (*(ref.node for ref in node.inputs), *node.control):
            found = homes.get(name)  # arguments, and what a Merge gets from the end of the loop, are not there
            if found is None or found is deepest:
                continue
            if found.is_inside(deepest):
                deepest, source = found, name
            elif not deepest.is_inside(found):
                raise UnsupportedError(
                    f"node {node.name!r} ({node.op}) in {function!r} reads {source!r} from loop {deepest.name!r} and "
                    f"{name!r} from loop {found.name!r}; neither is inside the other."
                )
        return deepest

    for node in nodes:
        frame = home(node)
        if node.op == "Enter":
            label = str(node.attrs.get("frame_name", ""))
            child = frame.children.get(label)
            if child is None:
                child = frame.children[label] = Frame(label, frame, frame.depth + 1)
            child.enters.append(node)
            homes[node.name] = child
        elif node.op == "Exit":
            if frame.parent is None:
                raise InvalidModelError(f"node {node.name!r} (Exit) in {function!r}: there is no loop to leave.")
            frame.exits.append(node)
            homes[node.name] = frame.parent
        else:
            frame.nodes.append(node)
            homes[node.name] = frame
    return root


def ordered(function: str, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Returns nodes so that each stands after what it needs, otherwise as they were.

    What goes back from NextIteration to Merge is no need.

    Raises:
      InvalidModelError: they form a cycle.
    """
    by_name = {node.name: node for node in nodes}
    state: dict[str, bool] = {}  # whether it is placed; those on the way to being so are False
    result: list[ir.Node] = []
    for root in nodes:
        if root.name in state:
            continue
        stack = [(root, iter(_needs(root, by_name)))]
        state[root.name] = False
        while stack:
            node, remaining = stack[-1]
            need = next(remaining, None)
            if need is None:
                stack.pop()
                state[node.name] = True
                result.append(node)
            elif need not in state:
                state[need] = False
                stack.append((by_name[need], iter(_needs(by_name[need], by_name))))
            elif not state[need]:
                raise InvalidModelError(f"function {function!r}: nodes {need!r} and {node.name!r} are on a cycle.")
    return result


def _needs(node: ir.Node, by_name: dict[str, ir.Node]) -> list[str]:
    names = dict.fromkeys([*(ref.node for ref in node.inputs), *node.control])
    is_merge = node.op == "Merge"
    return [n for n in names if n in by_name and not (is_merge and by_name[n].op == "NextIteration")]
