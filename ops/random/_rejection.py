"""Gamma, Poisson, binomial and bounded normal samples by rejection.

They are TensorFlow's, number by number as its CPU kernels. The kernels give each output its own range of the counter,
so that results do not depend on how the work is split. Here all outputs are sampled at once, in a loop that ends when
all are accepted.

The kernels compute in double precision. Without JAX's 64-bit mode it is single precision here, from the leading bits of
the same numbers: samples agree to about six digits, except where a rejection is decided otherwise.

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
from tf2jax_lite.xla_cpu.materialize import materialize

from ._normal import box_muller
from ._uniform import double_dtype, uint32_to_float, uint64_to_double
from .philox import at, block, skip

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
    """Return gamma samples by Marsaglia and Tsang's rejection.

    As core/kernels/stateless_random_gamma_op.cc.

    Args:
      alpha: float [n], the shape parameter of each sample.

    Returns:
      `double_dtype` [n]; NaN where alpha is NaN or below -2/3.
    """
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
    """Return Poisson samples.

    Knuth's product of uniforms below a rate of 10, else Hörmann's rejection.

    Returns:
      `double_dtype` [n]; infinite for an infinite rate; NaN for NaN, for which TensorFlow's kernel does not terminate.
    """
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
    """Return binomial samples.

    Sums of geometric variables if the mean is below 10, else Hörmann's BTRS.

    Args:
      counts: [n], the number of trials of each sample.

    Returns:
      `double_dtype` [n]; NaN where a parameter is NaN.
    """
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
    """Return ``sample`` with its implicit derivative with respect to ``alpha``.

    Figurnov et al., 2018.
    """
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
    """Return ``sample`` with its implicit derivatives.

    They are with respect to mean, deviation and bounds.
    """
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
