"""Walks the ir once, inside JAX tracing."""

from . import branches, calls, gradients, loops, variables
from .program import Program
from .trace import Trace

__all__ = ["Program", "Trace", "branches", "calls", "gradients", "loops", "variables"]
