"""The suite products: transformers' matrix products in XLA and TensorFlow.

Models made of products cannot be much faster than these; the page shows them where a target is not met. `alone` times
the products and convolutions of one model's program without anything between them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core as jex
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
    """Yield times of products, and billions of floating point operations/s."""
    for shape in SHAPES if size == "full" else SMALL:
        times = in_turns(_runs(shape), budget=1)
        rates = {name: 2e-9 * float(np.prod(shape)) / t["median"] for name, t in times.items()}
        form = " x ".join(map(str, shape))
        yield {"form": form, "times": times, "ratios": ratios(times, "jax"), "gflops": rates}


def _found(closed: Any, times: int, found: dict[Any, list[Any]]) -> None:
    for eqn in closed.eqns:
        if eqn.primitive.name in ("dot_general", "conv_general_dilated"):  # of the second there is ours, too
            key = (*(v.aval for v in eqn.invars), *map(str, eqn.params.items()))
            found.setdefault(key, [eqn, 0])[1] += times
        inner = times * eqn.params.get("length", 1)
        for value in eqn.params.values():
            for jaxpr in value if isinstance(value, (tuple, list)) else [value]:
                if isinstance(jaxpr, (jex.ClosedJaxpr, jex.Jaxpr)):
                    _found(getattr(jaxpr, "jaxpr", jaxpr), inner, found)


def alone(closed: Any) -> Callable[[], float]:
    """Return a function that times a program's products and convolutions.

    They run one by one.

    Args:
      closed: the program, a closed jaxpr; values are random; what loops of known length hold counts for each iteration.
    """
    found: dict[Any, list[Any]] = {}
    _found(closed.jaxpr, 1, found)
    rng = np.random.default_rng(0)
    parts = []
    for eqn, times in found.values():
        args = [jnp.asarray(rng.normal(size=v.aval.shape), v.aval.dtype) for v in eqn.invars]
        compiled = jax.jit(functools.partial(eqn.primitive.bind, **eqn.params)).lower(*args).compile()
        parts.append((compiled, args, times))

    def run() -> float:
        return sum(n * seconds(lambda c=c, a=a: jax.block_until_ready(c(*a))) for c, a, n in parts)

    return run
