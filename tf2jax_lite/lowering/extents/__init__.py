"""Programs in which data decides sizes, traced with symbols for them and evaluated with arrays of fixed shapes.

`tf2jax_lite.ops.extents` says what such a size is. `traced` runs a program so where it has to; rules for JAX's
primitives stand in the modules beside it, by kind.
"""

from __future__ import annotations

from . import control, elementwise, indexing, reductions, shapes, windows
from .traced import traced

__all__ = ["traced"]

del control, elementwise, indexing, reductions, shapes, windows
