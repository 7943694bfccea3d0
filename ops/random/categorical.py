"""Samples of categorical distributions given by logits: the Multinomial ops.

TF: core/kernels/multinomial_op.cc.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

from ._uniform import double_dtype, uint64_to_double
from .philox import block, from_jax_key, scramble, skip

_INT64 = np.dtype(np.int64)


def _multinomial(logits: Any, num_samples: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return classes by inverting each row's cumulative distribution.

    [rows, num_samples], as multinomial_op.cc.
    """
    logits, count = jnp.asarray(lax.stop_gradient(logits)), int(num_samples)
    if logits.ndim != 2:
        raise OpError(f"logits must be a matrix, got shape {logits.shape}")
    rows, num_classes = logits.shape
    if count < 0:
        raise OpError(f"num_samples must not be negative, got {count}")
    if isinstance(num_classes, int) and num_classes < 1:
        raise OpError("there must be at least one class")
    finite = jnp.isfinite(logits)
    work = logits.astype(double_dtype())
    top = jnp.max(jnp.where(finite, work, -np.inf), axis=1, keepdims=True)
    cumulative = jnp.cumsum(jnp.where(finite, jnp.exp(work - top), 0), axis=1)
    position = lax.broadcasted_iota(np.uint32, (rows, count), 0) * np.uint32(count)
    position = position + lax.broadcasted_iota(np.uint32, (rows, count), 1)
    words = block(skip(counter, position >> np.uint32(1)), (key[0], key[1]))
    second = (position & np.uint32(1)) == 1
    units = uint64_to_double(jnp.where(second, words[2], words[0]), jnp.where(second, words[3], words[1]))
    targets = units * cumulative[:, -1:]
    classes = jax.vmap(lambda row, values: jnp.searchsorted(row, values, side="right"))(cumulative, targets)
    return classes.astype(canonical(dtype))


@op("StatelessMultinomial")
def stateless_multinomial(logits, num_samples: Static, seed, *, output_dtype=_INT64):
    """Sample classes by logits, with TensorFlow's bits.

    Classes with logits that are not finite are never sampled.

    Bits are TensorFlow's as long as it computes all rows in one thread: for one row, and for ``rows * (classes +
    samples * log2(classes))`` up to about 4,200. Beyond, later rows depend on its number of threads.
    """
    return _multinomial(logits, num_samples, *scramble(seed), output_dtype)


@op("Multinomial")
def multinomial(logits, num_samples: Static, *, seed=0, seed2=0, output_dtype=_INT64, key: Key):
    """Sample classes by logits, from the node's JAX key.

    Classes with logits that are not finite are never sampled.
    """
    return _multinomial(logits, num_samples, *from_jax_key(key), output_dtype)
