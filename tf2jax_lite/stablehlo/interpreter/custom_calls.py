"""Custom calls of JAX: linear algebra, top_k, shape assertions, placements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.stablehlo.parsing.custom_calls import refusal
from tf2jax_lite.stablehlo.parsing.module import TOKEN, TensorType
from tf2jax_lite.support.errors import OpError, UnsupportedError

from .core import OpContext, is_static, materialize, rule
from .linalg import Scales, config_of, linear_algebra
from .prng import random_bits
from .reductions import windowed
from .shapes import dims_of

_TARGETS: dict[str, Callable[..., Any]] = {}


def _target(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _TARGETS.update(dict.fromkeys(names, fn))
        return fn

    return register


@rule("stablehlo.custom_call", lazy=True)
def _custom_call(ctx: OpContext, *args: Any) -> Any:
    name = ctx.attr("call_target_name")
    if name in _TARGETS:
        return _TARGETS[name](ctx, *args)
    fn = linear_algebra(name)
    if fn is not None:
        shapes = set(np.asarray(ctx.attr("indices_of_shape_operands", ())).reshape(-1).tolist())
        data = [v for i, v in enumerate(args) if i not in shapes]  # jax.lax.linalg finds its results' shapes itself
        made = fn(ctx, *(v if isinstance(v, Scales) else materialize(v) for v in data))
        return [tuple(made)] if isinstance(ctx.op.types[0], str) else made
    if name.startswith("xla.sdy.") and len(args) == len(ctx.op.types):
        return args
    raise UnsupportedError(refusal(name))


# ---- annotations and side effects ----


@rule("sdy.sharding_constraint", lazy=True)
def _constraint(ctx: OpContext, x: Any) -> Any:
    return x


@_target("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint")
def _identity(ctx: OpContext, *args: Any) -> Any:
    return args


@_target("shape_assertion")
def _shape_assertion(ctx: OpContext, holds: Any, *operands: Any) -> Any:
    if is_static(holds) and holds.dtype != object and not holds.all():
        text = str(ctx.attr("error_message", "a shape assertion of the module does not hold"))
        found = [v.item() if is_static(v) and np.size(v) == 1 else v for v in operands]
        for i, value in enumerate(found):
            text = text.replace(f"{{{i}}}", str(value))
        raise OpError(text)
    return ()


@_target("tf.call_tf_function")
def _call_tf_function(ctx: OpContext, *args: Any) -> Any:
    config = ctx.attr("tf.backend_config") or config_of(ctx)
    index = int(config.get("called_index", 0))
    if index >= len(ctx.run.functions):
        raise UnsupportedError("the module calls a TensorFlow function that was not handed in (function_list)")
    data = [materialize(v) for v in args if v is not TOKEN]
    results = list(ctx.run.functions[index](*data))
    tensors = [t for t in ctx.op.types if isinstance(t, TensorType)]
    if len(results) != len(tensors):
        raise OpError(f"the TensorFlow function returns {len(results)} values where the module takes {len(tensors)}")
    remaining = iter(results)
    return [next(remaining) if isinstance(t, TensorType) else TOKEN for t in ctx.op.types]


# ---- the largest elements ----


@_target("TopK", "mhlo.topk")
def _top_k(ctx: OpContext, x: Any) -> Any:
    attributes = ctx.attr("mhlo.attributes") or config_of(ctx)
    k = attributes.get("k", ctx.op.types[0].shape[-1])
    largest = bool(attributes.get("largest", True))
    x = materialize(x)
    if largest:
        return lax.top_k(x, int(k))
    values, index = lax.top_k(-x, int(k))
    return -values, index


@_target("ApproxTopK", "stablehlo.dynamic_approx_top_k")
def _approx_top_k(ctx: OpContext, x: Any, index: Any, *rest: Any) -> Any:
    config = config_of(ctx)
    k = config["top_k"] if "top_k" in config else dims_of(ctx, rest[2], "k of an approximate top_k")[0]
    (name,) = ctx.attr("called_computations")
    body = ctx.run.function(name).body
    directions = {op.attrs.get("comparison_direction") for op in body.ops if op.name == "stablehlo.compare"}
    if directions not in ({"GT"}, {"LT"}):
        raise UnsupportedError("an approximate top_k that orders otherwise than by GT or LT")
    fn = lax.approx_max_k if directions == {"GT"} else lax.approx_min_k
    return fn(
        materialize(x),
        k,
        reduction_dimension=int(config["reduction_dim"]),
        recall_target=float(config["recall_target"]),
        reduction_input_size_override=int(config.get("reduction_input_size_override", -1)),
        aggregate_to_topk=bool(config.get("aggregate_to_topk", True)),
    )


# ---- ops of which StableHLO has no form with dynamic shapes ----


@_target("stablehlo.dynamic_reduce_window")
def _dynamic_reduce_window(ctx: OpContext, *args: Any) -> Any:
    count = (len(args) - 5) // 2
    sizes, strides, base, inner, padding = (dims_of(ctx, v, "the form of a window") for v in args[-5:])
    (name,) = ctx.attr("called_computations")
    function = ctx.run.function(name)
    window = (sizes, strides, list(zip(padding[::2], padding[1::2], strict=True)), base, inner)
    inputs, inits = [[materialize(v) for v in part] for part in (args[:count], args[count : 2 * count])]
    return windowed(
        function.body, lambda *a: [materialize(v) for v in ctx.run.call(function, a)], inputs, inits, window
    )


@_target("stablehlo.dynamic_rng_bit_generator")
def _dynamic_rng_bit_generator(ctx: OpContext, key: Any, shape: Any) -> Any:
    return random_bits(ctx, key, dims_of(ctx, shape, "the shape of random numbers"))


@_target("stablehlo.dynamic_top_k")
def _dynamic_top_k(ctx: OpContext, x: Any, k: Any) -> Any:
    return lax.top_k(materialize(x), dims_of(ctx, k, "k of top_k")[0])
