"""Elementwise arithmetic of two tensors, and sums of many."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_interval
from tf2jax_lite.jaxprs.compat import max_dim, min_dim
from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.common.broadcasting import matched, pair
from tf2jax_lite.ops.common.derivatives import zero_safe_product
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import is_symbolic
from tf2jax_lite.values.symbolic_float import is_float_dim
from tf2jax_lite.values.variant import add_variants


def fold_binary(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the folder of an elementwise op: operands' dtype, or bool."""

    def fold(x: Any, y: Any) -> Any:
        out = np.asarray(fn(np.asarray(x), np.asarray(y)))
        if out.dtype == object or is_symbolic(x) or is_symbolic(y):
            return out
        return out.astype(np.result_type(x, y) if out.dtype != bool else bool, copy=False)

    return fold


def _binary(
    name: str,
    summary: str,
    fn: Callable[[Any, Any], Any],
    host: Callable[[Any, Any], Any] | None = None,
    operands: Callable[[Any, Any], tuple[Any, Any]] = pair,
    **options: Any,
) -> None:
    """Register an op of two tensors; ``operands`` makes shapes that ``fn`` takes."""

    def call(x, y):
        return fn(*operands(x, y))

    call.__doc__ = f"{summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, fold=fold_binary(host) if host else None, **options)(call)


# --- Sums


@op("Add", "AddV2", fold=fold_binary(np.add))
def add(x, y):
    """Add arrays, or tensor lists elementwise.

    TF1 gradients of TensorArrays add the lists of their elements.
    """
    total = add_variants([x, y])
    return lax.add(*matched(x, y)) if total is None else total


@op("AddN", fold=lambda inputs: np.asarray(sum(inputs[1:], inputs[0])))
def add_n(inputs):
    """Add arrays of one shape. TF: core/kernels/aggregate_ops.cc."""
    total = add_variants(inputs)
    if total is not None:
        return total
    arrays = list(map(jnp.asarray, inputs))

    def added(*values: Any) -> Any:
        return functools.reduce(lax.add, values)

    return in_float32(added, *arrays) if len(arrays) > 2 else added(*arrays)


@op("AccumulateNV2")
def accumulate_n(inputs, *, shape):
    """Add arrays of one shape."""
    return add_n(inputs)


# --- Products and quotients


def _floor_div(x: Any, y: Any) -> Any:
    # The floor of the rounded quotient; Python's differs where that is infinite or an integer by rounding.
    return lax.floor(lax.div(x, y)) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.floor_divide(x, y)


def _fold_floor_div(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "fV":  # V: bfloat16
        return np.floor_divide(x, y)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.floor(x / y)


def _truncate_div(x: Any, y: Any) -> Any:
    quotient = lax.div(x, y)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return quotient  # lax.div rounds integers towards zero
    return lax.select(quotient < 0, lax.ceil(quotient), lax.floor(quotient))


def _squared_difference(x: Any, y: Any) -> Any:
    difference = lax.sub(x, y)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.mul(difference, lax.conj(difference))
    return lax.square(difference)


_binary("Sub", "Subtract", lax.sub, np.subtract, operands=matched)
_binary("Mul", "Multiply", lambda x, y: lax.mul(x, y), np.multiply, operands=matched)
_binary("Div", "Divide, integers towards zero", lax.div, operands=matched)
_binary("RealDiv", "Divide", lax.div, np.divide, operands=matched)
_binary("FloorDiv", "Divide and round down", _floor_div, _fold_floor_div)
_binary("FloorMod", "Return the remainder of x / y rounded down", jnp.mod, np.mod)
_binary("TruncateDiv", "Divide and round towards zero", _truncate_div)
_binary("TruncateMod", "Return the remainder of x / y rounded towards zero", lax.rem)
_binary("Mod", "Return the remainder of x / y rounded towards zero", lax.rem)
_binary("SquaredDifference", "Return |x - y| ** 2", _squared_difference, operands=matched)


@op("DivNoNan")
def div_no_nan(x, y):
    """Return ``x / y``, 0 where ``y`` is 0."""
    x, y = pair(x, y)
    zero = lax.eq(y, jnp.zeros((), y.dtype))
    safe = jnp.where(zero, jnp.ones((), y.dtype), y)
    return jnp.where(zero, jnp.zeros((), x.dtype), lax.div(x, safe))


@op("MulNoNan")
def mul_no_nan(x, y):
    """Return ``x * y``, 0 where ``y`` is 0.

    It is 0 there even if ``x`` is infinite or NaN.
    """
    x, y = pair(x, y)
    return zero_safe_product(y, x)


@op("Cross", pattern=Pattern.INJECTIVE)
def cross(a, b):
    """Return cross products of vectors."""
    if a.shape != b.shape or a.shape[-1] != 3:
        raise OpError(f"operands must have one shape and 3 elements per vector, got {list(a.shape)}, {list(b.shape)}")
    return jnp.cross(a, b)


# --- Maximum, minimum


def _extreme(forward: Callable[[Any, Any], Any], takes_x: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return ``forward`` with its gradient to x where ``takes_x`` holds, else to y."""

    @jax.custom_jvp
    def call(x: Any, y: Any) -> Any:
        return forward(x, y)

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, y = primals
        return call(x, y), lax.select(takes_x(x, y), *tangents)

    inner = inlined(call)
    return lambda x, y: inner(x, y) if jnp.issubdtype(x.dtype, jnp.inexact) else forward(x, y)


def _fold_extreme(fn: Callable[[Any, Any], Any], of_dims: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a NumPy function that also takes symbolic, maybe unordered dimensions."""

    def fold(x: Any, y: Any) -> Any:
        if x.dtype.kind != "O" and y.dtype.kind != "O":
            return fn(x, y)
        has_bounds = not is_float_dim(x) and not is_float_dim(y)
        x, y = np.broadcast_arrays(x, y)
        out = np.empty(x.shape, object)
        for index in np.ndindex(*x.shape):
            a, b = x[index], y[index]
            found = _extreme_by_bounds(fn, a, b) if has_bounds else None
            out[index] = of_dims(a, b) if found is None else found
        return out

    return fold


def _extreme_by_bounds(fn: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return the extreme of two dimensions if their bounds alone decide, else None."""
    (a_min, a_max), (b_min, b_max) = (dim_interval(int(v) if isinstance(v, np.integer) else v) for v in (a, b))
    if a_min >= b_max:
        return a if fn(0, 1) else b
    if b_min >= a_max:
        return b if fn(0, 1) else a
    return None


_binary("Maximum", "Return the larger", _extreme(lax.max, lax.ge), _fold_extreme(np.maximum, max_dim))
_binary("Minimum", "Return the smaller", _extreme(lax.min, lax.le), _fold_extreme(np.minimum, min_dim))


# --- Powers and logarithms


@jax.custom_jvp
def _float_power(x: Any, y: Any) -> Any:
    return lax.pow(x, y)


@_float_power.defjvp
def _float_power_jvp(primals: Any, tangents: Any) -> Any:
    x, y = primals
    t_x, t_y = tangents
    out = _float_power(x, y)
    one, zero = jnp.ones((), x.dtype), jnp.zeros((), x.dtype)
    # TensorFlow takes log(x) as 0 where x is not positive (not zero, for complex numbers).
    inside = lax.ne(x, zero) if jnp.issubdtype(x.dtype, jnp.complexfloating) else lax.gt(x, zero)
    log = jnp.where(inside, lax.log(jnp.where(inside, x, one)), zero)
    return out, t_x * (y * _float_power(x, y - one)) + t_y * (out * log)


_inlined_float_power = inlined(_float_power)


def _integer_power(x: Any, y: Any) -> Any:
    """Return integers to integer powers, by squaring."""
    # ``jnp.power`` reads six bits of the exponent: ``0 ** 64`` is 1 there.

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        out, base, exponent = state
        return jnp.where(exponent & 1, out * base, out), base * base, exponent >> 1

    # Negative exponents, an error in TensorFlow, end the loop at once.
    return while_loop(lambda state: jnp.any(state[2] > 0), step, (jnp.ones_like(x), x, y))[0]


def _power(x: Any, y: Any) -> Any:
    return _inlined_float_power(x, y) if jnp.issubdtype(x.dtype, jnp.inexact) else _integer_power(x, y)


def _times_log(log: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function ``x * log(y)`` that is 0 where x is 0."""

    def call(x: Any, y: Any) -> Any:
        zero = lax.eq(x, jnp.zeros((), x.dtype))
        return jnp.where(zero, jnp.zeros((), x.dtype), lax.mul(x, log(jnp.where(zero, jnp.ones((), y.dtype), y))))

    return call


_binary("Pow", "Return x ** y", _power, np.power, pattern=Pattern.TRANSCENDENTAL)
_binary("Xlogy", "Return x * log(y), 0 where x is 0", _times_log(lax.log), pattern=Pattern.TRANSCENDENTAL)
_binary("Xlog1py", "Return x * log(1 + y), 0 where x is 0", _times_log(lax.log1p), pattern=Pattern.TRANSCENDENTAL)
_binary(
    "Xdivy",
    "Return x / y, 0 where x is 0",
    lambda x, y: jnp.where(x == 0, jnp.zeros((), x.dtype), lax.div(x, jnp.where(x == 0, jnp.ones((), y.dtype), y))),
)


# --- Others


@jax.custom_jvp
def _next_after(x: Any, y: Any) -> Any:
    return lax.nextafter(x, y)


@_next_after.defjvp
def _next_after_jvp(primals: Any, tangents: Any) -> Any:
    return _next_after(*primals), tangents[0]


_binary("Atan2", "Return the angle of the point (y, x)", lax.atan2, pattern=Pattern.TRANSCENDENTAL)
_binary("NextAfter", "Return the next number after x in the direction of y", _next_after)


@op("Complex")
def complex_(real, imag, *, Tout=None):
    """Return complex numbers from real and imaginary parts."""
    return lax.complex(*pair(real, imag))
