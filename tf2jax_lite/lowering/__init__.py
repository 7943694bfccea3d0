"""IR to JAX: plans, run inside JAX tracing; registers the ops that need the interpreter.

`Program` and `Trace` are the entries. Read `planning`, `interpreter`, `op_lowerings`, `loops`, then `merging`,
`scan_opt` and `scheduling`. Imports neither TensorFlow nor `frontend` nor `pipeline`.
"""

from tf2jax_lite.calling import x64_params
from tf2jax_lite.dynamic_shapes import size_comparisons
from tf2jax_lite.lowering.interpreter.trace import Trace
from tf2jax_lite.lowering.planning.program import Program
from tf2jax_lite.ops.registry import known_ops

from .loops import while_op
from .op_lowerings import call_ops, cond_ops, gradient_ops, undefined_op, variable_ops, xla_call_module

__all__ = [
    "Program",
    "Trace",
    "call_ops",
    "cond_ops",
    "gradient_ops",
    "known_ops",
    "size_comparisons",
    "undefined_op",
    "variable_ops",
    "while_op",
    "x64_params",
    "xla_call_module",
]
