"""Gradient ops of the cuDNN networks in `cudnn_rnn`, as in training graphs.

The forward pass is recomputed.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import UnsupportedAttributeError
from tf2jax_lite.values.types import Array

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
    input: Array,
    input_h: Array,
    input_c: Array,
    params: Array,
    output: Array,
    output_h: Array,
    output_c: Array,
    output_backprop: Array,
    output_h_backprop: Array,
    output_c_backprop: Array,
    reserve_space: Array,
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
) -> tuple[Array, ...]:
    """Compute the gradients of `cudnn_rnn` with respect to its float inputs.

    TF: tf.raw_ops.CudnnRNNBackprop (core/kernels/cudnn_rnn_ops.cc).
    """
    run = functools.partial(cudnn_rnn, rnn_mode=rnn_mode, input_mode=input_mode, direction=direction)
    grads = output_backprop, output_h_backprop, output_c_backprop
    return _gradients(run, (input, input_h, input_c, params), grads, dropout)


@op("CudnnRNNBackpropV2", pattern=Pattern.CONTRACTION)
def cudnn_rnn_backprop_v2(
    input: Array,
    input_h: Array,
    input_c: Array,
    params: Array,
    output: Array,
    output_h: Array,
    output_c: Array,
    output_backprop: Array,
    output_h_backprop: Array,
    output_c_backprop: Array,
    reserve_space: Array,
    host_reserved: Array,
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
) -> tuple[Array, ...]:
    """Compute the gradients of `cudnn_rnn_v2` with respect to its float inputs.

    TF: tf.raw_ops.CudnnRNNBackpropV2 (core/kernels/cudnn_rnn_ops.cc).
    """
    run = functools.partial(cudnn_rnn, rnn_mode=rnn_mode, input_mode=input_mode, direction=direction)
    grads = output_backprop, output_h_backprop, output_c_backprop
    return _gradients(run, (input, input_h, input_c, params), grads, dropout)


@op("CudnnRNNBackpropV3", pattern=Pattern.CONTRACTION)
def cudnn_rnn_backprop_v3(
    input: Array,
    input_h: Array,
    input_c: Array,
    params: Array,
    sequence_lengths: Array,
    output: Array,
    output_h: Array,
    output_c: Array,
    output_backprop: Array,
    output_h_backprop: Array,
    output_c_backprop: Array,
    reserve_space: Array,
    host_reserved: Array,
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    time_major: bool = True,
) -> tuple[Array, ...]:
    """Compute the gradients of `cudnn_rnn_v3` with respect to its float inputs.

    TF: tf.raw_ops.CudnnRNNBackpropV3 (core/kernels/cudnn_rnn_ops.cc).
    """

    def run(*inputs: Any) -> Any:
        attrs: dict[str, Any] = {"rnn_mode": rnn_mode, "input_mode": input_mode, "direction": direction}
        return cudnn_rnn_v3(*inputs, sequence_lengths, **attrs, num_proj=num_proj, time_major=time_major)

    grads = output_backprop, output_h_backprop, output_c_backprop
    return _gradients(run, (input, input_h, input_c, params), grads, dropout)
