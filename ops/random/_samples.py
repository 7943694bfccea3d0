"""Uniform, normal, gamma, Poisson, binomial numbers from Philox words.

They are TensorFlow's, number by number as its CPU kernels (random_distributions_utils.h). Samplers by rejection give
each output its own range of the counter, so that results do not depend on how the work is split. Here all outputs are
sampled at once, in a loop that ends when all are accepted. The kernels compute in double precision. Without JAX's
64-bit mode it is single precision here, from the leading bits of the same numbers: samples agree to about six digits,
except where a rejection is decided otherwise.

Floats are materialized: a number takes hundreds of operations, which XLA would otherwise fuse into each of its uses.
Samplers with loops are jitted, so that a call outside `jax.jit` compiles once and not operation by operation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.materialize import materialize
from tf2jax_lite.jaxprs.tracing_cache import shared
from tf2jax_lite.loops.shard_map import fori_loop, while_loop
from tf2jax_lite.ops.common.derivatives import random_gamma_grad
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import from_u32_pair, to_u32_pair
from tf2jax_lite.values.static import canonical, dims

from .philox import at, bits, block, skip, stack_columns


def double_dtype() -> np.dtype:
    """Return float64, or float32 where JAX has no 64-bit mode."""
    return canonical(np.float64)


def uint32_to_float(word: Any) -> Any:
    """Return float32 in [0, 1) from the low 23 bits of uint32 words."""
    mantissa = (word & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)
    return lax.bitcast_convert_type(mantissa, np.float32) - np.float32(1)


def uint64_to_double(first: Any, second: Any) -> Any:
    """Return numbers in [0, 1) from 20 bits of the first word and all of the second."""
    high = first & np.uint32(0xFFFFF)
    if double_dtype() == np.float64:
        # Not a bitcast of two words, which jax.export does not support where a dimension is symbolic.
        word = ((high | np.uint32(1023 << 20)).astype(np.uint64) << np.uint64(32)) | second.astype(np.uint64)
        return lax.bitcast_convert_type(word, np.float64) - np.float64(1)
    return uint32_to_float((high << np.uint32(3)) | (second >> np.uint32(29)))


def unit_floats(words: Any, dtype: Any) -> Any:
    """Return floats in [0, 1) from uint32 words, for float64 from pairs of them."""
    if dtype == np.float64:
        return uint64_to_double(words[..., 0], words[..., 1])
    if dtype == np.float32:
        return uint32_to_float(words)
    low = words.astype(np.uint16)
    if dtype == np.float16:
        return lax.bitcast_convert_type((low & np.uint16(0x3FF)) | np.uint16(15 << 10), np.float16) - np.float16(1)
    value = lax.bitcast_convert_type((low & np.uint16(0x7F)) | np.uint16(127 << 7), ml_dtypes.bfloat16)
    return value - jnp.ones((), value.dtype)


_CHUNK = 4096  # groups of numbers of which one is resampled at a time


def box_muller(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two standard normals from two uniform numbers in [0, 1)."""
    dtype = first.dtype
    # A lower bound for the logarithm, as in TensorFlow's BoxMullerFloat.
    radius = jnp.sqrt(np.asarray(-2, dtype) * jnp.log(jnp.maximum(first, np.asarray(1e-7, dtype))))
    angle = np.asarray(2 * math.pi, dtype) * second
    return jnp.sin(angle) * radius, jnp.cos(angle) * radius


@functools.partial(jax.jit, static_argnames=("count", "dtype"))
def truncated_normals(key: Any, counter: Any, count: int, dtype: Any) -> Any:
    """Return standard normals within two standard deviations."""
    double = np.dtype(dtype) == np.float64
    size = 2 if double else 4
    groups = math.ceil(count / size)

    def draw(start: Any, step: Any) -> list[Any]:
        words = block(skip(start, step), (key[0], key[1]))
        if double:
            return list(box_muller(uint64_to_double(*words[:2]), uint64_to_double(*words[2:])))
        return [n for i in (0, 2) for n in box_muller(uint32_to_float(words[i]), uint32_to_float(words[i + 1]))]

    def advance(index: Any, steps: int, state: Any, first: Any = 0) -> Any:
        accepted, *samples = state
        start = at(counter, index, 256 * size // 4)
        for step in range(steps):
            for number in draw(start, first + np.uint32(step)):
                accept = jnp.abs(number) < 2
                samples = [jnp.where(accept & (accepted == i), number, s) for i, s in enumerate(samples)]
                accepted = accepted + accept.astype(np.int32)
        return accepted, *samples

    def initial(index: Any) -> Any:
        missing = jnp.full(index.shape, np.nan, np.float64 if double else np.float32)
        return jnp.zeros(index.shape, np.int32), *[missing] * size

    # Sufficient for all but one group of a hundred thousand (doubles: of a million).
    steps = 3 if double else 2
    # Vectors, which XLA's CPU backend computes once for all columns of a row.
    index = lax.iota(np.uint32, groups)
    vectors = advance(index, steps, initial(index))[1:]
    samples = stack_columns(lambda row: [lax.broadcast_in_dim(v, row.shape, (0,)) for v in vectors], groups, size)
    chunks = -(-groups // _CHUNK)

    def incomplete(samples: Any) -> Any:
        return jnp.isnan(samples[:, -1])

    def complete(samples: Any) -> Any:
        """Resample the first incomplete group of each chunk."""
        flags = jnp.pad(incomplete(samples), (0, chunks * _CHUNK - groups)).reshape(chunks, _CHUNK)
        index = jnp.argmax(flags, 1).astype(np.uint32) + np.uint32(_CHUNK) * lax.iota(np.uint32, chunks)

        def step(carry: Any) -> Any:
            number, state = carry
            return number + np.uint32(1), advance(index, 1, state, number)

        start = (jnp.zeros((), np.uint32), initial(index))
        state = while_loop(lambda carry: jnp.any(carry[1][0] < size), step, start)[1]
        rows = jnp.where(jnp.any(flags, 1), index, np.uint32(groups))
        return samples.at[rows].set(jnp.stack(state[1:], 1), mode="drop")

    return while_loop(lambda samples: jnp.any(incomplete(samples)), complete, samples).reshape(-1)[:count]


_PHILOX, _AUTO = 1, 3


def check_algorithm(alg: Any) -> None:
    """Raise OpError unless ``alg`` is Philox (1) or auto_select (3)."""
    if int(alg) not in (_PHILOX, _AUTO):
        raise OpError(f"random algorithm {int(alg)} is not supported; use 'philox' or 'auto_select'")


def size(shape: Any, *, symbolic: bool = False) -> tuple[tuple[Any, ...], Any]:
    """Return a static shape as a tuple, and its number of elements."""
    sizes = dims(shape)
    if not symbolic and not all(isinstance(d, int) for d in sizes):
        raise OpError("this sampler of TensorFlow's random bits needs a static shape, and this one is symbolic")
    return sizes, math.prod(sizes)


def state(key: Any, counter: Any) -> tuple[Any, Any]:
    """Return the key (uint32 [2]) and counter (uint32 [4]) inputs of an op as words."""
    return jnp.asarray(to_u32_pair(key)).reshape(-1), jnp.asarray(to_u32_pair(counter)).reshape(-1)


def _numbers(words: Any, dtype: Any) -> Any:
    """Reshape rows of four words to a vector, or to rows of two for a 64-bit dtype."""
    rows = words.shape[0]
    return words.reshape((2 * rows, 2) if _words_per(dtype) == 2 else (4 * rows,))


def _words_per(dtype: Any) -> int:
    return 2 if np.dtype(dtype).itemsize == 8 else 1


def uniform(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return uniform numbers in [0, 1)."""
    sizes, count = size(shape, symbolic=True)
    # Without 64-bit mode a double is drawn as TensorFlow draws a float.
    dtype = canonical(dtype)
    return philox_uniform(key, counter, sizes=sizes, count=count, dtype=dtype)


@shared  # the name of the equation, by which exported source calls a function of its own
def philox_uniform(key: Any, counter: Any, *, sizes: Any, count: Any, dtype: Any) -> Any:
    """See `uniform`."""
    words = _numbers(bits(key, counter, count * _words_per(dtype)), dtype)
    return materialize(unit_floats(words, dtype)[:count].reshape(sizes))


def normal(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return standard normals by Box and Muller's transform."""
    sizes, count = size(shape, symbolic=True)
    return philox_normal(key, counter, sizes=sizes, count=count, dtype=canonical(dtype))


@shared  # the name of the equation, as that of `philox_uniform`
def philox_normal(key: Any, counter: Any, *, sizes: Any, count: Any, dtype: Any) -> Any:
    """See `normal`."""

    def pair(index: Any) -> tuple[Any, Any]:
        if dtype == np.float64:
            words = block(skip(counter, index), (key[0], key[1]))
            return box_muller(uint64_to_double(*words[:2]), uint64_to_double(*words[2:]))
        words = block(skip(counter, index >> np.uint32(1)), (key[0], key[1]))
        second = (index & np.uint32(1)) != 0
        units = (uint32_to_float(lax.select(second, words[i + 2], words[i])) for i in (0, 1))
        return box_muller(*units)

    return materialize(stack_columns(pair, -(-count // 2), 2).reshape(-1)[:count].reshape(sizes).astype(dtype))


def truncated_normal(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return standard normals within two standard deviations."""
    sizes, count = size(shape)
    dtype = canonical(dtype)
    return truncated_normals(key, counter, count, dtype).reshape(sizes).astype(dtype)


def full_int(shape: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return integers from the full range of ``dtype``."""
    sizes, count = size(shape, symbolic=True)
    words = _numbers(bits(key, counter, count * _words_per(dtype)), dtype)
    if _words_per(dtype) == 2:
        return from_u32_pair(words[:count].reshape((*sizes, 2)), dtype)
    return lax.bitcast_convert_type(words[:count], dtype).reshape(sizes)


def uniform_int(shape: Any, key: Any, counter: Any, minval: Any, maxval: Any, dtype: Any) -> Any:
    """Return integers in [minval, maxval)."""
    # Without 64-bit mode, 64-bit integers are TensorFlow's, too, if the range has at most 2**32 of them.
    is_int64, dtype = np.dtype(dtype).itemsize == 8, canonical(dtype)
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    low, high = jnp.asarray(minval, dtype), jnp.asarray(maxval, dtype)
    span = high.astype(unsigned) - low.astype(unsigned)
    if is_int64 and dtype.itemsize == 4:
        words = to_u32_pair(full_int(shape, key, counter, np.uint64))
        offset = _remainder(words[..., 1], words[..., 0], jnp.broadcast_to(span, words.shape[:-1]))
        return (low.astype(unsigned) + offset).astype(dtype)
    words = full_int(shape, key, counter, unsigned)
    return (low.astype(unsigned) + lax.rem(words, jnp.broadcast_to(span, words.shape))).astype(dtype)


def _remainder(high: Any, low: Any, span: Any) -> Any:
    """Return the remainder of a 64-bit number (words) by a 32-bit one: long division."""

    def step(i: Any, remainder: Any) -> Any:
        bit = lax.shift_right_logical(low, jnp.full_like(low, 31 - i)) & np.uint32(1)
        overflow = remainder >= np.uint32(1 << 31)
        remainder = (remainder << np.uint32(1)) | bit
        return jnp.where(overflow | (remainder >= span), remainder - span, remainder)

    return fori_loop(0, 32, step, lax.rem(high, span))


_GROUP = 16  # samples of which one continues at a time when few are left
_MAX_ROUNDS = 10_000  # more than any valid parameters need; ends loops that NaN parameters would keep running


def _pair(counter: Any, key: Any) -> tuple[Any, Any]:
    """Return the two double-precision uniform numbers of one step of the generator."""
    x0, x1, x2, x3 = map(materialize, block(counter, (key[0], key[1])))
    return uint64_to_double(x0, x1), uint64_to_double(x2, x3)


def _sample(make_round: Callable[[Any], Callable[[Any, Any], Any]], params: Any, state: Any) -> Any:
    """Repeat a round of rejection sampling until all samples are accepted.

    When 1/32 of the samples or fewer are left, they continue without the others, one of each group at a time.

    Args:
      make_round: takes ``params``; returns a function from the number of a round and the state to the next state.
      params: arrays with one entry for each sample, one or a tuple.
      state: a tuple of flags (whether the sample is accepted), samples, and further arrays with an entry for each.
    """
    count = state[0].shape[0]
    group = _GROUP if isinstance(count, int) and count > _GROUP else 0
    few = count // (2 * group) if group else 0

    def run(params: Any, first: Any, state: Any, max_left: int) -> Any:
        body = make_round(params)

        def keep_running(carry: Any) -> Any:
            left = jnp.sum(~carry[1][0], dtype=np.int32) > max_left if max_left else ~jnp.all(carry[1][0])
            return left & (carry[0] < _MAX_ROUNDS)

        def step(carry: Any) -> Any:
            number, state = carry
            return number + np.uint32(1), body(number, state)

        return while_loop(keep_running, step, (first, state))

    first, state = run(params, jnp.zeros((), np.uint32), state, few)
    if not group:
        return state[1]
    groups = -(-count // group)

    def finish(partial: Any) -> Any:
        left = jnp.pad(~partial[0], (0, groups * group - count)).reshape(groups, group)
        index = jnp.argmax(left, 1).astype(np.int32) + np.int32(group) * lax.iota(np.int32, groups)
        chosen = [jax.tree.map(lambda v: jnp.take(v, index, axis=0, mode="clip"), tree) for tree in (params, state)]
        done = ~jnp.any(left, 1)
        _, (_, samples, *_) = run(chosen[0], first, (done, *chosen[1][1:]), 0)
        rows = jnp.where(done, np.int32(groups * group), index)
        return tuple(v.at[rows].set(f, mode="drop") for v, f in zip(partial, (True, samples), strict=True))

    return while_loop(lambda partial: ~jnp.all(partial[0]), finish, state[:2])[1]


@jax.jit
def gamma(key: Any, counter: Any, alpha: Any, index: Any) -> Any:
    """Return gamma samples by Marsaglia and Tsang's rejection."""
    # As core/kernels/stateless_random_gamma_op.cc.
    alpha = alpha.astype(double_dtype())

    def derived(alpha: Any) -> tuple[Any, Any]:
        small = alpha < 1
        return small, alpha + jnp.where(small, np.asarray(2 / 3, alpha.dtype), np.asarray(-1 / 3, alpha.dtype))

    def make_round(params: Any) -> Callable[[Any, Any], Any]:
        alpha, index = params
        start = at(counter, index, 256)
        small, d = derived(alpha)
        c = 1 / 3 / jnp.sqrt(d)

        def take(active: Any, buffer: Any, step: Any, normal: bool) -> tuple[Any, Any, Any]:
            # A buffer is (next number, number after it, count left). A new pair is consumed from its end.
            first, second, left = buffer
            pair = _pair(skip(start, step), key)
            pair = tuple(map(materialize, box_muller(*pair))) if normal else pair
            empty = left == 0
            number = jnp.where(empty, pair[1], first)
            buffer = (
                jnp.where(active, jnp.where(empty, pair[0], second), first),
                second,
                jnp.where(active, jnp.where(empty, 1, 0), left),
            )
            return materialize(number), buffer, materialize(step + (active & empty).astype(np.uint32))

        def body(_: Any, state: Any) -> Any:
            done, result, step, normals, uniforms = state
            active = ~done
            x, normals, step = take(active, normals, step, True)
            v = 1 + c * x
            positive = active & ~(v <= 0)
            v = v * v * v
            u, uniforms, step = take(positive, uniforms, step, False)
            square = x * x
            squeezed = u < 1 - 0.0331 * square * square
            accept = materialize(positive & (squeezed | (jnp.log(u) < 0.5 * square + d * (1 - v + jnp.log(v)))))
            b, uniforms, step = take(accept & small, uniforms, step, False)
            value = d * v * jnp.where(small, jnp.power(b, 1 / alpha), 1)
            return done | accept, jnp.where(accept, value, result), step, normals, uniforms

        return body

    d = derived(alpha)[1]
    zeros = jnp.zeros_like(alpha)
    empty = (zeros, zeros, jnp.zeros(alpha.shape, np.int32))
    exponential = alpha == 1
    state = (
        exponential | ~(d > 0) | jnp.isinf(alpha),
        jnp.where(alpha == np.inf, alpha, jnp.full_like(alpha, np.nan)),
        jnp.zeros(alpha.shape, np.uint32),
        empty,
        empty,
    )
    result = _sample(make_round, (alpha, index), state)
    return jnp.where(exponential, -jnp.log1p(-_pair(at(counter, index, 256), key)[1]), result)


@jax.jit
def poisson(key: Any, counter: Any, rate: Any, index: Any, highest: float) -> Any:
    """Return Poisson samples."""
    # Knuth's product of uniforms below a rate of 10, else Hörmann's rejection.
    rate = rate.astype(double_dtype())

    def make_round(params: Any) -> Callable[[Any, Any], Any]:
        rate, index = params
        start = at(counter, index, 256)
        small = rate < 10
        limit = jnp.exp(-rate)
        large = jnp.where(small, 10, rate)  # for finite numbers in the other branch
        log_rate = jnp.log(large)
        b = 0.931 + 2.53 * jnp.sqrt(large)
        a = -0.059 + 0.02483 * b
        inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)

        def body(number: Any, state: Any) -> Any:
            done, result, product, count = state
            pair = _pair(skip(start, number), key)
            knuth_done = done
            for uniform in pair[::-1]:
                product = product * uniform
                stop = small & ~knuth_done & (product <= limit)
                result = jnp.where(stop, count, result)
                knuth_done = knuth_done | stop
                count = count + 1
            u, v = pair[1] - 0.5, pair[0]
            shifted = 0.5 - jnp.abs(u)
            k = jnp.floor((2 * a / shifted + b) * u + large + 0.43)
            boxed = (shifted >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
            rejected = (k < 0) | ((shifted < 0.013) & (v > shifted))
            fits = k <= highest
            s = jnp.log(v * inverse_alpha / (a / (shifted * shifted) + b))
            t = -large + k * log_rate - lax.lgamma(k + 1)
            accept = materialize(~small & ~done & fits & (boxed | (~rejected & (s <= t))))
            return knuth_done | accept, jnp.where(accept, k, result), product, count

        return body

    ones = jnp.ones_like(rate)
    first = jnp.where(rate == np.inf, np.inf, jnp.full_like(rate, np.nan))
    return _sample(make_round, (rate, index), (~(rate < np.inf), first, ones, jnp.zeros_like(rate)))


_TAIL = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def _stirling_tail(k: Any) -> Any:
    """Return the remainder of Stirling's approximation of log(k!)."""
    table = jnp.asarray(np.array(_TAIL), k.dtype)[jnp.clip(k, 0, 9).astype(np.int32)]
    square = (k + 1) * (k + 1)
    return jnp.where(k <= 9, table, (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1))


@jax.jit
def binomial(key: Any, counter: Any, counts: Any, probs: Any, index: Any) -> Any:
    """Return binomial samples."""
    # Sums of geometric variables if the mean is below 10, else Hörmann's BTRS.
    swapped = probs > 0.5
    low_probs = jnp.where(swapped, 1 - probs, probs)
    use_btrs = counts * low_probs >= 10
    count, prob, total = (v.astype(double_dtype()) for v in (counts, low_probs, counts))
    trivial = (counts <= 0) | (probs <= 0) | (probs >= 1) | jnp.isnan(probs) | jnp.isnan(counts)
    prob = jnp.where(trivial, 0.5, prob)
    count = jnp.where(trivial, 100, count)

    def make_round(params: Any) -> Callable[[Any, Any], Any]:
        index, use_btrs, count, prob = params
        starts = zip(at(counter, index, 256), at(counter, index, 42), strict=True)
        start = tuple(jnp.where(use_btrs, btrs, inversion) for btrs, inversion in starts)
        deviation = jnp.sqrt(count * prob * (1 - prob))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * prob
        c = count * prob + 0.5
        v_r = 0.92 - 4.2 / b
        r = prob / (1 - prob)
        alpha = (2.83 + 5.1 / b) * deviation
        m = jnp.floor((count + 1) * prob)

        def body(number: Any, state: Any) -> Any:
            done, result, total_steps, successes = state
            pair = _pair(skip(start, number), key)
            inversion_done = done
            for uniform in pair[::-1]:
                total_steps = total_steps + jnp.ceil(jnp.log(uniform) / jnp.log1p(-prob))
                stop = ~use_btrs & ~inversion_done & (total_steps > count)
                result = jnp.where(stop, successes, result)
                inversion_done = inversion_done | stop
                successes = successes + 1
            u, v = pair[1] - 0.5, pair[0]
            us = 0.5 - jnp.abs(u)
            k = jnp.floor((2 * a / us + b) * u + c)
            boxed = (us >= 0.07) & (v <= v_r)
            rejected = (k < 0) | (k > count)
            safe = jnp.clip(k, 0, count)
            log_v = jnp.log(v * alpha / (a / (us * us) + b))
            bound = (
                (m + 0.5) * jnp.log((m + 1) / (r * (count - m + 1)))
                + (count + 1) * jnp.log((count - m + 1) / (count - safe + 1))
                + (safe + 0.5) * jnp.log(r * (count - safe + 1) / (safe + 1))
                + _stirling_tail(m)
                + _stirling_tail(count - m)
                - _stirling_tail(safe)
                - _stirling_tail(count - safe)
            )
            accept = materialize(use_btrs & ~done & (boxed | (~rejected & (log_v <= bound))))
            return inversion_done | accept, jnp.where(accept, k, result), total_steps, successes

        return body

    zeros = jnp.zeros_like(prob)
    state = (trivial, jnp.full_like(prob, np.nan), zeros, zeros)
    samples = _sample(make_round, (index, use_btrs, count, prob), state)
    samples = jnp.where(swapped, total - samples, samples)
    samples = jnp.where(probs >= 1, total, samples)
    return jnp.where((counts <= 0) | (probs <= 0), 0, samples)


@functools.partial(jax.jit, static_argnames=("stride", "dtype"))
def bounded_normal(
    key: Any, counter: Any, index: Any, stride: int, dtype: Any, parameters: tuple[Any, Any, Any, Any]
) -> Any:
    """Return normals within bounds by the kernel's rejections.

    Proposals are from a normal, a uniform, or an exponential in a tail. The kernel
    (core/kernels/parameterized_truncated_normal_op.cc) draws the samples of one worker from one stream, so that they
    depend on the number of threads. Here each sample begins the stream that a worker would begin with it.

    Args:
      stride: size of such a range.
      dtype: of the samples; computed in float64 if it is that, else in float32.
      parameters: mean, standard deviation, lower and upper bound, [n] each.

    Returns:
      ``dtype`` [n]; NaN for invalid parameters.
    """
    mean, deviation, low, high = parameters
    single = np.dtype(dtype) != np.float64
    work = np.dtype(np.float32) if single else np.dtype(np.float64)
    mean, deviation, low, high = (p.astype(work) for p in (mean, deviation, low, high))
    valid = (deviation > 0) & (low < high) & (jnp.isfinite(low) | jnp.isfinite(high))

    def make_round(params: Any) -> Callable[[Any, Any], Any]:
        index, mean, deviation, low, high = params
        start = at(counter, index, stride)
        flip = (jnp.isinf(low) & (low < 0)) | (high < mean)
        low, high = jnp.where(flip, high, low), jnp.where(flip, low, high)
        deviation = jnp.where(flip, -deviation, deviation)
        near, far = (low - mean) / deviation, (high - mean) / deviation  # standardized bounds
        root = jnp.sqrt(near * near + 4)
        cutoff = 2 * jnp.exp(0.5 + near * (near - root) / 4) / (near + root)
        width = far - near
        by_normal = ((near < -1.3) & (far >= 0)) | ((far > 1.3) & (near <= 0))
        by_uniform = ~by_normal & (width < cutoff)
        lift = jnp.where(near < 0, 0, near * near)
        steep = (near + root) / 2

        def units(step: Any) -> list[Any]:
            words = tuple(map(materialize, block(skip(start, step), (key[0], key[1]))))
            if single:
                return [uint32_to_float(w) for w in words]
            return [uint64_to_double(*words[:2]), uint64_to_double(*words[2:])]

        def body(number: Any, state: Any) -> Any:
            done, result = state
            # The uniform sampler uses two steps a round: proposals, then the numbers of the acceptance test.
            first, second = units(jnp.where(by_uniform, 2 * number, number)), units(2 * number + 1)
            normals = [n for i in range(0, len(first), 2) for n in box_muller(first[i], first[i + 1])]
            for i, normal in enumerate(normals):
                proposal = first[i] * width + near
                accept_uniform = second[i] <= jnp.exp((lift - proposal * proposal) / 2)
                z = jnp.where(by_normal, normal, proposal)
                accept = jnp.where(by_normal, (normal >= near) & (normal <= far), accept_uniform)
                if i % 2 == 0:
                    exponential = -jnp.log(first[i]) / steep + near
                    x = jnp.where(near < steep, steep - exponential, near - steep)
                    accept_tail = (first[i + 1] <= jnp.exp(-x * x / 2)) & (exponential < far)
                else:
                    exponential, accept_tail = z, jnp.zeros_like(accept)
                by_tail = ~by_normal & ~by_uniform
                z, accept = jnp.where(by_tail, exponential, z), jnp.where(by_tail, accept_tail, accept)
                accept = accept & ~done
                result = jnp.where(accept, z * deviation + mean, result)
                done = done | accept
            return done, result

        return body

    state = (~valid, jnp.full_like(mean, np.nan))
    return _sample(make_round, (index, mean, deviation, low, high), state).astype(dtype)


@jax.custom_jvp
def implicit_gamma(alpha: Any, sample: Any) -> Any:
    """Return ``sample`` with its implicit derivative (Figurnov et al., 2018)."""
    return sample


@implicit_gamma.defjvp
def _implicit_gamma_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    alpha, sample = primals
    work = np.dtype(np.float64 if sample.dtype == np.float64 else np.float32)
    sample = implicit_gamma(alpha, sample)  # for second derivatives: the sample depends on alpha
    derivative = random_gamma_grad(alpha.astype(work), sample.astype(work)).astype(sample.dtype)
    return sample, derivative * tangents[0]


def _normal_cdf(x: Any) -> Any:
    return 0.5 * lax.erfc(-x * np.asarray(math.sqrt(0.5), x.dtype))


@jax.custom_jvp
def implicit_bounded_normal(sample: Any, parameters: tuple[Any, Any, Any, Any]) -> Any:
    """Return ``sample`` with implicit derivatives of mean, deviation and bounds."""
    return sample


@implicit_bounded_normal.defjvp
def _implicit_bounded_normal_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    sample, (mean, deviation, low, high) = primals
    d_mean, d_deviation, d_low, d_high = tangents[1]
    low, high, x = ((v - mean) / deviation for v in (low, high, sample))
    quantile = (_normal_cdf(x) - _normal_cdf(low)) / (_normal_cdf(high) - _normal_cdf(low))
    limits = jnp.finfo(sample.dtype)
    quantile = jnp.clip(quantile, limits.tiny, 1 - limits.eps)
    wrt_high = jnp.exp(0.5 * (x * x - high * high) + jnp.log(quantile))
    wrt_low = jnp.exp(0.5 * (x * x - low * low) + jnp.log1p(-quantile))
    return sample, d_mean + x * d_deviation + wrt_low * d_low + wrt_high * d_high
