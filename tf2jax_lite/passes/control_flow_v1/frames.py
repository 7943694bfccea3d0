"""Frames of control flow v1: the loop that each node of a function runs in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tf2jax_lite import ir
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError


@dataclasses.dataclass(eq=False)
class Frame:
    """A loop, or (without a parent) the function around all loops.

    Attributes:
      name: the frame's name, as its Enter nodes give it.
      parent: the frame that its Enter nodes read from.
      nodes: the nodes that run in it, without Enter and Exit.
    """

    name: str
    parent: Frame | None = None
    depth: int = 0
    nodes: list[ir.Node] = dataclasses.field(default_factory=list)
    enters: list[ir.Node] = dataclasses.field(default_factory=list)
    exits: list[ir.Node] = dataclasses.field(default_factory=list)
    children: dict[str, Frame] = dataclasses.field(default_factory=dict)

    def is_inside(self, other: Frame) -> bool:
        """Return whether this is ``other`` or a loop within it."""
        frame: Frame | None = self
        while frame is not None and frame.depth > other.depth:
            frame = frame.parent
        return frame is other


def find_frames(function: str, nodes: Iterable[ir.Node]) -> Frame:
    """Return the tree of frames of a function's nodes.

    Args:
      nodes: in topological order, except for edges from NextIteration to Merge.
    """
    root = Frame("")
    homes: dict[str, Frame] = {}

    def home(node: ir.Node) -> Frame:
        deepest, source = root, ""
        for name in (*(ref.node for ref in node.inputs), *node.control):
            found = homes.get(name)  # None for arguments and for back edges into a Merge
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
