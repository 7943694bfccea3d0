"""What variables start from where no checkpoint holds them: their initializers, evaluated by our own lowering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import functions
from tf2jax_lite.frontend.runtime.string_evaluator import StringEvaluator
from tf2jax_lite.ir.verify import check_calls
from tf2jax_lite.jaxprs.compat import ClosedJaxpr, Jaxpr
from tf2jax_lite.lowering import Program, Trace
from tf2jax_lite.passes.control_flow_v1 import functionalize
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import LimitError, Tf2JaxError
from tf2jax_lite.support.limits import check_bytes

__all__ = ["MAX_STEPS", "initial_values"]

MAX_STEPS = 1_000_000
"""Steps of loops that computing one variable's first value may take; initializers of models hardly ever loop."""


def initial_values(proto: Any, variables: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the value that the first Assign of each variable node gives it.

    Args:
      proto: the GraphDef.
      variables: names of nodes that make variables.

    Returns:
      Values of those whose initializer depends on constants alone; of random ones a draw with key 0.

    Raises:
      LimitError: computing one would take more memory than ``config.max_constant_bytes``, or more than `MAX_STEPS`
        steps of loops, or nobody knows how many.
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
            main = functions.reached(functions.load_main(proto, f"initializer of {name}", (), [sources[name]]))
            graph = functionalize.functionalize(ir.Graph(main, functions.load_library(proto.library)))
            check_calls(graph)
            config = current_config()
            program = Program(graph, config, None, StringEvaluator(config.max_constant_bytes))

            def run(program: Program = program, main: ir.Function = graph.main) -> Any:
                trace = Trace(program, {}, jax.random.key(0))
                return trace.call(main, [], trace.root_frame())[0]

            # Draws of random numbers loop, too, until enough are accepted; these end.
            bounded = not _has_loop(graph)
            _check(jax.make_jaxpr(lambda run=run: jnp.asarray(run()))().jaxpr, name, bounded, 1)
            found[name] = np.asarray(run())
        except LimitError:
            raise
        except Tf2JaxError:
            continue
    return found


def _has_loop(graph: ir.Graph) -> bool:
    """Whether the main function, or one that it reaches, holds a loop of TensorFlow's."""
    seen: set[str] = set()
    pending = [graph.main]
    while pending:
        for node in pending.pop().nodes:
            if isinstance(node.attrs.get("cond"), ir.FunctionRef) and isinstance(
                node.attrs.get("body"), ir.FunctionRef
            ):
                return True
            names = {ref.name for ref in node.functions if ref.name in graph.functions} - seen
            seen |= names
            pending += [graph.functions[name] for name in names]
    return False


def _check(jaxpr: Any, name: str, bounded: bool, times: int) -> None:
    """Looks at what an initializer would make, at every step, and at its loops, before it is run.

    Args:
      jaxpr: of the initializer or of a part of it.
      name: of the variable.
      bounded: whether loops of unknown length are known to end.
      times: how often the part runs.
    """
    for equation in jaxpr.eqns:
        for result in equation.outvars:
            shape, dtype = getattr(result.aval, "shape", ()), getattr(result.aval, "dtype", None)
            if isinstance(dtype, np.dtype):  # keys are small
                check_bytes(shape, dtype.itemsize, f"the initializer of {name!r}: an array")
        if equation.primitive.name == "while" and not bounded:
            raise LimitError(
                f"the initializer of {name!r} has a loop, and nothing says for how many steps. Save the model's "
                "variables to a checkpoint, or write the initializer without a loop."
            )
        steps = times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        if steps > MAX_STEPS:
            raise LimitError(
                f"the initializer of {name!r} takes {steps} steps of loops; {MAX_STEPS} are allowed. Save the model's "
                "variables to a checkpoint."
            )
        for inner in _jaxprs(equation.params.values()):
            _check(inner, name, bounded, steps)


def _jaxprs(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, Jaxpr):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _jaxprs(value)
