"""The suite products: matrix products of transformers, as XLA's CPU backend and as TensorFlow runs them.

Models made of products cannot be much faster than these; the page shows them where a target is not met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .timing import in_turns, ratios, seconds

# Rows, summed, columns: tokens of 1 and 8 examples through layers of width 768; logits of a vocabulary.
SHAPES = ((128, 768, 768), (128, 768, 3072), (197, 3072, 768), (1576, 768, 768), (1576, 768, 3072), (8, 768, 50257))
SMALL = ((8, 16, 24),)


def _runs(shape: tuple[int, int, int]) -> dict[str, Callable[[], float]]:
    import tensorflow as tf

    rows, inner, columns = shape
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((rows, inner), (inner, columns)))
    args = jnp.asarray(a), jnp.asarray(b)
    compiled = jax.jit(jnp.matmul).lower(*args).compile()
    tensors, graph = (tf.constant(a), tf.constant(b)), tf.function(tf.matmul)
    return {
        "jax": lambda: seconds(lambda: jax.block_until_ready(compiled(*args))),
        "tensorflow": lambda: seconds(lambda: graph(*tensors).numpy()),
    }


def records(size: str) -> Iterator[dict[str, Any]]:
    """Yields times, and billions of floating point operations a second, of each product."""
    for shape in SHAPES if size == "full" else SMALL:
        times = in_turns(_runs(shape), budget=1)
        rates = {name: 2e-9 * float(np.prod(shape)) / t["median"] for name, t in times.items()}
        form = " x ".join(map(str, shape))
        yield {"form": form, "times": times, "ratios": ratios(times, "jax"), "gflops": rates}
