"""Resource variables, optimizer updates and ops with side effects.

Read in this order:

- `variables`: read, assign, shape;
- `optimizers`, `sparse_optimizers`: steps on variables, and on rows of them;
- `side_effects`: Assert, Print, StringFormat, Timestamp.

Imports `ops.xla`, `ops.strings` and what is below them. No other family imports this one.
"""

from . import optimizers, side_effects, sparse_optimizers, variables  # noqa: F401
