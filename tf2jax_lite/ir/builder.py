"""New nodes and functions: what rewrites of a graph have in common.

`constant` and `undefined` make nodes, `with_inputs` and `redirected` rewire one, `handles_as_arguments` turns nodes
into arguments, `FunctionLibrary` collects functions under free names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .graph import DType, Function, FunctionRef, Node, TensorRef, free_name, node_from_spec


class FunctionLibrary:
    """New functions of a graph, under names that the graph does not use.

    Args:
      taken: names in use.

    Attributes:
      functions: the functions added so far, by name.
    """

    def __init__(self, taken: Iterable[str]):
        self.functions: dict[str, Function] = {}
        self._taken = set(taken)

    def name(self, wanted: str) -> str:
        """Reserve and return ``wanted``, with a number appended if it is in use."""
        return free_name(wanted, self._taken)

    def add(self, function: Function) -> FunctionRef:
        """Add a function and return a reference to it."""
        self.functions[function.name] = function
        return FunctionRef(function.name)


def constant(name: str, value: Any, control: tuple[str, ...] = ()) -> Node:
    """Return a Const node.

    Args:
      name: its name.
      value: a NumPy array or scalar; its dtype is the node's.
      control: names of nodes that run before it.
    """
    value = np.asarray(value)
    return Node(name, "Const", (), (), control, {"value": value, "dtype": value.dtype}, output_dtypes=(value.dtype,))


def undefined(name: str, dtype: DType) -> Node:
    """Return an ``_Undefined`` node: a placeholder that no live node reads."""
    return Node(name, "_Undefined", (), (), (), {"dtype": dtype}, output_dtypes=(dtype,))


def with_inputs(node: Node, inputs: tuple[TensorRef, ...]) -> Node:
    """Return a node with other inputs of the same types; itself if they are its own."""
    return node if inputs == node.inputs else node_from_spec(node.spec, node.name, inputs, node.control)


def redirected(node: Node, moved: Mapping[TensorRef, TensorRef]) -> Node:
    """Return a node that reads mapped tensors; itself if it reads none of them."""
    return with_inputs(node, tuple([moved.get(ref, ref) for ref in node.inputs])) if moved else node


def handles_as_arguments(function: Function, moved: Mapping[str, str]) -> Function:
    """Remove nodes that make handles; their readers read the arguments in ``moved``.

    ``moved`` maps names of nodes to names of arguments.
    """

    def rewired(node: Node) -> Node:
        if not any(ref.node in moved for ref in node.inputs) and not any(name in moved for name in node.control):
            return node
        inputs = tuple(TensorRef(moved.get(ref.node, ref.node), ref.index) for ref in node.inputs)
        control = tuple(name for name in node.control if name not in moved)
        return dataclasses.replace(node, inputs=inputs, control=control)

    return dataclasses.replace(
        function,
        nodes=tuple(rewired(node) for node in function.nodes if node.name not in moved),
        outputs=tuple(TensorRef(moved.get(ref.node, ref.node), ref.index) for ref in function.outputs),
        control_outputs=tuple(name for name in function.control_outputs if name not in moved),
    )
