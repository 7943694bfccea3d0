"""Define computations of TensorFlow's ops that JAX functions replace.

Their jaxprs differ from those of the JAX functions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from . import helpers


@jax.custom_jvp
def rsqrt(x: Any) -> Any:
    """Compute 1 / sqrt(x) with the derivative in terms of the result."""
    return lax.rsqrt(x)


rsqrt.defjvps(lambda t, y, x: t * (jnp.asarray(-0.5, x.dtype) * y * y * y))


@jax.custom_jvp
def sqrt(x: Any) -> Any:
    """Compute the square root with the derivative in terms of the result."""
    return lax.sqrt(x)


sqrt.defjvps(lambda t, y, x: t * (jnp.asarray(0.5, x.dtype) / y))


@jax.custom_jvp
def reciprocal(x: Any) -> Any:
    """Compute 1 / x with the derivative in terms of the result."""
    return lax.div(jnp.ones_like(x), x)


reciprocal.defjvps(lambda t, y, x: t * (-y * y))


@jax.custom_jvp
def power(x: Any, y: Any) -> Any:
    """Compute a power whose derivative treats logs of non-positive numbers as 0."""
    return lax.pow(x, y)


@power.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, y), (t_x, t_y) = primals, tangents
    out = power(x, y)
    one, zero = jnp.ones((), x.dtype), jnp.zeros((), x.dtype)
    inside = x > 0
    log = jnp.where(inside, lax.log(jnp.where(inside, x, one)), zero)
    return out, t_x * (y * power(x, y - one)) + t_y * (out * log)


@jax.custom_jvp
def softmax(x: Any) -> Any:
    """Compute the softmax of rows with the derivative in terms of the result."""
    return jax.nn.softmax(x, axis=-1)


@softmax.defjvp
def _(primals: Any, tangents: Any) -> Any:
    y = softmax(*primals)
    (t,) = tangents
    return y, y * (t - jnp.sum(y * t, axis=-1, keepdims=True))


def relu6(x: Any) -> Any:
    """Clip to [0, 6]; the derivative is 0 outside and at the ends."""
    return lax.clamp(jnp.zeros((), x.dtype), x, jnp.full((), 6, x.dtype))


def hard_sigmoid(x: Any) -> Any:
    """Compute the hard sigmoid as Keras does, by a product with 1 / 6."""
    return jax.nn.relu6(x + 3.0) * (1 / 6)


def elu(x: Any) -> Any:
    """Compute exp(x) - 1 of negative numbers."""
    return jnp.where(x < 0, jnp.expm1(jnp.where(x < 0, x, jnp.zeros((), x.dtype))), x)


def gelu(x: Any) -> Any:
    """Compute the approximation of gelu with the factor 1/2 at x."""
    return 0.5 * x * (1 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def variance(x: Any, *, axis: Any, keepdims: bool = False) -> Any:
    """Compute the variance, without a derivative through the mean."""
    mean = lax.stop_gradient(jnp.mean(x, axis=axis, keepdims=True))
    return jnp.mean(jnp.square(x - mean), axis=axis, keepdims=keepdims)


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: Any) -> Any:
    """Normalize rows as Keras does."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    squares = jnp.square(x - lax.stop_gradient(mean))
    scale = lax.rsqrt(jnp.mean(squares, axis=-1, keepdims=True) + epsilon) * gamma
    return x * scale + (-mean * scale + beta)


def remainder(x: Any, *, divisor: int) -> Any:
    """Compute the remainder of division by a positive number, rounded down."""
    return jnp.remainder(x, jnp.full(x.shape, divisor, x.dtype))


def lstm_cell(x: Any, hidden: Any, cell: Any, kernel: Any, recurrent_kernel: Any, bias: Any) -> Any:
    """Compute `helpers._lstm_cell` with arrays as arguments."""
    return helpers._lstm_cell(x, hidden, cell, {"kernel": kernel, "recurrent_kernel": recurrent_kernel, "bias": bias})


def gru_cell(x: Any, hidden: Any, kernel: Any, recurrent_kernel: Any, bias: Any) -> Any:
    """Compute a GRU cell as Keras does, with slices of the recurrent gates."""
    units = hidden.shape[-1]
    shape = (*x.shape[:-1], 3 * units)
    bias, recurrent_bias = (jnp.broadcast_to(jnp.squeeze(b, 0), shape) for b in jnp.split(bias, 2, axis=0))
    z, r, h = jnp.split(x @ kernel + bias, 3, axis=-1)
    inner = hidden @ recurrent_kernel + recurrent_bias
    slices = (lax.slice(inner, (0, i * units), (x.shape[0], (i + 1) * units)) for i in range(3))
    recurrent_z, recurrent_r, recurrent_h = slices
    z, r = jax.nn.sigmoid(z + recurrent_z), jax.nn.sigmoid(r + recurrent_r)
    return z * hidden + (1.0 - z) * jnp.tanh(h + r * recurrent_h)


def standardize(x: Any, epsilon: Any, *, axis: Any = -1) -> Any:
    """Normalize to mean 0 and variance 1.

    The variance has no derivative through its mean.
    """
    mean = jnp.mean(x, axis=axis, keepdims=True)
    squares = jnp.square(x - lax.stop_gradient(mean))
    return (x - mean) * lax.rsqrt(jnp.mean(squares, axis=axis, keepdims=True) + epsilon)
