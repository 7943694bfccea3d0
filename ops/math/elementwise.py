"""Elementwise arithmetic, comparison and selection."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import dim_bounds
from tf2jax_lite.jaxprs.compat import max_dim, min_dim
from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.arrays.shape import is_small
from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.common.broadcasting import array, matched, pair
from tf2jax_lite.ops.common.derivatives import linear_product, with_slope
from tf2jax_lite.ops.common.elementwise_derivatives import differentiable
from tf2jax_lite.ops.common.logistic import logistic
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import UNKNOWN, is_static, is_string, is_symbolic
from tf2jax_lite.values.symbolic_float import is_float_dim
from tf2jax_lite.values.variant import Variant, add_variants
from tf2jax_lite.xla_cpu import inverse_trig


def _host1(fn: Callable[[Any], Any]) -> Callable[..., Any]:
    def host(x: Any) -> Any:
        return np.asarray(fn(np.asarray(x)))

    return host


def _host2(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def host(x: Any, y: Any) -> Any:
        out = np.asarray(fn(np.asarray(x), np.asarray(y)))
        return (
            out
            if out.dtype == object or is_symbolic(x) or is_symbolic(y)
            else out.astype(np.result_type(x, y) if out.dtype != bool else bool, copy=False)
        )

    return host


def _unary(
    name: str, fn: Callable[[Any], Any], host: Callable[[Any], Any] | None = None, *, dear: bool = False
) -> None:
    def call(x: Any) -> Any:
        return fn(array(x))

    call.__doc__ = f"See tf.raw_ops.{name}."
    op(name, host=_host1(host) if host else None, dear=dear)(call)


def _log(x: Any) -> Any:
    # Known numbers in their own precision: TensorFlow code writes log(1e-307) in float64 for what is to be nearly -inf.
    with np.errstate(all="ignore"):
        return np.log(x)


def _binary(
    name: str,
    fn: Callable[[Any, Any], Any],
    host: Callable[[Any, Any], Any] | None = None,
    operands: Callable[[Any, Any], tuple[Any, Any]] = pair,
    dear: bool = False,
) -> None:
    def call(x: Any, y: Any) -> Any:
        return fn(*operands(x, y))

    call.__doc__ = f"See tf.raw_ops.{name}."
    op(name, host=_host2(host) if host else None, dear=dear)(call)


def _chosen(forward: Callable[[Any, Any], Any], first: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns ``forward`` with TensorFlow's gradient: all of it goes to x where ``first`` holds, else to y."""

    @jax.custom_jvp
    def call(x: Any, y: Any) -> Any:
        return forward(x, y)

    @call.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        x, y = primals
        return call(x, y), lax.select(first(x, y), *tangents)

    inner = inlined(call)
    return lambda x, y: inner(x, y) if jnp.issubdtype(x.dtype, jnp.inexact) else forward(x, y)


_maximum = _chosen(lax.max, lax.ge)
_minimum = _chosen(lax.min, lax.le)


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


_power_of_floats = inlined(_float_power)


@jax.custom_jvp
def _complex_acosh(x: Any) -> Any:
    return lax.acosh(x)


@_complex_acosh.defjvp
def _complex_acosh_jvp(primals: Any, tangents: Any) -> Any:
    # JAX's rule takes the root of (x - 1) (x + 1), which left of the imaginary axis has the other sign.
    out = _complex_acosh(*primals)
    return out, tangents[0] / lax.sinh(out)


@inlined
@differentiable(lambda x, y: lax.rsqrt(x - 1) * lax.rsqrt(x + 1))
def _real_acosh(x: Any) -> Any:
    # JAX's slope is a number left of -1, too, where the function is none.
    return lax.acosh(x)


def _acosh(x: Any) -> Any:
    return _complex_acosh(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else _real_acosh(x)


def _power(x: Any, y: Any) -> Any:
    return _power_of_floats(x, y) if jnp.issubdtype(x.dtype, jnp.inexact) else _integer_power(x, y)


def _integer_power(x: Any, y: Any) -> Any:
    """Squares and multiplies.

    ``jnp.power`` looks at six bits of the exponent: ``0 ** 64`` is 1 there.
    """

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        out, base, left = state
        return jnp.where(left & 1, out * base, out), base * base, left >> 1

    # TensorFlow refuses negative exponents; here they end the loop at once.
    return while_loop(lambda state: jnp.any(state[2] > 0), step, (jnp.ones_like(x), x, y))[0]


def _floor_div(x: Any, y: Any) -> Any:
    # Not Python's, which differs where the quotient is infinite or rounds to a whole number.
    return lax.floor(lax.div(x, y)) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.floor_divide(x, y)


def _host_floor_div(x: Any, y: Any) -> Any:
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


def _host_extreme(fn: Callable[[Any, Any], Any], of_dimensions: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a numpy function that takes symbolic dimensions, whose comparison is not always conclusive."""

    def host(x: Any, y: Any) -> Any:
        if x.dtype.kind != "O" and y.dtype.kind != "O":
            return fn(x, y)
        decided = not is_float_dim(x) and not is_float_dim(y)
        x, y = np.broadcast_arrays(x, y)
        out = np.empty(x.shape, object)
        for index in np.ndindex(*x.shape):
            a, b = x[index], y[index]
            found = _certain(fn, a, b) if decided else None
            out[index] = of_dimensions(a, b) if found is None else found
        return out

    return host


def _certain(fn: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Returns the greater or the lesser of two sizes if that is one of them whatever the data, else None."""
    (least, most), (lower, upper) = (dim_bounds(int(v) if isinstance(v, np.integer) else v) for v in (a, b))
    if least >= upper:
        return a if fn(0, 1) else b
    if lower >= most:
        return b if fn(0, 1) else a
    return None


def _ordered(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a comparison that knows, too, how large sizes that data decides can be."""

    def host(x: Any, y: Any) -> Any:
        if x.size != 1 or y.size != 1 or not all(v.dtype.kind in "iuO" and not is_float_dim(v) for v in (x, y)):
            return fn(x, y)
        (least, most), (lower, upper) = dim_bounds(x.item()), dim_bounds(y.item())
        first, last = fn(0, upper - least), fn(0, lower - most)  # it depends on the difference's sign alone
        return np.full(np.broadcast_shapes(x.shape, y.shape), first) if first == last else fn(x, y)

    return host


@jax.custom_jvp
def _abs(x: Any) -> Any:
    return lax.abs(x)


@_abs.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # The sign, as tf.raw_ops.Abs has it: nothing at 0, where JAX's own rule says 1.
    return _abs(*primals), tangents[0] * lax.sign(primals[0])


_reciprocal = with_slope(lambda x: lax.div(jnp.ones_like(x), x), lambda x, y: -y * y)

_unary("Neg", lax.neg, np.negative)
_unary("Abs", lambda x: _abs(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.abs(x), np.abs)
_unary("Sign", jnp.sign, np.sign)
_unary("Square", lambda x: lax.mul(x, x), np.square)
_unary("Sqrt", with_slope(lax.sqrt, lambda x, y: jnp.asarray(0.5, x.dtype) / y), np.sqrt)
_unary("Rsqrt", with_slope(lax.rsqrt, lambda x, y: jnp.asarray(-0.5, x.dtype) * y * y * y))
_unary("Exp", lax.exp, dear=True)
# As a sum of value and 1 the slope would lose its digits where it is small.
_unary("Expm1", inlined(differentiable(lambda x, y: lax.exp(x))(lax.expm1)), dear=True)
_unary("Log", lax.log, _log, dear=True)
_unary("Log1p", lax.log1p, dear=True)
_unary("Sin", lax.sin, dear=True)
_unary("Cos", lax.cos, dear=True)
_unary("Tan", lax.tan, dear=True)
_unary("Tanh", lax.tanh, dear=True)
_unary("Sigmoid", logistic, dear=True)
_unary("Floor", lax.floor, np.floor)
_unary("Ceil", lax.ceil, np.ceil)
_unary(
    "Round",
    lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN) if jnp.issubdtype(x.dtype, jnp.floating) else x,
    lambda x: x if jnp.issubdtype(x.dtype, jnp.integer) else np.rint(x),  # sizes that are numbers round themselves
)
_unary("Reciprocal", _reciprocal)
_unary("Erf", lax.erf, dear=True)
_unary("IsNan", jnp.isnan)
_unary("IsFinite", jnp.isfinite)
_unary("IsInf", jnp.isinf)
_unary("LogicalNot", lax.bitwise_not, np.logical_not)


def _trigamma(x: Any, y: Any) -> Any:
    # JAX's is no number at infinity.
    endless = x == np.inf
    slope = lax.polygamma(lax.full_like(x, 1), jnp.where(endless, jnp.ones_like(x), x))
    return jnp.where(endless, jnp.zeros_like(x), slope)


@differentiable(_trigamma)
def _digamma(x: Any) -> Any:
    # TensorFlow's is NaN at both zeros; JAX's has been infinite there since 0.12.
    return lax.add(lax.digamma(x), jnp.where(x == 0, np.asarray(np.nan, x.dtype), np.asarray(0, x.dtype)))


def _host_zeros_like(x: Any) -> Any:
    return np.full(np.shape(x), b"", object) if is_string(x) else np.asarray(np.zeros_like(x))


@op("ZerosLike", host=_host_zeros_like)
def zeros_like(x: Any) -> Any:
    """Returns zeros, of a list and of other variants, too. See tf.raw_ops.ZerosLike."""
    if isinstance(x, Variant):
        return x.zeros_like()
    return np.zeros(x.shape, x.dtype) if is_small(x.shape) else jnp.zeros_like(x)


@op("OnesLike", host=np.ones_like)
def ones_like(x: Any) -> Any:
    """Returns ones: known ones where the shape is known and small, as `tf.ones` gives. See tf.raw_ops.OnesLike."""
    return np.ones(x.shape, x.dtype) if is_small(x.shape) else jnp.ones_like(x)


@op("Add", "AddV2", host=_host2(np.add))
def add(x: Any, y: Any) -> Any:
    """Adds; of lists (the contents of TensorArrays, as TF1's gradients add them) the elements. See tf.raw_ops.AddV2."""
    total = add_variants([x, y])
    return lax.add(*matched(x, y)) if total is None else total


_binary("Sub", lax.sub, np.subtract, operands=matched)
_binary("Mul", lambda x, y: lax.mul(x, y), np.multiply, operands=matched)
_binary("RealDiv", lax.div, np.divide, operands=matched)
_binary("FloorDiv", _floor_div, _host_floor_div)
_binary("FloorMod", jnp.mod, np.mod)
_binary("Maximum", _maximum, _host_extreme(np.maximum, max_dim))
_binary("Minimum", _minimum, _host_extreme(np.minimum, min_dim))
_binary("Pow", _power, np.power, dear=True)
_binary("SquaredDifference", _squared_difference, operands=matched)
_binary("Less", lax.lt, _ordered(np.less), operands=matched)
_binary("LessEqual", lax.le, _ordered(np.less_equal), operands=matched)
_binary("Greater", lax.gt, _ordered(np.greater), operands=matched)
_binary("GreaterEqual", lax.ge, _ordered(np.greater_equal), operands=matched)
for _name, _fn in {
    "Acos": inverse_trig.acos,
    "Acosh": _acosh,
    "Asin": inverse_trig.asin,
    "Asinh": lax.asinh,
    "Atan": inverse_trig.atan,
    "Atanh": lax.atanh,
    "Cosh": lax.cosh,
    "Sinh": lax.sinh,
    "Erfc": lax.erfc,
    "Erfinv": lax.erf_inv,
    "Lgamma": lax.lgamma,
    "Digamma": _digamma,
}.items():
    _unary(_name, _fn, dear=True)
_unary("Inv", _reciprocal)
_unary("Rint", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN))


@op("Conj", host=lambda input: np.asarray(np.conj(input)))
def conj(input: Any) -> Any:
    """Returns the conjugate, of a sparse matrix too. See tf.raw_ops.Conj."""
    return input.conj() if isinstance(input, Variant) else lax.conj(jnp.asarray(input))


def _lazy_logical(fn: Callable[[Any, Any], Any], decided: bool) -> Callable[[Any, Any], Any]:
    """Returns a numpy twin that needs one operand only if that decides: ``False and UNKNOWN`` is False."""

    def host(x: Any, y: Any) -> Any:
        if x is not UNKNOWN and y is not UNKNOWN:
            return np.asarray(fn(x, y))
        return next((v for v in (x, y) if v is not UNKNOWN and np.all(v == decided)), UNKNOWN)

    return host


def _short_circuit(x: Any, y: Any, decided: bool, fn: Callable[[Any, Any], Any]) -> Any:
    for known, other in ((x, y), (y, x)):
        if is_static(known) and known.ndim == 0:
            if bool(known) != decided:
                return other
            if not other.ndim:
                return known
    return fn(*matched(x, y))


@op("LogicalAnd", host=_lazy_logical(np.logical_and, False), lazy=True)
def logical_and(x: Any, y: Any) -> Any:
    """Returns x and y. See tf.raw_ops.LogicalAnd."""
    return _short_circuit(x, y, False, lax.bitwise_and)


@op("LogicalOr", host=_lazy_logical(np.logical_or, True), lazy=True)
def logical_or(x: Any, y: Any) -> Any:
    """Returns x or y. See tf.raw_ops.LogicalOr."""
    return _short_circuit(x, y, True, lax.bitwise_or)


@op("AddN", host=lambda inputs: np.asarray(sum(inputs[1:], inputs[0])))
def add_n(inputs: list[Any]) -> Any:
    """Adds tensors of one shape, tensor lists of one length, or other variants. See tf.raw_ops.AddN."""
    total = add_variants(inputs)
    if total is not None:
        return total
    arrays = list(map(jnp.asarray, inputs))

    def added(*values: Any) -> Any:
        return functools.reduce(lax.add, values)

    return in_float32(added, *arrays) if len(arrays) > 2 else added(*arrays)


@op("AccumulateNV2")
def accumulate_n(inputs: list[Any], *, shape: Any) -> Any:
    """Adds tensors of one shape. See tf.raw_ops.AccumulateNV2."""
    return add_n(inputs)


def _host_equal(x: Any, y: Any, *, incompatible_shape_error: bool = True) -> Any:
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(False)
    return np.asarray(np.equal(x, y), bool)


def _host_not_equal(x: Any, y: Any, *, incompatible_shape_error: bool = True) -> Any:
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(True)
    return np.asarray(np.not_equal(x, y), bool)


@op("Equal", host=_host_equal)
def equal(x: Any, y: Any, *, incompatible_shape_error: bool = True) -> Any:
    """Compares; shapes that do not broadcast are unequal if asked. See tf.raw_ops.Equal."""
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(False)
    return lax.eq(*matched(x, y))


@op("NotEqual", host=_host_not_equal)
def not_equal(x: Any, y: Any, *, incompatible_shape_error: bool = True) -> Any:
    """Compares; shapes that do not broadcast are unequal if asked. See tf.raw_ops.NotEqual."""
    if not incompatible_shape_error and not _broadcasts(x, y):
        return np.bool_(True)
    return lax.ne(*matched(x, y))


def _broadcasts(x: Any, y: Any) -> bool:
    try:
        jnp.broadcast_shapes(jnp.shape(x), jnp.shape(y))
    except ValueError:
        return False
    return True


@op("SelectV2", host=lambda condition, t, e: np.asarray(np.where(condition, t, e)))
def select_v2(condition: Any, t: Any, e: Any) -> Any:
    """Chooses elementwise, broadcasting. See tf.raw_ops.SelectV2."""
    return jnp.where(condition, t, e)


def _select(condition: Any, t: Any) -> Any:
    extra = jnp.ndim(t) - jnp.ndim(condition)
    return condition.reshape(condition.shape + (1,) * extra) if jnp.ndim(condition) else condition


@op("Select", host=lambda condition, t, e: np.asarray(np.where(_select(condition, t), t, e)))
def select(condition: Any, t: Any, e: Any) -> Any:
    """Chooses elementwise, or rows where the condition is a vector. See tf.raw_ops.Select."""
    return jnp.where(_select(jnp.asarray(condition), t), t, e)


@jax.custom_jvp
def _clip(t: Any, low: Any, high: Any) -> Any:
    # The kernel's order: of bounds that exclude each other the lower one counts.
    return lax.max(lax.min(t, high), low)


@_clip.defjvp
def _clip_jvp(primals: Any, tangents: Any) -> Any:
    t, low, high = primals
    below, above = lax.lt(t, low), lax.gt(t, high)
    # At the edges the whole gradient is the value's own.
    tangent = lax.select(below, tangents[1], lax.select(above, tangents[2], tangents[0]))
    return _clip(t, low, high), tangent


@op("ClipByValue")
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    """Clips into a range; of complex numbers, the parts into those of the bounds. See tf.raw_ops.ClipByValue."""
    t = jnp.asarray(t)
    low, high = jnp.broadcast_to(clip_value_min, t.shape), jnp.broadcast_to(clip_value_max, t.shape)
    if jnp.issubdtype(t.dtype, jnp.complexfloating):
        return lax.complex(*(_clip(part(t), part(low), part(high)) for part in (lax.real, lax.imag)))
    if jnp.issubdtype(t.dtype, jnp.inexact):
        return _clip(t, low, high)
    return lax.max(lax.min(t, high), low)


@op("DivNoNan")
def div_no_nan(x: Any, y: Any) -> Any:
    """Divides; 0 where the divisor is 0. See tf.raw_ops.DivNoNan."""
    x, y = pair(x, y)
    zero = lax.eq(y, jnp.zeros((), y.dtype))
    safe = jnp.where(zero, jnp.ones((), y.dtype), y)
    return jnp.where(zero, jnp.zeros((), x.dtype), lax.div(x, safe))


@op("MulNoNan")
def mul_no_nan(x: Any, y: Any) -> Any:
    """Multiplies; 0 where y is 0, whatever x is. See tf.raw_ops.MulNoNan."""
    x, y = pair(x, y)
    return linear_product(y, x)


@jax.custom_jvp
def _next_after(x: Any, y: Any) -> Any:
    return lax.nextafter(x, y)


@_next_after.defjvp
def _next_after_jvp(primals: Any, tangents: Any) -> Any:
    return _next_after(*primals), tangents[0]


def _xlog(log: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def call(x: Any, y: Any) -> Any:
        zero = lax.eq(x, jnp.zeros((), x.dtype))
        return jnp.where(zero, jnp.zeros((), x.dtype), lax.mul(x, log(jnp.where(zero, jnp.ones((), y.dtype), y))))

    return call


_binary("Xlogy", _xlog(lax.log), dear=True)
_binary("Xlog1py", _xlog(lax.log1p), dear=True)
_binary(
    "Xdivy",
    lambda x, y: jnp.where(x == 0, jnp.zeros((), x.dtype), lax.div(x, jnp.where(x == 0, jnp.ones((), y.dtype), y))),
)
_binary("Atan2", inverse_trig.atan2, dear=True)
_binary("TruncateDiv", _truncate_div)
_binary("TruncateMod", lax.rem)
_binary("Mod", lax.rem)
_binary("Div", lax.div, operands=matched)
_binary("NextAfter", _next_after)
_unary("Invert", lax.bitwise_not)
_binary("SigmoidGrad", lambda y, dy: dy * y * (1 - y))
_binary("TanhGrad", lambda y, dy: dy * (1 - y * y))


def _through_inverse(slope: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a gradient op from the derivative as a function of the result; kernels conjugate the result."""
    return lambda y, dy: linear_product(dy, slope(lax.conj(y) if jnp.iscomplexobj(y) else y))


_binary("SqrtGrad", _through_inverse(lambda y: jnp.asarray(0.5, y.dtype) / y))
_binary("RsqrtGrad", _through_inverse(lambda y: jnp.asarray(-0.5, y.dtype) * y * y * y))
_binary("ReciprocalGrad", _through_inverse(lambda y: -y * y))
_binary("InvGrad", _through_inverse(lambda y: -y * y))


@op("Real")
def real(input: Any, *, Tout: Any = None) -> Any:
    """Returns the real part. See tf.raw_ops.Real."""
    return jnp.real(input)


@op("Imag")
def imag(input: Any, *, Tout: Any = None) -> Any:
    """Returns the imaginary part. See tf.raw_ops.Imag."""
    return jnp.imag(input)


@op("Angle")
def angle(input: Any, *, Tout: Any = None) -> Any:
    """Returns the argument. See tf.raw_ops.Angle."""
    return inverse_trig.atan2(jnp.imag(input), jnp.real(input))


@op("ComplexAbs")
def complex_abs(x: Any, *, Tout: Any = None) -> Any:
    """Returns the magnitude. See tf.raw_ops.ComplexAbs."""
    return jnp.abs(x)


@op("Complex")
def complex_(real: Any, imag: Any, *, Tout: Any = None) -> Any:
    """Returns complex numbers. See tf.raw_ops.Complex."""
    return lax.complex(*pair(real, imag))


@op("ApproximateEqual")
def approximate_equal(x: Any, y: Any, *, tolerance: float = 1e-5) -> Any:
    """Whether the difference is below a tolerance. See tf.raw_ops.ApproximateEqual."""
    return jnp.abs(x - y) < tolerance


@op("Cross", moves=True)
def cross(a: Any, b: Any) -> Any:
    """Returns the cross product. See tf.raw_ops.Cross."""
    if a.shape != b.shape or a.shape[-1] != 3:
        raise OpError(f"operands must have one shape and 3 elements per vector, got {list(a.shape)}, {list(b.shape)}")
    return jnp.cross(a, b)
