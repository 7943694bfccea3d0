"""Walks the ir once, inside JAX tracing."""

from . import branches, calls, loops, variables
from .program import Program
from .trace import Trace

__all__ = ["Program", "Trace", "branches", "calls", "loops", "variables"]
