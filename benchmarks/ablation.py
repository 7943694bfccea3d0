"""The suites ablation and xla_cpu: CPU lowering rules, one off alone, and all off.

    python -m benchmarks run --suite ablation --json out.jsonl                    # all rules, all cases
    python -m benchmarks run --suite ablation --size small --only depthwise       # whether the command works
    python -m benchmarks run --suite ablation --models resnet50 --only winograd   # models beside the rule's own cases
    python -m benchmarks report rules --records out.jsonl                         # prints the table

A ratio is the median time with all rules divided by the median without one: below 1 the rule gains. Lines are those of
the rule's functions and of their helpers in the same module. The suite xla_cpu times a CNN, and the same as
`tf2jax_lite.xla_cpu.optimize` makes it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tf2jax_lite
from tf2jax_lite.xla_cpu import (
    catalog,
    constant_dot,
    cumulative,
    dot_order,
    inverse_trig,
    optimize,
    reductions,
    rules,
    swaps,
    top_k,
)
from tf2jax_lite.xla_cpu.conv import rule as conv_rule  # noqa: F401  (registers the rules that `rules.call` takes)
from tf2jax_lite.xla_cpu.selection import Selection, using

from . import models
from .kernels import gradient_of
from .records import Result
from .timing import different_kernels, in_turns, waited

Lower = Callable[[Selection], tuple[Any, tuple[Any, ...]]]
"""Takes the names of the rules in force; returns a lowered function and its arguments."""

# Rules that any case may take besides its own.
_GENERAL = ("materialize", "outline")
# Rules that are chosen when a function is traced.
_AT_TRACING = {
    "top_k": "top_k_packed_sort",
    "shuffle": "swap_loop",
    "attention": "dot_order",
    "resize": "constant_dot_gather",
}

# Input, kernel (channels last), strides, padding, further keywords.
CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "depthwise 3x3": ((4, 112, 112, 32), (3, 3, 1, 32), 1, "SAME", {"feature_group_count": 32}),
    "depthwise 3x3 stride 2": ((4, 56, 56, 144), (3, 3, 1, 144), 2, "SAME", {"feature_group_count": 144}),
    "depthwise 7x7": ((4, 28, 28, 192), (7, 7, 1, 192), 1, "SAME", {"feature_group_count": 192}),
    "depthwise 7x7, many channels": ((8, 32, 32, 256), (7, 7, 1, 256), 1, "SAME", {"feature_group_count": 256}),
    "2 groups 5x5": ((8, 27, 27, 96), (5, 5, 48, 256), 1, "SAME", {"feature_group_count": 2}),
    "16 groups 3x3": ((8, 28, 28, 256), (3, 3, 16, 256), 1, "SAME", {"feature_group_count": 16}),
    "32 groups 3x3": ((8, 28, 28, 256), (3, 3, 8, 256), 1, "SAME", {"feature_group_count": 32}),
    "64 groups 3x3": ((8, 28, 28, 256), (3, 3, 4, 256), 1, "SAME", {"feature_group_count": 64}),
    "8 groups 1x1": ((8, 28, 28, 256), (1, 1, 32, 256), 1, "SAME", {"feature_group_count": 8}),
    "1x1": ((4, 56, 56, 64), (1, 1, 64, 256), 1, "SAME", {}),
    "1x1 stride 2": ((4, 56, 56, 256), (1, 1, 256, 512), 2, "SAME", {}),
    "kernel as wide as the image": ((8, 64, 9, 16), (3, 9, 16, 32), 1, "VALID", {}),
    "3-D (1, 3, 3)": ((1, 36, 36, 36, 64), (1, 3, 3, 64, 64), 1, "SAME", {}),
    "3-D (3, 1, 1)": ((1, 36, 36, 36, 64), (3, 1, 1, 64, 64), 1, "SAME", {}),
    "3-D, few channels": ((1, 16, 16, 16, 8), (3, 3, 3, 8, 32), 1, "SAME", {}),
    "3-D, large": ((4, 48, 48, 48, 48), (3, 3, 3, 48, 16), 1, "SAME", {}),
    "3-D": ((1, 20, 20, 20, 64), (3, 3, 3, 64, 64), 1, "SAME", {}),
    "transposed 2x2 stride 2": ((8, 28, 28, 64), (2, 2, 64, 64), 1, ((1, 1), (1, 1)), {"lhs_dilation": (2, 2)}),
    "transposed 4x4 stride 2": ((8, 16, 16, 64), (4, 4, 64, 32), 1, ((2, 2), (2, 2)), {"lhs_dilation": (2, 2)}),
    "transposed 5x5 stride 2": ((8, 32, 32, 64), (5, 5, 64, 32), 1, ((2, 3), (2, 3)), {"lhs_dilation": (2, 2)}),
    "3x3 stride 2": ((4, 28, 28, 128), (3, 3, 128, 256), 2, "SAME", {}),
    "patches 4x4": ((4, 224, 224, 3), (4, 4, 3, 96), 4, "VALID", {}),
    "3x3 to few channels": ((8, 64, 64, 64), (3, 3, 64, 3), 1, "SAME", {}),
    "3x3 of 3 channels to 64": ((4, 226, 226, 3), (3, 3, 3, 64), 1, "VALID", {}),
    "3x3 of 3 channels to 16": ((8, 208, 208, 3), (3, 3, 3, 16), 1, "SAME", {}),
    "3x3 of 3 channels to 32, stride 2": ((8, 224, 224, 3), (3, 3, 3, 32), 2, "SAME", {}),
    "3x3 dilated": ((1, 32, 32, 512), (3, 3, 512, 256), 1, "SAME", {"rhs_dilation": (2, 2)}),
    "3x3 of many channels": ((8, 28, 28, 256), (3, 3, 256, 256), 1, "SAME", {}),
    "3x3 of 64 channels": ((8, 56, 56, 64), (3, 3, 64, 64), 1, "SAME", {}),
    "3x3 of 256 channels, large": ((8, 56, 56, 256), (3, 3, 256, 256), 1, "SAME", {}),
    "7x1 of 192 channels": ((8, 17, 17, 192), (7, 1, 192, 192), 1, "SAME", {}),
    "3x3, one image": ((1, 128, 128, 32), (3, 3, 32, 32), 1, "SAME", {}),
    "3x3, few positions": ((1, 7, 7, 512), (3, 3, 512, 512), 1, "SAME", {}),
    "5x5 of an image of 4x4": ((8, 4, 4, 128), (5, 5, 128, 128), 1, "SAME", {}),
    "3x3 without padding": ((8, 112, 112, 64), (3, 3, 64, 256), 1, "VALID", {}),
    "3x3 channels first": ((4, 30, 30, 64), (3, 3, 64, 32), 1, "SAME", {"dimension_numbers": ("NCHW", "OIHW", "NCHW")}),
}
# Shape, window, stride, padding.
POOLS = {
    "3x3 stride 2": ((4, 112, 112, 64), 3, 2, "SAME"),
    "2x2 stride 2": ((4, 28, 28, 192), 2, 2, "VALID"),
    "13x13": ((1, 20, 20, 512), 13, 1, "SAME"),
    "whole": ((8, 7, 7, 1024), 7, 1, "VALID"),
}


def _convolution(kernel: Any, strides: int, padding: Any, more: dict[str, Any]) -> Callable[..., Any]:
    rank = len(kernel) - 2
    order = ("NDHWC", "DHWIO", "NDHWC") if rank == 3 else ("NHWC", "HWIO", "NHWC")
    keywords = {"dimension_numbers": order, **more}
    return functools.partial(
        rules.call, lax.conv_general_dilated, window_strides=(strides,) * rank, padding=padding, **keywords
    )


def _max_pool(x: Any, *, where: Any) -> Any:
    return lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, *where)


def _sum_pool(x: Any, *, where: Any) -> Any:
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, *where)


def _dilated_sum(x: Any) -> Any:
    pads = ((0, 0), (2, 2), (2, 2), (0, 0))
    return lax.reduce_window(
        x, np.zeros((), x.dtype), lax.add, (1, 3, 3, 1), (1, 1, 1, 1), pads, base_dilation=(1, 2, 2, 1)
    )


def _attention(weights: Any, values: Any) -> Any:
    weights = jax.nn.softmax(weights)
    return lax.transpose(dot_order.swapped_dot(weights, values, (((3,), (1,)), ((0, 1), (0, 2))), None), (0, 3, 1, 2))


def _normalized_depthwise(x: Any, kernel: Any) -> Any:
    """Return a depthwise convolution and layer norm, which uses the sums three times."""
    y = _convolution(kernel.shape, 1, "SAME", {"feature_group_count": x.shape[-1]})(x, kernel)
    return jax.nn.standardize(y, epsilon=1e-6)


def _resize(x: Any) -> Any:
    weights = np.zeros((224, 112), np.float32)
    rows = np.arange(224)
    weights[rows, rows // 2], weights[rows, np.minimum(rows // 2 + 1, 111)] = 0.5, 0.5
    return constant_dot.constant_dot(x, weights, 1, "highest")


def _shuffled(x: Any) -> Any:
    step = lax.iota(np.int32, x.size)
    return swaps.permutation_of_swaps(step + (jnp.abs(x) % 1 * (x.size - step)).astype(np.int32))


OTHERS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "depthwise 7x7 and layer normalization": (_normalized_depthwise, ((4, 28, 28, 192), (7, 7, 1, 192))),
    "sum pool, base dilation": (functools.partial(rules.call, _dilated_sum), ((4, 56, 56, 64),)),
    "sum of long rows": (lambda x: reductions.reduce_axes(lax.reduce_sum, x, (0,)), ((64, 1 << 17),)),
    "argmax": (lambda x: reductions.arg_reduce(lax.argmax, x, 1), ((1024, 1000),)),
    "cumsum over rows": (lambda x: cumulative.cumulative(lax.cumsum, x, 0, False), ((512, 1024),)),
    "cumsum of a long axis": (lambda x: cumulative.cumulative(lax.cumsum, x, 0, False), ((1 << 20,),)),
    "cumlogsumexp over rows": (lambda x: cumulative.cumulative(lax.cumlogsumexp, x, 0, False), ((256, 256),)),
    "cumlogsumexp along rows": (lambda x: cumulative.cumulative(lax.cumlogsumexp, x, 1, False), ((64, 1024),)),
    "atan2": (inverse_trig.atan2, ((1 << 20,), (1 << 20,))),
    "top_k": (lambda x: top_k.top_k(x, x.shape[-1]), ((64, 4096),)),
    "shuffle": (_shuffled, ((10000,),)),
    "attention": (_attention, ((8, 12, 128, 128), (8, 128, 12, 64))),
    "resize": (_resize, ((4, 112, 112, 32),)),
}


def _tangent(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jax.jvp(fn, (x,), (jnp.cos(x),))


def cases(size: str) -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]]:
    """Return functions and argument shapes; "small" is a subset that compiles fast."""
    found: dict[str, Any] = {}
    for name, (lhs, kernel, strides, padding, more) in CONVOLUTIONS.items():
        fn = _convolution(kernel, strides, padding, more)
        if "dimension_numbers" in more:
            lhs, kernel = (lhs[0], lhs[3], *lhs[1:3]), (kernel[3], kernel[2], *kernel[:2])
        found[name] = fn, (lhs, kernel)
        found[f"{name}, gradient"] = gradient_of(fn), (lhs, kernel)
    for name, (shape, window, stride, padding) in POOLS.items():
        where = ((1, window, window, 1), (1, stride, stride, 1), padding)
        for kind, pool in (("max pool", _max_pool), ("sum pool", _sum_pool)):
            fn = functools.partial(rules.call, pool, where=where)
            found[f"{kind} {name}"] = fn, (shape,)
            found[f"{kind} {name}, gradient"] = gradient_of(fn), (shape,)
            if pool is _max_pool:
                found[f"{kind} {name}, tangent"] = _tangent(fn), (shape,)
    found |= OTHERS
    if size == "small":
        fn, _ = found["depthwise 3x3"]
        return {"depthwise 3x3": (fn, ((2, 8, 8, 32), (3, 3, 1, 32))), "argmax": (OTHERS["argmax"][0], ((8, 64),))}
    return found


class _Names(logging.Handler):
    """Collects the names of rules that are chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.names.add(record.getMessage())


def _lower(fn: Callable[..., Any], args: tuple[Any, ...], names: Selection) -> tuple[Any, tuple[Any, ...]]:
    with using(names):
        return jax.jit(fn).lower(*args), args


def programs(size: str) -> Iterator[tuple[str, Lower]]:
    """Yield the name of each of `cases`, and its lowering."""
    rng = np.random.default_rng(0)
    for name, (fn, shapes) in cases(size).items():
        args = tuple(jnp.asarray(rng.normal(size=shape).astype(np.float32)) for shape in shapes)
        yield name, functools.partial(_lower, fn, args)


def rules_taken(name: str, lower: Lower) -> set[str]:
    """Return the names of the rules that the program of a case takes on CPU."""
    log, handler = logging.getLogger("tf2jax_lite.xla_cpu"), _Names()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        text = lower(catalog.NAMES)[0].as_text()
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    taken = (handler.names & catalog.NAMES) | {rule for rule in _GENERAL if f"call @{rule}" in text}
    if name in _AT_TRACING:
        taken.add(_AT_TRACING[name])
    return taken


def lines_of(name: str) -> int:
    """Return the lines of a rule's functions, and of helpers in their modules."""
    rule = catalog.rules_by_name()[name]
    left, seen = [rule.lower, rule.applies], set()
    while left:
        fn: Any = left.pop()
        fn = getattr(fn, "func", fn)
        if not isinstance(fn, types.FunctionType) or fn in seen:
            continue
        seen.add(fn)
        consts = [code for code in fn.__code__.co_consts if isinstance(code, types.CodeType)]
        for used in (*fn.__code__.co_names, *(n for code in consts for n in code.co_names)):
            other = fn.__globals__.get(used)
            if getattr(other, "__module__", None) == fn.__module__:
                left.append(other)
    return sum(len(inspect.getsourcelines(fn)[0]) for fn in seen)


def of_models(names: Iterable[str], size: str) -> Iterator[tuple[str, Lower]]:
    """Yield a call at batch 1, one at batch 8, and an optimizer's step of each model."""
    for name in names:
        for batch in (1, 8):
            model, graph, arrays = models.traceable(name, size, batch)
            yield f"{name}, batch {batch}", _with_rules(functools.partial(models.converted, graph, arrays))
        if models.MODELS[name].trains:
            inputs = models.MODELS[name].inputs(8, size)
            yield f"{name}, step", _with_rules(functools.partial(models.training_step, model, inputs))
        models.clear()


def _with_rules(convert: Callable[[], tuple[Any, tuple[Any, ...]]]) -> Lower:
    # The option is part of the converted function, so that each set of rules needs a conversion of its own.
    def lower(names: Selection) -> tuple[Any, tuple[Any, ...]]:
        with tf2jax_lite.override_config("xla_cpu_rules", names):
            fn, args = convert()
        return jax.jit(fn).lower(*args), args

    return lower


def _compiled(lower: Lower, names: Selection) -> tuple[str, Callable[[], float], dict[str, float]]:
    """Return a program's text, a run, and its kernels and CPU time to compile."""
    lowered, args = lower(names)
    begun = time.process_time()
    run = lowered.compile()
    cost = {"compile": time.process_time() - begun, "kernels": different_kernels(run.as_text())}
    return lowered.as_text(), waited(run, *args), cost


def without_each(found: Iterable[tuple[str, Lower]], only: Iterable[str] = (), budget: float = 1.0) -> Iterator[Result]:
    """Yield a result for each case and rule that it takes."""
    wanted = set(only) or catalog.NAMES
    for name, lower in found:
        if not (taken := sorted(rules_taken(name, lower) & wanted)):
            continue
        text, run, cost = _compiled(lower, catalog.NAMES)
        for rule in taken:
            other, without, plain = _compiled(lower, catalog.NAMES - {rule})
            if other == text:
                continue
            times = in_turns({"with": run, "without": without}, budget=budget)
            yield (
                {"rule": rule, "case": name},
                {"times": times, "with": cost, "without": plain, "lines": lines_of(rule)},
            )


def ablation(options: Any) -> Iterator[Result]:
    """Yield the results of `without_each`, of models if these are chosen."""
    found = of_models(models.chosen(options), options.size) if options.models else programs(options.size)
    yield from without_each(found, filter(None, (options.only or "").split(",")), min(options.budget, 1.0))


# --- A network that no TensorFlow graph was converted to

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


def xla_cpu(options: Any) -> Iterator[Result]:
    """Yield times of a forward pass and of a training step, by batch size.

    The network is written with Flax if that is installed, else in JAX: inverted residual blocks as in MobileNetV2, with
    a stem of 3 channels, depthwise and pointwise convolutions, poolings and a classifier.
    """
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
                contestants[who] = waited(jax.jit(change(fn)).lower(params, x).compile(), params, x)
                compiling[who] = time.process_time() - start
            times = in_turns(contestants, rounds=20, budget=options.budget)
            yield {"network": written, "batch": batch, "what": what}, {"times": times, "compile": compiling}
