"""Type aliases of arrays, dimensions, shapes and dtypes."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import numpy as np

__all__ = ["Array", "ArrayLike", "DType", "Dim", "Shape"]

Array: TypeAlias = jax.Array
"""A traced or concrete JAX array."""

ArrayLike: TypeAlias = jax.Array | np.ndarray | np.generic
"""A JAX array, or a static value: a NumPy array or scalar."""

Dim: TypeAlias = Any
"""A dimension: an int, or a symbolic dimension of `jax.export`, which has the operators of an int."""

Shape: TypeAlias = tuple[Dim, ...]

DType: TypeAlias = np.dtype[Any]
