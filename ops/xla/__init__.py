"""The Xla* ops that tf2xla and older jax2tf write.

Read in this order:

- `arrays`: slices, gathers, padding, sorting, random bits;
- `linear`: convolution, dot products, eigenvalues, SVD;
- `computations`: ops with a function argument: reductions, windows, scatter, sort;
- `sharding`: shardings and collectives on a single device;
- `protos`: the reader of their protocol buffers.

Imports `ops.linalg`, `ops.random` and `ops.common`, no other family.
"""

from . import arrays, computations, linear, sharding  # noqa: F401
