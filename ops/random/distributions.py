"""Stateless gamma, Poisson, binomial and bounded normal variables, as TensorFlow's CPU kernels draw them."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

from ._fill import check_algorithm, size, state
from ._samplers import binomial, bounded_normal, gamma, implicit_bounded_normal, implicit_gamma, poisson
from .philox import scramble

__all__ = ["draw_binomial", "draw_bounded_normal", "draw_gamma", "draw_poisson"]

_INT64 = np.dtype(np.int64)


def _layout(shape: Any, parameters: list[Any]) -> tuple[tuple[int, ...], Any, list[Any]]:
    """Returns the shape as ints, the number of each sample's stream, and each sample's parameters, flat.

    Kernels number samples with those of one parameter next to each other, although they lie apart in the result.
    """
    wanted, total = size(shape)
    parameters = [jnp.asarray(p) for p in parameters]
    try:
        inner = np.broadcast_shapes(*(p.shape for p in parameters))
    except ValueError as error:
        shapes = ", ".join(str(p.shape) for p in parameters)
        raise OpError(f"parameters of shapes {shapes} do not broadcast") from error
    if len(inner) > len(wanted) or wanted[len(wanted) - len(inner) :] != inner:
        raise OpError(f"shape {wanted} does not end with the parameters' shape {inner}")
    batch = math.prod(inner)
    each = total // batch if batch else 0
    grid = (each, batch)
    index = lax.broadcasted_iota(np.uint32, grid, 1) * np.uint32(each) + lax.broadcasted_iota(np.uint32, grid, 0)
    flat = [jnp.broadcast_to(jnp.broadcast_to(p, inner).reshape(1, batch), grid).reshape(-1) for p in parameters]
    return wanted, index.reshape(-1), flat


def draw_gamma(shape: Any, key: Any, counter: Any, alpha: Any) -> Any:
    """Returns gamma variables whose derivative by ``alpha`` keeps their quantile."""
    wanted, index, (alpha,) = _layout(shape, [alpha])
    sample = gamma(key, counter, lax.stop_gradient(alpha), index).astype(alpha.dtype)
    return implicit_gamma(alpha, sample).reshape(wanted)


def draw_poisson(shape: Any, key: Any, counter: Any, rate: Any, dtype: Any) -> Any:
    """Returns Poisson variables."""
    wanted, index, (rate,) = _layout(shape, [lax.stop_gradient(rate)])
    dtype = canonical(dtype)
    inexact = jnp.issubdtype(dtype, jnp.floating)
    highest = jnp.finfo(dtype).max if inexact else jnp.iinfo(dtype).max
    drawn = poisson(key, counter, rate, index, float(highest))
    if not inexact:  # of an infinite rate the kernel makes 0
        drawn = jnp.where(jnp.isfinite(drawn), drawn, jnp.zeros_like(drawn))
    return drawn.astype(dtype).reshape(wanted)


def draw_binomial(shape: Any, key: Any, counter: Any, counts: Any, probs: Any, dtype: Any) -> Any:
    """Returns binomial variables."""
    wanted, index, (counts, probs) = _layout(shape, [lax.stop_gradient(counts), lax.stop_gradient(probs)])
    return binomial(key, counter, counts, probs, index).astype(canonical(dtype)).reshape(wanted)


def draw_bounded_normal(shape: Any, key: Any, counter: Any, parameters: list[Any]) -> Any:
    """Returns normal variables within bounds; the parameters are mean, deviation, lower and upper bound."""
    wanted, index, flat = _layout(shape, parameters)
    dtype = flat[0].dtype
    # A worker that begins with this sample skips so many steps: 1000 rounds of two numbers for each one before it.
    stride = 2 * 1000 // (2 if dtype == np.float64 else 4)
    mean, deviation, low, high = flat
    fixed = (lax.stop_gradient(mean), lax.stop_gradient(deviation), lax.stop_gradient(low), lax.stop_gradient(high))
    sample = bounded_normal(key, counter, index, stride, dtype, fixed)
    return implicit_bounded_normal(sample, (mean, deviation, low, high)).reshape(wanted)


@op("StatelessRandomGammaV2", words="whole")
def stateless_random_gamma_v2(shape: Static, seed: Any, alpha: Any) -> Any:
    """Gamma variables with a derivative by alpha. See tf.raw_ops.StatelessRandomGammaV2."""
    return draw_gamma(shape, *scramble(seed), alpha)


@op("StatelessRandomGammaV3", words="whole")
def stateless_random_gamma_v3(shape: Static, key: Any, counter: Any, alg: Static, alpha: Any) -> Any:
    """Gamma variables with a derivative by alpha. See tf.raw_ops.StatelessRandomGammaV3."""
    check_algorithm(alg)
    return draw_gamma(shape, *state(key, counter), alpha)


@op("StatelessRandomPoisson", words="whole")
def stateless_random_poisson(shape: Static, seed: Any, lam: Any, *, dtype: Any) -> Any:
    """Poisson variables. See tf.raw_ops.StatelessRandomPoisson."""
    return draw_poisson(shape, *scramble(seed), lam, dtype)


@op("StatelessRandomBinomial", words="whole")
def stateless_random_binomial(shape: Static, seed: Any, counts: Any, probs: Any, *, dtype: Any = _INT64) -> Any:
    """Binomial variables. See tf.raw_ops.StatelessRandomBinomial."""
    return draw_binomial(shape, *scramble(seed), counts, probs, dtype)


@op("StatelessParameterizedTruncatedNormal", words="whole")
def stateless_parameterized_truncated_normal(
    shape: Static, seed: Any, means: Any, stddevs: Any, minvals: Any, maxvals: Any
) -> Any:
    """Normal variables within bounds. See tf.raw_ops.StatelessParameterizedTruncatedNormal.

    TensorFlow draws all that one thread computes from one stream, so that its numbers depend on its threads. Here each
    has a stream of its own: the first number is TensorFlow's, the others have the same distribution; float16 is drawn
    as float32. Bad parameters give NaN, as on GPUs, where TensorFlow's CPU kernel raises an error.
    """
    return draw_bounded_normal(shape, *scramble(seed), [means, stddevs, minvals, maxvals])
