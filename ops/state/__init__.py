"""Resource variables, optimizer updates and ops with side effects.

Read `variables` first, then `optimizers`: steps on variables, and on rows of them.

Imports `ops.xla`, `ops.strings` and what is below them. No other family imports this one.
"""

from . import optimizers, side_effects, variables  # noqa: F401
