"""Suite generation: time per token of greedy generation, beside TensorFlow.

The step, with its key-value cache, is that of the model gpt2_decode. Contestants: the whole loop of TensorFlow,
converted; the step, converted, in `jax.lax.scan`; TensorFlow's loop, also compiled by XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import models
from .records import Result
from .timing import in_turns, waited, waited_tf

MODEL = "gpt2_decode"


def generation(options: Any) -> Iterator[Result]:
    """Yield seconds per token by contestant, and whether all tokens are equal."""
    steps = 4 if options.size == "small" else 32
    for batch in map(int, options.batch.split(",")):
        model, graph, (token, _, cache) = models.traceable(MODEL, options.size, batch)
        tokens, times = _contestants(model, graph, token, np.zeros_like(cache), steps, xla=not options.no_xla)
        found = in_turns(times, budget=options.budget)
        for name, value in found.items():
            found[name] = {key: number if key == "rounds" else number / steps for key, number in value.items()}
        same = float(np.mean([np.array_equal(tokens["tensorflow"], value) for value in tokens.values()]))
        yield {"model": MODEL, "batch": batch, "tokens": steps}, {"shares": {"same_tokens": same}, "times": found}
        models.clear()


def _contestants(
    model: Any, graph: Any, token: np.ndarray, cache: np.ndarray, steps: int, *, xla: bool
) -> tuple[dict[str, np.ndarray], dict[str, Callable[[], float]]]:
    """Return the tokens of each contestant, and a function that times its run."""
    import tensorflow as tf

    def loop(token: Any, cache: Any) -> Any:
        found = tf.TensorArray(tf.int32, steps, element_shape=token.shape)
        for i in tf.range(steps):
            logits, cache = model([token, tf.fill(token.shape, i), cache])
            token = tf.argmax(logits[:, 0], 1, tf.int32)[:, None]
            found = found.write(i, token)
        return found.stack()

    given = [tf.constant(token), tf.constant(cache)]
    whole, args = models.converted(tf.function(loop), [token, cache])
    step, _ = models.converted(graph, [token, token, cache])

    def scan(params: Any, token: Any, cache: Any) -> Any:
        def body(carry: Any, i: Any) -> Any:
            token, cache = carry
            logits, cache = step(params, token, jnp.full_like(token, i), cache)
            token = jnp.argmax(logits[:, 0], 1)[:, None].astype(jnp.int32)
            return (token, cache), token

        return jax.lax.scan(body, (token, cache), jnp.arange(steps, dtype=jnp.int32))[1]

    ours = {"tf2jax_lite": jax.jit(whole), "tf2jax_lite_scan": jax.jit(scan)}
    theirs = {"tensorflow": tf.function(loop)}
    if xla:
        theirs["tensorflow_xla"] = tf.function(loop, jit_compile=True)
    tokens = {name: np.asarray(fn(*args)) for name, fn in ours.items()}
    tokens |= {name: fn(*given).numpy() for name, fn in theirs.items()}
    times = {name: waited(fn, *args) for name, fn in ours.items()}
    return tokens, times | {name: waited_tf(fn, *given) for name, fn in theirs.items()}
