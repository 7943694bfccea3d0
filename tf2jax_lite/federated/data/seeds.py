"""Seeds on the host: ints, sequences, and JAX keys as numpy generators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import DataError

Seed = int | Sequence[int] | np.ndarray | jax.Array | None


def seed_words(seed: Any) -> list[int]:
    """Return a seed as non-negative ints.

    Args:
      seed: an int >= 0, a sequence of them, or a JAX key (typed, or a raw uint32 array).

    Raises:
      DataError: it is none of these.
    """
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    words = np.asarray(seed)
    if words.dtype.kind not in "iu" or words.ndim > 1 or words.size == 0 or (words < 0).any():
        raise DataError(f"a seed is an int >= 0, a sequence of such, or a JAX key; this is {seed!r}")
    return [int(word) for word in np.atleast_1d(words)]


def numpy_rng(seed: Seed, *more: int) -> np.random.Generator:
    """Return numpy's generator for ``seed``.

    The same seed gives the same stream on every machine.

    Args:
      seed: see `seed_words`; None takes entropy from the operating system, and ``more`` then has no effect.
      *more: ints >= 0 that set independent streams apart (the number of a round, say).

    Raises:
      DataError: ``seed`` is not a seed.
    """
    if seed is None:
        return np.random.default_rng()
    # ``spawn_key`` keeps (seed, more) apart from every other seed that merely has the same words in a row.
    return np.random.default_rng(np.random.SeedSequence(seed_words(seed), spawn_key=seed_words(more) if more else ()))
