"""Activation functions and biases, and their gradients.

Derivatives at corners are TensorFlow's: 0 for ReLU at 0 and for ReLU6 at 0 and 6.

TF: core/kernels/relu_op.cc, core/kernels/bias_op.cc.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.ops.common.broadcasting import array
from tf2jax_lite.ops.common.derivatives import logistic
from tf2jax_lite.ops.common.precision import total
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern


@op("Relu")
@inlined
def relu(features):
    """Compute max(x, 0), with derivative 0 at 0."""
    return jax.nn.relu(jnp.asarray(features))


@op("ReluGrad")
@inlined
def relu_grad(gradients, features):
    """Return gradients where features are positive, else 0."""
    return jnp.where(features > 0, gradients, jnp.zeros((), gradients.dtype))


@op("Relu6")
@inlined
def relu6(features):
    """Compute min(max(x, 0), 6), with derivative 0 at 0 and at 6."""
    x = jnp.asarray(features)
    return lax.clamp(jnp.zeros((), x.dtype), x, jnp.full((), 6, x.dtype))


@op("Relu6Grad")
@inlined
def relu6_grad(gradients, features):
    """Return gradients where 0 < features < 6, else 0."""
    return jnp.where((features > 0) & (features < 6), gradients, jnp.zeros((), gradients.dtype))


@op("LeakyRelu")
@inlined
def leaky_relu(features, *, alpha=0.2):
    """Compute x where x > 0, else alpha * x."""
    features = jnp.asarray(features)
    return jnp.where(features > 0, features, features * jnp.asarray(alpha, features.dtype))


@op("LeakyReluGrad")
@inlined
def leaky_relu_grad(gradients, features, *, alpha=0.2):
    """Return gradients where features are positive, else alpha * gradients."""
    return jnp.where(features > 0, gradients, gradients * jnp.asarray(alpha, gradients.dtype))


@op("Elu", pattern=Pattern.TRANSCENDENTAL)
@inlined
def elu(features):
    """Compute x where x >= 0, else exp(x) - 1."""
    x = jnp.asarray(features)
    return jnp.where(x < 0, jnp.expm1(jnp.where(x < 0, x, jnp.zeros((), x.dtype))), x)


@op("EluGrad")
@inlined
def elu_grad(gradients, outputs):
    """Compute the gradient of `elu` from its outputs."""
    return jnp.where(outputs < 0, gradients * (outputs + 1), gradients)


_SCALE, _SCALE_ALPHA = 1.0507009873554804934193349852946, 1.7580993408473768599402175208123


@op("Selu", pattern=Pattern.TRANSCENDENTAL)
@inlined
def selu(features):
    """Compute scale * x where x >= 0, else scale * alpha * (exp(x) - 1)."""
    x = jnp.asarray(features)
    low = jnp.asarray(_SCALE_ALPHA, x.dtype) * jnp.expm1(jnp.where(x < 0, x, jnp.zeros((), x.dtype)))
    return jnp.where(x < 0, low, jnp.asarray(_SCALE, x.dtype) * x)


@op("SeluGrad")
@inlined
def selu_grad(gradients, outputs):
    """Compute the gradient of `selu` from its outputs."""
    low = gradients * (outputs + jnp.asarray(_SCALE_ALPHA, outputs.dtype))
    return jnp.where(outputs < 0, low, gradients * jnp.asarray(_SCALE, outputs.dtype))


@op("Softplus", pattern=Pattern.TRANSCENDENTAL)
@inlined
def softplus(features):
    """Compute log(1 + exp(x)). TF: core/kernels/softplus_op.cc."""
    return jax.nn.softplus(jnp.asarray(features))


@op("SoftplusGrad")
def softplus_grad(gradients, features):
    """Compute gradients * sigmoid(features).

    TF: core/kernels/softplus_op.cc.
    """
    return gradients * logistic(jnp.asarray(features))


@jax.custom_jvp
def _softsign(x: Any) -> Any:
    return x / (1 + jnp.abs(x))


# JAX's derivative of the quotient is a difference: NaN for large arguments, and inexact for others.
_softsign.defjvps(lambda tangent, _, x: tangent * (1 / jnp.square(1 + jnp.abs(x))))


@op("Softsign")
@inlined
def softsign(features):
    """Compute x / (1 + abs(x)). TF: core/kernels/softsign_op.cc."""
    return _softsign(jnp.asarray(features))


@op("SoftsignGrad")
def softsign_grad(gradients, features):
    """Compute gradients / (1 + abs(features))**2.

    TF: core/kernels/softsign_op.cc.
    """
    return gradients / jnp.square(1 + jnp.abs(features))


def _channel_axis(rank: int, data_format: str) -> int:
    return 1 if data_format.startswith("NC") and rank > 1 else rank - 1


@op("BiasAdd")
def bias_add(value, bias, *, data_format="NHWC"):
    """Add a vector along the channel dimension."""
    value, bias = array(value), array(bias)
    return lax.add(value, lax.broadcast_in_dim(bias, value.shape, (_channel_axis(value.ndim, data_format),)))


@op("BiasAddV1")
def bias_add_v1(value, bias):
    """Add a vector along the last dimension."""
    return bias_add(value, bias)


@op("BiasAddGrad", pattern=Pattern.MATERIALIZED)
def bias_add_grad(out_backprop, *, data_format="NHWC"):
    """Sum over all dimensions but the channels."""
    rank = jnp.ndim(out_backprop)
    channel = _channel_axis(rank, data_format)
    return total(out_backprop, tuple(i for i in range(rank) if i != channel))
