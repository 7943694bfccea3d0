"""Candidate samplers for sampled losses, such as sampled softmax and NCE.

Classes are drawn with or without replacement.

TF: core/kernels/candidate_sampler_ops.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import row_capacity, truncate_rows
from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.common.rows import nonzero
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound, Key
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.static import canonical, static_value

from ._samples import double_dtype


def _expected_count(probability: Any, num_sampled: int, tries: Any) -> Any:
    """Return classes' expected count, as ExpectedCountHelper of range_sampler.cc."""
    exact = probability * np.float32(num_sampled)
    rejecting = -jnp.expm1(tries.astype(np.float32) * jnp.log1p(-probability))
    return jnp.where(tries == num_sampled, exact, rejecting)


def _checked_classes(true_classes: Any, num_true: int, range_max: int) -> Any:
    classes = jnp.asarray(true_classes)
    if classes.ndim != 2 or classes.shape[1] != num_true:
        raise OpError(f"true_classes must be a matrix of {num_true} columns, got shape {classes.shape}")
    values = static_value(true_classes)
    if values is not None and np.any((values < 0) | (values >= range_max)):
        raise OpError(f"true_classes must be in [0, {range_max})")
    return classes


def _candidates(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    draw: Callable[[Any, tuple[int, ...]], Any],
    probability: Callable[[Any], Any],
    key: Any,
) -> tuple[Any, Any, Any]:
    """Return sampled classes, and expected counts of true and sampled classes."""
    true_classes = _checked_classes(true_classes, num_true, range_max)
    if range_max <= 0:
        raise OpError("range_max must be positive")
    if unique and num_sampled > range_max:
        raise OpError(f"{range_max} classes are too few to draw {num_sampled} different ones")
    if unique:
        sampled, tries = _distinct(draw, num_sampled, key)
    else:
        sampled, tries = draw(key, (num_sampled,)), jnp.asarray(num_sampled, np.int32)
    sampled = sampled.astype(true_classes.dtype)
    counts = (_expected_count(probability(c), num_sampled, tries) for c in (true_classes, sampled))
    return (sampled, *counts)


def _distinct(draw: Callable[[Any, tuple[int, ...]], Any], count: int, key: Any) -> tuple[Any, Any]:
    """Return the first ``count`` different classes of draws, and the number of draws."""

    def step(state: Any) -> Any:
        classes, size, tries = state
        candidate = draw(jax.random.fold_in(key, tries), ())
        is_new = ~jnp.any((classes == candidate) & (lax.iota(np.int32, count) < size))
        classes = jnp.where(is_new & (lax.iota(np.int32, count) == size), candidate, classes)
        return classes, size + is_new.astype(np.int32), tries + np.int32(1)

    zero = jnp.zeros((), np.int32)
    start = (jnp.full((count,), -1, canonical(np.int64)), zero, zero)
    classes, _, tries = while_loop(lambda state: state[1] < count, step, start)
    return classes, tries


def _uniform_candidates(range_max: int) -> tuple[Any, Any]:
    def draw(key: Any, shape: tuple[int, ...]) -> Any:
        return jax.random.randint(key, shape, 0, range_max, canonical(np.int64))

    return draw, lambda classes: jnp.full(classes.shape, 1 / range_max, np.float32)


def _log_uniform_candidates(range_max: int) -> tuple[Any, Any]:
    """Return draws by Zipf's law, as ids of words by frequency, and probabilities."""
    log_range = math.log1p(range_max)

    def draw(key: Any, shape: tuple[int, ...]) -> Any:
        number = jnp.exp(jax.random.uniform(key, shape, double_dtype()) * np.asarray(log_range, double_dtype()))
        return lax.rem(number.astype(canonical(np.int64)) - 1, jnp.full(shape, range_max, canonical(np.int64)))

    def probability(classes: Any) -> Any:
        value = classes.astype(double_dtype())
        return (jnp.log((value + 2) / (value + 1)) / log_range).astype(np.float32)

    return draw, probability


def _register(name: str, candidates: Callable[[int], tuple[Any, Any]]) -> None:
    @op(name)
    def call(true_classes, *, num_true, num_sampled, unique, range_max, seed=0, seed2=0, key: Key):
        """Sample classes by the distribution of ``candidates``.

        Results are the classes, and the expected counts of the true and of the sampled classes.
        """
        return _candidates(true_classes, num_true, num_sampled, unique, range_max, *candidates(range_max), key)


_register("UniformCandidateSampler", _uniform_candidates)
_register("LogUniformCandidateSampler", _log_uniform_candidates)


def _fixed_weights(
    range_max: int,
    vocab_file: str,
    unigrams: Any,
    distortion: float,
    num_reserved_ids: int,
    num_shards: int,
    shard: int,
) -> np.ndarray:
    if vocab_file:
        raise UnsupportedAttributeError("vocab_file is not supported; pass the weights as unigrams")
    if not len(unigrams):
        raise OpError("unigrams or a vocabulary file are needed")
    weights = np.asarray(unigrams, np.float32) ** np.float32(distortion)
    # The kernel numbers the words from the reserved ids of this shard, not from all reserved ids.
    first = int(np.count_nonzero(np.arange(num_reserved_ids) % num_shards == shard))
    words = weights[(first + np.arange(len(weights))) % num_shards == shard]
    weights = np.concatenate([np.zeros(first, np.float32), words])
    if len(weights) != range_max:
        raise OpError(f"range_max is {range_max}, but there are {len(weights)} weights")
    return weights


@op("FixedUnigramCandidateSampler")
def fixed_unigram_candidate_sampler(
    true_classes,
    *,
    num_true,
    num_sampled,
    unique,
    range_max,
    vocab_file="",
    distortion=1.0,
    num_reserved_ids=0,
    num_shards=1,
    shard=0,
    unigrams=(),
    seed=0,
    seed2=0,
    key: Key,
):
    """Sample classes by given weights; vocab_file is not supported.

    Results are the classes, and the expected counts of the true and of the sampled classes.
    """
    weights = _fixed_weights(range_max, vocab_file, unigrams, distortion, num_reserved_ids, num_shards, shard)
    if unique and num_sampled > np.count_nonzero(weights):
        raise OpError(f"fewer than {num_sampled} classes have a positive weight")
    total = weights.sum(dtype=np.float32)
    cumulative = np.cumsum(weights / total, dtype=np.float32)

    def draw(key: Any, shape: tuple[int, ...]) -> Any:
        classes = jnp.searchsorted(cumulative, jax.random.uniform(key, shape), side="right")
        return jnp.minimum(classes, np.flatnonzero(weights)[-1]).astype(canonical(np.int64))

    def probability(classes: Any) -> Any:
        return jnp.asarray(weights / total)[classes]

    return _candidates(true_classes, num_true, num_sampled, unique, range_max, draw, probability, key)


@op("AllCandidateSampler")
def all_candidate_sampler(true_classes, *, num_true, num_sampled, unique, seed=0, seed2=0):
    """Return each class once."""
    true_classes = _checked_classes(true_classes, num_true, num_sampled)
    sampled = lax.iota(true_classes.dtype, num_sampled)
    return sampled, jnp.ones(true_classes.shape, np.float32), jnp.ones((num_sampled,), np.float32)


@op("ComputeAccidentalHits")
def compute_accidental_hits(true_classes, sampled_candidates, *, num_true, seed=0, seed2=0, bound: Bound):
    """Find sampled candidates that are true classes.

    Each true class matches at most one candidate (the last, if they repeat), so that there are at most as many
    hits as ``true_classes``.

    Returns:
      int32 rows, int64 positions in ``sampled_candidates``, and float32 weights, the lowest finite float.
    """
    if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
        raise OpError(f"true_classes must be a matrix of {num_true} columns, got shape {true_classes.shape}")
    if sampled_candidates.ndim != 1:
        raise OpError(f"sampled_candidates must be a vector, got shape {sampled_candidates.shape}")
    weight = np.float32(np.finfo(np.float32).min)
    if isinstance(true_classes, np.ndarray) and isinstance(sampled_candidates, np.ndarray):
        position = {int(c): i for i, c in enumerate(sampled_candidates)}
        hits = [(row, position[int(c)]) for row, ids in enumerate(true_classes) for c in ids if int(c) in position]
        rows, positions = np.array(hits, np.int64).reshape(-1, 2).T
        return rows.astype(np.int32), positions, np.full(len(hits), weight)
    flat_classes = lax.reshape(jnp.asarray(true_classes), (true_classes.shape[0] * num_true, 1))
    sampled = jnp.asarray(sampled_candidates)[None]
    index = lax.broadcasted_iota(np.int32, (1, sampled.shape[1]), 1)
    position = jnp.max(jnp.where(flat_classes == sampled, index, -1), axis=1, initial=-1)
    found = position >= 0
    size = row_capacity(bound, position.shape[0], "the number of accidental hits depends on traced values")
    hits = nonzero(found, size, position.shape[0])
    (hits,) = truncate_rows(bound, lambda: jnp.count_nonzero(found), hits, of=(position,))
    position = position.at[hits].get(mode="fill", fill_value=-1).astype(canonical(np.int64))
    row = jnp.where(position < 0, -1, (hits // max(num_true, 1)).astype(np.int32))
    return row, position, jnp.where(position < 0, np.float32(0), weight)
