"""Rules for elementwise ops: arithmetic, comparison, select, clamp, convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import max_dim, min_dim, named_primitive
from tf2jax_lite.support.errors import OpError, UnsupportedError
from tf2jax_lite.values.static import canonical

from .core import NAMED, Iota, LazyBroadcast, OpContext, Vector, full, is_splat, is_static, materialize, rule, scalar_of


def elementwise(fn: Callable[..., Any], args: tuple[Any, ...], dtypes: Any, fold: Any = None) -> Any:
    """Apply a broadcasting function; of `LazyBroadcast`s alone it stays one."""
    if any(isinstance(v, Vector) for v in args) and fold is not None:
        return _itemwise(fn, args, dtypes, fold)
    args = tuple(
        materialize(v, t) if isinstance(v, (Iota, Vector)) or (is_static(v) and v.dtype == object) else v
        for v, t in zip(args, dtypes, strict=True)
    )
    shape: tuple[Any, ...] = args[0].shape
    lazy = [isinstance(v, LazyBroadcast) or is_splat(v) for v in args]
    small = [
        v.value if isinstance(v, LazyBroadcast) else scalar_of(v) if narrow else v
        for v, narrow in zip(args, lazy, strict=True)
    ]
    if not all(lazy) or not shape:
        return fn(*(v if isinstance(v, jax.Array) else np.asarray(v) for v in small))
    return LazyBroadcast(fn(*small), shape)


def _itemwise(fn: Callable[..., Any], args: tuple[Any, ...], dtypes: Any, fold: Callable[..., Any]) -> Vector:
    """Apply a function to partly static vectors, item by item."""
    items = []
    for i in range(max(v.shape[0] for v in args if v.shape)):
        row = tuple(_item(v, i) for v in args)
        if all(map(is_static, row)):
            items.append(_typed(fold(*row), canonical(dtypes[0])))
        else:
            items.append(elementwise(fn, row, dtypes))
    return Vector(tuple(items), canonical(dtypes[0]))


def _item(value: Any, i: int) -> Any:
    if isinstance(value, Vector):
        return value.items[i]
    if is_static(value):
        return value if value.ndim == 0 else np.asarray(value[i])
    value = materialize(value)
    return value if value.ndim == 0 else lax.reshape(lax.slice(value, (i,), (i + 1,)), ())


def _define(name: str, fn: Callable[..., Any], fold: Callable[..., Any] | None = None) -> None:
    def traced(ctx: OpContext, *args: Any) -> Any:
        _check_width(ctx, name, args)
        accuracy, dtypes = ctx.attr("result_accuracy"), [t.dtype for t in ctx.op.operand_types]
        if isinstance(accuracy, str) and "HIGHEST" in accuracy:
            return elementwise(lambda *a: fn(*a, accuracy=lax.AccuracyMode.HIGHEST), args, dtypes)
        return elementwise(fn, args, dtypes, fold)

    rule(f"stablehlo.{name}", lazy=True, fold=None if fold is None else folding(fold))(traced)


def _check_width(ctx: OpContext, name: str, args: tuple[Any, ...]) -> None:
    """Raise `UnsupportedError` for shifts beyond 32 bits without x64."""
    # Packing of two words into 64 bits has such shifts.
    type_ = ctx.op.types[0]
    if name != "shift_left" or canonical(type_.dtype) == type_.dtype or not is_splat(args[1]):
        return
    if scalar_of(args[1]) >= 8 * canonical(type_.dtype).itemsize:
        raise UnsupportedError("words of 64 bits need jax_enable_x64")


def folding(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constant folder from a numpy function; splats stay splats.

    Dtypes are the module's.
    """

    def fold(ctx: OpContext, *args: Any) -> Any:
        dtype = canonical(ctx.op.types[0].dtype)
        if all(map(is_splat, args)):
            return np.broadcast_to(_typed(fn(*map(scalar_of, args)), dtype), np.shape(args[0]))
        return _typed(fn(*args), dtype)

    return fold


def _typed(value: Any, dtype: np.dtype) -> Any:
    value = np.asarray(value)
    if value.dtype == object:
        if all(isinstance(v, (int, bool, np.integer, np.bool_)) for v in value.flat):
            return value.astype(dtype)
        return value
    return value.astype(dtype)


def _divide(a: Any, b: Any) -> Any:
    if a.dtype == object or b.dtype == object:
        return a // b if _nonnegative(a) and _nonnegative(b) else None
    safe = np.where(b == 0, 1, b)
    quotient = np.sign(a) * np.sign(safe) * (abs(a) // abs(safe)) if a.dtype.kind == "i" else a // safe
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def _remainder(a: Any, b: Any) -> Any:
    if a.dtype == object or b.dtype == object:
        return a % b if _nonnegative(a) and _nonnegative(b) else None
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, a, np.fmod(a, safe))


def _largest(a: Any, b: Any) -> Any:
    """Return the maximum, symbolic if dimensions' comparison is inconclusive."""
    return np.frompyfunc(max_dim, 2, 1)(a, b) if object in (a.dtype, b.dtype) else np.maximum(a, b)


def _smallest(a: Any, b: Any) -> Any:
    return np.frompyfunc(min_dim, 2, 1)(a, b) if object in (a.dtype, b.dtype) else np.minimum(a, b)


def _between(low: Any, x: Any, high: Any) -> Any:
    return np.asarray(_smallest(np.asarray(_largest(x, low)), high))


def _nonnegative(value: Any) -> bool:
    if all(bool(v >= 0) for v in np.asarray(value).flat):
        return True
    raise OpError("a division of dimensions that may be negative")


def _shifted(fn: Callable[..., Any], a: Any, b: Any) -> Any:
    """Shift bits of integers; by the type's width or more, the result is 0."""
    words, width = np.dtype(f"u{a.dtype.itemsize}"), 8 * a.dtype.itemsize
    by = np.asarray(b).astype(words)
    moved = fn(np.asarray(a).astype(words), np.minimum(by, words.type(width - 1)))
    return np.where(by < width, moved, words.type(0)).astype(a.dtype)


def _pow(a: Any, b: Any) -> Any:
    return lax.pow(a, b) if jnp.issubdtype(a.dtype, jnp.inexact) else jnp.power(a, b)


def _atan2(a: Any, b: Any) -> Any:
    return lax.atan2(a, b)


_BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "add": (lambda a, b: lax.bitwise_or(a, b) if a.dtype == bool else lax.add(a, b), lambda a, b: a + b),
    "subtract": (lax.sub, lambda a, b: a - b),
    "multiply": (lambda a, b: lax.bitwise_and(a, b) if a.dtype == bool else lax.mul(a, b), lambda a, b: a * b),
    "divide": (lax.div, _divide),
    "remainder": (lax.rem, _remainder),
    "maximum": (lax.max, _largest),
    "minimum": (lax.min, _smallest),
    "and": (lax.bitwise_and, np.bitwise_and),
    "or": (lax.bitwise_or, np.bitwise_or),
    "xor": (lax.bitwise_xor, np.bitwise_xor),
    "power": (_pow, None),
    "atan2": (_atan2, None),
    "complex": (lax.complex, None),
    "shift_left": (lax.shift_left, lambda a, b: _shifted(np.left_shift, a, b)),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, None),
    "shift_right_logical": (lax.shift_right_logical, lambda a, b: _shifted(np.right_shift, a, b)),
}

_UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "abs": (lax.abs, abs),
    "cbrt": (lax.cbrt, None),
    "ceil": (lax.ceil, None),
    "cosine": (lax.cos, None),
    "count_leading_zeros": (lax.clz, None),
    "exponential": (lax.exp, None),
    "exponential_minus_one": (lax.expm1, None),
    "floor": (lax.floor, None),
    "imag": (lambda x: lax.imag(x) if jnp.iscomplexobj(x) else jnp.zeros_like(x), None),
    "is_finite": (lax.is_finite, None),
    "log": (lax.log, None),
    "log_plus_one": (lax.log1p, None),
    "logistic": (lax.logistic, None),
    "negate": (lax.neg, lambda a: -a),
    "not": (lax.bitwise_not, np.bitwise_not),
    "popcnt": (lax.population_count, None),
    "real": (lambda x: lax.real(x) if jnp.iscomplexobj(x) else x, None),
    "round_nearest_afz": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), None),
    "round_nearest_even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), None),
    "rsqrt": (lax.rsqrt, None),
    "sign": (lax.sign, np.sign),
    "sine": (lax.sin, None),
    "sqrt": (lax.sqrt, None),
    "tan": (lax.tan, None),
    "tanh": (lax.tanh, None),
}

for _name, (_fn, _host) in {**_BINARY, **_UNARY}.items():
    _define(_name, _fn, _host)


# ---- comparisons ----

_COMPARE = {
    "EQ": (lax.eq, lambda a, b: a == b),
    "NE": (lax.ne, lambda a, b: a != b),
    "LT": (lax.lt, lambda a, b: a < b),
    "LE": (lax.le, lambda a, b: a <= b),
    "GT": (lax.gt, lambda a, b: a > b),
    "GE": (lax.ge, lambda a, b: a >= b),
}


def order_key(x: Any) -> Any:
    """Return integers in floats' total order: -NaN, -inf, -0, 0, inf, NaN."""
    bits = {2: np.int16, 4: np.int32, 8: np.int64, 1: np.int8}[np.dtype(x.dtype).itemsize]
    raw = lax.bitcast_convert_type(x, bits)
    return jnp.where(raw < 0, raw ^ bits(np.iinfo(bits).max), raw)


def _total_order(direction: str, a: Any, b: Any) -> Any:
    """Compare in the total order of floats, by JAX's primitives if possible."""
    if direction in ("GT", "GE"):
        return _total_order({"GT": "LT", "GE": "LE"}[direction], b, a)
    if direction == "NE":
        return lax.bitwise_not(_total_order("EQ", a, b))
    primitive = named_primitive(f"{direction.lower()}_to_p")
    if primitive is None:
        return _COMPARE[direction][0](order_key(a), order_key(b))
    return primitive.bind(jnp.asarray(a), jnp.asarray(b))


def _fold_compare(ctx: OpContext, a: Any, b: Any) -> Any:
    fn = _COMPARE[ctx.attr("comparison_direction")][1]
    if all(map(is_splat, (a, b))):
        return np.broadcast_to(np.bool_(fn(scalar_of(a), scalar_of(b))), np.shape(a))
    return _typed(fn(a, b), np.dtype(bool))


@rule("stablehlo.compare", fold=_fold_compare, lazy=True)
def _compare(ctx: OpContext, a: Any, b: Any) -> Any:
    fn = _COMPARE[ctx.attr("comparison_direction")][0]
    if ctx.attr("compare_type") == "TOTALORDER" and jnp.issubdtype(a.dtype, jnp.floating):
        return _total_order(ctx.attr("comparison_direction"), materialize(a), materialize(b))
    return elementwise(fn, (a, b), [t.dtype for t in ctx.op.operand_types])


# ---- select ----


def _fold_select(ctx: OpContext, pred: Any, a: Any, b: Any) -> Any:
    if is_splat(pred):
        return a if scalar_of(pred) else b
    return np.where(pred, a, b)


@rule("stablehlo.select", fold=_fold_select, exact=True, lazy=True)
def _select(ctx: OpContext, pred: Any, a: Any, b: Any) -> Any:
    if is_splat(pred):
        return a if scalar_of(pred) else b
    pred = pred.value if isinstance(pred, LazyBroadcast) and np.ndim(pred.value) == 0 else materialize(pred)
    if a is b:
        return a
    types = ctx.op.operand_types
    return lax.select_n(pred, materialize(b, types[2].dtype), materialize(a, types[1].dtype))


def _narrow(value: Any) -> Any:
    if isinstance(value, LazyBroadcast) and np.ndim(value.value) == 0:
        return value.value
    return scalar_of(value) if is_splat(value) else materialize(value)


@rule("stablehlo.clamp", lazy=True, fold=lambda ctx, low, x, high: _between(low, x, high))
def _clamp(ctx: OpContext, low: Any, x: Any, high: Any) -> Any:
    if any(isinstance(v, Vector) for v in (low, x, high)):
        dtypes = [t.dtype for t in ctx.op.operand_types]
        return _itemwise(lax.clamp, (low, x, high), dtypes, _between)
    x = materialize(x)
    low, high = _narrow(low), _narrow(high)
    if np.ndim(low) != np.ndim(high):
        low = full(low, np.shape(x)) if np.ndim(low) == 0 else low
        high = full(high, np.shape(x)) if np.ndim(high) == 0 else high
    return lax.clamp(low, x, high)


# ---- conversions ----


def _fold_convert(ctx: OpContext, x: Any) -> Any:
    if x.dtype == object:
        if np.dtype(ctx.type.dtype).kind in "iu":
            return x
        raise TypeError
    if is_splat(x):
        return np.broadcast_to(scalar_of(x).astype(ctx.dtype), np.shape(x))
    return x.astype(ctx.dtype)


@rule("stablehlo.convert", fold=_fold_convert, exact=True, lazy=True)
def _convert(ctx: OpContext, x: Any) -> Any:
    dtype = ctx.dtype
    if not is_static(x) and x.dtype == dtype:
        return x
    x = materialize(x) if isinstance(x, Vector) else x

    def convert(v: Any) -> Any:
        if jnp.iscomplexobj(v) and not jnp.issubdtype(dtype, jnp.complexfloating):
            v = lax.real(v)
        return lax.convert_element_type(v, dtype)

    return elementwise(convert, (x,), [ctx.op.operand_types[0].dtype])


@rule("stablehlo.reduce_precision")
def _reduce_precision(ctx: OpContext, x: Any) -> Any:
    return lax.reduce_precision(x, ctx.attr("exponent_bits"), ctx.attr("mantissa_bits"))


@rule("stablehlo.map")
def _map(ctx: OpContext, *args: Any) -> Any:
    fn = ctx.region(0)
    for _ in range(np.ndim(args[0])):
        fn = jax.vmap(fn)
    return fn(*args)


@rule("stablehlo.uniform_quantize", "stablehlo.uniform_dequantize")
def _quantized(ctx: OpContext, *args: Any) -> Any:
    raise UnsupportedError("quantized tensors have no counterpart in JAX")


# The derivative of its ops at 0 is another.
NAMED["relu"] = (jax.nn.relu, frozenset({"constant", "broadcast_in_dim", "maximum"}))


def _define_chlo(name: str, fn: Callable[..., Any]) -> None:
    @rule(f"chlo.{name}")
    def _(ctx: OpContext, *args: Any) -> Any:
        return fn(*args)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "bessel_i1e": lax.bessel_i1e,
    "conj": lax.conj,
    "cosh": lax.cosh,
    "digamma": lax.digamma,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "is_inf": jnp.isinf,
    "is_neg_inf": jnp.isneginf,
    "is_pos_inf": jnp.isposinf,
    "lgamma": lax.lgamma,
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "sinh": lax.sinh,
    "square": lax.square,
    "tan": lax.tan,
    "zeta": lax.zeta,
    "broadcast_add": jnp.add,
    "broadcast_subtract": jnp.subtract,
    "broadcast_multiply": jnp.multiply,
    "broadcast_maximum": jnp.maximum,
    "broadcast_minimum": jnp.minimum,
    "broadcast_power": jnp.power,
    "broadcast_and": jnp.bitwise_and,
    "broadcast_or": jnp.bitwise_or,
    "broadcast_xor": jnp.bitwise_xor,
    "broadcast_select": jnp.where,
}

if hasattr(lax, "mulhi"):  # jax 0.9 has none, and its modules have no such op
    # Not by its decomposition, which widens to 64 bits: without 64-bit mode those are 32.
    _FUNCTIONS["mulhi"] = lax.mulhi

for _name, _fn in _FUNCTIONS.items():
    _define_chlo(_name, _fn)


@rule("chlo.constant")
def _constant(ctx: OpContext) -> Any:
    return ctx.attr("value")


@rule("chlo.top_k")
def _top_k(ctx: OpContext, x: Any) -> Any:
    k = ctx.attr("k")
    if k is None:
        k = ctx.attr("composite_attributes", {}).get("k")
    return lax.top_k(x, int(np.asarray(k)))
