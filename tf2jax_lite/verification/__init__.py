"""Compare a model in TensorFlow and in JAX, down to the first wrong node.

Entry: `verify`, which draws inputs, runs both sides and compares; `bisect` finds the node.

Read in this order:
  targets: one function on both sides, from any kind of model, TF1 graphs by a session.
  index_ranges: the tables that integer inputs index.
  runners, compare, gradients: calls of both sides, and comparisons of arrays and gradients.
  bisection, eager_ops: lockstep evaluation of the graph, node by node, with the Python line of each.
  float64_reference, roundoff_verdict: whether a difference is round-off.
  artifacts: a stored artifact beside TensorFlow.
  verifier, results, report, repro_script: the driver, which draws inputs, the verdict, its HTML page, a script to
  reproduce it.
  node_data: the error and time of each node, for Model Explorer.

Imports TensorFlow; nothing below it may import this package.
"""

from tf2jax_lite.frontend import concrete as _  # noqa: F401  (first: without TensorFlow, it says what to install)

from .bisection import bisect
from .compare import OutputComparison
from .results import Bisection, CaseComparison, NodeError, SignatureComparison, Suspect, Verification
from .verifier import verify

__all__ = [
    "Bisection",
    "CaseComparison",
    "NodeError",
    "OutputComparison",
    "SignatureComparison",
    "Suspect",
    "Verification",
    "bisect",
    "verify",
]
