"""Rules that evaluate primitives on padded arrays, by kind of primitive.

Each rule is registered by `evaluator.rule`; importing this package registers all of them.

Read in this order: shapes (and elementwise primitives), reductions and windows (on shapes), control_flow.

It must not import `driver` or `tracker`.
"""

from . import control_flow, reductions, shapes  # noqa: F401
