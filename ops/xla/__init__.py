"""The Xla* ops that tf2xla and older jax2tf write.

`arrays` has slices, gathers, products, convolutions and sharding; `computations` the ops that call a function,
`protos` the reader of their protocol buffers.
"""

from . import arrays, computations, linear, sharding  # noqa: F401
