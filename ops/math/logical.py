"""Elementwise comparison, logic, selection and clipping; shifts, bitwise logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_interval
from tf2jax_lite.ops.common.broadcasting import array, matched
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import partial_fold
from tf2jax_lite.values.int64 import U32Pair, is_int64, to_32_bits, to_u32_pair
from tf2jax_lite.values.static import UNKNOWN, is_static
from tf2jax_lite.values.symbolic_float import is_float_dim

from .binary import fold_binary

# --- Comparison


def _fold_order(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return an order comparison's constant folder, which also uses size bounds."""

    def compare(x: Any, y: Any) -> Any:
        if x.size != 1 or y.size != 1 or not all(v.dtype.kind in "iuO" and not is_float_dim(v) for v in (x, y)):
            return fn(x, y)
        (x_min, x_max), (y_min, y_max) = dim_interval(x.item()), dim_interval(y.item())
        # The result depends on the sign of the difference alone.
        first, last = fn(0, y_max - x_min), fn(0, y_min - x_max)
        return np.full(np.broadcast_shapes(x.shape, y.shape), first) if first == last else fn(x, y)

    return fold_binary(compare)


@op("Less", fold=_fold_order(np.less))
def less(x, y):
    """Return ``x < y``."""
    return lax.lt(*matched(x, y))


@op("LessEqual", fold=_fold_order(np.less_equal))
def less_equal(x, y):
    """Return ``x <= y``."""
    return lax.le(*matched(x, y))


@op("Greater", fold=_fold_order(np.greater))
def greater(x, y):
    """Return ``x > y``."""
    return lax.gt(*matched(x, y))


@op("GreaterEqual", fold=_fold_order(np.greater_equal))
def greater_equal(x, y):
    """Return ``x >= y``."""
    return lax.ge(*matched(x, y))


def _broadcasts(x: Any, y: Any) -> bool:
    try:
        jnp.broadcast_shapes(jnp.shape(x), jnp.shape(y))
    except ValueError:
        return False
    return True


def _fold_equal(x: Any, y: Any, *, incompatible_shape_error: bool) -> Any:
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(False)
    return np.asarray(np.equal(x, y), bool)


def _fold_not_equal(x: Any, y: Any, *, incompatible_shape_error: bool) -> Any:
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(True)
    return np.asarray(np.not_equal(x, y), bool)


@op("Equal", fold=_fold_equal)
def equal(x, y, *, incompatible_shape_error=True):
    """Return ``x == y``."""
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(False)
    return lax.eq(*matched(x, y))


@op("NotEqual", fold=_fold_not_equal)
def not_equal(x, y, *, incompatible_shape_error=True):
    """Return ``x != y``."""
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(True)
    return lax.ne(*matched(x, y))


@op("ApproximateEqual")
def approximate_equal(x, y, *, tolerance=1e-05):
    """Return ``|x - y| < tolerance``."""
    return jnp.abs(x - y) < tolerance


@op("IsNan")
def is_nan(x):
    """Return which elements are NaN."""
    return jnp.isnan(array(x))


@op("IsFinite")
def is_finite(x):
    """Return which elements are neither infinite nor NaN."""
    return jnp.isfinite(array(x))


@op("IsInf")
def is_inf(x):
    """Return which elements are infinite."""
    return jnp.isinf(array(x))


# --- Logic


@op("LogicalNot", fold=lambda x: np.asarray(np.logical_not(x)))
def logical_not(x):
    """Return ``not x``."""
    return lax.bitwise_not(array(x))


def _partial_logic(fn: Callable[[Any, Any], Any], decisive: bool) -> Callable[[Any, Any], Any]:
    """Return a folder where a ``decisive`` operand decides, as in False and UNKNOWN."""

    def fold(x: Any, y: Any) -> Any:
        if x is not UNKNOWN and y is not UNKNOWN:
            return np.asarray(fn(x, y))
        return next((v for v in (x, y) if v is not UNKNOWN and np.all(v == decisive)), UNKNOWN)

    return fold


def _short_circuit(x: Any, y: Any, decisive: bool, fn: Callable[[Any, Any], Any]) -> Any:
    for scalar, other in ((x, y), (y, x)):
        if is_static(scalar) and scalar.ndim == 0:
            if bool(scalar) != decisive:
                return other
            if not other.ndim:
                return scalar
    return fn(*matched(x, y))


@op("LogicalAnd", fold=partial_fold(_partial_logic(np.logical_and, False)))
def logical_and(x, y):
    """Return ``x and y``."""
    return _short_circuit(x, y, False, lax.bitwise_and)


@op("LogicalOr", fold=partial_fold(_partial_logic(np.logical_or, True)))
def logical_or(x, y):
    """Return ``x or y``."""
    return _short_circuit(x, y, True, lax.bitwise_or)


# --- Selection


@op("SelectV2", fold=lambda condition, t, e: np.asarray(np.where(condition, t, e)))
def select_v2(condition, t, e):
    """Return ``t`` where the condition holds, else ``e``.

    All three broadcast.
    """
    return jnp.where(condition, t, e)


def _row_condition(condition: Any, t: Any) -> Any:
    """Return the condition with trailing unit dimensions: a vector selects rows."""
    extra = jnp.ndim(t) - jnp.ndim(condition)
    return condition.reshape(condition.shape + (1,) * extra) if jnp.ndim(condition) else condition


@op("Select", fold=lambda condition, t, e: np.asarray(np.where(_row_condition(condition, t), t, e)))
def select(condition, t, e):
    """Return ``t`` where the condition holds, else ``e``.

    Args:
      condition: bools: a scalar, a vector that selects rows, or of the operands' shape.
    """
    return jnp.where(_row_condition(jnp.asarray(condition), t), t, e)


# --- Clipping


@jax.custom_jvp
def _clip(t: Any, low: Any, high: Any) -> Any:
    # The kernel's order: the lower bound wins if it is above the upper one.
    return lax.max(lax.min(t, high), low)


@_clip.defjvp
def _clip_jvp(primals: Any, tangents: Any) -> Any:
    t, low, high = primals
    below, above = lax.lt(t, low), lax.gt(t, high)
    # A value at a bound gets the whole gradient.
    tangent = lax.select(below, tangents[1], lax.select(above, tangents[2], tangents[0]))
    return _clip(t, low, high), tangent


@op("ClipByValue")
def clip_by_value(t, clip_value_min, clip_value_max):
    """Clip to a range. TF: core/kernels/cwise_op_clip.cc."""
    t = jnp.asarray(t)
    low, high = jnp.broadcast_to(clip_value_min, t.shape), jnp.broadcast_to(clip_value_max, t.shape)
    if jnp.issubdtype(t.dtype, jnp.complexfloating):
        return lax.complex(*(_clip(part(t), part(low), part(high)) for part in (lax.real, lax.imag)))
    if jnp.issubdtype(t.dtype, jnp.inexact):
        return _clip(t, low, high)
    return lax.max(lax.min(t, high), low)


@op("LeftShift", int64="pair")
def left_shift(x, y):
    """Shift left; counts are clamped to the width.

    TF: core/kernels/cwise_op_left_shift.cc.

    Without 64-bit mode, uint64 and `Words` keep both words: keys of random generators are composed so.
    """
    is_64_bit = isinstance(x, U32Pair) or any(is_int64(v) and v.dtype == np.uint64 for v in (x, y))
    if is_64_bit and not jax.config.jax_enable_x64:
        return _shifted_words(jnp.asarray(to_u32_pair(x)), jnp.asarray(to_u32_pair(y)), getattr(x, "dtype", np.uint64))
    x, y = jnp.broadcast_arrays(jnp.asarray(to_32_bits(x)), jnp.asarray(to_32_bits(y)))
    return lax.shift_left(x, _clamped(y))


def _shifted_words(x: Any, y: Any, dtype: Any) -> U32Pair:
    low, high, count = x[..., 0], x[..., 1], y[..., 0]
    negative = lax.bitcast_convert_type(y[..., 1], np.int32) < 0
    count = jnp.where(
        negative, np.uint32(0), jnp.where(y[..., 1] > 0, np.uint32(63), jnp.minimum(count, np.uint32(63)))
    )
    low, high, count = jnp.broadcast_arrays(low, high, count)
    # XLA shifts by 32 and more give 0.
    carried = lax.shift_right_logical(low, np.uint32(32) - count) | lax.shift_left(low, count - np.uint32(32))
    words = jnp.stack([lax.shift_left(low, count), lax.shift_left(high, count) | carried], -1)
    return U32Pair(words, np.dtype(dtype if np.dtype(dtype).itemsize == 8 else np.uint64))


def _bitwise(name: str, summary: str, fn: Callable[..., Any]) -> None:
    def run(x, y):
        dtypes = [v.dtype for v in (x, y) if isinstance(v, U32Pair)]
        if dtypes:
            return U32Pair(fn(jnp.asarray(to_u32_pair(x)), jnp.asarray(to_u32_pair(y))), dtypes[0])
        return fn(jnp.asarray(x), jnp.asarray(y))

    run.__doc__ = f"Return the bitwise {summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, int64="pair")(run)


_bitwise("BitwiseAnd", "and", jnp.bitwise_and)
_bitwise("BitwiseOr", "or", jnp.bitwise_or)
_bitwise("BitwiseXor", "exclusive or", jnp.bitwise_xor)


@op("RightShift")
def right_shift(x, y):
    """Shift right, with the sign; counts are clamped to the width."""
    x, y = jnp.broadcast_arrays(jnp.asarray(x), jnp.asarray(y))
    signed = jnp.issubdtype(x.dtype, jnp.signedinteger)
    return (lax.shift_right_arithmetic if signed else lax.shift_right_logical)(x, _clamped(y))


def _clamped(y: Any) -> Any:
    bits = np.dtype(y.dtype).itemsize * 8
    return jnp.clip(y, 0, bits - 1).astype(y.dtype)


@op("PopulationCount")
def population_count(x):
    """Return the number of set bits, uint8."""
    return lax.population_count(jnp.asarray(x)).astype(np.uint8)


@op("Invert")
def invert(x):
    """Invert all bits."""
    return lax.bitwise_not(jnp.asarray(x))
