"""Reachability of nodes by gradients, from the tensors that are differentiated.

A gradient function may contain custom gradients, for second derivatives. Most are unreachable: behind
``tf.stop_gradient``, in a loop with ``back_prop=False``, or for integer results. Solvers of differential equations call
themselves in their gradient functions, so each level that is not traced saves more than all levels before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tf2jax_lite import ir

from .tf_registry import ATTRIBUTE

# Ops with float results that stop gradients. A missing entry only costs time.
_STOPS = frozenset({"StopGradient", "ZerosLike", "OnesLike", "Sign", "Round", "Floor", "Ceil", "Rint"})


class Reach:
    """The nodes that gradients reach so far.

    The results of a node that calls functions are assumed to depend on all its inputs and on all results of the
    functions.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, ir.Node]] = {}
        self._outputs: dict[str, tuple[ir.TensorRef, ...]] = {}
        self._reached: dict[str, set[str]] = {}
        self._wanted: set[str] = set()

    def add(self, functions: Mapping[str, ir.Function]) -> None:
        """Add functions by name, before any of their nodes is replaced."""
        for name, function in functions.items():
            if name not in self._nodes:
                self._nodes[name] = {node.name: node for node in function.nodes}
                self._outputs[name] = function.outputs
        for name in functions.keys() & self._wanted:  # asked for before they were added
            self.ask(name, self._outputs[name])

    def ask(self, function: str, refs: Iterable[ir.TensorRef]) -> None:
        """Mark tensors of a function as differentiated."""
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
        """Mark all nodes of a function as differentiated."""
        for name, node in self._nodes.get(function, {}).items():
            self.ask(function, (ir.TensorRef(name, i) for i in range(len(node.output_dtypes))))

    def reaches(self, function: str, node: str) -> bool:
        """Return whether a gradient can reach a node."""
        return node in self._reached.get(function, ())


def _carries(node: ir.Node, index: int) -> bool:
    """Return whether a result can have a gradient: float, complex, or a container."""
    if index >= len(node.output_dtypes):
        return True
    dtype = node.output_dtypes[index]
    if not isinstance(dtype, np.dtype):
        return dtype is not ir.STRING
    return dtype.kind not in "biu"  # bfloat16 and similar dtypes have kind V
