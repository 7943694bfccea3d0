"""Type aliases of values of tensors, by the values that an op takes.

`Array` of `types` is for ops that only compute with arrays; inputs whose values are static arrive as NumPy arrays
there, too, which have the same operators.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import numpy as np

from .int64 import U32Pair, WordArray
from .static import Resource
from .variant import Variant

Operand: TypeAlias = jax.Array | np.ndarray
"""An operand of an op that tells static inputs from traced ones: a NumPy array where the value is static."""

ArrayOrPair: TypeAlias = jax.Array | np.ndarray | U32Pair
"""An operand of an op with ``int64="pair"``: 64-bit integers are `U32Pair` without JAX's 64-bit mode."""

Tensor: TypeAlias = jax.Array | np.ndarray | WordArray | Variant | Resource
"""A tensor of any dtype: numbers, 64-bit integers, strings, a variant, a resource."""
