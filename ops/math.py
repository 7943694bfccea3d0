"""Elementwise arithmetic, comparison and selection."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .registry import op
from .values import is_symbolic


def _pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Broadcasts two operands the way that lax does not by itself."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    if x.shape == y.shape:
        return x, y
    shape = jnp.broadcast_shapes(x.shape, y.shape)
    # lax takes scalars only where both shapes are given out; jnp's broadcasting makes one equation.
    return (x if x.shape == shape else jnp.broadcast_to(x, shape)), (y if y.shape == shape else jnp.broadcast_to(y, shape))


def _host1(fn: Callable[[Any], Any]) -> Callable[..., Any]:
    def host(x: Any) -> Any:
        return np.asarray(fn(np.asarray(x)))

    return host


def _host2(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def host(x: Any, y: Any) -> Any:
        out = np.asarray(fn(np.asarray(x), np.asarray(y)))
        return out if out.dtype == object or is_symbolic(x) or is_symbolic(y) else out.astype(np.result_type(x, y) if out.dtype != bool else bool, copy=False)

    return host


def _unary(name: str, fn: Callable[[Any], Any], host: Callable[[Any], Any] | None = None) -> None:
    def call(x: Any) -> Any:
        return fn(jnp.asarray(x))

    call.__doc__ = f"See tf.raw_ops.{name}."
    op(name, host=_host1(host) if host else None)(call)


def _binary(name: str, fn: Callable[[Any, Any], Any], host: Callable[[Any, Any], Any] | None = None) -> None:
    def call(x: Any, y: Any) -> Any:
        return fn(*_pair(x, y))

    call.__doc__ = f"See tf.raw_ops.{name}."
    op(name, host=_host2(host) if host else None)(call)


def _truncate_div(x: Any, y: Any) -> Any:
    return lax.div(x, y)


def _floor_mod(x: Any, y: Any) -> Any:
    return jnp.mod(x, y)


_unary("Neg", lax.neg, np.negative)
_unary("Abs", jnp.abs, np.abs)
_unary("Sign", jnp.sign, np.sign)
_unary("Square", lambda x: lax.mul(x, x), np.square)
_unary("Sqrt", lax.sqrt, np.sqrt)
_unary("Rsqrt", lax.rsqrt)
_unary("Exp", lax.exp)
_unary("Expm1", lax.expm1)
_unary("Log", lax.log)
_unary("Log1p", lax.log1p)
_unary("Sin", lax.sin)
_unary("Cos", lax.cos)
_unary("Tan", lax.tan)
_unary("Tanh", lax.tanh)
_unary("Sigmoid", lax.logistic)
_unary("Floor", lax.floor, np.floor)
_unary("Ceil", lax.ceil, np.ceil)
_unary("Round", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN) if jnp.issubdtype(x.dtype, jnp.floating) else x)
_unary("Reciprocal", lambda x: lax.div(jnp.ones((), x.dtype), x))
_unary("Erf", lax.erf)
_unary("IsNan", jnp.isnan)
_unary("IsFinite", jnp.isfinite)
_unary("IsInf", jnp.isinf)
_unary("LogicalNot", lax.bitwise_not, np.logical_not)
_unary("ZerosLike", jnp.zeros_like, np.zeros_like)
_unary("OnesLike", jnp.ones_like, np.ones_like)
for _name in ("Add", "AddV2"):
    _binary(_name, lax.add, np.add)
_binary("Sub", lax.sub, np.subtract)
_binary("Mul", lambda x, y: lax.mul(x, y), np.multiply)
_binary("RealDiv", lax.div, np.divide)
_binary("FloorDiv", jnp.floor_divide, np.floor_divide)
_binary("FloorMod", _floor_mod, np.mod)
_binary("Maximum", lax.max, np.maximum)
_binary("Minimum", lax.min, np.minimum)
_binary("Pow", lax.pow, np.power)
_binary("SquaredDifference", lambda x, y: lax.square(lax.sub(x, y)))
_binary("Less", lax.lt, np.less)
_binary("LessEqual", lax.le, np.less_equal)
_binary("Greater", lax.gt, np.greater)
_binary("GreaterEqual", lax.ge, np.greater_equal)
_binary("LogicalAnd", lax.bitwise_and, np.logical_and)
_binary("LogicalOr", lax.bitwise_or, np.logical_or)
