"""cuDNN's recurrent networks, as layers trained on GPUs leave them in a graph: LSTM, GRU, plain cells; many layers.

TensorFlow runs these on GPUs alone. Their weights are one vector: of each layer, and of each direction in it, matrices
by the inputs and by the state, one for each gate; after all matrices, the biases in the same order. That is cuDNN's
layout, which Keras writes (``keras/src/backend/tensorflow/rnn.py``); the cells are those of the cuDNN developer guide
(``cudnnRNNMode_t``). Gates: i, f, c, o of LSTM; reset, update, new of GRU.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.common.derivatives import logistic
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.static import canonical, dims

__all__: list[str] = []

_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """What a network is made of.

    Attributes:
      mode: kind of cell.
      layers: number of layers.
      ways: 2 where each layer also runs backwards.
      inputs: numbers that come in at each step.
      units: numbers of a state.
      projection: numbers that an LSTM's output is projected to, or 0.
    """

    mode: str
    layers: int
    ways: int
    inputs: int
    units: int
    projection: int = 0

    @property
    def outputs(self) -> int:
        """Numbers that one direction of a layer gives."""
        return self.projection or self.units

    def weights(self) -> list[tuple[int, int]]:
        """Returns shapes of all matrices in order."""
        gates, shapes = _GATES[self.mode], []
        for layer in range(self.layers):
            inputs = self.inputs if layer == 0 else self.ways * self.outputs
            for _ in range(self.ways):
                shapes += [(self.units, inputs)] * gates + [(self.units, self.outputs)] * gates
                shapes += [(self.projection, self.units)] if self.projection else []
        return shapes

    def biases(self) -> list[tuple[int]]:
        """Returns shapes of all biases in order."""
        return [(self.units,)] * (2 * _GATES[self.mode] * self.layers * self.ways)

    def count(self) -> int:
        """Returns the length of the vector of all weights and biases."""
        return sum(rows * columns for rows, columns in self.weights()) + sum(n for (n,) in self.biases())

    def parts(self, params: Any) -> tuple[list[Any], list[Any]]:
        """Returns matrices and biases out of the vector that holds them."""
        if params.ndim != 1 or params.shape[0] != self.count():
            raise OpError(f"params of shape {params.shape}, where {self} has {self.count()} weights")
        found, start = [], 0
        for shape in (*self.weights(), *self.biases()):
            size = int(np.prod(shape))
            found.append(lax.reshape(lax.slice(params, (start,), (start + size,)), shape))
            start += size
        split = len(self.weights())
        return found[:split], found[split:]


def _sizes(
    layers: Any, units: Any, inputs: Any, mode: str, input_mode: str, direction: str, num_proj: int = 0
) -> _Sizes:
    (layers,), (units,), (inputs,) = dims(layers), dims(units), dims(inputs)
    if mode not in _GATES or direction not in ("unidirectional", "bidirectional"):
        raise UnsupportedAttributeError(f"rnn_mode {mode!r}, direction {direction!r}")
    if input_mode != "linear_input" and not (input_mode == "auto_select" and inputs != units):
        raise UnsupportedAttributeError(f"input_mode {input_mode!r}: inputs that no weights multiply")
    if num_proj and mode != "lstm":
        raise UnsupportedAttributeError(f"num_proj {num_proj} with rnn_mode {mode!r}")
    return _Sizes(mode, layers, 2 if direction == "bidirectional" else 1, inputs, units, num_proj)


def _dot(x: Any, matrix: Any) -> Any:
    """Multiplies the last axis by the rows of a matrix."""
    return lax.dot_general(x, matrix, (((x.ndim - 1,), (1,)), ((), ())), preferred_element_type=x.dtype)


def _cell(mode: str, given: Any, own: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
    """Returns the next output (before its projection) and cell, of sums by the inputs and by the state."""
    h, c = state
    if mode == "gru":
        reset, update, new = jnp.split(given, 3, axis=-1)
        own_reset, own_update, own_new = jnp.split(own, 3, axis=-1)
        update = logistic(update + own_update)
        new = jnp.tanh(new + logistic(reset + own_reset) * own_new)
        return (1 - update) * new + update * h, c
    if mode == "lstm":
        i, f, g, o = jnp.split(given + own, 4, axis=-1)
        c = logistic(f) * c + logistic(i) * jnp.tanh(g)
        return logistic(o) * jnp.tanh(c), c
    return (jax.nn.relu if mode == "rnn_relu" else jnp.tanh)(given + own), c


def _one_way(
    sizes: _Sizes, x: Any, state: tuple[Any, Any], weights: list[Any], biases: list[Any], valid: Any, backwards: bool
) -> tuple[Any, tuple[Any, Any]]:
    """Runs one direction of a layer over ``x`` (time, batch, inputs); returns outputs and the last state."""
    gates = _GATES[sizes.mode]
    by_input, by_state = (jnp.concatenate(weights[k : k + gates]) for k in (0, gates))
    given = _dot(x, by_input) + jnp.concatenate(biases[:gates])
    bias = jnp.concatenate(biases[gates:])

    def step(before: tuple[Any, Any], item: Any) -> Any:
        given, inside = item
        h, c = _cell(sizes.mode, given, _dot(before[0], by_state) + bias, before)
        if sizes.projection:
            h = _dot(h, weights[-1])
        if inside is None:
            return (h, c), h
        kept = jnp.where(inside, h, before[0]), jnp.where(inside, c, before[1])
        return kept, jnp.where(inside, h, jnp.zeros_like(h))

    last, out = scan(step, state, (given, valid), reverse=backwards)
    return out, last


def _network(
    sizes: _Sizes, x: Any, states: tuple[Any, Any], params: Any, lengths: Any, dropout: float, key: Any
) -> tuple[Any, Any, Any]:
    """Returns outputs (time, batch, ...) and last states (layers and directions, batch, ...)."""
    weights, biases = sizes.parts(params)
    per_weights, per_biases = (len(v) // (sizes.layers * sizes.ways) for v in (weights, biases))
    valid = None
    if lengths is not None:
        valid = (lax.iota(np.int32, x.shape[0])[:, None] < lengths[None, :].astype(np.int32))[..., None]
    last: list[tuple[Any, Any]] = []
    for layer in range(sizes.layers):
        if layer and key is not None:
            kept = jax.random.bernoulli(jax.random.fold_in(key, layer), 1 - dropout, x.shape)
            x = jnp.where(kept, x / jnp.asarray(1 - dropout, x.dtype), jnp.zeros_like(x))
        outs = []
        for way in range(sizes.ways):
            k = layer * sizes.ways + way
            own = weights[k * per_weights :][:per_weights], biases[k * per_biases :][:per_biases]
            out, state = _one_way(sizes, x, (states[0][k], states[1][k]), *own, valid, way == 1)
            outs.append(out)
            last.append(state)
        x = outs[0] if len(outs) == 1 else jnp.concatenate(outs, axis=-1)
    return x, jnp.stack([h for h, _ in last]), jnp.stack([c for _, c in last])


def _run(
    operands: Sequence[Any],
    lengths: Any,
    *,
    rnn_mode: str,
    input_mode: str,
    direction: str,
    num_proj: int = 0,
    time_major: bool = True,
    dropout: float = 0.0,
    key: Any = None,
) -> tuple[Any, Any, Any]:
    x, h, c, params = map(jnp.asarray, operands)
    if x.ndim != 3 or h.ndim != 3:
        raise OpError(f"input and input_h have 3 dimensions, not {x.ndim} and {h.ndim}")
    if not time_major:
        x, h = jnp.swapaxes(x, 0, 1), jnp.swapaxes(h, 0, 1)
        c = jnp.swapaxes(c, 0, 1) if c.ndim == 3 else c
    ways = 2 if direction == "bidirectional" else 1
    is_lstm = rnn_mode == "lstm"
    units = c.shape[-1] if is_lstm else h.shape[-1]
    if h.shape[0] % ways or (is_lstm and c.shape[:2] != h.shape[:2]) or h.shape[-1] != (num_proj or units):
        raise OpError(f"states of shapes {h.shape} and {c.shape} do not fit each other")
    sizes = _sizes(h.shape[0] // ways, units, x.shape[-1], rnn_mode, input_mode, direction, num_proj)
    out, h, last = _network(sizes, x, (h, c if is_lstm else h), params, lengths, dropout, key)
    if not time_major:
        out, h, last = (jnp.swapaxes(v, 0, 1) for v in (out, h, last))
    return out, h, last if is_lstm else jnp.zeros((), x.dtype)


def _drops(attrs: Any) -> bool:
    return bool(attrs.get("is_training", True)) and attrs.get("dropout", 0.0) > 0


@op("CudnnRNN", needs_key=_drops, heavy=True)
def cudnn_rnn(
    input: Any,
    input_h: Any,
    input_c: Any,
    params: Any,
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    is_training: bool = True,
    key: Any = None,
) -> tuple[Any, Any, Any, Any]:
    """Runs a network. See tf.raw_ops.CudnnRNN.

    What TensorFlow reserves for the gradient is empty: JAX keeps what it needs. Dropout, between layers, is the key's.
    """
    how: dict[str, Any] = {"rnn_mode": rnn_mode, "input_mode": input_mode, "direction": direction}
    results = _run((input, input_h, input_c, params), None, dropout=dropout, key=key, **how)
    return *results, jnp.zeros(0, results[0].dtype)


@op("CudnnRNNV2", needs_key=_drops, heavy=True)
def cudnn_rnn_v2(
    input: Any,
    input_h: Any,
    input_c: Any,
    params: Any,
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    is_training: bool = True,
    key: Any = None,
) -> tuple[Any, Any, Any, Any, Any]:
    """`cudnn_rnn`, with more space reserved. See tf.raw_ops.CudnnRNNV2."""
    how: dict[str, Any] = {"rnn_mode": rnn_mode, "input_mode": input_mode, "direction": direction}
    results = _run((input, input_h, input_c, params), None, dropout=dropout, key=key, **how)
    return *results, jnp.zeros(0, results[0].dtype), jnp.zeros(0, np.int8)


@op("CudnnRNNV3", needs_key=_drops, heavy=True)
def cudnn_rnn_v3(
    input: Any,
    input_h: Any,
    input_c: Any,
    params: Any,
    sequence_lengths: Any,
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
    is_training: bool = True,
    time_major: bool = True,
    key: Any = None,
) -> tuple[Any, Any, Any, Any, Any]:
    """`cudnn_rnn` of sequences that end early: outputs are 0 then, and states stay. See tf.raw_ops.CudnnRNNV3."""
    how: dict[str, Any] = {"rnn_mode": rnn_mode, "input_mode": input_mode, "direction": direction}
    results = _run(
        (input, input_h, input_c, params),
        jnp.asarray(sequence_lengths),
        num_proj=num_proj,
        time_major=time_major,
        dropout=dropout,
        key=key,
        **how,
    )
    return *results, jnp.zeros(0, results[0].dtype), jnp.zeros(0, np.int8)


@op("CudnnRNNParamsSize")
def cudnn_rnn_params_size(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    *,
    T: Any,
    S: Any,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
) -> Any:
    """Returns how many numbers the weights are, a vector of one. See tf.raw_ops.CudnnRNNParamsSize."""
    sizes = _sizes(num_layers, num_units, input_size, rnn_mode, input_mode, direction, num_proj)
    return np.asarray([sizes.count()], canonical(S))


def _joined(sizes: _Sizes, weights: list[Any], biases: list[Any]) -> Any:
    given = [tuple(np.shape(v)) for v in (*weights, *biases)]
    wanted = [*sizes.weights(), *sizes.biases()]
    if [math.prod(shape) for shape in given] != [math.prod(shape) for shape in wanted]:
        raise OpError(f"weights and biases of shapes {given}, where {sizes} has {wanted}")
    return jnp.concatenate([jnp.ravel(jnp.asarray(v)) for v in (*weights, *biases)])


@op("CudnnRNNCanonicalToParams")
def cudnn_rnn_canonical_to_params(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    weights: list[Any],
    biases: list[Any],
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
) -> Any:
    """Joins matrices and biases to one vector. See tf.raw_ops.CudnnRNNCanonicalToParams."""
    return _joined(_sizes(num_layers, num_units, input_size, rnn_mode, input_mode, direction), weights, biases)


@op("CudnnRNNCanonicalToParamsV2")
def cudnn_rnn_canonical_to_params_v2(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    weights: list[Any],
    biases: list[Any],
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
) -> Any:
    """Joins matrices and biases to one vector. See tf.raw_ops.CudnnRNNCanonicalToParamsV2."""
    sizes = _sizes(num_layers, num_units, input_size, rnn_mode, input_mode, direction, num_proj)
    return _joined(sizes, weights, biases)


@op("CudnnRNNParamsToCanonical")
def cudnn_rnn_params_to_canonical(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    params: Any,
    *,
    num_params: int,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
) -> tuple[list[Any], list[Any]]:
    """Takes the vector of all weights apart. See tf.raw_ops.CudnnRNNParamsToCanonical."""
    sizes = _sizes(num_layers, num_units, input_size, rnn_mode, input_mode, direction)
    return sizes.parts(jnp.asarray(params))


@op("CudnnRNNParamsToCanonicalV2")
def cudnn_rnn_params_to_canonical_v2(
    num_layers: Static,
    num_units: Static,
    input_size: Static,
    params: Any,
    *,
    num_params_weights: int,
    num_params_biases: int,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    seed: int = 0,
    seed2: int = 0,
    num_proj: int = 0,
) -> tuple[list[Any], list[Any]]:
    """Takes the vector of all weights apart. See tf.raw_ops.CudnnRNNParamsToCanonicalV2."""
    sizes = _sizes(num_layers, num_units, input_size, rnn_mode, input_mode, direction, num_proj)
    return sizes.parts(jnp.asarray(params))
