"""IR to JAX: plans, their evaluation while tracing, and ops that need it.

`Program` (a checked graph with its plans) and `Trace` (the evaluator of one call) are the entries. Read `planning`
(functions to plans), `interpreter` (plans to JAX calls), `op_lowerings` and `loops` (ops that call functions), then
`merging` (results of branches) and `scan_opt` (optimizations of scans).

Imports neither TensorFlow nor `frontend` nor `pipeline`.
"""

from tf2jax_lite.lowering.interpreter.trace import Trace
from tf2jax_lite.lowering.planning.program import Program
from tf2jax_lite.ops.registry import known_ops

from .loops import while_op
from .op_lowerings import cond_ops, gradient_ops, variable_ops, xla_call_module

__all__ = [
    "Program",
    "Trace",
    "cond_ops",
    "gradient_ops",
    "known_ops",
    "variable_ops",
    "while_op",
    "xla_call_module",
]
