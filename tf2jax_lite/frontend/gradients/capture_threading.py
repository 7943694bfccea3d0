"""Threading of captured tensors: arguments of nested functions and their callers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tf2jax_lite import ir

MAIN = ""
"""The name of the main function in this module."""

# These pass their last inputs to the functions that they name; loops return them, too.
_CALLS = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "Case", "StatelessCase", "_CustomGradient"}
    | {"_Recompute"}
)
_LOOPS = frozenset({"While", "StatelessWhile"})


class Unroutable(Exception):
    """A node calls a function with a fixed number of arguments; the text describes it."""


class Asked:
    """The captured tensors that each function needs, in order.

    A tensor has one argument name in all functions.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._tensors: list[Any] = []
        self._by_function: dict[str, list[int]] = {}

    def add(self, function: str, tensor: Any) -> str:
        """Add a tensor to a function's captures; return its argument's name."""
        number = next((i for i, known in enumerate(self._tensors) if known is tensor), len(self._tensors))
        if number == len(self._tensors):
            self._tensors.append(tensor)
        asked = self._by_function.setdefault(function, [])
        if number not in asked:
            asked.append(number)
        return f"{self._prefix}_{number}"

    def of(self, function: str) -> list[Any]:
        """Return a function's captures, in the order in which any function needed them."""
        return [self._tensors[i] for i in sorted(self._by_function.get(function, ()))]

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def size(self) -> int:
        """Return the total number of captures."""
        return sum(map(len, self._by_function.values()))


def with_extra_inputs(
    graph: ir.Graph, asked: Asked, refer: Callable[[str, Any], ir.TensorRef], dtype: Callable[[Any], ir.DType]
) -> ir.Graph:
    """Add captures to the arguments of functions and to the inputs of their callers.

    Args:
      graph: the graph; ``asked`` and ``refer`` call the main function `MAIN`.
      refer: returns a tensor's reference in a function, after adding it to the function's captures if necessary.

    Raises:
      Unroutable: a node that cannot take further inputs calls such a function.
    """
    functions = {MAIN: graph.main, **graph.functions}
    calls = [(name, node) for name, f in functions.items() for node in f.nodes if node.functions]
    before = -1
    while before != asked.size():
        before = asked.size()
        for caller, node in calls:
            names = [ref.name for ref in node.functions]
            wanted = [t for name in names for t in asked.of(name)]
            for tensor in wanted:
                if node.op not in _CALLS | _LOOPS:
                    raise Unroutable(f"node {node.name!r} ({node.op}) takes no further inputs")
                refer(caller, tensor)
                for name in names:  # branches, or a loop's condition and body, take the same arguments
                    asked.add(name, tensor)
    bodies = {node.attrs["body"].name for _, node in calls if node.op in _LOOPS}
    changed = {name: _changed(name, function, asked, refer, dtype) for name, function in functions.items()}
    for name in bodies & changed.keys():
        extra = changed[name].args[len(functions[name].args) :]
        outputs = (*changed[name].outputs, *(ir.TensorRef(arg.name) for arg in extra))
        changed[name] = dataclasses.replace(changed[name], outputs=outputs)
    main = changed.pop(MAIN)
    return dataclasses.replace(graph, main=main, functions=changed)


def _changed(
    name: str,
    function: ir.Function,
    asked: Asked,
    refer: Callable[[str, Any], ir.TensorRef],
    dtype: Callable[[Any], ir.DType],
) -> ir.Function:
    nodes = []
    for node in function.nodes:
        refs = node.functions
        tensors = asked.of(refs[0].name) if refs else []
        if tensors:
            added = tuple(refer(name, tensor) for tensor in tensors)
            last = node.groups[-1] or 0
            node = dataclasses.replace(
                node, inputs=(*node.inputs, *added), groups=(*node.groups[:-1], last + len(added))
            )
            if node.op in _LOOPS:
                types = (*node.output_dtypes, *map(dtype, tensors))
                node = dataclasses.replace(node, output_dtypes=types, output_shapes=None)
            elif node.op == "_CustomGradient":
                node = dataclasses.replace(node, attrs={**node.attrs, "own": [*node.attrs["own"], *[-1] * len(added)]})
        nodes.append(node)
    return dataclasses.replace(
        function,
        args=(*function.args, *(ir.Argument(asked.add(name, t), dtype(t)) for t in asked.of(name))),
        nodes=tuple(nodes),
    )
