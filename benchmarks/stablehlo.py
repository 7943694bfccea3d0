"""The suite stablehlo: JAX functions before and after StableHLO.

Both compiled programs run in turns, their order changing each round; the ratio of a round is ours to the original's,
and a model's number is the median over its rounds. The target is at most 1.05.
"""

from __future__ import annotations

import collections
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tf2jax_lite as tf2jax

from . import models
from .records import Result
from .timing import equations

_RNG = np.random.RandomState(0)


def _p(*shape: int, scale: float = 0.1) -> Any:
    return jnp.asarray(_RNG.randn(*shape) * scale, jnp.float32)


def mlp(x, w1, b1, w2, b2):
    return jax.nn.log_softmax(jax.nn.relu(x @ w1 + b1) @ w2 + b2)


def cnn(x, k1, b1, k2, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    x = jax.nn.relu(lax.conv_general_dilated(x, k1, (1, 1), "SAME", dimension_numbers=numbers) + b1)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.silu(lax.conv_general_dilated(x, k2, (2, 2), "SAME", dimension_numbers=numbers))
    x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-3)
    return x.reshape(x.shape[0], -1) @ w


def _norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def transformer(tokens, table, wqkv, wo, w1, w2):
    x = table[tokens]
    q, k, v = jnp.split((_norm(x) @ wqkv).reshape(*x.shape[:2], 4, -1), 3, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9))
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ wo
    return (x + jax.nn.gelu(_norm(x) @ w1) @ w2) @ table.T


def gru(xs, wi, wh):
    def step(h, x):
        a, b = jnp.split(x @ wi, 3, -1), jnp.split(h @ wh, 3, -1)
        r, z = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
        h = (1 - z) * jnp.tanh(a[2] + r * b[2]) + z * h
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], wh.shape[0])), xs)[1]


def deep(x, ws):
    return lax.scan(lambda h, w: (h + jnp.tanh(_norm(h) @ w), None), x, ws)[0]


def search(x):
    return lax.while_loop(lambda c: jnp.sum(c[1] ** 2) > 1, lambda c: (c[0] + 1, jnp.sin(c[1]) * 0.99), (0, x))[1]


def sorting(x):
    order = jnp.argsort(x, 1)
    return jnp.take_along_axis(x, order, 1).cumsum(1), lax.top_k(x, 5)[0], jnp.median(x, 1)


def solving(a, b):
    a = a @ a.T + 10 * jnp.eye(a.shape[0])
    return jnp.linalg.solve(a, b), jnp.linalg.cholesky(a), jnp.linalg.eigh(a)[0]


def scattering(x, i, v):
    return x.at[i].add(v)[i[::-1]] * jax.ops.segment_sum(v, i, x.shape[0])[i]


def random(x):
    key = jax.random.key(0)
    return x + jax.random.normal(key, x.shape) * jax.random.bernoulli(key, 0.5, x.shape)


def _gradient(fn: Callable[..., Any], which: tuple[int, ...]) -> Callable[..., Any]:
    return jax.grad(lambda *args: sum(jnp.sum(v**2) for v in jax.tree.leaves(fn(*args))), which)


_MLP = (_p(256, 256), _p(256, 512), _p(512), _p(512, 64), _p(64))
_CNN = (_p(8, 32, 32, 8), _p(3, 3, 8, 32), _p(32), _p(3, 3, 32, 32), _p(8 * 8 * 32, 10))
_TOKENS = jnp.asarray(_RNG.randint(0, 100, (4, 64)), jnp.int32)
_TRANSFORMER = (_TOKENS, _p(100, 128), _p(128, 384), _p(128, 128), _p(128, 256), _p(256, 128))
_GRU = (_p(64, 16, 64), _p(64, 192), _p(64, 192))
_DEEP = (_p(64, 128), _p(24, 128, 128))
_INDICES = jnp.asarray(_RNG.randint(0, 500, 2000), jnp.int32)

MODELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp": (mlp, _MLP),
    "cnn": (cnn, _CNN),
    "transformer": (transformer, _TRANSFORMER),
    "gru": (gru, _GRU),
    "deep": (deep, _DEEP),
    "while": (search, (_p(64, 64, scale=1),)),
    "sorting": (sorting, (_p(64, 512, scale=1),)),
    "solving": (solving, (_p(96, 96), _p(96, 8))),
    "scattering": (scattering, (_p(500, 64), _INDICES, _p(2000, 64))),
    "random": (random, (_p(256, 256),)),
    "mlp_step": (_gradient(mlp, (1, 2, 3, 4)), _MLP),
    "cnn_step": (_gradient(cnn, (1, 2, 3, 4)), _CNN),
    "transformer_step": (_gradient(transformer, (1, 2, 3, 4, 5)), _TRANSFORMER),
    "gru_step": (_gradient(gru, (1, 2)), _GRU),
}


def stablehlo(options: Any) -> Iterator[Result]:
    """Measure models; each has at most three seconds of turns, and at least 20 rounds.

    Yields:
      ``ratio``: median of ours / original over the rounds; ``times``; ``equations``: of the round trip's jaxpr divided
      by the original's; ``same_program``: whether both compile to as many instructions of each kind.
    """
    for name in models.chosen(options, MODELS):
        fn, args = MODELS[name]
        exported = jax.export.export(jax.jit(fn))(*args)
        imported = tf2jax.from_stablehlo(exported.mlir_module_serialized)
        sizes = [equations(jax.make_jaxpr(f)(*args)) for f in (imported, fn)]
        compiled = [jax.jit(f).lower(*args).compile() for f in (imported, fn)]
        ours, theirs = map(_instructions, compiled)
        for run in compiled * 2:
            jax.block_until_ready(run(*args))
        once = min(_seconds(run, args) for run in compiled)
        inner = max(1, int(0.002 / max(once, 1e-7)))  # short programs run several times in a turn
        times: list[tuple[float, float]] = []
        start = time.perf_counter()
        while len(times) < 20 or time.perf_counter() - start < min(options.budget, 3.0):
            found = [0.0, 0.0]
            for i in (0, 1) if len(times) % 2 else (1, 0):
                found[i] = _seconds(compiled[i], args, inner)
            times.append((found[0], found[1]))
        medians = {
            who: statistics.median(pair[i] for pair in times) for i, who in enumerate(("tf2jax_lite", "original"))
        }
        yield (
            {"model": name},
            {
                "ratio": statistics.median(a / b for a, b in times),
                "times": {who: {"median": median, "rounds": len(times)} for who, median in medians.items()},
                "equations": sizes[0] / sizes[1],
                "same_program": ours == theirs,
            },
        )


def _instructions(compiled: Any) -> collections.Counter[str]:
    """Return a compiled program's instruction counts by kind, fused included."""
    return collections.Counter(re.findall(r" = .*? ([a-z][a-z0-9-]*)\(", compiled.as_text() or ""))


def _seconds(run: Callable[..., Any], args: tuple[Any, ...], inner: int = 1) -> float:
    start = time.perf_counter()
    result = None
    for _ in range(inner):
        result = run(*args)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / inner
