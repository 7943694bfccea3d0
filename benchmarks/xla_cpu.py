"""The suite xla_cpu: a CNN, and as `tf2jax_lite.xla_cpu.optimize` makes it.

Forward pass and training step are timed.

The network is written with Flax if that is installed, else in JAX: inverted residual blocks as in MobileNetV2, with a
stem of 3 channels, depthwise and pointwise convolutions, poolings and a classifier.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import optimize

from .timing import in_turns, ratios, seconds

_WIDTHS = {"full": (32, 64, 128, 256), "small": (8, 8)}
_SIDES = {"full": 128, "small": 16}


def _flax(widths: tuple[int, ...]) -> Any:
    import flax.linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(widths[0], (3, 3), strides=2)(x))
            for width in widths:
                y = nn.relu(nn.Conv(4 * width, (1, 1))(x))
                y = nn.relu(nn.Conv(4 * width, (3, 3), feature_group_count=4 * width)(y))
                y = nn.Conv(width, (1, 1))(y)
                x = nn.max_pool(x + y if x.shape == y.shape else y, (3, 3), (2, 2), "SAME")
            return nn.Dense(10)(jnp.mean(x, (1, 2)))

    return Network()


def _jax(widths: tuple[int, ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def init(key: Any, x: Any) -> Any:
        last = widths[0]
        shapes: list[tuple[int, ...]] = [(3, 3, x.shape[-1], last)]
        for width in widths:
            shapes += [(1, 1, last, 4 * width), (3, 3, 1, 4 * width), (1, 1, 4 * width, width)]
            last = width
        shapes.append((last, 10))
        keys = jax.random.split(key, len(shapes))
        return [jax.random.normal(k, s) / np.sqrt(np.prod(s[:-1])) for k, s in zip(keys, shapes, strict=True)]

    def convolve(x: Any, w: Any, stride: int = 1) -> Any:
        groups = x.shape[-1] // w.shape[2]
        order = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (stride,) * 2, "SAME", dimension_numbers=order, feature_group_count=groups
        )

    def apply(params: Any, x: Any) -> Any:
        stem, *blocks, dense = params
        x = jax.nn.relu(convolve(x, stem, 2))
        for i in range(0, len(blocks), 3):
            y = jax.nn.relu(convolve(x, blocks[i]))
            y = convolve(jax.nn.relu(convolve(y, blocks[i + 1])), blocks[i + 2])
            y = x + y if x.shape == y.shape else y
            x = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.mean(x, (1, 2)) @ dense

    return init, apply


def _step(apply: Callable[..., Any]) -> Callable[..., Any]:
    def loss(params: Any, x: Any) -> Any:
        return jnp.mean(jax.nn.logsumexp(apply(params, x), -1) ** 2)

    return lambda params, x: jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params, x))


def _timed(run: Callable[..., Any], *args: Any) -> float:
    return seconds(lambda: jax.block_until_ready(run(*args)))


def main(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a record for each batch size, of the forward pass and of a training step."""
    widths = _WIDTHS[options.size]
    try:
        network = _flax(widths)
        init, apply, written = network.init, network.apply, "flax"
    except ImportError:
        (init, apply), written = _jax(widths), "jax"
    for batch in map(int, options.batch.split(",")):
        side = _SIDES[options.size]
        x = jnp.asarray(np.random.default_rng(0).normal(size=(batch, side, side, 3)).astype(np.float32))
        params = init(jax.random.key(0), x)
        for what, change in (("forward", lambda fn: fn), ("step", _step)):
            contestants, compiling = {}, {}
            for who, fn in (("tf2jax_lite", optimize(apply, rules=True)), ("jax", apply)):
                start = time.process_time()  # compiling uses all cores, beside other work
                run = jax.jit(change(fn)).lower(params, x).compile()
                compiling[who] = time.process_time() - start
                contestants[who] = functools.partial(_timed, run, params, x)
            times = in_turns(contestants, rounds=20, budget=options.budget)
            record = {"model": "CNN", "written": written, "batch": batch, "what": what, "times": times}
            yield {**record, "ratios": ratios(times), "compile": compiling}
