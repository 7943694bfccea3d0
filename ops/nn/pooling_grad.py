"""Gradients of pooling, and gradients of the gradients of max pooling.

In two dimensions the gradient of a maximum goes to the first of equal ones, in three dimensions to all of them.

TF: core/kernels/maxpooling_op.cc, core/kernels/pooling_ops_3d.cc.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.shard_map import linear_transpose
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import dims

from ._convolution import Dims
from ._pooling import argmax_of, avg_pool_of, gather, image_size, scatter_add, sum_of_ties, window_max, window_of


def _max_grad(
    orig_input: Any, grad: Any, ksize: Dims, strides: Dims, padding: str, explicit: Dims, data_format: str
) -> Any:
    x, grad = jnp.asarray(orig_input), jnp.asarray(grad)
    window = window_of(x, ksize, strides, padding, explicit, data_format)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return scatter_add(x.shape, grad, argmax_of(x, window))

    @jax.custom_jvp
    def pull(x: Any, grad: Any) -> Any:
        return jax.vjp(lambda v: window_max(v, window), x)[1](grad)[0]

    @pull.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        # JAX's own second derivative may select another one of equal maxima.
        x = primals[0]
        return pull(*primals), scatter_add(x.shape, tangents[1], argmax_of(x, window))

    return pull(x, grad)


def _max_grad_grad(orig_input: Any, grad: Any, ksize: Dims, strides: Dims, padding: str, data_format: str) -> Any:
    x = jnp.asarray(orig_input)
    return gather(jnp.asarray(grad), argmax_of(x, window_of(x, ksize, strides, padding, (), data_format)))


@op("MaxPoolGrad", pattern=Pattern.MATERIALIZED)
def max_pool_grad(orig_input, orig_output, grad, *, ksize, strides, padding, explicit_paddings=(), data_format="NHWC"):
    """Compute the gradient of `max_pool`; it goes to the first maximum.

    ``orig_output`` is ignored, as in TensorFlow.
    """
    return _max_grad(orig_input, grad, ksize, strides, padding, explicit_paddings, data_format)


@op("MaxPoolGradV2", pattern=Pattern.MATERIALIZED)
def max_pool_grad_v2(orig_input, orig_output, grad, ksize: Static, strides: Static, *, padding, data_format="NHWC"):
    """Compute the gradient of `max_pool_v2`; it goes to the first maximum."""
    return _max_grad(orig_input, grad, dims(ksize), dims(strides), padding, (), data_format)


def _register_grad_grad(name: str, default_format: str) -> None:
    @op(name)
    def call(orig_input, orig_output, grad, *, ksize, strides, padding, data_format=default_format):
        """Gather ``grad`` at the first maximum of each window."""
        return _max_grad_grad(orig_input, grad, ksize, strides, padding, data_format)


_register_grad_grad("MaxPoolGradGrad", "NHWC")
_register_grad_grad("MaxPool3DGradGrad", "NDHWC")


@op("MaxPoolGradGradV2")
def max_pool_grad_grad_v2(
    orig_input, orig_output, grad, ksize: Static, strides: Static, *, padding, data_format="NHWC"
):
    """Gather ``grad`` at the first maximum of each window.

    Args:
      grad: [batch, *spatial, channels], of the input's shape.
    """
    return _max_grad_grad(orig_input, grad, dims(ksize), dims(strides), padding, data_format)


def _within_image(x: Any, argmax: Any, include_batch_in_index: bool) -> Any:
    argmax = jnp.asarray(argmax)
    if not include_batch_in_index:
        return argmax
    batch = lax.broadcasted_iota(argmax.dtype, (argmax.shape[0], 1, 1, 1), 0)
    return argmax - batch * image_size(x, argmax.dtype)


def _register_with_argmax(name: str, move: Callable[[Any, Any, Any], Any]) -> None:
    @op(name)
    def call(input, grad, argmax, *, ksize, strides, padding, include_batch_in_index=False):
        """Move ``grad`` to, or from, given indices.

        TF: core/kernels/maxpooling_op.cc, where the second gradient has a kernel for GPUs only.

        Indices outside of the image are dropped, where TensorFlow raises an error.
        """
        return move(input, jnp.asarray(grad), _within_image(input, argmax, include_batch_in_index))


_register_with_argmax("MaxPoolGradWithArgmax", lambda x, grad, index: scatter_add(jnp.shape(x), grad, index))
_register_with_argmax("MaxPoolGradGradWithArgmax", lambda x, grad, index: gather(grad, index))


@op("MaxPool3DGrad", pattern=Pattern.MATERIALIZED)
def max_pool3d_grad(orig_input, orig_output, grad, *, ksize, strides, padding, data_format="NDHWC"):
    """Compute the gradient of `max_pool3d`; it goes to all equal maxima."""
    x, top, grad = jnp.asarray(orig_input), jnp.asarray(orig_output), jnp.asarray(grad)
    window = window_of(x, ksize, strides, padding, (), data_format)
    spec = jax.ShapeDtypeStruct(x.shape, grad.dtype)
    return linear_transpose(lambda t: sum_of_ties(x, top, t, window), spec, grad, x, top)


def _register_avg_grad(name: str, default_format: str) -> None:
    @op(name, pattern=Pattern.MATERIALIZED)
    def call(orig_input_shape: Static, grad, *, ksize, strides, padding, data_format=default_format):
        """Compute the gradient of average pooling."""
        spec = jax.ShapeDtypeStruct(dims(orig_input_shape), grad.dtype)
        forward = functools.partial(avg_pool_of, ksize=ksize, strides=strides, padding=padding, data_format=data_format)
        return linear_transpose(forward, spec, jnp.asarray(grad))


_register_avg_grad("AvgPoolGrad", "NHWC")
_register_avg_grad("AvgPool3DGrad", "NDHWC")
