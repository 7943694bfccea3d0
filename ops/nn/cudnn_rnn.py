"""Ops of cuDNN's recurrent networks and of their packed weights.

`_cudnn_network` has the layout of the weights and the cells. TensorFlow has kernels for GPUs only.

TF: core/kernels/cudnn_rnn_ops.cc.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key, Pattern
from tf2jax_lite.values.static import canonical
from tf2jax_lite.values.types import Array

from ._cudnn_network import network_of, run


def _drops(attrs: Any) -> bool:
    return bool(attrs.get("is_training", True)) and attrs.get("dropout", 0.0) > 0


@op("CudnnRNN", draws=_drops, pattern=Pattern.CONTRACTION)
def cudnn_rnn(
    input,
    input_h,
    input_c,
    params,
    *,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
    is_training=True,
    key: Key | None = None,
):
    """Run a recurrent network.

    The reserve space is empty, as JAX keeps its own residuals. Dropout masks come from the key.

    Args:
      input: [time, batch, inputs], or [batch, time, inputs] if not ``time_major``.
      input_h: initial outputs [layers * directions, batch, units].

    Returns:
      Outputs, last outputs and last cell states (a scalar 0 unless LSTM), and empty reserve space.
    """
    attrs: dict[str, Any] = {"rnn_mode": rnn_mode, "input_mode": input_mode, "direction": direction}
    results = run((input, input_h, input_c, params), None, dropout=dropout, key=key, **attrs)
    return *results, jnp.zeros(0, results[0].dtype)


@op("CudnnRNNV2", draws=_drops, pattern=Pattern.CONTRACTION)
@functools.wraps(cudnn_rnn, assigned=())
def cudnn_rnn_v2(*inputs: Array, **attrs: Any) -> tuple[Array, Array, Array, Array, Array]:
    """Run a recurrent network, as `cudnn_rnn` with a second reserve space.

    TF: tf.raw_ops.CudnnRNNV2 (core/kernels/cudnn_rnn_ops.cc).
    """
    return *cudnn_rnn(*inputs, **attrs), jnp.zeros(0, np.int8)


@op("CudnnRNNV3", draws=_drops, pattern=Pattern.CONTRACTION)
def cudnn_rnn_v3(
    input,
    input_h,
    input_c,
    params,
    sequence_lengths,
    *,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
    num_proj=0,
    is_training=True,
    time_major=True,
    key: Key | None = None,
):
    """Run a recurrent network over sequences of different lengths.

    As `cudnn_rnn_v2`. Past the end of a sequence, outputs are 0 and states stay.
    """
    attrs: dict[str, Any] = {"rnn_mode": rnn_mode, "input_mode": input_mode, "direction": direction}
    results = run(
        (input, input_h, input_c, params),
        jnp.asarray(sequence_lengths),
        num_proj=num_proj,
        time_major=time_major,
        dropout=dropout,
        key=key,
        **attrs,
    )
    return *results, jnp.zeros(0, results[0].dtype), jnp.zeros(0, np.int8)


@op("CudnnRNNParamsSize")
def cudnn_rnn_params_size(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    *,
    T,
    S,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
    num_proj=0,
):
    """Return the number of weights and biases, a vector of size 1."""
    network = network_of(num_layers, num_units, input_size, rnn_mode, input_mode, direction, num_proj)
    return np.asarray([network.count()], canonical(S))


@op("CudnnRNNCanonicalToParams")
def cudnn_rnn_canonical_to_params(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    weights,
    biases,
    *,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
):
    """Concatenate matrices and biases to the vector of all weights."""
    return network_of(num_layers, num_units, input_size, rnn_mode, input_mode, direction).pack(weights, biases)


@op("CudnnRNNCanonicalToParamsV2")
def cudnn_rnn_canonical_to_params_v2(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    weights,
    biases,
    *,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
    num_proj=0,
):
    """Concatenate matrices and biases to the vector of all weights."""
    network = network_of(num_layers, num_units, input_size, rnn_mode, input_mode, direction, num_proj)
    return network.pack(weights, biases)


@op("CudnnRNNParamsToCanonical")
def cudnn_rnn_params_to_canonical(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    params,
    *,
    num_params,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
):
    """Split the vector of all weights into matrices and biases.

    Returns:
      The list of matrices [units, features] and the list of biases [units].
    """
    network = network_of(num_layers, num_units, input_size, rnn_mode, input_mode, direction)
    return network.unpack(jnp.asarray(params))


@op("CudnnRNNParamsToCanonicalV2")
def cudnn_rnn_params_to_canonical_v2(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    params,
    *,
    num_params_weights,
    num_params_biases,
    rnn_mode="lstm",
    input_mode="linear_input",
    direction="unidirectional",
    dropout=0.0,
    seed=0,
    seed2=0,
    num_proj=0,
):
    """Split the vector of all weights into matrices and biases.

    Returns:
      The list of matrices [units, features] and the list of biases [units].
    """
    network = network_of(num_layers, num_units, input_size, rnn_mode, input_mode, direction, num_proj)
    return network.unpack(jnp.asarray(params))
