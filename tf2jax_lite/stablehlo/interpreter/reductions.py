"""Reductions over axes and windows, by named functions of jax.lax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.xla.computations import xla_select_and_scatter
from tf2jax_lite.stablehlo.parsing.module import Op, Region

from .core import Iota, OpContext, is_splat, is_static, materialize, rule, scalar_of

_MONOIDS = {
    "add": lax.add,
    "multiply": lax.mul,
    "maximum": lax.max,
    "minimum": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}


def _kind(region: Region, dtype: np.dtype) -> str:
    kind = single_op(region)
    if dtype == np.bool_:
        kind = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}.get(kind, kind)
    return kind if kind in _MONOIDS else ""


def _identity(kind: str, dtype: np.dtype) -> Any:
    if kind in ("add", "or", "xor"):
        return np.zeros((), dtype)
    if kind == "multiply":
        return np.ones((), dtype)
    if kind == "and":
        return np.ones((), bool) if dtype == np.bool_ else np.array(-1).astype(dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        has_inf = bool(np.isinf(np.array(np.inf).astype(dtype)))
        bound = np.inf if has_inf else float(jnp.finfo(dtype).max)
        return np.array(-bound if kind == "maximum" else bound).astype(dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        return np.array(info.min if kind == "maximum" else info.max).astype(dtype)
    return None


def _is_identity(value: Any, kind: str) -> bool:
    if not is_static(value) or not is_splat(value):
        return False
    identity = _identity(kind, value.dtype)
    return identity is not None and bool(scalar_of(value) == identity)


@rule("stablehlo.reduce", lazy=True)
def _reduce(ctx: OpContext, *args: Any) -> Any:
    count = len(args) // 2
    axes = tuple(ctx.attr("dimensions"))
    region = ctx.op.regions[0]
    inputs, inits = args[:count], args[count:]
    if count == 1:
        x, init = materialize(inputs[0]), inits[0]
        kind = _kind(region, x.dtype)
        identity = _identity(kind, x.dtype) if kind else None
        if identity is not None:
            result = lax.reduce(x, identity, _MONOIDS[kind], axes) if axes else x
            if ctx.run.shifts and kind == "maximum":
                result = lax.stop_gradient(result)
            return result if _is_identity(init, kind) else _MONOIDS[kind](result, materialize(init))
    if count == 2 and len(axes) == 1 and isinstance(inputs[1], Iota) and inputs[1].axis == axes[0]:
        which = _arg_kind(region)
        if which:
            x = materialize(inputs[0])
            index = which[0](x, axes[0], ctx.op.types[1].dtype)
            best = lax.reduce(x, _identity(which[1], x.dtype), _MONOIDS[which[1]], axes) if ctx.op.used[0] else None
            return best, index
    fn = ctx.region(0)
    results = lax.reduce(
        tuple(materialize(v) for v in inputs),
        tuple(materialize(v) for v in inits),
        lambda a, b: tuple(fn(*_listed(a), *_listed(b))),
        axes,
    )
    return tuple(results)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _arg_kind(region: Region) -> Any:
    """Recognize jax's form of argmax and argmin."""
    if len(region.returns) != 2:
        return None
    x, i, y, j = (("arg", n) for n in range(4))
    first, second = (expression(region, v) for v in region.returns)
    for direction, fn, monoid in (("GT", lax.argmax, "maximum"), ("LT", lax.argmin, "minimum")):
        better = ("compare", direction, x, y)
        tie = ("and", "", ("compare", "EQ", x, y), ("compare", "LT", i, j))
        for pick in (("or", "", better, ("compare", "NE", x, x)), better):
            if first == ("select", "", pick, x, y) and second == ("select", "", ("or", "", pick, tie), i, j):
                return fn, monoid
    return None


# ---- windows ----

_CUMULATIVE = {"add": lax.cumsum, "multiply": lax.cumprod, "maximum": lax.cummax, "minimum": lax.cummin}
_LOGSUMEXP = ["maximum", "subtract", "compare", "add", "abs", "negate", "exponential", "log_plus_one", "add", "select"]


def _window(ctx: OpContext, rank: int) -> tuple[Any, ...]:
    padding = ctx.attr("padding")
    ones = (1,) * rank
    return (
        tuple(ctx.attr("window_dimensions") or ones),
        tuple(ctx.attr("window_strides") or ones),
        [(0, 0)] * rank if padding is None else [(int(a), int(b)) for a, b in np.asarray(padding).reshape(-1, 2)],
        tuple(ctx.attr("base_dilations") or ones),
        tuple(ctx.attr("window_dilations") or ones),
    )


@rule("stablehlo.reduce_window")
def _reduce_window(ctx: OpContext, *args: Any) -> Any:
    count = len(args) // 2
    inputs, inits = args[:count], args[count:]
    return windowed(ctx.op.regions[0], ctx.region(0), inputs, inits, _window(ctx, inputs[0].ndim))


def windowed(region: Region, fn: Any, inputs: Any, inits: Any, window: tuple[Any, ...]) -> Any:
    """Reduce over windows.

    Args:
      fn: the same as a Python function that returns a list.
      window: sizes, strides, padding, dilations of the array, dilations of the window.
    """
    if len(inputs) == 1:
        x, init = inputs[0], inits[0]
        kind = _kind(region, x.dtype)
        along = _cumulative_axis(x.shape, *window)
        if along is not None:
            if kind in _CUMULATIVE and _is_identity(init, kind):
                return _CUMULATIVE[kind](x, axis=along[0], reverse=along[1])
            names = [op.name.removeprefix("stablehlo.") for op in region.ops]
            if names == _LOGSUMEXP and _is_identity(init, "maximum"):
                return lax.cumlogsumexp(x, axis=along[0], reverse=along[1])
        if kind:
            return lax.reduce_window(x, init, _MONOIDS[kind], *window)
    if len(inputs) == 1:
        return lax.reduce_window(inputs[0], inits[0], lambda a, b: fn(a, b)[0], *window)
    kind = _gathering(region)
    if kind and _same_floats(inputs) and _is_identity(inits[0], kind) and _is_identity(inits[1], "add"):
        # A maximum's tangent is the tangent of the selected element. This form is differentiable itself.
        return jax.jvp(lambda x: lax.reduce_window(x, inits[0], _MONOIDS[kind], *window), inputs[:1], inputs[1:])
    results = lax.reduce_window(tuple(inputs), tuple(inits), lambda a, b: tuple(fn(*_listed(a), *_listed(b))), *window)
    return tuple(results)


def _gathering(region: Region) -> str:
    """Return the kind of an extreme that takes a second number along, or ""."""
    if len(region.returns) != 2:
        return ""
    x, t, y, s = (("arg", n) for n in range(4))
    found = tuple(expression(region, v) for v in region.returns)
    for direction, kind in (("GE", "maximum"), ("LE", "minimum")):
        first = ("compare", direction, x, y)
        if found == (("select", "", first, x, y), ("select", "", first, t, s)):
            return kind
    return ""


def _same_floats(inputs: Any) -> bool:
    dtypes = {np.dtype(x.dtype) for x in inputs}
    return len(inputs) == 2 and len(dtypes) == 1 and jnp.issubdtype(inputs[0].dtype, jnp.floating)


def _cumulative_axis(shape: Any, sizes: Any, strides: Any, pads: Any, base: Any, inner: Any) -> Any:
    """Return axis and direction of a window that reaches from each element to one end."""
    if set(strides) | set(base) | set(inner) != {1}:
        return None
    axes = [i for i, n in enumerate(sizes) if n != 1]
    if len(axes) != 1 or any(pads[i] != (0, 0) for i in range(len(shape)) if i != axes[0]):
        return None
    (axis,) = axes
    n = shape[axis]
    if sizes[axis] != n or pads[axis] not in ((n - 1, 0), (0, n - 1)):
        return None
    return axis, pads[axis] == (0, n - 1)


@rule("stablehlo.select_and_scatter")
def _select_and_scatter(ctx: OpContext, operand: Any, source: Any, init: Any) -> Any:
    sizes, strides, pads, _, _ = _window(ctx, operand.ndim)
    chosen = single_op(ctx.op.regions[0])
    combined = single_op(ctx.op.regions[1])
    if chosen not in ("GE", "LE") or combined != "add" or not jnp.issubdtype(operand.dtype, jnp.floating):
        return xla_select_and_scatter(
            operand,
            np.asarray(sizes),
            np.asarray(strides),
            np.asarray(pads),
            source,
            init,
            select=ctx.region(0),
            scatter=ctx.region(1),
        )
    kind = "maximum" if chosen == "GE" else "minimum"

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, _identity(kind, x.dtype), _MONOIDS[kind], sizes, strides, pads)

    _, pull = jax.vjp(pool, operand)
    (result,) = pull(source)
    return result if _is_identity(init, "add") else lax.add(result, init)


def single_op(region: Region) -> str:
    """Return the op of a region of two scalars, or "".

    It is "first" or "second" for an argument. Ops that mind the order of their operands count only if they take the two
    arguments in order.
    """
    if len(region.returns) != 1 or len(region.args) != 2:
        return ""
    result = region.returns[0]
    if not region.ops:
        return {region.args[0]: "first", region.args[1]: "second"}.get(result, "")
    if len(region.ops) != 1:
        return ""
    (op,) = region.ops
    if op.results != (result,):
        return ""
    name = op.name.removeprefix("stablehlo.")
    if op.operands == region.args or (op.operands == region.args[::-1] and name in _COMMUTATIVE):
        return name if name != "compare" else str(op.attrs["comparison_direction"])
    return ""


_COMMUTATIVE = {"add", "multiply", "maximum", "minimum", "and", "or", "xor"}


def expression(region: Region, value: int, constants: Any = None) -> Any:
    """Return a region's value as ("arg", i), ("constant", x), or (op, detail, ...)."""
    made: dict[int, Op] = {v: op for op in region.ops for v in op.results}
    args = {v: i for i, v in enumerate(region.args)}

    def build(number: int, depth: int) -> Any:
        if number in args:
            return ("arg", args[number])
        op = made.get(number)
        if op is None:
            return ("outer", number) if constants is None else ("constant", _plain(constants(number)))
        if depth > 40:
            return ("deep",)
        name = op.name.removeprefix("stablehlo.")
        if name == "constant":
            value = op.attrs["value"]
            return ("constant", _plain(value.reshape(-1)[0].item()) if value.size else None)
        detail = str(op.attrs.get("comparison_direction", ""))
        return (name, detail, *(build(v, depth + 1) for v in op.operands))

    return build(value, 0)


def _plain(value: Any) -> Any:
    return "nan" if value != value else value  # so that it compares equal


def _along(ctx: OpContext, x: Any, *vectors: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the reduced axes, and feature vectors in the rank of ``x``."""
    axis = int(ctx.attr("feature_index"))
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return tuple(i for i in range(x.ndim) if i != axis), [jnp.reshape(v, shape) for v in vectors]


def _epsilon(ctx: OpContext, x: Any) -> Any:
    return jnp.asarray(ctx.attr("epsilon"), x.dtype)


@rule("stablehlo.batch_norm_training")
def _training(ctx: OpContext, x: Any, scale: Any, offset: Any) -> Any:
    axes, (wide_scale, wide_offset) = _along(ctx, x, scale, offset)
    mean = jnp.mean(x, axes, keepdims=True)
    centred = x - mean
    variance = jnp.mean(centred * centred, axes, keepdims=True)
    out = centred * lax.rsqrt(variance + _epsilon(ctx, x)) * wide_scale + wide_offset
    return out, mean.reshape(scale.shape), variance.reshape(scale.shape)


@rule("stablehlo.batch_norm_inference")
def _inference(ctx: OpContext, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    _, (scale, offset, mean, variance) = _along(ctx, x, scale, offset, mean, variance)
    return (x - mean) * lax.rsqrt(variance + _epsilon(ctx, x)) * scale + offset


@rule("stablehlo.batch_norm_grad")
def _gradient(ctx: OpContext, x: Any, scale: Any, mean: Any, variance: Any, grad: Any) -> Any:
    axes, (wide_scale, mean, variance) = _along(ctx, x, scale, mean, variance)
    rate = lax.rsqrt(variance + _epsilon(ctx, x))
    normal = (x - mean) * rate
    by_scale = jnp.sum(grad * normal, axes, keepdims=True)
    by_offset = jnp.sum(grad, axes, keepdims=True)
    count = jnp.asarray(x.size // scale.size, x.dtype)
    by_x = wide_scale * rate * (grad - (by_offset + normal * by_scale) / count)
    return by_x, by_scale.reshape(scale.shape), by_offset.reshape(scale.shape)
