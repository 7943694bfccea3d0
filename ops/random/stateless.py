"""Stateless random ops: uniform, normal, shuffle, gamma, Poisson, binomial.

Stochastic rounding of floats to integers is one, too, and RandomIndexShuffle: a pseudorandom permutation, one index at
a time, computed by the block cipher Simon. They have the bits of TensorFlow's CPU kernels.

TF: core/kernels/stateless_random_ops_v2.cc, stateless_random_ops.cc, stateless_random_gamma_op.cc.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.registry import REQUIRED, Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import from_u32_pair, to_u32_pair
from tf2jax_lite.values.static import canonical, static_value

from ._samples import (
    binomial,
    bounded_normal,
    check_algorithm,
    full_int,
    gamma,
    implicit_bounded_normal,
    implicit_gamma,
    normal,
    poisson,
    size,
    state,
    truncated_normal,
    uniform,
    uniform_int,
    unit_floats,
)
from .philox import bits, block, scramble, skip

_PHILOX = 1
_INT64, _UINT64, _FLOAT32 = np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.float32)


@op("StatelessRandomGetAlg", fold=lambda: np.array(_PHILOX, np.int32))
def stateless_random_get_alg():
    """Return the algorithm, 1 for Philox as on every CPU."""
    return np.array(_PHILOX, np.int32)


@op("StatelessRandomGetKeyCounter", int64="pair")
def stateless_random_get_key_counter(seed):
    """Return the Philox key (uint64 [1]) and counter (uint64 [2]) for a seed."""
    key, counter = scramble(seed)
    return from_u32_pair(key.reshape(1, 2)), from_u32_pair(counter.reshape(2, 2))


@op("StatelessRandomGetKeyCounterAlg", int64="pair")
def stateless_random_get_key_counter_alg(seed):
    """Return key, counter and algorithm for a seed."""
    return (*stateless_random_get_key_counter(seed), np.array(_PHILOX, np.int32))


_BY_SEED = "shape:Static seed"
_BY_KEY = "shape:Static key counter alg:Static"


def _stream(seed: Any = None, key: Any = None, counter: Any = None, alg: Any = None) -> tuple[Any, Any]:
    if seed is not None:
        return scramble(seed)
    check_algorithm(alg)
    return state(key, counter)


def _register(name: str, draw: Callable[..., Any], default: np.dtype) -> None:
    @op(name, inputs=_BY_SEED, attributes={"dtype": default}, int64="pair")
    @op(f"{name}V2", inputs=_BY_KEY, attributes={"dtype": default}, int64="pair")
    def call(*, shape, dtype, **stream):
        """Draw numbers by ``draw``."""
        return draw(shape, *_stream(**stream), dtype)


_register("StatelessRandomUniform", uniform, _FLOAT32)  # in [0, 1)
_register("StatelessRandomNormal", normal, _FLOAT32)  # by Box and Muller's transform
_register("StatelessRandomUniformFullInt", full_int, _UINT64)
_register("StatelessTruncatedNormal", truncated_normal, _FLOAT32)  # within two standard deviations


@op("StatelessRandomUniformInt", inputs=f"{_BY_SEED} minval maxval", attributes={"dtype": REQUIRED}, int64="pair")
@op("StatelessRandomUniformIntV2", inputs=f"{_BY_KEY} minval maxval", attributes={"dtype": REQUIRED}, int64="pair")
def stateless_random_uniform_int(*, shape, minval, maxval, dtype, **stream):
    """Draw uniform integers in [minval, maxval)."""
    return uniform_int(shape, *_stream(**stream), minval, maxval, dtype)


@functools.partial(jax.jit, static_argnames="size")
def permutation(key: Any, counter: Any, size: int) -> Any:
    """Return TensorFlow's Fisher-Yates permutation: step i swaps i and j_i of word i.

    Entries are followed through all swaps at once. Entry i ends with the content of j_i before step i, which is the
    content of entry q before step q, for the last step q < i with j_q = j_i (or j_i itself if there is none). The
    content of an entry before its own step comes in turn from the last earlier step that swapped it. These chains,
    which are short, are followed for all entries.
    """
    order = lax.iota(np.int32, size)
    if size < 2:
        return order
    number = lax.iota(np.uint32, size)
    words = bits(key, counter, size).reshape(-1)[:size]  # that of the last step does not count
    targets = (number + lax.rem(words, np.uint32(size) - number)).astype(np.int32)
    # Steps sorted by target (j_i), then by number; the last entry's target is itself.
    inverted, step = lax.top_k(~targets, size)
    target = ~inverted
    same = target[1:] == target[:-1]
    previous = jnp.where(jnp.pad(same, (1, 0)), jnp.roll(step, 1), -1)
    source = jnp.where(step == target, previous, step)
    last = jnp.where(jnp.pad(same, (0, 1)), size, target)
    chain = order.at[last].set(jnp.where(source < 0, target, source), mode="drop")

    def follow(state: Any) -> tuple[Any, Any]:
        next_chain = state[0][state[0]]
        return next_chain, jnp.any(next_chain != state[0])

    content = while_loop(lambda state: state[1], follow, (chain, jnp.asarray(True)))[0]
    return order.at[step].set(jnp.where(previous < 0, target, content[previous]))


@op("StatelessShuffle", int64="pair")
def stateless_shuffle(value, key, counter, alg: Static):
    """Shuffle along the first dimension by Fisher-Yates swaps."""
    check_algorithm(alg)
    value = jnp.asarray(value)
    if value.ndim == 0 or value.shape[0] == 1:
        return value
    count = size(value.shape[:1])[1]
    return jnp.take(value, permutation(*state(key, counter), count), axis=0)


def _layout(shape: Any, parameters: list[Any]) -> tuple[tuple[int, ...], Any, list[Any]]:
    """Return the shape, and the stream and the parameters of each sample."""
    # The shape is ints; the number of the stream and the parameters are vectors. Kernels number the samples of one
    # parameter consecutively, although they are not adjacent in the result.
    sizes, total = size(shape)
    parameters = [jnp.asarray(p) for p in parameters]
    try:
        inner = np.broadcast_shapes(*(p.shape for p in parameters))
    except ValueError as error:
        shapes = ", ".join(str(p.shape) for p in parameters)
        raise OpError(f"parameters of shapes {shapes} do not broadcast") from error
    if len(inner) > len(sizes) or sizes[len(sizes) - len(inner) :] != inner:
        raise OpError(f"shape {sizes} does not end with the parameters' shape {inner}")
    batch = math.prod(inner)
    per_parameter = total // batch if batch else 0
    grid = (per_parameter, batch)
    sample, parameter = (lax.broadcasted_iota(np.uint32, grid, d) for d in (0, 1))
    index = parameter * np.uint32(per_parameter) + sample
    flat = [jnp.broadcast_to(jnp.broadcast_to(p, inner).reshape(1, batch), grid).reshape(-1) for p in parameters]
    return sizes, index.reshape(-1), flat


def draw_gamma(shape: Any, key: Any, counter: Any, alpha: Any) -> Any:
    """Return gamma samples with their implicit derivative with respect to ``alpha``."""
    sizes, index, (alpha,) = _layout(shape, [alpha])
    sample = gamma(key, counter, lax.stop_gradient(alpha), index).astype(alpha.dtype)
    return implicit_gamma(alpha, sample).reshape(sizes)


def draw_poisson(shape: Any, key: Any, counter: Any, rate: Any, dtype: Any) -> Any:
    """Return Poisson samples."""
    sizes, index, (rate,) = _layout(shape, [lax.stop_gradient(rate)])
    dtype = canonical(dtype)
    inexact = jnp.issubdtype(dtype, jnp.floating)
    highest = jnp.finfo(dtype).max if inexact else jnp.iinfo(dtype).max
    samples = poisson(key, counter, rate, index, float(highest))
    if not inexact:  # the kernel returns 0 for an infinite rate
        samples = jnp.where(jnp.isfinite(samples), samples, jnp.zeros_like(samples))
    return samples.astype(dtype).reshape(sizes)


def draw_binomial(shape: Any, key: Any, counter: Any, counts: Any, probs: Any, dtype: Any) -> Any:
    """Return binomial samples."""
    sizes, index, (counts, probs) = _layout(shape, [lax.stop_gradient(counts), lax.stop_gradient(probs)])
    return binomial(key, counter, counts, probs, index).astype(canonical(dtype)).reshape(sizes)


def draw_bounded_normal(shape: Any, key: Any, counter: Any, parameters: list[Any]) -> Any:
    """Return normals of ``parameters``: mean, standard deviation, lower, upper bound."""
    sizes, index, flat = _layout(shape, parameters)
    dtype = flat[0].dtype
    # Steps that the kernel skips for each earlier sample: 1000 rounds of two numbers.
    stride = 2 * 1000 // (2 if dtype == np.float64 else 4)
    mean, deviation, low, high = flat
    fixed = (lax.stop_gradient(mean), lax.stop_gradient(deviation), lax.stop_gradient(low), lax.stop_gradient(high))
    sample = bounded_normal(key, counter, index, stride, dtype, fixed)
    return implicit_bounded_normal(sample, (mean, deviation, low, high)).reshape(sizes)


@op("StatelessRandomGammaV2", inputs=f"{_BY_SEED} alpha", int64="pair")
@op("StatelessRandomGammaV3", inputs=f"{_BY_KEY} alpha", int64="pair")
def stateless_random_gamma(*, shape, alpha, **stream):
    """Draw gamma samples with an implicit derivative with respect to alpha."""
    return draw_gamma(shape, *_stream(**stream), alpha)


@op("StatelessRandomPoisson", int64="pair")
def stateless_random_poisson(shape: Static, seed, lam, *, dtype):
    """Draw Poisson samples.

    TF: core/kernels/random_poisson_op.cc.
    """
    return draw_poisson(shape, *scramble(seed), lam, dtype)


@op("StatelessRandomBinomial", int64="pair")
def stateless_random_binomial(shape: Static, seed, counts, probs, *, dtype=_INT64):
    """Draw binomial samples.

    TF: core/kernels/random_binomial_op.cc.
    """
    return draw_binomial(shape, *scramble(seed), counts, probs, dtype)


@op("StatelessParameterizedTruncatedNormal", int64="pair")
def stateless_parameterized_truncated_normal(shape: Static, seed, means, stddevs, minvals, maxvals):
    """Draw normal samples within bounds.

    TF: core/kernels/parameterized_truncated_normal_op.cc.

    TensorFlow draws all samples of a thread from one stream, so that they depend on the number of threads. Here each
    sample has its own stream: the first one is TensorFlow's, the others have the same distribution. float16 is computed
    in float32. Invalid parameters return NaN, as on GPUs, where TensorFlow's CPU kernel raises an error.
    """
    return draw_bounded_normal(shape, *scramble(seed), [means, stddevs, minvals, maxvals])


@op("StochasticCastToInt", int64="pair")
def stochastic_cast_to_int(input, key, counter, alg: Static, *, Tout):
    """Round up or down at random, so that the expectation is the input.

    TF: core/kernels/stochastic_cast_op.cc.

    Bits are TensorFlow's, except from float32 or float64 to int32: its kernel uses several numbers of a step of the
    generator there, depending on the processor that TensorFlow was built for. Inputs that are too large return the
    largest integer, also where TensorFlow overflows (float16 or bfloat16 to int16, float32 to int32).
    """
    check_algorithm(alg)
    x = jnp.asarray(input)
    limits = jnp.iinfo(Tout)
    low, high = (np.asarray(v).astype(x.dtype) for v in (limits.min, limits.max))
    unrounded = (jnp.floor(x) == x) | (x >= high) | (x <= low) | jnp.isnan(x)
    flat = ~unrounded.reshape(-1)
    # Only rounded numbers use a step of the generator.
    index = (jnp.cumsum(flat, dtype=np.uint32) - flat.astype(np.uint32)).reshape(x.shape)
    # The kernel passes the counter's first integer to the generator as its seed, and the key as its stream.
    key_words, stream = to_u32_pair(counter).reshape(-1)[:2], to_u32_pair(key).reshape(-1)
    words = block(skip((np.uint32(0), np.uint32(0), stream[0], stream[1]), index), (key_words[0], key_words[1]))
    number = unit_floats(jnp.stack(words[:2], axis=-1) if x.dtype == np.float64 else words[0], x.dtype)
    number = number.reshape(x.shape)
    one = jnp.ones((), x.dtype)
    rounded = jnp.where(x < 0, jnp.floor(x + number), jnp.floor(x + one - number))
    rounded = jnp.where(unrounded, jnp.where(jnp.isnan(x), 0, x), rounded)
    clipped = jnp.clip(rounded, low, high).astype(Tout)
    return jnp.where(x >= high, np.asarray(limits.max, Tout), clipped)


_CONSTANT, _SEQUENCE = 0xFFFFFFFC, 0x7369F885192C0EF5


def _rotate_left(x: Any, by: int, width: Any, mask: Any) -> Any:
    return ((x << np.uint32(by)) | (x >> (width - np.uint32(by)))) & mask


def _mix(x: Any, width: Any, mask: Any) -> Any:
    one, eight, two = (_rotate_left(x, by, width, mask) for by in (1, 8, 2))
    return (one & eight) ^ two


def _round_keys(seed: Any, width: Any, mask: Any, rounds: int) -> list[Any]:
    """Return the round keys of the Simon cipher for words of ``width`` bits."""
    keys = [seed[..., i] & mask for i in range(3)]
    for i in range(3, rounds):
        last = keys[i - 1]
        third, fourth = (((last >> np.uint32(r)) | (last << (width - np.uint32(r)))) & mask for r in (3, 4))
        # Words shorter than the sequence contain only its first bits.
        bit = jnp.where(width > i - 3, np.uint32(_SEQUENCE >> (i - 3) & 1), np.uint32(0))
        keys.append((np.uint32(_CONSTANT) & mask) ^ bit ^ keys[i - 3] ^ third ^ fourth)
    return keys


@op("RandomIndexShuffle")
def random_index_shuffle(index, seed, max_index, *, rounds=4):
    """Return the position of an index in a permutation of 0 to max_index.

    TF: core/kernels/random_index_shuffle_ops.cc.

    A Simon cipher over a power of four of integers, repeated until the result is in the range (Black and Rogaway,
    2002).

    Args:
      max_index: largest index, scalar or [n].
    """
    if rounds < 4 or rounds % 2:
        raise OpError(f"rounds must be even and at least 4, got {rounds}")
    static_index, static_max = static_value(index), static_value(max_index)
    if static_index is not None and static_max is not None and np.any(static_index > static_max):
        raise OpError("an index is larger than max_index")
    index, seed, max_index = jnp.asarray(index), jnp.asarray(seed), jnp.asarray(max_index)
    if index.ndim > 1 or max_index.ndim > 1 or seed.ndim not in (1, 2) or seed.shape[-1] != 3:
        raise OpError(
            "index and max_index must be scalars or vectors, seed a vector of three or rows of three, got shapes "
            f"{index.shape}, {max_index.shape}, {seed.shape}"
        )
    shape = jnp.broadcast_shapes(index.shape, max_index.shape, seed.shape[:-1])
    unsigned = np.dtype(f"uint{8 * index.dtype.itemsize}")
    value, largest = (jnp.broadcast_to(v, shape).astype(unsigned) for v in (index, max_index))
    one = np.ones((), unsigned)
    bits = np.asarray(8 * unsigned.itemsize, unsigned) - lax.clz(jnp.maximum(largest, one) - one)
    # Half of the bits of the largest index, but at least eight, which the rotations need.
    width = jnp.maximum((bits + one) // np.asarray(2, unsigned), np.asarray(8, unsigned)).astype(np.uint32)
    mask = np.uint32(0xFFFFFFFF) >> (np.uint32(32) - width)
    keys = _round_keys(seed.astype(np.uint32), width, mask, rounds)
    shift = width.astype(unsigned)

    @jax.jit
    def encrypt(value: Any) -> Any:
        left, right = (value >> shift).astype(np.uint32) & mask, value.astype(np.uint32) & mask
        for i in range(0, rounds, 2):
            left = left ^ _mix(right, width, mask) ^ keys[i]
            right = right ^ _mix(left, width, mask) ^ keys[i + 1]
        return (left.astype(unsigned) << shift) | right.astype(unsigned)

    def step(value: Any) -> Any:
        return jnp.where(value > largest, encrypt(value), value)

    shuffled = while_loop(lambda value: jnp.any(value > largest), step, encrypt(value))
    return jnp.where(largest == 0, jnp.zeros_like(shuffled), shuffled).astype(index.dtype)
