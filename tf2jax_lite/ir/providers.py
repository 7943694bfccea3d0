"""Interfaces of TensorFlow services that the frontend gives to the lowering.

The pipeline makes a `NodeCompiler` and a `NodeEvaluator` and passes them to the lowering, so that neither package
imports the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .graph import Node


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """An input of a node to compile.

    Attributes:
      static: whether its value is known in every call of this trace.
      value: its value if it is known in this call; that of a concrete JAX array is, outside ``jit``.
    """

    shape: tuple[int, ...]
    static: bool = False
    value: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class CompiledNode:
    """A compiled node.

    Attributes:
      arguments: positions of the node's inputs that are the module's arguments; the others are constants in it.
    """

    module: str
    arguments: tuple[int, ...]


class NodeCompiler(Protocol):
    """Compiles nodes whose ops have no implementation."""

    def accepts(self, node: Node) -> bool:
        """Return whether the node's op and dtypes can be compiled."""
        ...

    def compile(self, node: Node, inputs: Sequence[InputSpec]) -> CompiledNode:
        """Compile a node for inputs of these shapes."""
        ...


class NodeEvaluator(Protocol):
    """Evaluates nodes whose ops have no implementation and whose inputs are static."""

    def accepts(self, op: str) -> bool:
        """Return whether nodes of an op can be evaluated."""
        ...

    def evaluate(self, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
        """Evaluate a node.

        Args:
          inputs: NumPy arrays, strings as object arrays of bytes; a list for each argument that is a list.

        Returns:
          NumPy arrays, a list for each result that is a list.
        """
        ...
