"""Steps 2 to 4 of a conversion (see `convert`): verify, passes, plan.

They run without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Collection

from tf2jax_lite import ir
from tf2jax_lite.frontend.runtime.string_evaluator import StringEvaluator
from tf2jax_lite.ir.providers import NodeCompiler
from tf2jax_lite.ir.verify import check_calls
from tf2jax_lite.lowering import Program
from tf2jax_lite.passes.manager import run_passes
from tf2jax_lite.support.config import Config


def verified_graph(graph: ir.Graph, config: Config, only: Collection[str] | None = None) -> ir.Graph:
    """Verify a graph and run the passes: steps 2 and 3 of a conversion.

    Args:
      graph: the graph as imported.
      config: the options.
      only: names of the passes to run; all by default.

    Raises:
      InvalidModelError: functions of the graph call each other recursively.
      LimitError: calls are nested too deeply, or expand to too many nodes.
      UnsupportedError: a construct has no counterpart in JAX.
    """
    check_calls(graph)
    return run_passes(graph, config, only)


def plan_graph(graph: ir.Graph, config: Config, compiler: NodeCompiler | None = None) -> Program:
    """Verify a graph, run the passes, plan its functions: steps 2 to 4.

    Args:
      compiler: compiles nodes without an implementation; without one they raise UnsupportedOpsError.
    """
    graph = verified_graph(graph, config)
    return Program(graph, config, compiler, StringEvaluator(config.max_constant_bytes))
