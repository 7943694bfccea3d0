"""Activations, softmax and biases."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.tracing_cache import inlined
from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.common.broadcasting import array
from tf2jax_lite.ops.common.elementwise_derivatives import differentiable
from tf2jax_lite.ops.common.logistic import logistic
from tf2jax_lite.ops.registry import op
from tf2jax_lite.xla_cpu.materialize import once

from . import softmax as softmaxes


def channel_dimension(rank: int, data_format: str) -> int:
    """Returns which dimension of a tensor a bias runs along."""
    return 1 if data_format.startswith("NC") and rank > 1 else rank - 1


def _relu(x: Any) -> Any:
    return lax.max(x, jnp.zeros((), x.dtype))


@op("Relu")
@inlined
def relu(features: Any) -> Any:
    """max(x, 0); the gradient at 0 is 0. See tf.raw_ops.Relu."""
    return jax.nn.relu(jnp.asarray(features))


@op("ReluGrad")
@inlined
def relu_grad(gradients: Any, features: Any) -> Any:
    """See tf.raw_ops.ReluGrad."""
    return jnp.where(features > 0, gradients, jnp.zeros((), gradients.dtype))


@jax.custom_jvp
def _relu6(x: Any) -> Any:
    return lax.min(lax.max(x, jnp.zeros((), x.dtype)), jnp.full((), 6, x.dtype))


@_relu6.defjvp
def _relu6_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _relu6(x), jnp.where((x > 0) & (x < 6), t, jnp.zeros((), t.dtype))


@op("Relu6")
@inlined
def relu6(features: Any) -> Any:
    """min(max(x, 0), 6); the gradient at both ends is 0. See tf.raw_ops.Relu6."""
    return _relu6(jnp.asarray(features))


@op("Relu6Grad")
@inlined
def relu6_grad(gradients: Any, features: Any) -> Any:
    """See tf.raw_ops.Relu6Grad."""
    return jnp.where((features > 0) & (features < 6), gradients, jnp.zeros((), gradients.dtype))


@op("LeakyRelu")
@inlined
def leaky_relu(features: Any, *, alpha: float = 0.2) -> Any:
    """See tf.raw_ops.LeakyRelu."""
    features = jnp.asarray(features)
    return jnp.where(features > 0, features, features * jnp.asarray(alpha, features.dtype))


@op("LeakyReluGrad")
@inlined
def leaky_relu_grad(gradients: Any, features: Any, *, alpha: float = 0.2) -> Any:
    """See tf.raw_ops.LeakyReluGrad."""
    return jnp.where(features > 0, gradients, gradients * jnp.asarray(alpha, gradients.dtype))


@op("Elu", dear=True)
@inlined
def elu(features: Any) -> Any:
    """See tf.raw_ops.Elu."""
    x = jnp.asarray(features)
    return jnp.where(x < 0, jnp.expm1(jnp.where(x < 0, x, jnp.zeros((), x.dtype))), x)


@op("EluGrad")
@inlined
def elu_grad(gradients: Any, outputs: Any) -> Any:
    """See tf.raw_ops.EluGrad."""
    return jnp.where(outputs < 0, gradients * (outputs + 1), gradients)


_SCALE, _SCALE_ALPHA = 1.0507009873554804934193349852946, 1.7580993408473768599402175208123


@op("Selu", dear=True)
@inlined
def selu(features: Any) -> Any:
    """See tf.raw_ops.Selu."""
    x = jnp.asarray(features)
    low = jnp.asarray(_SCALE_ALPHA, x.dtype) * jnp.expm1(jnp.where(x < 0, x, jnp.zeros((), x.dtype)))
    return jnp.where(x < 0, low, jnp.asarray(_SCALE, x.dtype) * x)


@op("SeluGrad")
@inlined
def selu_grad(gradients: Any, outputs: Any) -> Any:
    """See tf.raw_ops.SeluGrad."""
    low = gradients * (outputs + jnp.asarray(_SCALE_ALPHA, outputs.dtype))
    return jnp.where(outputs < 0, low, gradients * jnp.asarray(_SCALE, outputs.dtype))


@op("Softplus", dear=True)
@inlined
def softplus(features: Any) -> Any:
    """log(1 + exp(x)). See tf.raw_ops.Softplus."""
    return jax.nn.softplus(jnp.asarray(features))


@op("SoftplusGrad")
def softplus_grad(gradients: Any, features: Any) -> Any:
    """See tf.raw_ops.SoftplusGrad."""
    return gradients * logistic(jnp.asarray(features))


@jax.custom_jvp
def _softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


@_softmax.defjvp
def _softmax_jvp(primals: Any, tangents: Any) -> Any:
    # JAX's own rule, with marks. XLA puts the quotient that the result is, and the product that a cotangent comes from,
    # into the kernels of both uses, and writes the divisor down for each place that it divides.
    (x,), (t,) = primals, tangents
    found = once(_softmax(x))
    return found, once(found * (t - jnp.sum(found * t, axis=-1, keepdims=True)))


@inlined
@differentiable(lambda x, y: 1 / jnp.square(1 + jnp.abs(x)))
def _softsign(x: Any) -> Any:
    # The slope of the quotient as JAX has it is a difference: no number far out, and few digits before.
    return x / (1 + jnp.abs(x))


@op("Softsign")
def softsign(features: Any) -> Any:
    """Returns x / (1 + abs(x)). See tf.raw_ops.Softsign."""
    return _softsign(jnp.asarray(features))


@op("SoftsignGrad")
def softsign_grad(gradients: Any, features: Any) -> Any:
    """See tf.raw_ops.SoftsignGrad."""
    return gradients / jnp.square(1 + jnp.abs(features))


@op("Softmax", stored=True)
@inlined
def softmax(logits: Any) -> Any:
    """Over the last dimension. See tf.raw_ops.Softmax."""
    return _softmax(jnp.asarray(logits))


@op("LogSoftmax", stored=True)
@inlined
def log_softmax(logits: Any) -> Any:
    """Over the last dimension. See tf.raw_ops.LogSoftmax."""
    return softmaxes.log_softmax_in_place(jnp.asarray(logits), -1)


AXIS_IMPLS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    softmax: inlined(softmaxes.softmax),
    log_softmax: inlined(softmaxes.log_softmax),
}
"""Functions of ops that work along the last axis to functions that also take ``axis=``."""


@op("BiasAdd")
def bias_add(value: Any, bias: Any, *, data_format: str = "NHWC") -> Any:
    """Adds a vector along the channels. See tf.raw_ops.BiasAdd."""
    value, bias = array(value), array(bias)
    where = channel_dimension(value.ndim, data_format)
    return lax.add(value, lax.broadcast_in_dim(bias, value.shape, (where,)))


@op("BiasAddV1")
def bias_add_v1(value: Any, bias: Any) -> Any:
    """See tf.raw_ops.BiasAddV1."""
    return bias_add(value, bias)


@op("BiasAddGrad", stored=True)
def bias_add_grad(out_backprop: Any, *, data_format: str = "NHWC") -> Any:
    """Sums over everything but the channels. See tf.raw_ops.BiasAddGrad."""
    rank = jnp.ndim(out_backprop)
    where = 1 if data_format.startswith("NC") else rank - 1
    return total(out_backprop, tuple(i for i in range(rank) if i != where))
