"""The suites cpu_rules, products and pages: single kernels on a CPU.

cpu_rules: operations with and without CPU lowering rules. products: transformers' matrix products in XLA and
TensorFlow. pages: memory allocation per call, and the effect of larger pages.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.transform import call

from . import models
from .records import Result
from .timing import in_process, in_turns, seconds, waited, waited_tf


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
            return (lambda x: call(pool, x, where=where)) if with_rule else lambda x: pool(x, where=where)
        rank = self.rank
        keywords: dict[str, Any] = {
            "window_strides": (self.stride,) * rank,
            "padding": "VALID" if self.stride == self.window or self.kind.startswith("unpadded") else "SAME",
            "dimension_numbers": ("NDHWC", "DHWIO", "NDHWC") if rank == 3 else ("NHWC", "HWIO", "NHWC"),
            "feature_group_count": self.inputs if self.kind == "depthwise" else self.groups,
        }
        convolve = functools.partial(lax.conv_general_dilated, **keywords)
        if with_rule:
            convolve = functools.partial(call, lax.conv_general_dilated, **keywords)
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


def gradient_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(*args: Any) -> Any:
        out, pull = jax.vjp(fn, *args)
        return pull(jnp.ones_like(out) + args[0].ravel()[0])

    return gradient


def _looped(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return four gradients, each at the result of the one before."""
    step = gradient_of(fn)

    def steps(*args: Any) -> Any:
        return jax.lax.scan(
            lambda at, _: ([a + 1e-6 * d for a, d in zip(at, step(*at), strict=True)], None), [*args], None, length=4
        )[0]

    return steps


def cpu_rules(options: Any) -> Iterator[Result]:
    """Yield times of each operation and of its gradient with respect to all operands."""
    import tensorflow as tf

    full = options.size == "full"
    looped = LOOPED if full else SMALL[:1]
    for form in (*(f for f in FORMS if f not in LOOPED), *LOOPED) if full else SMALL:
        kinds: list[tuple[str, Any]] = [("forward", lambda fn: fn), ("gradient", gradient_of)]
        for what, change in [*kinds, ("4 gradients in a loop", _looped)] if form in looped else kinds:
            args, contestants, compiling = form.arguments(), {}, {}
            for name, with_rule in (("jax", False), ("tf2jax_lite", True)):
                start = time.process_time()  # compiling uses all cores, beside other processes
                compiled = jax.jit(change(form.plain(with_rule))).lower(*args).compile()
                compiling[name] = time.process_time() - start
                contestants[name] = waited(compiled, *args)
            if what == "forward":
                constants = [tf.constant(np.asarray(a)) for a in args]
                contestants["tensorflow"] = waited_tf(tf.function(form.tensorflow()), *constants)
            times = in_turns(contestants, rounds=7, budget=1)
            yield {"form": str(form), "what": what}, {"times": times, "compile": compiling}


# --- Products

# Rows, summed, columns: tokens of 1 and 8 examples through layers of width 768; logits of a vocabulary.
SHAPES = ((128, 768, 768), (128, 768, 3072), (197, 3072, 768), (1576, 768, 768), (1576, 768, 3072), (8, 768, 50257))


def products(options: Any) -> Iterator[Result]:
    """Yield times of products, and billions of floating point operations/s."""
    import tensorflow as tf

    for rows, inner, columns in SHAPES if options.size == "full" else ((8, 16, 24),):
        rng = np.random.default_rng(0)
        args = [rng.normal(size=shape).astype(np.float32) for shape in ((rows, inner), (inner, columns))]
        arrays = [*map(jnp.asarray, args)]
        compiled = jax.jit(jnp.matmul).lower(*arrays).compile()
        graph = waited_tf(tf.function(tf.matmul), *map(tf.constant, args))
        times = in_turns({"jax": waited(compiled, *arrays), "tensorflow": graph}, budget=1)
        rates = {name: 2e-9 * rows * inner * columns / found["median"] for name, found in times.items()}
        yield {"form": f"{rows} x {inner} x {columns}"}, {"times": times, "gflops": rates}


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

    They run one by one. Models made of products cannot be much faster than these.

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


# --- Pages

_CALLS = 5


def pages(options: Any) -> Iterator[Result]:
    """Compare models with TensorFlow in two processes, one with large pages.

    XLA's client on CPU takes memory for a program's temporaries at each call and frees it after it; the C library gives
    large blocks back, so that each call touches pages that the system must first clear. TensorFlow keeps a pool. With
    ``GLIBC_TUNABLES=glibc.malloc.hugetlb=1`` in the environment glibc asks for pages of 2 MiB: fewer to clear.

    Yields:
      ``plain`` and ``larger``: times, and page faults of a call by contestant.
    """
    for case in models.cases(options):
        plain = in_process(_pages, *case.values(), options.budget)
        larger = in_process(_pages, *case.values(), options.budget, GLIBC_TUNABLES="glibc.malloc.hugetlb=1")
        yield case, {"plain": plain, "larger": larger}


def _faults(run: Callable[[], float]) -> float:
    """Return the number of pages that one call touches for the first time."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(_CALLS):
        run()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / _CALLS


def _pages(name: str, size: str, batch: int, budget: float) -> dict[str, Any]:
    import tensorflow as tf

    _, graph, arrays = models.traceable(name, size, batch)
    fn, args = models.converted(graph, arrays)
    contestants = {
        "tf2jax_lite": waited(jax.jit(fn).lower(*args).compile(), *args),
        "tensorflow": waited_tf(graph, *map(tf.constant, arrays)),
    }
    times = in_turns(contestants, rounds=40, budget=budget)
    return {"times": times, "faults": {who: _faults(run) for who, run in contestants.items()}}
