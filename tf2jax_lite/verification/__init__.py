"""TensorFlow beside JAX: results, gradients and variables on the same inputs, and the node where they part."""

from .bisection import bisect
from .compare import OutputComparison
from .findings import Bisection, NodeError, Suspect
from .results import CaseComparison, SignatureComparison, Verification
from .verifier import verify, verify_saved_model

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
    "verify_saved_model",
]
