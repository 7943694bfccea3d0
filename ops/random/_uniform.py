"""Floats in [0, 1) from Philox words.

As the functions of TensorFlow's random_distributions_utils.h. A word's low bits are the mantissa of a float in [1, 2),
from which 1 is subtracted.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tf2jax_lite.values.static import canonical


def double_dtype() -> np.dtype:
    """Return float64, or float32 where JAX has no 64-bit mode."""
    return canonical(np.float64)


def uint32_to_float(word: Any) -> Any:
    """Return float32 in [0, 1) from the low 23 bits of uint32 words."""
    mantissa = (word & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)
    return lax.bitcast_convert_type(mantissa, np.float32) - np.float32(1)


def uint64_to_double(first: Any, second: Any) -> Any:
    """Return numbers of `double_dtype` in [0, 1) from two words.

    They are 20 bits of the first word, then all of the second.
    """
    high = first & np.uint32(0xFFFFF)
    if double_dtype() == np.float64:
        # Not a bitcast of two words, which jax.export does not support where a dimension is symbolic.
        word = ((high | np.uint32(1023 << 20)).astype(np.uint64) << np.uint64(32)) | second.astype(np.uint64)
        return lax.bitcast_convert_type(word, np.float64) - np.float64(1)
    return uint32_to_float((high << np.uint32(3)) | (second >> np.uint32(29)))


def unit_floats(words: Any, dtype: Any) -> Any:
    """Return floats in [0, 1) from uint32 words.

    For float64 the last axis of ``words`` is the pair of one number.
    """
    if dtype == np.float64:
        return uint64_to_double(words[..., 0], words[..., 1])
    if dtype == np.float32:
        return uint32_to_float(words)
    low = words.astype(np.uint16)
    if dtype == np.float16:
        return lax.bitcast_convert_type((low & np.uint16(0x3FF)) | np.uint16(15 << 10), np.float16) - np.float16(1)
    value = lax.bitcast_convert_type((low & np.uint16(0x7F)) | np.uint16(127 << 7), ml_dtypes.bfloat16)
    return value - jnp.ones((), value.dtype)
