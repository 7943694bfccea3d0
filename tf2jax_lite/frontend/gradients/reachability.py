"""Which nodes a gradient can flow back to, from what functions are asked for.

A gradient function may hold custom gradients of its own, for the second derivative. Most never get there: behind
``tf.stop_gradient``, in a loop with ``back_prop=False``, in what only makes integers. Solvers of differential equations
run themselves in their gradient functions, so each level that is not traced saves more than all before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tf2jax_lite import ir

from .tf_registry import ATTRIBUTE

__all__ = ["Reach"]

# Ops that let no gradient through although their results are floating. To leave one out costs time alone.
_STOPS = frozenset({"StopGradient", "ZerosLike", "OnesLike", "Sign", "Round", "Floor", "Ceil", "Rint"})


class Reach:
    """What is asked for, and what that reaches; grows as functions are added and asked for more.

    Whatever a function-calling node gives is taken to depend on all that it gets and all that it calls gives.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, ir.Node]] = {}
        self._outputs: dict[str, tuple[ir.TensorRef, ...]] = {}
        self._reached: dict[str, set[str]] = {}
        self._wanted: set[str] = set()

    def add(self, functions: Mapping[str, ir.Function]) -> None:
        """Makes functions known by their names, as they are before anything in them is replaced."""
        for name, function in functions.items():
            if name not in self._nodes:
                self._nodes[name] = {node.name: node for node in function.nodes}
                self._outputs[name] = function.outputs
        for name in functions.keys() & self._wanted:  # wanted before they were known
            self.ask(name, self._outputs[name])

    def ask(self, function: str, refs: Iterable[ir.TensorRef]) -> None:
        """Has a gradient flow back from tensors of a function."""
        pending = [(function, ref) for ref in refs]
        while pending:
            where, ref = pending.pop()
            node = self._nodes.get(where, {}).get(ref.node)
            if node is None or not _carries(node, ref.index):
                continue
            if node.op in _STOPS and ATTRIBUTE not in node.attrs:
                continue
            reached = self._reached.setdefault(where, set())
            if node.name in reached:
                continue
            reached.add(node.name)
            pending.extend((where, source) for source in node.inputs)
            for called in node.functions:
                if called.name not in self._wanted:
                    self._wanted.add(called.name)
                    pending.extend((called.name, source) for source in self._outputs.get(called.name, ()))

    def ask_everything(self, function: str) -> None:
        """Has a gradient flow back from all nodes of a function."""
        for name, node in self._nodes.get(function, {}).items():
            self.ask(function, (ir.TensorRef(name, i) for i in range(len(node.output_dtypes))))

    def reaches(self, function: str, node: str) -> bool:
        """Whether a gradient can flow back to a node."""
        return node in self._reached.get(function, ())


def _carries(node: ir.Node, index: int) -> bool:
    """Whether a result can have a gradient: it is floating, complex, or holds something else that may."""
    if index >= len(node.output_dtypes):
        return True
    dtype = node.output_dtypes[index]
    if not isinstance(dtype, np.dtype):
        return dtype is not ir.STRING
    return dtype.kind not in "biu"  # bfloat16 and its like are of kind V
