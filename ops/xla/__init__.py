"""The Xla* ops that tf2xla and older jax2tf write.

`computations` has ops with a function argument and collectives on a single device, `protos` the reader of their
protocol buffers.

Imports `ops.linalg`, `ops.random` and `ops.common`, no other family.
"""

from . import arrays, computations, linear  # noqa: F401
