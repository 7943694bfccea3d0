"""Stateful random ops of TF1, drawn from the node's JAX key; Multinomial ops.

Seeds are ignored: TensorFlow's bits depend on the state of its kernels. Gamma, Poisson, bounded normal, full-range
integers and shuffle use the Philox samplers with a Philox key drawn from the JAX key; the others are JAX's samplers.

TF: core/kernels/random_op.cc, core/kernels/random_poisson_op.cc, core/kernels/multinomial_op.cc.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims

from ._samples import double_dtype, full_int, size, uint64_to_double
from .philox import block, from_jax_key, scramble, skip
from .stateless import draw_bounded_normal, draw_gamma, draw_poisson, permutation

_INT64 = np.dtype(np.int64)


def _register(name: str, draw: Callable[..., Any]) -> None:
    @op(name)
    def call(shape: Static, *, dtype, seed=0, seed2=0, key: Key):
        """Draw numbers by ``draw``, with JAX's bits."""
        return draw(key, shape=dims(shape), dtype=canonical(dtype))


_register("RandomUniform", jax.random.uniform)
_register("RandomStandardNormal", jax.random.normal)
_register("TruncatedNormal", functools.partial(jax.random.truncated_normal, lower=-2.0, upper=2.0))


@op("RandomUniformInt")
def random_uniform_int(shape: Static, minval, maxval, *, seed=0, seed2=0, key: Key):
    """Draw uniform integers in [minval, maxval)."""
    return jax.random.randint(key, dims(shape), minval, maxval, jnp.asarray(minval).dtype)


@op("RandomShuffle")
def random_shuffle(value, *, seed=0, seed2=0, key: Key):
    """Shuffle along the first dimension.

    TF: core/kernels/random_shuffle_op.cc.
    """
    value = jnp.asarray(value)
    if value.ndim == 0:
        return value
    return jnp.take(value, permutation(*from_jax_key(key), size(value.shape[:1])[1]), axis=0)


def _full_shape(shape: Any, parameter: Any) -> np.ndarray:
    return np.array((*dims(shape), *jnp.shape(parameter)))


@op("RandomGamma")
def random_gamma(shape: Static, alpha, *, seed=0, seed2=0, key: Key):
    """Draw gamma samples with an implicit derivative with respect to alpha."""
    return draw_gamma(_full_shape(shape, alpha), *from_jax_key(key), alpha)


@op("RandomPoissonV2")
def random_poisson_v2(shape: Static, rate, *, dtype=_INT64, seed=0, seed2=0, key: Key):
    """Draw Poisson samples."""
    return draw_poisson(_full_shape(shape, rate), *from_jax_key(key), rate, dtype)


@op("RandomPoisson")
def random_poisson(shape: Static, rate, *, seed=0, seed2=0, key: Key):
    """Draw Poisson samples of the rates' dtype."""
    return draw_poisson(_full_shape(shape, rate), *from_jax_key(key), rate, rate.dtype)


@op("NonDeterministicInts", int64="pair")
def non_deterministic_ints(shape: Static, *, dtype=_INT64, key: Key):
    """Draw integers from the full range of the dtype.

    TF: core/kernels/stateful_random_ops.cc.

    They are deterministic for a given key.
    """
    return full_int(shape, *from_jax_key(key), dtype)


@op("ParameterizedTruncatedNormal")
def parameterized_truncated_normal(shape: Static, means, stdevs, minvals, maxvals, *, seed=0, seed2=0, key: Key):
    """Draw normal samples within bounds, with parameters for each row.

    TF: core/kernels/parameterized_truncated_normal_op.cc.

    Invalid parameters return NaN, as on GPUs, where TensorFlow's CPU kernel raises an error. Derivatives are 0, as
    TensorFlow has none.

    Args:
      means: scalar or [shape[0]].
      stdevs: scalar or [shape[0]], standard deviations.
      minvals: scalar or [shape[0]], lower bounds.
      maxvals: scalar or [shape[0]], upper bounds.
    """
    sizes, _ = size(shape)
    if not sizes:
        raise OpError("the shape must have a first dimension, for the parameters")
    parameters = []
    for name, value in (("means", means), ("stdevs", stdevs), ("minvals", minvals), ("maxvals", maxvals)):
        value = lax.stop_gradient(jnp.asarray(value))
        if value.ndim > 1 or (value.ndim == 1 and value.shape[0] not in (1, sizes[0])):
            raise OpError(f"{name} must be a scalar or a vector of {sizes[0]}, got shape {value.shape}")
        parameters.append(jnp.broadcast_to(value.reshape(-1, *[1] * (len(sizes) - 1)), sizes))
    return draw_bounded_normal(shape, *from_jax_key(key), parameters)


def _multinomial(logits: Any, num_samples: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Return classes by inverting cumulative distributions, as multinomial_op.cc."""
    logits, count = jnp.asarray(lax.stop_gradient(logits)), int(num_samples)
    if logits.ndim != 2:
        raise OpError(f"logits must be a matrix, got shape {logits.shape}")
    rows, num_classes = logits.shape
    if count < 0:
        raise OpError(f"num_samples must not be negative, got {count}")
    if isinstance(num_classes, int) and num_classes < 1:
        raise OpError("there must be at least one class")
    finite = jnp.isfinite(logits)
    work = logits.astype(double_dtype())
    top = jnp.max(jnp.where(finite, work, -np.inf), axis=1, keepdims=True)
    cumulative = jnp.cumsum(jnp.where(finite, jnp.exp(work - top), 0), axis=1)
    position = lax.broadcasted_iota(np.uint32, (rows, count), 0) * np.uint32(count)
    position = position + lax.broadcasted_iota(np.uint32, (rows, count), 1)
    words = block(skip(counter, position >> np.uint32(1)), (key[0], key[1]))
    second = (position & np.uint32(1)) == 1
    units = uint64_to_double(jnp.where(second, words[2], words[0]), jnp.where(second, words[3], words[1]))
    targets = units * cumulative[:, -1:]
    classes = jax.vmap(lambda row, values: jnp.searchsorted(row, values, side="right"))(cumulative, targets)
    return classes.astype(canonical(dtype))


@op("StatelessMultinomial")
def stateless_multinomial(logits, num_samples: Static, seed, *, output_dtype=_INT64):
    """Sample classes by logits, with TensorFlow's bits.

    Classes with logits that are not finite are never sampled.

    Bits are TensorFlow's as long as it computes all rows in one thread: for one row, and for ``rows * (classes +
    samples * log2(classes))`` up to about 4,200. Beyond, later rows depend on its number of threads.
    """
    return _multinomial(logits, num_samples, *scramble(seed), output_dtype)


@op("Multinomial")
def multinomial(logits, num_samples: Static, *, seed=0, seed2=0, output_dtype=_INT64, key: Key):
    """Sample classes by logits, from the node's JAX key.

    Classes with logits that are not finite are never sampled.
    """
    return _multinomial(logits, num_samples, *from_jax_key(key), output_dtype)


@op("RandomCrop")
def random_crop(image, size: Static, *, seed=0, seed2=0, key: Key):
    """Crop an image at a random position.

    Returns:
      [size[0], size[1], channels].
    """
    image, wanted = jnp.asarray(image), dims(size)
    if image.ndim != 3 or len(wanted) != 2:
        raise OpError(f"a size of height and width and an image of rank 3 are needed, not {list(wanted)}, {image.ndim}")
    for axis, (length, part) in enumerate(zip(image.shape, wanted, strict=False)):
        if isinstance(part, int) and (part < 0 or (isinstance(length, int) and part > length)):
            raise OpError(f"a size of {list(wanted)} does not fit into an image of {tuple(image.shape[:2])}")
        start = jax.random.randint(jax.random.fold_in(key, axis), (), 0, jnp.asarray(length - part + 1))
        image = lax.dynamic_slice_in_dim(image, start, part, axis)
    return image
