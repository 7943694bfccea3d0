"""An imported function: the result of the frontend, and the input of the pipeline."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf2jax_lite import ir

from .interface import Interface


@dataclasses.dataclass(frozen=True)
class ImportedFunction:
    """A function of TensorFlow as a graph with its interface.

    Attributes:
      graph: the IR graph; captured variables come in the order of the captures.
      structured_inputs: ``(args, kwargs)`` with ``tf.TensorSpec`` leaves.
      structured_outputs: results with ``tf.TensorSpec`` leaves.
    """

    graph: ir.Graph
    interface: Interface
    structured_inputs: Any
    structured_outputs: Any
