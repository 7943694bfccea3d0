"""Resource variables, optimizer updates and ops with side effects.

`variables` first; `optimizers` and `sparse_optimizers` update dense variables and rows of them; `side_effects` has
Assert, Print and the like. No other family imports this one.
"""

from . import optimizers, side_effects, sparse_optimizers, variables  # noqa: F401
