"""Distributions from Philox words, number by number as TensorFlow's CPU kernels draw them.

Kernels that reject give every output (or group of outputs) a stretch of the counter of its own, so that results do
not depend on how the work is split. Here all outputs are drawn at once, in a loop that ends when none is left.

What the kernels do in double precision is done in single precision where JAX has no 64-bit mode: from the leading
bits of the same numbers, so that samples agree to about six digits, save where a rejection falls the other way.

Samplers are jitted, so that a call outside `jax.jit` compiles once and not operation by operation.
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
from tf2jax_lite.ops.common.derivatives import random_gamma_grad
from tf2jax_lite.values.static import canonical
from tf2jax_lite.xla_cpu.materialize import materialize
from tf2jax_lite.xla_cpu.top_k import top_k

from .philox import at, bits, block, side_by_side, skip

__all__ = [
    "binomial",
    "bounded_normal",
    "box_muller",
    "double_units",
    "float_units",
    "gamma",
    "implicit_bounded_normal",
    "implicit_gamma",
    "permutation",
    "poisson",
    "truncated_normal",
    "wide",
]

_CHUNK = 4096  # groups of numbers of which one is drawn again at a time
_TOGETHER = 16  # items of which one goes on at a time when few are left
_ROUNDS = 10_000  # more than any valid parameters need; ends loops that NaN parameters would keep going


def wide() -> np.dtype:
    """Returns float64, or float32 where JAX has no 64-bit mode."""
    return canonical(np.float64)


def float_units(word: Any) -> Any:
    """Returns float32 in [0, 1): the low bits of a word as mantissa, minus one."""
    mantissa = (word & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)
    return lax.bitcast_convert_type(mantissa, np.float32) - np.float32(1)


def double_units(first: Any, second: Any) -> Any:
    """Returns numbers in [0, 1) of two words: 20 bits of the first, then the second, as a double's mantissa."""
    high = first & np.uint32(0xFFFFF)
    if wide() == np.float64:
        # Not as a bitcast of two words, which jax.export cannot do where a dimension is symbolic.
        word = ((high | np.uint32(1023 << 20)).astype(np.uint64) << np.uint64(32)) | second.astype(np.uint64)
        return lax.bitcast_convert_type(word, np.float64) - np.float64(1)
    return float_units((high << np.uint32(3)) | (second >> np.uint32(29)))


def box_muller(first: Any, second: Any) -> tuple[Any, Any]:
    """Returns two standard normals of two uniform numbers."""
    dtype = first.dtype
    # Neither too small a number for the logarithm, as in the kernel.
    radius = jnp.sqrt(np.asarray(-2, dtype) * jnp.log(jnp.maximum(first, np.asarray(1e-7, dtype))))
    angle = np.asarray(2 * math.pi, dtype) * second
    return jnp.sin(angle) * radius, jnp.cos(angle) * radius


def _pair(counter: Any, key: Any) -> tuple[Any, Any]:
    """Returns the two double-precision uniform numbers of one step."""
    x0, x1, x2, x3 = map(materialize, block(counter, (key[0], key[1])))
    return double_units(x0, x1), double_units(x2, x3)


@functools.partial(jax.jit, static_argnames=("count", "dtype"))
def truncated_normal(key: Any, counter: Any, count: int, dtype: Any) -> Any:
    """Returns standard normals within two standard deviations; a group of four (doubles: two) shares a stream."""
    double = np.dtype(dtype) == np.float64
    size = 2 if double else 4
    groups = math.ceil(count / size)

    def draw(start: Any, step: Any) -> list[Any]:
        words = block(skip(start, step), (key[0], key[1]))
        if double:
            return list(box_muller(double_units(*words[:2]), double_units(*words[2:])))
        return [n for i in (0, 2) for n in box_muller(float_units(words[i]), float_units(words[i + 1]))]

    def drawn(index: Any, steps: int, state: Any, first: Any = 0) -> Any:
        filled, *found = state
        start = at(counter, index, 256 * size // 4)
        for step in range(steps):
            for number in draw(start, first + np.uint32(step)):
                use = jnp.abs(number) < 2
                found = [jnp.where(use & (filled == i), number, f) for i, f in enumerate(found)]
                filled = filled + use.astype(np.int32)
        return filled, *found

    def nothing(index: Any) -> Any:
        missing = jnp.full(index.shape, np.nan, np.float64 if double else np.float32)
        return jnp.zeros(index.shape, np.int32), *[missing] * size

    # A few steps are enough for all but one group of a hundred thousand (doubles: of a million).
    steps = 3 if double else 2
    # Of vectors, which XLA's CPU backend computes once for all columns of a row.
    index = lax.iota(np.uint32, groups)
    vectors = drawn(index, steps, nothing(index))[1:]
    found = side_by_side(lambda at: [lax.broadcast_in_dim(v, at.shape, (0,)) for v in vectors], groups, size)
    chunks = -(-groups // _CHUNK)

    def missing(found: Any) -> Any:
        return jnp.isnan(found[:, -1])

    def fill(found: Any) -> Any:
        """Draws for the first group of each chunk that is not full."""
        flags = jnp.pad(missing(found), (0, chunks * _CHUNK - groups)).reshape(chunks, _CHUNK)
        index = jnp.argmax(flags, 1).astype(np.uint32) + np.uint32(_CHUNK) * lax.iota(np.uint32, chunks)

        def more(carry: Any) -> Any:
            step, state = carry
            return step + np.uint32(1), drawn(index, 1, state, step)

        start = (jnp.zeros((), np.uint32), nothing(index))
        state = while_loop(lambda carry: jnp.any(carry[1][0] < size), more, start)[1]
        places = jnp.where(jnp.any(flags, 1), index, np.uint32(groups))
        return found.at[places].set(jnp.stack(state[1:], 1), mode="drop")

    return while_loop(lambda found: jnp.any(missing(found)), fill, found).reshape(-1)[:count]


def _until_done(rounds: Callable[[Any], Callable[[Any, Any], Any]], items: Any, state: Any) -> Any:
    """Runs ``rounds(items)(round, state)`` until the first part of the state, a vector of flags, is all True.

    When few items are left, they go on without the others: the first of each group at a time.

    Args:
      rounds: takes arrays of one entry for each item; gives what takes the number of a round and the state.
      items: such arrays, one or a tuple.
      state: a tuple of flags, results, and more of them.

    Returns:
      The results.
    """
    count = state[0].shape[0]
    together = _TOGETHER if isinstance(count, int) and count > _TOGETHER else 0
    few = count // (2 * together) if together else 0

    def run(items: Any, first: Any, state: Any, most_left: int) -> Any:
        body = rounds(items)

        def goes_on(carry: Any) -> Any:
            left = jnp.sum(~carry[1][0], dtype=np.int32) > most_left if most_left else ~jnp.all(carry[1][0])
            return left & (carry[0] < _ROUNDS)

        def step(carry: Any) -> Any:
            number, state = carry
            return number + np.uint32(1), body(number, state)

        return while_loop(goes_on, step, (first, state))

    first, state = run(items, jnp.zeros((), np.uint32), state, few)
    if not together:
        return state[1]
    groups = -(-count // together)

    def finish(known: Any) -> Any:
        left = jnp.pad(~known[0], (0, groups * together - count)).reshape(groups, together)
        index = jnp.argmax(left, 1).astype(np.int32) + np.int32(together) * lax.iota(np.int32, groups)
        chosen = [jax.tree.map(lambda v: jnp.take(v, index, axis=0, mode="clip"), tree) for tree in (items, state)]
        idle = ~jnp.any(left, 1)
        _, (_, found, *_) = run(chosen[0], first, (idle, *chosen[1][1:]), 0)
        places = jnp.where(idle, np.int32(groups * together), index)
        return tuple(v.at[places].set(f, mode="drop") for v, f in zip(known, (True, found), strict=True))

    return while_loop(lambda known: ~jnp.all(known[0]), finish, state[:2])[1]


@jax.jit
def gamma(key: Any, counter: Any, alpha: Any, index: Any) -> Any:
    """Returns gamma samples by Marsaglia and Tsang's rejection.

    Args:
      key: words.
      counter: words.
      alpha: a vector of parameters, one for each sample.
      index: the number of each sample's stream.

    Returns:
      Samples; NaN where alpha is, or where it is below -2/3.
    """
    alpha = alpha.astype(wide())

    def derived(alpha: Any) -> tuple[Any, Any]:
        small = alpha < 1
        return small, alpha + jnp.where(small, np.asarray(2 / 3, alpha.dtype), np.asarray(-1 / 3, alpha.dtype))

    def rounds(items: Any) -> Callable[[Any, Any], Any]:
        alpha, index = items
        start = at(counter, index, 256)
        small, d = derived(alpha)
        c = 1 / 3 / jnp.sqrt(d)

        def take(wanted: Any, buffer: Any, step: Any, normal: bool) -> tuple[Any, Any, Any]:
            # A buffer holds (next number, number after it, how many are left); a fresh pair is used from its end.
            first, second, left = buffer
            fresh = _pair(skip(start, step), key)
            fresh = tuple(map(materialize, box_muller(*fresh))) if normal else fresh
            empty = left == 0
            number = jnp.where(empty, fresh[1], first)
            kept = (jnp.where(wanted, jnp.where(empty, fresh[0], second), first), second, jnp.where(empty, 1, 0))
            kept = (kept[0], kept[1], jnp.where(wanted, kept[2], left))
            return materialize(number), kept, materialize(step + (wanted & empty).astype(np.uint32))

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
    result = _until_done(rounds, (alpha, index), state)
    return jnp.where(exponential, -jnp.log1p(-_pair(at(counter, index, 256), key)[1]), result)


@jax.jit
def poisson(key: Any, counter: Any, rate: Any, index: Any, highest: float) -> Any:
    """Returns Poisson samples: Knuth's product of uniforms below a rate of 10, else Hörmann's rejection.

    None is above ``highest``. Infinite for a rate that is; NaN for NaN, with which the kernel does not come
    to an end.
    """
    rate = rate.astype(wide())

    def rounds(items: Any) -> Callable[[Any, Any], Any]:
        rate, index = items
        start = at(counter, index, 256)
        few = rate < 10
        limit = jnp.exp(-rate)
        large = jnp.where(few, 10, rate)  # keeps the other branch's numbers finite
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
                stop = few & ~knuth_done & (product <= limit)
                result = jnp.where(stop, count, result)
                knuth_done = knuth_done | stop
                count = count + 1
            u, v = pair[1] - 0.5, pair[0]
            shifted = 0.5 - jnp.abs(u)
            k = jnp.floor((2 * a / shifted + b) * u + large + 0.43)
            boxed = (shifted >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
            refused = (k < 0) | ((shifted < 0.013) & (v > shifted))
            fits = k <= highest
            s = jnp.log(v * inverse_alpha / (a / (shifted * shifted) + b))
            t = -large + k * log_rate - lax.lgamma(k + 1)
            accept = materialize(~few & ~done & fits & (boxed | (~refused & (s <= t))))
            return knuth_done | accept, jnp.where(accept, k, result), product, count

        return body

    ones = jnp.ones_like(rate)
    first = jnp.where(rate == np.inf, np.inf, jnp.full_like(rate, np.nan))
    return _until_done(rounds, (rate, index), (~(rate < np.inf), first, ones, jnp.zeros_like(rate)))


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
    """Returns what Stirling's formula for log(k!) leaves out."""
    table = jnp.asarray(np.array(_TAIL), k.dtype)[jnp.clip(k, 0, 9).astype(np.int32)]
    square = (k + 1) * (k + 1)
    return jnp.where(k <= 9, table, (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1))


@jax.jit
def binomial(key: Any, counter: Any, counts: Any, probs: Any, index: Any) -> Any:
    """Returns binomial samples: sums of geometric variables if the mean is below 10, else Hörmann's BTRS.

    ``counts`` and ``probs`` are vectors, one for each sample. NaN where a parameter is.
    """
    swapped = probs > 0.5
    narrow = jnp.where(swapped, 1 - probs, probs)
    many = counts * narrow >= 10
    count, prob, total = counts.astype(wide()), narrow.astype(wide()), counts.astype(wide())
    trivial = (counts <= 0) | (probs <= 0) | (probs >= 1) | jnp.isnan(probs) | jnp.isnan(counts)
    prob = jnp.where(trivial, 0.5, prob)
    count = jnp.where(trivial, 100, count)

    def rounds(items: Any) -> Callable[[Any, Any], Any]:
        index, many, count, prob = items
        start_few, start_many = at(counter, index, 42), at(counter, index, 256)
        start = tuple(jnp.where(many, m, f) for m, f in zip(start_many, start_few, strict=True))
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
                stop = ~many & ~inversion_done & (total_steps > count)
                result = jnp.where(stop, successes, result)
                inversion_done = inversion_done | stop
                successes = successes + 1
            u, v = pair[1] - 0.5, pair[0]
            us = 0.5 - jnp.abs(u)
            k = jnp.floor((2 * a / us + b) * u + c)
            boxed = (us >= 0.07) & (v <= v_r)
            refused = (k < 0) | (k > count)
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
            accept = materialize(many & ~done & (boxed | (~refused & (log_v <= bound))))
            return inversion_done | accept, jnp.where(accept, k, result), total_steps, successes

        return body

    zeros = jnp.zeros_like(prob)
    state = (trivial, jnp.full_like(prob, np.nan), zeros, zeros)
    drawn = _until_done(rounds, (index, many, count, prob), state)
    drawn = jnp.where(swapped, total - drawn, drawn)
    drawn = jnp.where(probs >= 1, total, drawn)
    return jnp.where((counts <= 0) | (probs <= 0), 0, drawn)


@functools.partial(jax.jit, static_argnames=("stride", "dtype"))
def bounded_normal(
    key: Any, counter: Any, index: Any, stride: int, dtype: Any, parameters: tuple[Any, Any, Any, Any]
) -> Any:
    """Returns normals within bounds; ``parameters`` (mean, deviation, low, high) are vectors, one for each sample.

    The kernel's three rejections: from the normal itself, from a uniform, and from an exponential in a tail. It
    draws the samples of one worker from one stream, which makes them depend on the number of threads. Here every
    sample starts the stream that a worker would start with it. NaN for bad parameters.
    """
    mean, deviation, low, high = parameters
    single = np.dtype(dtype) != np.float64
    work = np.dtype(np.float32) if single else np.dtype(np.float64)
    mean, deviation, low, high = (p.astype(work) for p in (mean, deviation, low, high))
    valid = (deviation > 0) & (low < high) & (jnp.isfinite(low) | jnp.isfinite(high))

    def rounds(items: Any) -> Callable[[Any, Any], Any]:
        index, mean, deviation, low, high = items
        start = at(counter, index, stride)
        flip = (jnp.isinf(low) & (low < 0)) | (high < mean)
        low, high = jnp.where(flip, high, low), jnp.where(flip, low, high)
        deviation = jnp.where(flip, -deviation, deviation)
        near, far = (low - mean) / deviation, (high - mean) / deviation
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
                return [float_units(w) for w in words]
            return [double_units(*words[:2]), double_units(*words[2:])]

        def body(number: Any, state: Any) -> Any:
            done, result = state
            # The uniform sampler takes two steps a round: proposals, then the numbers that decide.
            first, second = units(jnp.where(by_uniform, 2 * number, number)), units(2 * number + 1)
            normals = [n for i in range(0, len(first), 2) for n in box_muller(first[i], first[i + 1])]
            for i, normal in enumerate(normals):
                proposal = first[i] * width + near
                take_uniform = second[i] <= jnp.exp((lift - proposal * proposal) / 2)
                z = jnp.where(by_normal, normal, proposal)
                take = jnp.where(by_normal, (normal >= near) & (normal <= far), take_uniform)
                if i % 2 == 0:
                    exponential = -jnp.log(first[i]) / steep + near
                    x = jnp.where(near < steep, steep - exponential, near - steep)
                    take_tail = (first[i + 1] <= jnp.exp(-x * x / 2)) & (exponential < far)
                else:
                    exponential, take_tail = z, jnp.zeros_like(take)
                by_tail = ~by_normal & ~by_uniform
                z, take = jnp.where(by_tail, exponential, z), jnp.where(by_tail, take_tail, take)
                take = take & ~done
                result = jnp.where(take, z * deviation + mean, result)
                done = done | take
            return done, result

        return body

    state = (~valid, jnp.full_like(mean, np.nan))
    return _until_done(rounds, (index, mean, deviation, low, high), state).astype(dtype)


@functools.partial(jax.jit, static_argnames="size")
def permutation(key: Any, counter: Any, size: int) -> Any:
    """Returns a permutation of ``size`` indices by Fisher and Yates's swaps, one word each.

    Step i swaps places i and j_i >= i. The swaps are not done one by one: place i ends with what lay at j_i before,
    which is what lay at place q before step q, for the last step q < i that chose the same place (else j_i itself).
    What lies at a place before its own step comes in turn from the last earlier step that chose it, and so on: these
    chains, which are short, are followed from all places at once.
    """
    order = lax.iota(np.int32, size)
    if size < 2:
        return order
    words = bits(key, counter, size - 1).reshape(-1)[: size - 1]
    left = np.uint32(size) - lax.iota(np.uint32, size - 1)
    # Steps in the order of the places that they choose, then their own; the last place chooses itself.
    falling, step = top_k(~order.at[:-1].add(lax.rem(words, left).astype(np.int32)), size)
    place = ~falling
    same = place[1:] == place[:-1]
    before = jnp.where(jnp.pad(same, (1, 0)), jnp.roll(step, 1), -1)
    source = jnp.where(step == place, before, step)
    last = jnp.where(jnp.pad(same, (0, 1)), size, place)
    chain = order.at[last].set(jnp.where(source < 0, place, source), mode="drop")

    def follow(state: Any) -> tuple[Any, Any]:
        further = state[0][state[0]]
        return further, jnp.any(further != state[0])

    content = while_loop(lambda state: state[1], follow, (chain, jnp.asarray(True)))[0]
    return order.at[step].set(jnp.where(before < 0, place, content[before]))


@jax.custom_jvp
def implicit_gamma(alpha: Any, sample: Any) -> Any:
    """Returns ``sample`` with the derivative by ``alpha`` that keeps its quantile (Figurnov et al., 2018)."""
    return sample


@implicit_gamma.defjvp
def _implicit_gamma_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    alpha, sample = primals
    work = np.dtype(np.float64 if sample.dtype == np.float64 else np.float32)
    sample = implicit_gamma(alpha, sample)  # so that a second derivative sees that it depends on alpha
    slope = random_gamma_grad(alpha.astype(work), sample.astype(work)).astype(sample.dtype)
    return sample, slope * tangents[0]


def _normal_cdf(x: Any) -> Any:
    return 0.5 * lax.erfc(-x * np.asarray(math.sqrt(0.5), x.dtype))


@jax.custom_jvp
def implicit_bounded_normal(sample: Any, parameters: tuple[Any, Any, Any, Any]) -> Any:
    """Returns ``sample`` with the derivatives by mean, deviation and bounds that keep its quantile."""
    return sample


@implicit_bounded_normal.defjvp
def _implicit_bounded_normal_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    sample, (mean, deviation, low, high) = primals
    d_mean, d_deviation, d_low, d_high = tangents[1]
    low, high, x = ((v - mean) / deviation for v in (low, high, sample))
    share = (_normal_cdf(x) - _normal_cdf(low)) / (_normal_cdf(high) - _normal_cdf(low))
    limits = jnp.finfo(sample.dtype)
    share = jnp.clip(share, limits.tiny, 1 - limits.eps)
    by_high = jnp.exp(0.5 * (x * x - high * high) + jnp.log(share))
    by_low = jnp.exp(0.5 * (x * x - low * low) + jnp.log1p(-share))
    return sample, d_mean + x * d_deviation + by_low * d_low + by_high * d_high
