"""The randomized Hadamard transform: a random rotation in O(d log d).

See fedjax.aggregators.walsh_hadamard.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def walsh_hadamard(x: Any) -> Any:
    """Return the orthonormal, self-inverse transform of a vector (2^k,)."""
    d = x.shape[0]
    step = 1
    while step < d:
        pairs = x.reshape(-1, 2, step)
        x = jnp.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
        step *= 2
    return x.reshape(d) * d**-0.5


def rotated_size(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << max(size - 1, 0).bit_length()


def rotate(x: Any, key: Any) -> Any:
    """Return a random rotation of (d,) padded: random signs, then Hadamard."""
    size = rotated_size(x.shape[0])
    padded = jnp.concatenate([x, jnp.zeros((size - x.shape[0],), x.dtype)])
    return walsh_hadamard(padded * jax.random.rademacher(key, (size,), x.dtype))


def rotate_back(x: Any, size: int, key: Any) -> Any:
    """Invert `rotate` with the same key; ``size`` is the original size of the vector."""
    return (walsh_hadamard(x) * jax.random.rademacher(key, x.shape, x.dtype))[:size]
