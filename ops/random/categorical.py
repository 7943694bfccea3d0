"""Classes drawn at random: multinomial samples, and candidates for sampled losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import while_loop
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.static import canonical, static_value

from ._samplers import double_units, wide
from .philox import block, scramble, skip

_INT64 = np.dtype(np.int64)


def _multinomial(logits: Any, num_samples: Any, key: Any, counter: Any, dtype: Any) -> Any:
    """Returns classes by inverting the cumulative distribution of each row, in row-major order of the numbers."""
    logits, count = jnp.asarray(lax.stop_gradient(logits)), int(num_samples)
    if logits.ndim != 2:
        raise OpError(f"logits must be a matrix, got shape {logits.shape}")
    rows, classes = logits.shape
    if count < 0:
        raise OpError(f"num_samples must not be negative, got {count}")
    if isinstance(classes, int) and classes < 1:
        raise OpError("there must be at least one class")
    finite = jnp.isfinite(logits)
    work = logits.astype(wide())
    top = jnp.max(jnp.where(finite, work, -np.inf), axis=1, keepdims=True)
    cumulative = jnp.cumsum(jnp.where(finite, jnp.exp(work - top), 0), axis=1)
    position = lax.broadcasted_iota(np.uint32, (rows, count), 0) * np.uint32(count)
    position = position + lax.broadcasted_iota(np.uint32, (rows, count), 1)
    words = block(skip(counter, position >> np.uint32(1)), (key[0], key[1]))
    late = (position & np.uint32(1)) == 1
    units = double_units(jnp.where(late, words[2], words[0]), jnp.where(late, words[3], words[1]))
    wanted = units * cumulative[:, -1:]
    found = jax.vmap(lambda row, values: jnp.searchsorted(row, values, side="right"))(cumulative, wanted)
    return found.astype(canonical(dtype))


@op("StatelessMultinomial")
def stateless_multinomial(logits: Any, num_samples: Static, seed: Any, *, output_dtype: Any = _INT64) -> Any:
    """Samples classes by their logits; those that are not finite are never drawn. See tf.raw_ops.StatelessMultinomial.

    Bits are TensorFlow's while it computes all rows in one thread, as it does for one row, and for ``rows * (classes +
    samples * log2(classes))`` of up to some 4,200. Beyond, later rows' numbers depend on how many threads it has.
    """
    return _multinomial(logits, num_samples, *scramble(seed), output_dtype)


@op("Multinomial", needs_key=True)
def multinomial(
    logits: Any, num_samples: Static, *, seed: int = 0, seed2: int = 0, output_dtype: Any = _INT64, key: Any
) -> Any:
    """Samples classes by their logits; those that are not finite are never drawn. See tf.raw_ops.Multinomial."""
    words = jax.random.bits(key, (6,), np.uint32)
    return _multinomial(logits, num_samples, words[:2], words[2:], output_dtype)


def _expected_count(probability: Any, num_sampled: int, tries: Any) -> Any:
    """Returns how often a class comes up: exactly if no try failed, else as if the number of tries were always this."""
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
    """Returns sampled classes, and the expected counts of the true and of the sampled classes."""
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
    """Returns the first ``count`` different classes of a stream of draws, and how many draws they took."""

    def goes_on(state: Any) -> Any:
        return state[1] < count

    def step(state: Any) -> Any:
        found, filled, tries = state
        number = draw(jax.random.fold_in(key, tries), ())
        new = ~jnp.any((found == number) & (lax.iota(np.int32, count) < filled))
        found = jnp.where(new & (lax.iota(np.int32, count) == filled), number, found)
        return found, filled + new.astype(np.int32), tries + np.int32(1)

    zero = jnp.zeros((), np.int32)
    found, _, tries = while_loop(goes_on, step, (jnp.full((count,), -1, canonical(np.int64)), zero, zero))
    return found, tries


def _uniform_candidates(range_max: int) -> tuple[Any, Any]:
    def draw(key: Any, shape: tuple[int, ...]) -> Any:
        return jax.random.randint(key, shape, 0, range_max, canonical(np.int64))

    return draw, lambda classes: jnp.full(classes.shape, 1 / range_max, np.float32)


@op("UniformCandidateSampler", needs_key=True)
def uniform_candidate_sampler(
    true_classes: Any,
    *,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int = 0,
    seed2: int = 0,
    key: Any,
) -> tuple[Any, Any, Any]:
    """Draws classes, each as likely. See tf.raw_ops.UniformCandidateSampler."""
    return _candidates(true_classes, num_true, num_sampled, unique, range_max, *_uniform_candidates(range_max), key)


@op("LogUniformCandidateSampler", needs_key=True)
def log_uniform_candidate_sampler(
    true_classes: Any,
    *,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int = 0,
    seed2: int = 0,
    key: Any,
) -> tuple[Any, Any, Any]:
    """Draws classes, small ones more often, as words sorted by frequency. See tf.raw_ops.LogUniformCandidateSampler."""
    log_range = math.log1p(range_max)

    def draw(key: Any, shape: tuple[int, ...]) -> Any:
        number = jnp.exp(jax.random.uniform(key, shape, wide()) * np.asarray(log_range, wide()))
        return lax.rem(number.astype(canonical(np.int64)) - 1, jnp.full(shape, range_max, canonical(np.int64)))

    def probability(classes: Any) -> Any:
        value = classes.astype(wide())
        return (jnp.log((value + 2) / (value + 1)) / log_range).astype(np.float32)

    return _candidates(true_classes, num_true, num_sampled, unique, range_max, draw, probability, key)


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
        raise UnsupportedAttributeError("a vocabulary file is not read; give the weights as unigrams")
    if not len(unigrams):
        raise OpError("unigrams or a vocabulary file are needed")
    weights = np.asarray(unigrams, np.float32) ** np.float32(distortion)
    # The kernel numbers the words from the reserved ones of this shard on, not from all that are reserved.
    first = int(np.count_nonzero(np.arange(num_reserved_ids) % num_shards == shard))
    words = weights[(first + np.arange(len(weights))) % num_shards == shard]
    weights = np.concatenate([np.zeros(first, np.float32), words])
    if len(weights) != range_max:
        raise OpError(f"range_max is {range_max}, but there are {len(weights)} weights")
    return weights


@op("FixedUnigramCandidateSampler", needs_key=True)
def fixed_unigram_candidate_sampler(
    true_classes: Any,
    *,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: int = 0,
    seed2: int = 0,
    key: Any,
) -> tuple[Any, Any, Any]:
    """Draws classes by given weights; no vocabulary file. See tf.raw_ops.FixedUnigramCandidateSampler."""
    weights = _fixed_weights(range_max, vocab_file, unigrams, distortion, num_reserved_ids, num_shards, shard)
    if unique and num_sampled > np.count_nonzero(weights):
        raise OpError(f"too few classes have weight to draw {num_sampled} different ones")
    total = weights.sum(dtype=np.float32)
    cumulative = np.cumsum(weights / total, dtype=np.float32)

    def draw(key: Any, shape: tuple[int, ...]) -> Any:
        found = jnp.searchsorted(cumulative, jax.random.uniform(key, shape), side="right")
        return jnp.minimum(found, np.flatnonzero(weights)[-1]).astype(canonical(np.int64))

    def probability(classes: Any) -> Any:
        return jnp.asarray(weights / total)[classes]

    return _candidates(true_classes, num_true, num_sampled, unique, range_max, draw, probability, key)


@op("AllCandidateSampler")
def all_candidate_sampler(
    true_classes: Any, *, num_true: int, num_sampled: int, unique: bool, seed: int = 0, seed2: int = 0
) -> tuple[Any, Any, Any]:
    """Returns every class once. See tf.raw_ops.AllCandidateSampler."""
    true_classes = _checked_classes(true_classes, num_true, num_sampled)
    sampled = lax.iota(true_classes.dtype, num_sampled)
    return sampled, jnp.ones(true_classes.shape, np.float32), jnp.ones((num_sampled,), np.float32)


@op("ComputeAccidentalHits", dynamic_shape=True)
def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, *, num_true: int, seed: int = 0, seed2: int = 0, bound: int | None
) -> tuple[Any, Any, Any]:
    """Returns where sampled candidates are true classes: rows, places, and weights that no score outlives.

    Each true class meets one candidate at most (the last, if they repeat). So with traced values the results are as
    long as there are true classes; past the last hit, rows and places are -1, which scatters nowhere, and weights 0.
    See tf.raw_ops.ComputeAccidentalHits.
    """
    if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
        raise OpError(f"true_classes must be a matrix of {num_true} columns, got shape {true_classes.shape}")
    if sampled_candidates.ndim != 1:
        raise OpError(f"sampled_candidates must be a vector, got shape {sampled_candidates.shape}")
    weight = np.float32(np.finfo(np.float32).min)
    if isinstance(true_classes, np.ndarray) and isinstance(sampled_candidates, np.ndarray):
        position = {int(c): i for i, c in enumerate(sampled_candidates)}
        hits = [
            (row, position[int(c)]) for row, of_row in enumerate(true_classes) for c in of_row if int(c) in position
        ]
        rows, places = np.array(hits, np.int64).reshape(-1, 2).T
        return rows.astype(np.int32), places, np.full(len(hits), weight)
    wanted = lax.reshape(jnp.asarray(true_classes), (true_classes.shape[0] * num_true, 1))
    sampled = jnp.asarray(sampled_candidates)[None]
    position = lax.broadcasted_iota(np.int32, (1, sampled.shape[1]), 1)
    place = jnp.max(jnp.where(wanted == sampled, position, -1), axis=1, initial=-1)
    order = jnp.argsort(place < 0, stable=True)  # hits come first, in their order
    place = place[order]
    row = jnp.where(place < 0, -1, (order // max(num_true, 1)).astype(np.int32))
    weights = jnp.where(place < 0, np.float32(0), weight)
    results = row, place.astype(canonical(np.int64)), weights
    if bound is None:
        return results
    fills = (-1, -1, 0)
    return tuple(_of_length(result, bound, fill) for result, fill in zip(results, fills, strict=True))  # type: ignore[return-value]


def _of_length(vector: Any, length: int, fill: int) -> Any:
    return jnp.concatenate([vector, jnp.full((length,), fill, vector.dtype)])[:length]
