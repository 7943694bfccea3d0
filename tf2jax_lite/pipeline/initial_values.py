"""Initial values of variables without checkpoint, by their initializers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import functions
from tf2jax_lite.ir.traversal import called_functions, reached
from tf2jax_lite.jaxprs.evaluate import inner, parts
from tf2jax_lite.lowering import Program, Trace
from tf2jax_lite.support.errors import LimitError, Tf2JaxError
from tf2jax_lite.support.limits import check_bytes

MAX_STEPS = 1_000_000
"""Maximum number of loop iterations for one initial value; initializers of models rarely loop."""


def initial_value(proto: Any, variable: str, plan: Callable[[ir.Graph], Program]) -> np.ndarray | None:
    """Return the value that the first Assign of a variable gives it.

    Args:
      plan: prepares a graph for the interpreter: the later steps of a conversion.

    Returns:
      The value; None if the initializer depends on more than constants, or does not convert. Random initializers draw
      with key 0.
    """
    sources = (
        node.input[1]
        for node in proto.node
        if node.op in ("Assign", "AssignVariableOp")
        and len(node.input) >= 2
        and node.input[0].split(":")[0] == variable
    )
    source = next(sources, None)
    if source is None:
        return None
    try:
        main = reached(functions.load_main(proto, f"initializer of {variable}", (), [source]))
        program = plan(ir.Graph(main, functions.load_library(proto.library)))

        def run() -> Any:
            trace = Trace(program, {}, jax.random.key(0))
            return trace.call(program.graph.main, [], trace.root_frame())[0]

        # Draws of random numbers loop as well, until enough are accepted; those loops end.
        bounded = not _has_loop(program.graph)
        _check(jax.make_jaxpr(lambda: jnp.asarray(run()))().jaxpr, variable, bounded, 1)
        return np.asarray(run())
    except LimitError:
        raise
    except Tf2JaxError:
        return None


def _has_loop(graph: ir.Graph) -> bool:
    """Whether the main function, or one that it reaches, has a loop of TensorFlow's."""
    reachable = [graph.main, *(graph.functions[name] for name in called_functions(graph))]
    return any("cond" in node.attrs and "body" in node.attrs for function in reachable for node in function.callers)


def _check(jaxpr: Any, name: str, bounded: bool, times: int) -> None:
    """Check the arrays and loops of an initializer before it runs."""
    # bounded: whether loops of unknown length are known to end.
    for equation in jaxpr.eqns:
        for result in equation.outvars:
            shape, dtype = getattr(result.aval, "shape", ()), getattr(result.aval, "dtype", None)
            if isinstance(dtype, np.dtype):  # keys are small
                check_bytes(shape, dtype.itemsize, f"the initializer of {name!r}: an array")
        if equation.primitive.name == "while" and not bounded:
            raise LimitError(
                f"the initializer of {name!r} has a loop with an unknown number of steps. Save the model's variables "
                "to a checkpoint, or write the initializer without a loop."
            )
        steps = times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        if steps > MAX_STEPS:
            raise LimitError(
                f"the initializer of {name!r} takes {steps} steps of loops; {MAX_STEPS} are allowed. Save the model's "
                "variables to a checkpoint."
            )
        for jaxpr in inner(equation.params):
            _check(parts(jaxpr)[0], name, bounded, steps)
