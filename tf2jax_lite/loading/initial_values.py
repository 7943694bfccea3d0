"""What variables start from where no checkpoint holds them: their initializers, evaluated by our own lowering."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.config import current_config
from tf2jax_lite.errors import Tf2JaxError
from tf2jax_lite.lowering import Program, Trace
from tf2jax_lite.passes import control_flow_v1

from . import graph_def

__all__ = ["initial_values"]


def initial_values(proto: Any, variables: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the value that the first Assign of each variable node gives it.

    Args:
      proto: the GraphDef.
      variables: names of nodes that make variables.

    Returns:
      Values of those whose initializer depends on constants alone; of random ones a draw with key 0.
    """
    sources = {}
    for node in proto.node:
        if node.op in ("Assign", "AssignVariableOp") and len(node.input) >= 2:
            sources.setdefault(node.input[0].split(":")[0], node.input[1])
    found = {}
    for name in variables:
        if name not in sources:
            continue
        try:
            main = graph_def.reached(graph_def.load_main(proto, f"initializer of {name}", (), [sources[name]]))
            graph = control_flow_v1.functionalize(ir.Graph(main, graph_def.load_library(proto.library)))
            trace = Trace(Program(graph, current_config()), {}, jax.random.key(0))
            (value,) = trace.call(graph.main, [], trace.root_frame())
            found[name] = np.asarray(value)
        except Tf2JaxError:
            continue
    return found
