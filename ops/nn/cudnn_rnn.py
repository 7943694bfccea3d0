"""cuDNN's multi-layer recurrent networks: layout of the weights, cells, ops.

LSTM, GRU and plain cells, in graphs of layers trained on GPUs. TensorFlow has kernels for GPUs only. All weights are
one vector in cuDNN's layout: for each layer and direction, the input matrices and the state matrices, one for each
gate; after all matrices, the biases in the same order. Keras writes this layout
(``keras/src/backend/tensorflow/rnn.py``); the cells are those of the cuDNN developer guide (``cudnnRNNMode_t``). Gates:
i, f, c, o of LSTM; reset, update, new of GRU.

TF: core/kernels/cudnn_rnn_ops.cc.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.common.derivatives import logistic
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.static import canonical, dims

_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


@dataclasses.dataclass(frozen=True)
class Network:
    """Kind of cell and sizes of a network, which determine the weights' layout.

    Attributes:
      mode: kind of cell, a key of ``_GATES``.
      layers: number of layers.
      directions: 2 for bidirectional layers, else 1.
      inputs: features of the input.
      units: features of the state.
      projection: features that an LSTM's output is projected to, or 0.
    """

    mode: str
    layers: int
    directions: int
    inputs: int
    units: int
    projection: int = 0

    @property
    def outputs(self) -> int:
        """Features of the output of one direction."""
        return self.projection or self.units

    def weights(self) -> list[tuple[int, int]]:
        """Return the shapes of all matrices in order."""
        gates, shapes = _GATES[self.mode], []
        for layer in range(self.layers):
            inputs = self.inputs if layer == 0 else self.directions * self.outputs
            for _ in range(self.directions):
                shapes += [(self.units, inputs)] * gates + [(self.units, self.outputs)] * gates
                shapes += [(self.projection, self.units)] if self.projection else []
        return shapes

    def biases(self) -> list[tuple[int]]:
        """Return the shapes of all biases in order."""
        return [(self.units,)] * (2 * _GATES[self.mode] * self.layers * self.directions)

    def count(self) -> int:
        """Return the length of the vector of all weights and biases."""
        return sum(rows * columns for rows, columns in self.weights()) + sum(n for (n,) in self.biases())

    def unpack(self, params: Any) -> tuple[list[Any], list[Any]]:
        """Return the matrices and the biases in the vector of all weights."""
        if params.ndim != 1 or params.shape[0] != self.count():
            raise OpError(f"params of shape {params.shape}, where {self} has {self.count()} weights")
        arrays, start = [], 0
        for shape in (*self.weights(), *self.biases()):
            size = int(np.prod(shape))
            arrays.append(lax.reshape(lax.slice(params, (start,), (start + size,)), shape))
            start += size
        split = len(self.weights())
        return arrays[:split], arrays[split:]

    def pack(self, weights: list[Any], biases: list[Any]) -> Any:
        """Return the vector of all weights for matrices and biases."""
        given = [tuple(np.shape(v)) for v in (*weights, *biases)]
        expected = [*self.weights(), *self.biases()]
        if [math.prod(shape) for shape in given] != [math.prod(shape) for shape in expected]:
            raise OpError(f"weights and biases of shapes {given}, where {self} has {expected}")
        return jnp.concatenate([jnp.ravel(jnp.asarray(v)) for v in (*weights, *biases)])


def _network(
    *,
    num_layers: Any,
    num_units: Any,
    input_size: Any,
    rnn_mode: str,
    input_mode: str,
    direction: str,
    num_proj: int = 0,
    **unused: Any,
) -> Network:
    (layers,), (units,), (inputs,) = dims(num_layers), dims(num_units), dims(input_size)
    if rnn_mode not in _GATES or direction not in ("unidirectional", "bidirectional"):
        raise UnsupportedAttributeError(f"rnn_mode {rnn_mode!r}, direction {direction!r}")
    if input_mode != "linear_input" and not (input_mode == "auto_select" and inputs != units):
        raise UnsupportedAttributeError(f"input_mode {input_mode!r}: inputs without weights are not supported")
    if num_proj and rnn_mode != "lstm":
        raise UnsupportedAttributeError(f"num_proj {num_proj} with rnn_mode {rnn_mode!r}")
    return Network(rnn_mode, layers, 2 if direction == "bidirectional" else 1, inputs, units, num_proj)


def _dot(x: Any, matrix: Any) -> Any:
    """Contract the last axis with the columns of a matrix [outputs, inputs]."""
    return lax.dot_general(x, matrix, (((x.ndim - 1,), (1,)), ((), ())), preferred_element_type=x.dtype)


def _cell(mode: str, from_input: Any, from_state: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the next output (before its projection) and cell state."""
    h, c = state
    if mode == "gru":
        reset, update, new = jnp.split(from_input, 3, axis=-1)
        state_reset, state_update, state_new = jnp.split(from_state, 3, axis=-1)
        update = logistic(update + state_update)
        new = jnp.tanh(new + logistic(reset + state_reset) * state_new)
        return (1 - update) * new + update * h, c
    if mode == "lstm":
        i, f, g, o = jnp.split(from_input + from_state, 4, axis=-1)
        c = logistic(f) * c + logistic(i) * jnp.tanh(g)
        return logistic(o) * jnp.tanh(c), c
    return (jax.nn.relu if mode == "rnn_relu" else jnp.tanh)(from_input + from_state), c


def _run_direction(
    network: Network,
    x: Any,
    state: tuple[Any, Any],
    weights: list[Any],
    biases: list[Any],
    valid: Any,
    reverse: bool,
) -> tuple[Any, tuple[Any, Any]]:
    """Run one direction of a layer on [time, batch, inputs]; return outputs and state."""
    gates = _GATES[network.mode]
    input_weights, state_weights = (jnp.concatenate(weights[k : k + gates]) for k in (0, gates))
    from_input = _dot(x, input_weights) + jnp.concatenate(biases[:gates])
    bias = jnp.concatenate(biases[gates:])

    def step(state: tuple[Any, Any], item: Any) -> Any:
        from_input, valid = item
        h, c = _cell(network.mode, from_input, _dot(state[0], state_weights) + bias, state)
        if network.projection:
            h = _dot(h, weights[-1])
        if valid is None:
            return (h, c), h
        next_state = jnp.where(valid, h, state[0]), jnp.where(valid, c, state[1])
        return next_state, jnp.where(valid, h, jnp.zeros_like(h))

    last, out = scan(step, state, (from_input, valid), reverse=reverse)
    return out, last


def _run_network(
    network: Network, x: Any, states: tuple[Any, Any], params: Any, lengths: Any, dropout: float, key: Any
) -> tuple[Any, Any, Any]:
    """Return outputs [time, batch, features] and last states."""
    weights, biases = network.unpack(params)
    per_weights, per_biases = (len(v) // (network.layers * network.directions) for v in (weights, biases))
    valid = None
    if lengths is not None:
        valid = (lax.iota(np.int32, x.shape[0])[:, None] < lengths[None, :].astype(np.int32))[..., None]
    last: list[tuple[Any, Any]] = []
    for layer in range(network.layers):
        if layer and key is not None:
            mask = jax.random.bernoulli(jax.random.fold_in(key, layer), 1 - dropout, x.shape)
            x = jnp.where(mask, x / jnp.asarray(1 - dropout, x.dtype), jnp.zeros_like(x))
        outs = []
        for direction in range(network.directions):
            k = layer * network.directions + direction
            weights_k, biases_k = weights[k * per_weights :][:per_weights], biases[k * per_biases :][:per_biases]
            state = states[0][k], states[1][k]
            out, state = _run_direction(network, x, state, weights_k, biases_k, valid, direction == 1)
            outs.append(out)
            last.append(state)
        x = outs[0] if len(outs) == 1 else jnp.concatenate(outs, axis=-1)
    return x, jnp.stack([h for h, _ in last]), jnp.stack([c for _, c in last])


def _run(
    input: Any,
    input_h: Any,
    input_c: Any,
    params: Any,
    *,
    sequence_lengths: Any = None,
    num_proj: int = 0,
    time_major: bool = True,
    dropout: float = 0.0,
    key: Any = None,
    **kind: Any,
) -> tuple[Any, Any, Any]:
    """Return outputs, last outputs and last cell states (a scalar 0 unless LSTM)."""
    x, h, c, params = map(jnp.asarray, (input, input_h, input_c, params))
    lengths = None if sequence_lengths is None else jnp.asarray(sequence_lengths)
    if x.ndim != 3 or h.ndim != 3:
        raise OpError(f"input and input_h have 3 dimensions, not {x.ndim} and {h.ndim}")
    if not time_major:
        x, h = jnp.swapaxes(x, 0, 1), jnp.swapaxes(h, 0, 1)
        c = jnp.swapaxes(c, 0, 1) if c.ndim == 3 else c
    directions = 2 if kind["direction"] == "bidirectional" else 1
    is_lstm = kind["rnn_mode"] == "lstm"
    units = c.shape[-1] if is_lstm else h.shape[-1]
    if h.shape[0] % directions or (is_lstm and c.shape[:2] != h.shape[:2]) or h.shape[-1] != (num_proj or units):
        raise OpError(f"states of shapes {h.shape} and {c.shape} do not fit each other")
    layers = h.shape[0] // directions
    network = _network(num_layers=layers, num_units=units, input_size=x.shape[-1], num_proj=num_proj, **kind)
    out, h, last = _run_network(network, x, (h, c if is_lstm else h), params, lengths, dropout, key)
    if not time_major:
        out, h, last = (jnp.swapaxes(v, 0, 1) for v in (out, h, last))
    return out, h, last if is_lstm else jnp.zeros((), x.dtype)


_OPERANDS = "input input_h input_c params"
_SIZES = "num_layers:Static num_units:Static input_size:Static"
_GRADIENTS = "output output_h output_c output_backprop output_h_backprop output_c_backprop"
_KIND = {"rnn_mode": "lstm", "input_mode": "linear_input", "direction": "unidirectional"}
_NETWORK = {**_KIND, "dropout": 0.0, "seed": 0, "seed2": 0}
_PROJECTED = {**_NETWORK, "num_proj": 0}
_TRAINING = {"is_training": True, "key:Key": None}
_ORDER = {"is_training": True, "time_major": True, "key:Key": None}


def _drops(attrs: Any) -> bool:
    return bool(attrs.get("is_training", True)) and attrs.get("dropout", 0.0) > 0


@op("CudnnRNN", inputs=_OPERANDS, attributes=_NETWORK | _TRAINING, draws=_drops, pattern=Pattern.CONTRACTION)
def cudnn_rnn(*, seed, seed2, is_training, **operands):
    """Run a recurrent network.

    The reserve space is empty, as JAX keeps its own residuals. Dropout masks come from the key. Past the end of a
    sequence, outputs are 0 and states stay.
    """
    results = _run(**operands)
    return *results, jnp.zeros(0, results[0].dtype)


@op("CudnnRNNV2", inputs=_OPERANDS, attributes=_NETWORK | _TRAINING, draws=_drops, pattern=Pattern.CONTRACTION)
@op(
    "CudnnRNNV3",
    inputs=f"{_OPERANDS} sequence_lengths",
    attributes=_PROJECTED | _ORDER,
    draws=_drops,
    pattern=Pattern.CONTRACTION,
)
def cudnn_rnn_v3(**operands):
    """Run a recurrent network, as `cudnn_rnn` with a second reserve space."""
    return *cudnn_rnn(**operands), jnp.zeros(0, np.int8)


@op(
    "CudnnRNNBackprop",
    inputs=f"{_OPERANDS} {_GRADIENTS} reserve_space",
    attributes=_NETWORK,
    pattern=Pattern.CONTRACTION,
)
@op(
    "CudnnRNNBackpropV2",
    inputs=f"{_OPERANDS} {_GRADIENTS} reserve_space host_reserved",
    attributes=_NETWORK,
    pattern=Pattern.CONTRACTION,
)
@op(
    "CudnnRNNBackpropV3",
    inputs=f"{_OPERANDS} sequence_lengths {_GRADIENTS} reserve_space host_reserved",
    attributes={**_PROJECTED, "time_major": True},
    pattern=Pattern.CONTRACTION,
)
def cudnn_rnn_backprop(*, dropout, **given):
    """Compute the gradients of the float inputs; the forward pass is recomputed."""
    if dropout > 0 and given["input_h"].shape[0] > 1:
        raise UnsupportedAttributeError(
            f"dropout {dropout} between layers: the mask is in a reserve space that only TensorFlow's GPU kernel has; "
            "differentiate the converted function with JAX instead"
        )
    options = {k: given[k] for k in (*_KIND, "sequence_lengths", "num_proj", "time_major") if k in given}
    operands = [jnp.asarray(given[name]) for name in _OPERANDS.split()]
    results, pull = jax.vjp(functools.partial(_run, **options), *operands)
    grads = given["output_backprop"], given["output_h_backprop"], given["output_c_backprop"]
    return pull(tuple(jnp.broadcast_to(g, r.shape).astype(r.dtype) for g, r in zip(grads, results, strict=True)))


@op("CudnnRNNParamsSize", inputs=_SIZES, attributes={"T": REQUIRED, "S": REQUIRED, **_PROJECTED})
def cudnn_rnn_params_size(*, S, **network):
    """Return the number of weights and biases, a vector of size 1."""
    return np.asarray([_network(**network).count()], canonical(S))


@op("CudnnRNNCanonicalToParams", inputs=f"{_SIZES} weights biases", attributes=_NETWORK)
@op("CudnnRNNCanonicalToParamsV2", inputs=f"{_SIZES} weights biases", attributes=_PROJECTED)
def cudnn_rnn_canonical_to_params(*, weights, biases, **network):
    """Concatenate matrices and biases to the vector of all weights."""
    return _network(**network).pack(weights, biases)


@op("CudnnRNNParamsToCanonical", inputs=f"{_SIZES} params", attributes={"num_params": REQUIRED, **_NETWORK})
@op(
    "CudnnRNNParamsToCanonicalV2",
    inputs=f"{_SIZES} params",
    attributes={"num_params_weights": REQUIRED, "num_params_biases": REQUIRED, **_PROJECTED},
)
def cudnn_rnn_params_to_canonical(*, params, **network):
    """Split the vector of all weights into lists of matrices and biases."""
    return _network(**network).unpack(jnp.asarray(params))
