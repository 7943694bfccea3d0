"""What variables start from where no checkpoint holds them: their initializers, evaluated by our own lowering."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from tf2jax_lite import ir
from tf2jax_lite.config import current_config
from tf2jax_lite.errors import LimitError, Tf2JaxError
from tf2jax_lite.limits import check_bytes
from tf2jax_lite.lowering import Program, Trace
from tf2jax_lite.passes import control_flow_v1
from tf2jax_lite.passes.call_tree import check_calls

from . import graph_def

__all__ = ["initial_values"]


def initial_values(proto: Any, variables: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the value that the first Assign of each variable node gives it.

    Args:
      proto: the GraphDef.
      variables: names of nodes that make variables.

    Returns:
      Values of those whose initializer depends on constants alone; of random ones a draw with key 0.

    Raises:
      LimitError: computing one would take more memory than ``config.max_constant_bytes``.
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
            check_calls(graph)
            program = Program(graph, current_config())

            def run(program: Program = program, main: ir.Function = graph.main) -> Any:
                trace = Trace(program, {}, jax.random.key(0))
                return trace.call(main, [], trace.root_frame())[0]

            _check_sizes(jax.make_jaxpr(lambda run=run: jnp.asarray(run()))().jaxpr, name)
            found[name] = np.asarray(run())
        except LimitError:
            raise
        except Tf2JaxError:
            continue
    return found


def _check_sizes(jaxpr: Any, name: str) -> None:
    """Looks at what an initializer would make, at every step, before it is run."""
    for equation in jaxpr.eqns:
        for result in equation.outvars:
            shape, dtype = getattr(result.aval, "shape", ()), getattr(result.aval, "dtype", None)
            if isinstance(dtype, np.dtype):  # keys are small
                check_bytes(shape, dtype.itemsize, f"the initializer of {name!r}: an array")
        for inner in jaxprs_in_params(equation.params):
            _check_sizes(inner, name)
