"""Softmax and log-softmax, along the last axis and along any other.

TensorFlow's ops have the last axis. Transpose sinking uses the second kind: XLA's CPU backend reduces an inner axis
faster in its present layout than transposed to the end and back, unless 8 values or fewer follow the axis (two cores,
JAX 0.10).

TF: core/kernels/softmax_op.cc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern

_FEW_TRAILING = 8  # values after the axis, up to which a transpose is faster


@inlined
def softmax_along(x: Any, *, axis: int) -> Any:
    """Return ``jax.nn.softmax(x, axis)``."""
    return _along(jax.nn.softmax, x, axis)


@inlined
def log_softmax_along(x: Any, *, axis: int) -> Any:
    """Return ``jax.nn.log_softmax(x, axis)``."""
    return _along(_log_softmax, x, axis)


@op("Softmax", pattern=Pattern.MATERIALIZED)
@inlined
def softmax(logits):
    """Compute softmax along the last dimension."""
    return _softmax(jnp.asarray(logits))


@op("LogSoftmax", pattern=Pattern.MATERIALIZED)
@inlined
def log_softmax(logits):
    """Compute the logarithm of softmax along the last dimension.

    16-bit floats are computed in float32 and rounded once.
    """
    return _log_softmax(jnp.asarray(logits), -1)


@jax.custom_jvp
def _softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


@_softmax.defjvp
def _(primals: Any, tangents: Any) -> Any:
    # JAX's rule, materialized: XLA would fuse the quotient, and the product from which the cotangent is computed, into
    # the kernels of both uses, and write the divisor to memory for each element.
    (x,), (t,) = primals, tangents
    y = materialize(_softmax(x))
    return y, materialize(y * (t - jnp.sum(y * t, axis=-1, keepdims=True)))


def _log_softmax(x: Any, axis: int) -> Any:
    # 16-bit floats in float32: the rounding error of the sum of exponentials may be much larger than the result.
    return _half_log_softmax(x, axis) if jnp.finfo(x.dtype).bits < 32 else jax.nn.log_softmax(x, axis=axis)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _half_log_softmax(x: Any, axis: int) -> Any:
    return in_float32(lambda v: jax.nn.log_softmax(v, axis=axis), x)


@_half_log_softmax.defjvp
def _(axis: int, primals: Any, tangents: Any) -> Any:
    # From the rounded result, as in TensorFlow: the residual has 16 bits.
    y = _half_log_softmax(primals[0], axis)

    def tangent(t: Any, y: Any) -> Any:
        return t - jnp.sum(jnp.exp(y) * t, axis=axis, keepdims=True)

    return y, in_float32(tangent, tangents[0], y)


def _along(fn: Callable[..., Any], x: Any, axis: int) -> Any:
    trailing = x.shape[axis + 1 :]
    if all(isinstance(n, int) for n in trailing) and math.prod(trailing) <= _FEW_TRAILING:
        return jnp.moveaxis(fn(jnp.moveaxis(x, axis, -1), axis=-1), -1, axis)
    return fn(x, axis=axis)


AXIS_IMPLS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    softmax: softmax_along,
    log_softmax: log_softmax_along,
}
"""Functions of ops that work along the last axis to functions that also take ``axis=``."""
