"""Walks the ir once, inside JAX tracing."""

from . import branches as _branches
from . import calls as _calls
from . import loops as _loops
from . import variables as _variables
from .program import Program
from .trace import Trace

__all__ = ["Program", "Trace"]
