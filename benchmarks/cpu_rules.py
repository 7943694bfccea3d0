"""The suite cpu_rules: single operations with and without CPU lowering rules."""

from __future__ import annotations

import dataclasses
import functools
import operator
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu import pooling
from tf2jax_lite.xla_cpu.conv import rule

from .timing import in_turns, ratios, seconds


@dataclasses.dataclass(frozen=True)
class Form:
    """One operation: NHWC shapes, a square window, or a plane's or column's."""

    kind: str
    batch: int
    side: int
    inputs: int
    outputs: int
    window: int
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        moves = "x".join(map(str, self.windows)) + (f" stride {self.stride}" if self.stride > 1 else "")
        channels = f"{self.inputs}" + (f" to {self.outputs}" if self.outputs else "")
        if self.groups > 1:
            channels += f" in {self.groups} groups"
        return f"{self.kind} {moves}, {self.batch}x{f'{self.side}x' * self.rank}{channels}"

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return 3 if self.kind in ("volume", "plane", "column") else 2

    @property
    def windows(self) -> tuple[int, ...]:
        """The window's size along each of them."""
        reaches = {"plane": (False, True, True), "column": (True, False, False)}.get(self.kind, (True,) * self.rank)
        return tuple(self.window if reached else 1 for reached in reaches)

    def plain(self, with_rule: bool) -> Callable[..., Any]:
        """Return the operation with or without the CPU lowering rule."""
        if self.kind in ("max", "sum"):
            where = ((1, self.window, self.window, 1), (1, self.stride, self.stride, 1), "SAME")
            pool = _max if self.kind == "max" else _sum
            return (lambda x: pooling.call(pool, x, where=where)) if with_rule else lambda x: pool(x, where=where)
        rank = self.rank
        keywords: dict[str, Any] = {
            "window_strides": (self.stride,) * rank,
            "padding": "VALID" if self.stride == self.window or self.kind.startswith("unpadded") else "SAME",
            "dimension_numbers": ("NDHWC", "DHWIO", "NDHWC") if rank == 3 else ("NHWC", "HWIO", "NHWC"),
            "feature_group_count": self.inputs if self.kind == "depthwise" else self.groups,
        }
        convolve = functools.partial(lax.conv_general_dilated, **keywords)
        if with_rule:
            convolve = functools.partial(rule.call, lax.conv_general_dilated, **keywords)
        if self.kind == "convolution of a sum":
            return lambda x, w: convolve(_summed(x, jnp.roll), w)
        return convolve

    def tensorflow(self) -> Callable[..., Any]:
        """Return the operation in TensorFlow."""
        import tensorflow as tf

        strides = (1, *(self.stride,) * self.rank, 1)
        padding = "VALID" if self.stride == self.window or self.kind.startswith("unpadded") else "SAME"
        if self.kind in ("max", "sum"):
            pool = tf.nn.max_pool2d if self.kind == "max" else tf.nn.avg_pool2d
            return lambda x: pool(x, self.window, self.stride, "SAME")
        if self.kind == "depthwise":
            return lambda x, w: tf.nn.depthwise_conv2d(x, tf.transpose(w, (0, 1, 3, 2)), strides, padding)
        if self.kind == "convolution of a sum":
            return lambda x, w: tf.nn.conv2d(_summed(x, tf.roll), w, strides, padding)
        return lambda x, w: (tf.nn.conv3d if self.rank == 3 else tf.nn.conv2d)(x, w, strides, padding)

    def arguments(self) -> tuple[Any, ...]:
        """Return random operands."""
        rng = np.random.default_rng(0)
        x = jnp.asarray(rng.normal(size=(self.batch, *(self.side,) * self.rank, self.inputs)).astype(np.float32))
        if self.kind in ("max", "sum"):
            return (x,)
        depthwise = self.kind == "depthwise"
        shape = (
            *self.windows,
            1 if depthwise else self.inputs // self.groups,
            self.inputs if depthwise else self.outputs,
        )
        return x, jnp.asarray(rng.normal(size=shape).astype(np.float32))


_TERMS = 24


def _summed(x: Any, roll: Callable[..., Any]) -> Any:
    """Return a sum in front of a convolution, which XLA computes once or for each use."""
    return functools.reduce(operator.add, (roll(x, shift, 1) * x for shift in range(_TERMS)))


def _max(x: Any, *, where: Any) -> Any:
    return lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, *where)


def _sum(x: Any, *, where: Any) -> Any:
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, *where)


FORMS = (
    Form("depthwise", 4, 112, 32, 0, 3),
    Form("depthwise", 4, 56, 144, 0, 3, 2),
    Form("depthwise", 4, 14, 384, 0, 3),
    Form("depthwise", 4, 14, 672, 0, 5),
    Form("depthwise", 4, 28, 192, 0, 7),
    Form("convolution", 4, 56, 64, 256, 1),
    Form("convolution", 4, 56, 256, 512, 1, 2),
    Form("convolution", 4, 14, 1024, 256, 1),
    Form("convolution", 4, 28, 128, 128, 3),
    Form("convolution", 4, 7, 512, 512, 3),
    Form("convolution", 8, 56, 64, 64, 3),
    Form("convolution", 1, 28, 512, 512, 3),
    Form("convolution", 1, 14, 256, 256, 3),
    Form("convolution", 2, 28, 64, 64, 3, 1, 8),
    Form("convolution", 1, 56, 128, 128, 3, 1, 32),
    Form("convolution", 8, 28, 256, 256, 3, 1, 32),
    Form("convolution", 8, 27, 96, 256, 5, 1, 2),
    Form("convolution", 4, 112, 3, 32, 3, 2),
    Form("convolution", 8, 128, 64, 32, 3),
    Form("convolution", 8, 147, 32, 64, 3),
    Form("convolution", 4, 28, 128, 256, 3, 2),
    Form("convolution", 4, 224, 3, 96, 4, 4),
    Form("convolution", 8, 56, 128, 256, 3),
    Form("convolution", 8, 64, 64, 64, 3),
    Form("convolution", 1, 128, 32, 32, 3),
    Form("convolution", 8, 224, 3, 32, 3, 2),
    Form("convolution", 8, 208, 3, 16, 3),
    Form("convolution", 32, 28, 1, 6, 5),
    Form("unpadded convolution", 8, 230, 3, 64, 7, 2),
    Form("unpadded convolution", 8, 299, 3, 32, 3, 2),
    Form("unpadded convolution", 8, 149, 32, 32, 3),
    Form("unpadded convolution", 8, 35, 288, 384, 3, 2),
    Form("convolution", 8, 112, 16, 16, 5, 2),
    Form("convolution", 2, 112, 256, 32, 3, 2),
    Form("convolution", 64, 16, 64, 64, 3),
    Form("convolution", 64, 26, 32, 64, 3),
    Form("convolution", 64, 32, 16, 16, 3),
    Form("convolution", 2, 128, 32, 64, 5),
    Form("convolution of a sum", 8, 64, 64, 32, 1),
    Form("volume", 1, 28, 32, 64, 3),
    Form("volume", 1, 32, 32, 32, 3, 2),
    Form("volume", 4, 48, 48, 16, 3),
    Form("volume", 1, 20, 256, 256, 3),
    Form("volume", 2, 32, 32, 3, 3),
    Form("plane", 1, 36, 64, 64, 3),
    Form("column", 1, 36, 64, 64, 3),
    Form("column", 1, 16, 256, 256, 3),
    Form("max", 4, 112, 64, 0, 3, 2),
    Form("max", 4, 28, 512, 0, 2, 2),
    Form("max", 4, 28, 192, 0, 3),
    Form("max", 8, 28, 64, 0, 5, 2),
    Form("max", 1, 20, 512, 0, 13),
    Form("sum", 4, 28, 192, 0, 3),
    Form("sum", 4, 28, 192, 0, 2, 2),
)
# Also inside a loop, as in training steps that `lax.scan` takes.
LOOPED = (
    Form("convolution", 4, 28, 128, 128, 3),
    Form("convolution", 4, 28, 128, 256, 3, 2),
    Form("convolution", 8, 28, 16, 32, 5),
    Form("volume", 1, 28, 32, 64, 3),
)
SMALL = (Form("depthwise", 2, 8, 16, 0, 3), Form("max", 2, 8, 8, 0, 2, 2))


def _gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(*args: Any) -> Any:
        out, pull = jax.vjp(fn, *args)
        return pull(jnp.ones_like(out) + args[0].ravel()[0])

    return gradient


def _looped(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return four gradients, each at the result of the one before."""
    step = _gradient(fn)

    def steps(*args: Any) -> Any:
        return jax.lax.scan(
            lambda at, _: ([a + 1e-6 * d for a, d in zip(at, step(*at), strict=True)], None), [*args], None, length=4
        )[0]

    return steps


def _once(compiled: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], float]:
    return lambda: seconds(lambda: jax.block_until_ready(compiled(*args)))


def _tf_once(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], float]:
    import tensorflow as tf

    tensors, graph = [tf.constant(np.asarray(a)) for a in args], tf.function(fn)
    return lambda: seconds(lambda: graph(*tensors).numpy())


def records(size: str) -> Iterator[dict[str, Any]]:
    """Yield times of each operation and of its gradient with respect to all operands."""
    looped = LOOPED if size == "full" else SMALL[:1]
    for form in (*(f for f in FORMS if f not in LOOPED), *LOOPED) if size == "full" else SMALL:
        kinds: list[tuple[str, Any]] = [("forward", lambda fn: fn), ("gradient", _gradient)]
        for what, change in [*kinds, ("4 gradients in a loop", _looped)] if form in looped else kinds:
            args, contestants, compiling = form.arguments(), {}, {}
            for name, with_rule in (("jax", False), ("tf2jax_lite", True)):
                start = time.process_time()  # compiling uses all cores, beside other processes
                compiled = jax.jit(change(form.plain(with_rule))).lower(*args).compile()
                compiling[name] = time.process_time() - start
                contestants[name] = _once(compiled, args)
            if what == "forward":
                contestants["tensorflow"] = _tf_once(form.tensorflow(), args)
            times = in_turns(contestants, rounds=7, budget=1)
            yield {"form": str(form), "what": what, "times": times, "ratios": ratios(times), "compile": compiling}
