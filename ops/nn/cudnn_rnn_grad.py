"""Gradient ops of the cuDNN networks in `cudnn_rnn`, as in training graphs.

The forward pass is recomputed.

TF: core/kernels/cudnn_rnn_ops.cc.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import UnsupportedAttributeError

from .cudnn_rnn import cudnn_rnn, cudnn_rnn_v3

__all__: list[str] = []


def _gradients(run: Any, inputs: tuple[Any, ...], grads: tuple[Any, ...], dropout: float) -> tuple[Any, ...]:
    if dropout > 0 and inputs[1].shape[0] > 1:
        raise UnsupportedAttributeError(
            f"dropout {dropout} between layers: the mask is in a reserve space that only TensorFlow's GPU kernel has; "
            "differentiate the converted function with JAX instead"
        )
    results, pull = jax.vjp(lambda *inputs: run(*inputs)[:3], *map(jnp.asarray, inputs))
    return pull(tuple(jnp.broadcast_to(g, r.shape).astype(r.dtype) for g, r in zip(grads, results, strict=True)))


@op("CudnnRNNBackprop", pattern=Pattern.CONTRACTION)
def cudnn_rnn_backprop(
    input,
    input_h,
    input_c,
    params,
    output,
    output_h,
    output_c,
    output_backprop,
    output_h_backprop,
    output_c_backprop,
    reserve_space,
    *,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
):
    """Compute the gradients of `cudnn_rnn` with respect to its float inputs."""
    run = functools.partial(cudnn_rnn, rnn_mode=rnn_mode, input_mode=input_mode, direction=direction)
    grads = output_backprop, output_h_backprop, output_c_backprop
    return _gradients(run, (input, input_h, input_c, params), grads, dropout)


@op("CudnnRNNBackpropV2", pattern=Pattern.CONTRACTION)
def cudnn_rnn_backprop_v2(
    input,
    input_h,
    input_c,
    params,
    output,
    output_h,
    output_c,
    output_backprop,
    output_h_backprop,
    output_c_backprop,
    reserve_space,
    host_reserved,
    *,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
):
    """Compute the gradients of `cudnn_rnn_v2` with respect to its float inputs."""
    run = functools.partial(cudnn_rnn, rnn_mode=rnn_mode, input_mode=input_mode, direction=direction)
    grads = output_backprop, output_h_backprop, output_c_backprop
    return _gradients(run, (input, input_h, input_c, params), grads, dropout)


@op("CudnnRNNBackpropV3", pattern=Pattern.CONTRACTION)
def cudnn_rnn_backprop_v3(
    input,
    input_h,
    input_c,
    params,
    sequence_lengths,
    output,
    output_h,
    output_c,
    output_backprop,
    output_h_backprop,
    output_c_backprop,
    reserve_space,
    host_reserved,
    *,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
    num_proj=0,
    time_major=True,
):
    """Compute the gradients of `cudnn_rnn_v3` with respect to its float inputs."""

    def run(*inputs: Any) -> Any:
        attrs: dict[str, Any] = {"rnn_mode": rnn_mode, "input_mode": input_mode, "direction": direction}
        return cudnn_rnn_v3(*inputs, sequence_lengths, **attrs, num_proj=num_proj, time_major=time_major)

    grads = output_backprop, output_h_backprop, output_c_backprop
    return _gradients(run, (input, input_h, input_c, params), grads, dropout)
