"""Walks the ir once, inside JAX tracing."""

from . import branches as _branches
from . import calls as _calls
from . import gradients as _gradients
from . import loops as _loops
from .program import Program
from .trace import Trace

__all__ = ["Program", "Trace"]
