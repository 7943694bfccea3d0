"""Type aliases of arrays, dimensions, shapes and dtypes."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import numpy as np

Array: TypeAlias = jax.Array
"""A traced or concrete JAX array."""

ArrayLike: TypeAlias = jax.Array | np.ndarray | np.generic
"""A JAX array, or a static value: a NumPy array or scalar."""

Dim: TypeAlias = Any
"""A dimension: an int, or a symbolic dimension of `jax.export`, which has the operators of an int."""

Shape: TypeAlias = tuple[Dim, ...]

PartialShape: TypeAlias = tuple[int | None, ...]
"""A shape that a graph declares, None for unknown dimensions. A shape of unknown rank is None."""

DType: TypeAlias = np.dtype[Any]

DTypeLike: TypeAlias = np.dtype[Any] | type[np.generic]
"""A dtype as a node's attribute has it, or as a default value states it: ``np.float32``."""
