"""The suite long: long computations with values used in distant steps.

Several loops, or reads at several indices, use a value.

XLA fuses cheap operations into each of their users, and recomputes them there. So compile and run time of such programs
can grow with the square of their steps, or far faster, also in native JAX (`lowering/planning/materialize.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tf2jax_lite

from .records import Result
from .timing import in_turns, waited, waited_tf


@dataclasses.dataclass(frozen=True)
class Program:
    """One computation.

    Attributes:
      fn: takes a backend (`_jax`, `_tensorflow`), an array and the number of steps.
      gradient: whether its gradient is measured, too, for how many steps; 0 if not.
    """

    name: str
    fn: Callable[[Any, Any, int], Any]
    shape: tuple[int, ...]
    steps: tuple[int, int]
    gradient: int


def _jax() -> Any:
    return SimpleNamespace(
        roll=jnp.roll,
        stack=jnp.stack,
        concat=jnp.concatenate,
        sin=jnp.sin,
        tanh=jnp.tanh,
        relu=jax.nn.relu,
        matmul=jnp.matmul,
        mean=lambda x: jnp.mean(x, -1, keepdims=True),
        logsumexp=lambda x, axis: jax.nn.logsumexp(x, axis, keepdims=True),
        function=jax.jit,
    )


def _tensorflow() -> Any:
    import tensorflow as tf

    return SimpleNamespace(
        roll=tf.roll,
        stack=tf.stack,
        concat=tf.concat,
        sin=tf.sin,
        tanh=tf.tanh,
        relu=tf.nn.relu,
        matmul=tf.matmul,
        mean=lambda x: tf.reduce_mean(x, -1, keepdims=True),
        logsumexp=lambda x, axis: tf.reduce_logsumexp(x, axis, keepdims=True),
        function=lambda fn: tf.function(fn, autograph=False),
    )


def _runge_kutta(b: Any, x: Any, steps: int) -> Any:
    """Lorenz's equations."""

    def derivative(s: Any) -> Any:
        return b.stack([10.0 * (s[1] - s[0]), s[0] * (28.0 - s[2]) - s[1], s[0] * s[1] - 8.0 / 3.0 * s[2]])

    for _ in range(steps):
        k1 = derivative(x)
        k2 = derivative(x + 0.005 * k1)
        k3 = derivative(x + 0.005 * k2)
        x = x + 0.01 / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + derivative(x + 0.01 * k3))
    return x


def _wave(b: Any, x: Any, steps: int) -> Any:
    before = x
    for _ in range(steps):
        around = b.roll(x, 1, 0) + b.roll(x, -1, 0) + b.roll(x, 1, 1) + b.roll(x, -1, 1)
        x, before = 2.0 * x - before + 0.1 * (around - 4.0 * x), x
    return x


def _sinkhorn(b: Any, x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = x - b.logsumexp(x, 0)
        x = x - b.logsumexp(x, 1)
    return x


def _centered(b: Any, x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = b.relu(x + 0.1 * b.sin(x) - b.mean(x))
    return x


def _neighbours(b: Any, x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = b.concat([x[:, 1:] * 0.9 + x[:, :-1], x[:, :1]], 1)
    return x


def _recurrence(b: Any, x: Any, steps: int) -> Any:
    """Its outputs are stacked."""
    state, out = x[:, 0], []
    for step in range(steps):
        state = 0.9 * state + 0.1 * b.tanh(x[:, step] + state)
        out.append(state)
    return b.stack(out, 1)


def _calls(b: Any, x: Any, steps: int) -> Any:
    """Return a chain of calls of one function."""
    block = b.function(lambda x, w: x + b.relu(b.matmul(b.tanh(x - b.mean(x)), w)))
    w = np.random.default_rng(1).normal(size=(x.shape[-1], x.shape[-1])).astype(np.float32) / 16.0
    for _ in range(steps):
        x = block(x, w)
    return x


PROGRAMS = (
    Program("Runge-Kutta, Lorenz", _runge_kutta, (3, 1000), (24, 2), 6),
    Program("wave equation, rolls", _wave, (64, 64), (24, 2), 8),
    Program("Sinkhorn", _sinkhorn, (64, 64), (40, 2), 40),
    Program("rectified, centered", _centered, (64, 64), (60, 2), 60),
    Program("neighbours, slices", _neighbours, (64, 64), (40, 2), 40),
    Program("recurrence, stacked", _recurrence, (64, 64), (64, 2), 64),
    Program("chain of calls", _calls, (128, 256), (40, 2), 40),
)


def _gradient_in_tf(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import tensorflow as tf

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(fn(x)))
        return tape.gradient(loss, x)

    return gradient


def _result(program: Program, what: str, steps: int) -> Result:
    import tensorflow as tf

    x = np.random.default_rng(0).normal(size=program.shape).astype(np.float32)
    call: Any = program.fn
    fn: Any = functools.partial(call, _tensorflow(), steps=steps)
    native: Any = functools.partial(call, _jax(), steps=steps)
    ours: Any = tf2jax_lite.convert_functional(tf.function(fn, autograph=False), tf.TensorSpec(x.shape, x.dtype))
    if what == "gradient":
        fn = _gradient_in_tf(fn)
        ours, native = (jax.grad(lambda x, of=of: jnp.sum(jnp.square(of(x)))) for of in (ours, native))
    runs, compiling = {}, {}
    for who, call in (("tf2jax_lite", ours), ("native", native)):
        jax.clear_caches()
        start = time.process_time()
        compiled = jax.jit(call).lower(x).compile()
        compiling["ours" if who == "tf2jax_lite" else who] = time.process_time() - start
        runs[who] = waited(compiled, jnp.asarray(x))
    runs["tensorflow"] = waited_tf(tf.function(fn, autograph=False), tf.constant(x))
    case = {"name": program.name, "what": what, "steps": steps}
    return case, {"times": in_turns(runs, budget=3.0), "compile": compiling}


def long(options: Any) -> Iterator[Result]:
    """Yield times of programs and gradients, and processor time to compile."""
    for program in PROGRAMS:
        full, small = program.steps
        yield _result(program, "call", full if options.size == "full" else small)
        if program.gradient:
            yield _result(program, "gradient", program.gradient if options.size == "full" else small)
