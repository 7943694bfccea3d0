"""Random numbers on which privacy rests: keys of the operating system's entropy.

A JAX key of the default kind has 64 bits, and one made of a seed has as many as the seed: who sees a noised sum can try
them. So keys here have 256 bits, for ChaCha20 (RFC 8439), a stream cipher: its output cannot be told from random
numbers, nor can one key be computed from another that is derived from the same.
"""

from __future__ import annotations

import math
import secrets
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.templates.process import AggregationProcess
from tf2jax_lite.jaxprs.compat import define_prng_impl

_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")
_BITS, _SPLIT, _FOLD = range(3)  # nonces: streams of one key that never meet


def _rotated(x: Any, by: int) -> Any:
    return (x << by) | (x >> (32 - by))


def _quarter_round(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any, Any, Any]:
    a += b
    d = _rotated(d ^ a, 16)
    c += d
    b = _rotated(b ^ c, 12)
    a += b
    d = _rotated(d ^ a, 8)
    c += d
    return a, _rotated(b ^ c, 7), c, d


def chacha20(key: Any, counter: Any, nonce: Any) -> Any:
    """Return ChaCha20's blocks.

    Args:
      key: uint32 (8,).
      counter: uint32 (n,).
      nonce: three words, uint32.

    Returns:
      uint32 (n, 16).
    """
    n = counter.shape[0]
    last = jnp.stack([counter, *(jnp.full((n,), word, jnp.uint32) for word in nonce)])
    first = [jnp.broadcast_to(row[:, None], (4, n)) for row in (jnp.asarray(_CONSTANTS), key[:4], key[4:])]
    start = (*first, last)

    def double_round(_: Any, rows: Any) -> Any:
        a, b, c, d = _quarter_round(*rows)
        diagonal = a, *(jnp.roll(row, -k, 0) for k, row in enumerate((b, c, d), 1))
        a, b, c, d = _quarter_round(*diagonal)
        return a, *(jnp.roll(row, k, 0) for k, row in enumerate((b, c, d), 1))

    rows = jax.lax.fori_loop(0, 10, double_round, start)
    return jnp.concatenate([row + old for row, old in zip(rows, start, strict=True)]).T


def _words(key: Any, count: int) -> Any:
    blocks = chacha20(key, jnp.arange(-(-count // 16), dtype=jnp.uint32), (_BITS, 0, 0))
    return blocks.reshape(-1)[:count]


def _random_bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    size = math.prod(shape)
    if bit_width == 64:
        low, high = _words(key, 2 * size).astype(jnp.uint64).reshape(2, *shape)
        return low | (high << np.uint64(32))
    return _words(key, size).reshape(shape).astype(f"uint{bit_width}")


def _split(key: Any, shape: tuple[int, ...]) -> Any:
    return chacha20(key, jnp.arange(math.prod(shape), dtype=jnp.uint32), (_SPLIT, 0, 0))[:, :8].reshape(*shape, 8)


def _fold_in(key: Any, data: Any) -> Any:
    return chacha20(key, jnp.asarray(data, jnp.uint32)[None], (_FOLD, 0, 0))[0, :8]


def _seed(seed: Any) -> Any:
    return jnp.zeros(8, jnp.uint32).at[0].set(jnp.asarray(seed).astype(jnp.uint32))


CHACHA20 = define_prng_impl(
    key_shape=(8,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="chacha20", tag="cha"
)


def fresh_words() -> list[int]:
    """Return 256 bits from the operating system, as eight words.

    They are the same in all processes of `jax.distributed`.
    """
    words = np.frombuffer(secrets.token_bytes(32), np.uint32)
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        words = multihost_utils.broadcast_one_to_all(words)
    return [int(word) for word in words]


def fresh_key() -> jax.Array:
    """Return a JAX key of `fresh_words`."""
    return jax.random.wrap_key_data(jnp.asarray(fresh_words(), jnp.uint32), impl=CHACHA20)


def aggregation_key(aggregation: AggregationProcess, key: Any) -> jax.Array:
    """Return the key from which all random numbers of a round's aggregation come.

    Args:
      aggregation: where privacy rests on its random numbers, the key is `fresh_key`'s: not a function of anything that
        is stored or sent, and another one where a round is run again after a resumption.
      key: the round's key, a function of the training's; it is the result for other aggregations.
    """
    if not aggregation.is_secret:
        return key
    return fresh_key() if aggregation.noise_seed is None else jax.random.fold_in(key, aggregation.noise_seed)
