"""Initial centers for k-means: k-means++ and KMC2, random as TensorFlow's.

Kernel: clustering_ops.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import scan
from tf2jax_lite.ops.random._samples import double_dtype, uint32_to_float
from tf2jax_lite.ops.random.philox import bits
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.int64 import U64, to_u32_pair
from tf2jax_lite.values.static import canonical


def _stream(key: Any, count: int) -> Any:
    """Return the first words of the generator with a key."""
    return bits(key, jnp.zeros((4,), np.uint32), count).reshape(-1)[:count]


@functools.partial(jax.jit, static_argnames=("count", "tries"))
def _sample_centers(points: Any, key: Any, *, count: int, tries: int) -> Any:
    """Draw k-means++ points, with probability by squared distance from earlier ones."""
    number = points.shape[0]
    words = _stream(key, tries * (count + 1))
    pairs = words[: 2 * tries].reshape(tries, 2)
    first = (U64(pairs[:, 0], pairs[:, 1]) % number).low.astype(np.int32)
    units = uint32_to_float(words[2 * tries :]).reshape(count - 1, tries)
    half = jnp.sum(points * points, axis=1) / 2

    def best(nearest: Any, candidates: Any) -> tuple[Any, Any]:
        chosen = points[candidates]
        product = lax.dot_general(chosen, points, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
        distances = jnp.minimum(nearest, half - product + half[candidates, None])
        closest = jnp.argmin(distances.sum(axis=1))
        return distances[closest], candidates[closest]

    def step(nearest: Any, unit: Any) -> tuple[Any, Any]:
        sums = jnp.cumsum(nearest.astype(double_dtype()))
        index = jnp.searchsorted(sums, unit.astype(sums.dtype) * sums[-1]).astype(np.int32)
        return best(nearest, jnp.minimum(index, number - 1))

    nearest, start = best(jnp.full((number,), np.inf, points.dtype), first)
    _, others = scan(step, nearest, units)
    return points[jnp.concatenate([start[None], others])]


@op("KmeansPlusPlusInitialization", int64="pair")
def kmeans_plus_plus_initialization(points, num_to_sample: Static, seed, num_retries_per_sample: Static):
    """Draw initial centers by k-means++.

    Sums are in another order than TensorFlow's: a draw at the boundary between two points may give the other one.

    Args:
      points: ``[n, dim]``, float32, n static.
      num_to_sample: scalar int in ``[1, n]``, the number of centers.
      num_retries_per_sample: candidates for each center - 1, of which the best is taken; negative: 2 + log of the
        number of centers.
    """
    points, count, retries = jnp.asarray(points), int(num_to_sample), int(num_retries_per_sample)
    if points.ndim != 2:
        raise OpError(f"points are the rows of a matrix, got shape {points.shape}")
    number = points.shape[0]
    if not isinstance(number, int):
        raise OpError("the number of points must be static")
    if not 0 < count <= number:
        raise OpError(f"num_to_sample must be between 1 and the number of points, {number}, got {count}")
    tries = 1 + (2 + int(math.log(count)) if retries < 0 else retries)
    return _sample_centers(points, jnp.asarray(to_u32_pair(seed)), count=count, tries=tries)


@jax.jit
def _walk_chain(distances: Any, key: Any) -> Any:
    """Walk the Markov chain of KMC2 and return its last index."""
    number = distances.shape[0]
    units = uint32_to_float(_stream(key, number - 1)) if number > 1 else jnp.zeros((0,), np.float32)

    def step(state: Any, each: Any) -> tuple[Any, None]:
        index, here = state
        candidate, there, unit = each
        moves = there > unit * here
        return (jnp.where(moves, candidate, index), jnp.where(moves, there, here)), None

    candidates = (jnp.arange(1, number, dtype=np.int32), distances[1:], units)
    (index, _), _ = scan(step, (jnp.zeros((), np.int32), distances[0]), candidates)
    return index


@op("KMC2ChainInitialization", int64="pair")
def kmc2_chain_initialization(distances, seed):
    """Return the index at the end of a Markov chain over points.

    Args:
      distances: ``[n]``, float32, static n > 0: squared distances of candidate points.
    """
    distances = jnp.asarray(distances)
    if distances.ndim != 1 or not isinstance(distances.shape[0], int) or not distances.shape[0]:
        raise OpError(f"distances must be a vector of static length, got shape {distances.shape}")
    return _walk_chain(distances, jnp.asarray(to_u32_pair(seed))).astype(canonical(np.int64))


@op("NearestNeighbors")
def nearest_neighbors(points, centers, k: Static):
    """Return the k nearest centers of each point, and squared distances.

    TF: core/kernels/clustering_ops.cc.

    Args:
      k: static int, the number of centers for each point; at most all are returned.

    Returns:
      int64 indices and float distances, [points, min(k, centers)].
    """
    points, centers = jnp.asarray(points), jnp.asarray(centers)
    if points.ndim != 2 or centers.ndim != 2:
        raise OpError(f"matrices are needed, not ranks {points.ndim} and {centers.ndim}")
    if int(k) <= 0:
        raise OpError("k must be positive")
    product = lax.dot_general(points, centers, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
    norms = jnp.sum(centers * centers, 1)[None, :] + jnp.sum(points * points, 1)[:, None]
    nearest, index = lax.top_k(2 * product - norms, min(int(k), centers.shape[0]))
    return index.astype(canonical(np.int64)), jnp.maximum(-nearest, 0)
