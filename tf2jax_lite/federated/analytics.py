"""Statistics of clients' data: counts, histograms, quantiles, heavy hitters.

Each is a sum of a vector of every client, exact by default. A ``summation`` makes it private or secure: a function from
the L2 norm that a client's vector has at most to a factory of sums, such as `private_sum` returns. The vectors are of
clients, so that privacy is a client's.

Sources: tff.analytics; Zhu et al. 2020, "Federated Heavy Hitters Discovery with Differential Privacy" (the trie);
Honaker 2015 (the tree of histograms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators.base import Factory
from tf2jax_lite.federated.aggregators.privacy import DifferentiallyPrivateFactory, aggregation_key
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data.examples import numpy_rng
from tf2jax_lite.learning.process import ClientUpdates
from tf2jax_lite.support.errors import InputError

__all__ = ["count_clients", "heavy_hitters", "histogram", "private_sum", "quantiles"]

Summation = Callable[[float], Factory]
_CHUNK = 64  # clients that are added at a time
_END = 256  # behind the last byte of an item
_INTEGER = 8  # bytes of one


def private_sum(noise_multiplier: float) -> Summation:
    """Return the summation with Gaussian noise of that many norms.

    Args:
      noise_multiplier: standard deviation of the noise over the norm; see `gaussian_epsilon`. A histogram counts as one
        round, quantiles as one for each of their levels, and heavy hitters for each byte; all clients take part.
    """
    return lambda norm: DifferentiallyPrivateFactory(noise_multiplier, 1.0, norm)


def _total(vectors: Iterable[np.ndarray], size: int, norm: float, summation: Summation | None) -> np.ndarray:
    """Return the sum of vectors (size,), float64."""
    if summation is None:
        total = np.zeros(size)
        for vector in vectors:
            total += vector
        return total
    process = summation(norm).create(jax.ShapeDtypeStruct((size,), jnp.float32))
    state, key = process.initialize(), aggregation_key(process, jax.random.key(0))
    step, rows = jax.jit(process.accumulate), list(vectors)
    accumulator = process.zero(state, max(len(rows), 1))
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        index = np.arange(start, start + _CHUNK, dtype=np.int32)
        block = np.zeros((_CHUNK, size), np.float32)
        block[: len(chunk)] = chunk
        mask = index < len(rows)
        updates = ClientUpdates(block, np.ones(_CHUNK, np.float32), mask, np.where(mask, index, 0))
        accumulator = step(state, accumulator, updates, key)
    return np.asarray(jax.jit(process.report)(state, accumulator, key).result, np.float64)


def _records(values: Any, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return at most ``most`` of a client's values, drawn at random."""
    found = np.asarray(values).reshape(-1)
    return found if len(found) <= most else found[rng.choice(len(found), most, replace=False)]


def count_clients(clients: Iterable[Any], *, summation: Summation | None = None) -> float:
    """Return the number of clients that have data.

    Args:
      clients: each client's values.
      summation: see the module; the norm is 1.
    """
    return float(_total((np.array([float(len(values) > 0)]) for values in clients), 1, 1.0, summation)[0])


def histogram(
    clients: Iterable[Any],
    lower: float,
    upper: float,
    num_bins: int,
    *,
    max_records_per_client: int = 1,
    summation: Summation | None = None,
    seed: Any = 0,
) -> np.ndarray:
    """Return the numbers of values in bins of equal width, float64 (num_bins,).

    See tff.analytics.histogram_processing.

    Args:
      clients: each client's values, numbers.
      lower: the least of the first bin; smaller values count there.
      upper: the largest of the last bin; larger values count there.
      num_bins: how many bins.
      max_records_per_client: that many of a client's values, drawn at random, count.
      summation: see the module; the norm is ``max_records_per_client``.
      seed: of the draws.

    Raises:
      InputError: a number is out of range.
    """
    _check_bins(lower, upper, num_bins, max_records_per_client)
    rng = numpy_rng(seed)

    def counted(values: Any) -> np.ndarray:
        return np.bincount(
            _bins(_records(values, max_records_per_client, rng), lower, upper, num_bins), minlength=num_bins
        )

    return _total(map(counted, clients), num_bins, float(max_records_per_client), summation)


def _check_bins(lower: float, upper: float, num_bins: int, records: int) -> None:
    check_number("histogram", "lower", lower)
    check_number("histogram", "upper", upper, above=lower)
    check_number("histogram", "num_bins", num_bins, least=1, whole=True)
    check_number("histogram", "max_records_per_client", records, least=1, whole=True)


def _bins(values: np.ndarray, lower: float, upper: float, num_bins: int) -> np.ndarray:
    kept = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    found = np.floor((np.clip(kept, lower, upper) - lower) * (num_bins / (upper - lower)))
    return np.clip(found, 0, num_bins - 1).astype(np.int64)


def quantiles(
    clients: Iterable[Any],
    shares: Sequence[float],
    lower: float,
    upper: float,
    *,
    levels: int = 10,
    max_records_per_client: int = 1,
    summation: Summation | None = None,
    seed: Any = 0,
) -> np.ndarray:
    """Return quantiles of the clients' values, to within the width of a bin.

    A tree of histograms, of 2, 4, 8, ... bins, bounds the noise of any range by its logarithm.

    Args:
      clients: each client's values, numbers.
      shares: in [0, 1]; 0.5 for the median.
      lower: see `histogram`.
      upper: see `histogram`.
      levels: how many histograms; the last has 2**levels bins.
      max_records_per_client: see `histogram`.
      summation: see the module; the norm of a level's histogram is ``max_records_per_client``.
      seed: see `histogram`.

    Returns:
      float64, one for each share.

    Raises:
      InputError: a number is out of range.
    """
    check_number("quantiles", "levels", levels, least=1, most=20, whole=True)
    for share in shares:
        check_number("quantiles", "a share", share, least=0, most=1)
    given = list(clients)
    trees = [
        histogram(
            given,
            lower,
            upper,
            2**level,
            max_records_per_client=max_records_per_client,
            summation=summation,
            seed=seed,  # the same values in each level
        )
        for level in range(1, levels + 1)
    ]
    return np.array([_descend(trees, share, lower, upper) for share in shares])


def _descend(trees: list[np.ndarray], share: float, lower: float, upper: float) -> float:
    """Return the value below which a share of a tree's counts is."""
    rest, node = share * max(trees[0].sum(), 0.0), 0
    for counts in trees:
        node *= 2
        left = max(counts[node], 0.0)
        if rest > left:
            rest, node = rest - left, node + 1
    last = max(trees[-1][node], 0.0)
    inside = min(max(rest / last, 0.0), 1.0) if last else 0.5
    return lower + (upper - lower) * (node + inside) / len(trees[-1])


def heavy_hitters(
    clients: Iterable[Iterable[Any]],
    threshold: float,
    *,
    max_items_per_client: int = 1,
    max_length: int = 16,
    summation: Summation | None = None,
    seed: Any = 0,
) -> dict[Any, float]:
    """Return items that many clients have, with the numbers of these clients.

    A trie grows byte by byte: in each step clients count, for their items that begin with a prefix that is left, the
    next byte; prefixes of fewer clients than the threshold go. No item of fewer clients leaves them, and the exact
    sum finds all others. See tff.analytics.heavy_hitters.

    Args:
      clients: each client's items, all text or bytes, or all integers from 0 to 2**63 - 1 (of hashes, say).
      threshold: the least number of clients, above 0. With noise, some standard deviations of it.
      max_items_per_client: that many of a client's different items, drawn at random, count.
      max_length: of an item in bytes; longer ones are cut off.
      summation: see the module; the norm of a step's vector is ``max_items_per_client``.
      seed: of the draws.

    Returns:
      Item to number, the most frequent first.

    Raises:
      InputError: a number is out of range, or items are neither text nor integers.
    """
    check_number("heavy_hitters", "threshold", threshold, above=0)
    check_number("heavy_hitters", "max_items_per_client", max_items_per_client, least=1, whole=True)
    check_number("heavy_hitters", "max_length", max_length, least=1, whole=True)
    rng, kinds = numpy_rng(seed), set[type]()
    every = [sorted({_encoded(item, kinds) for item in items}) for items in clients]
    if len(kinds) > 1:
        raise InputError("heavy_hitters: items are all text, all bytes, or all integers.")
    longest = _INTEGER if kinds == {int} else max_length
    owned = []
    for different in every:
        chosen = rng.permutation(len(different))[:max_items_per_client]
        owned.append(sorted({different[index][:longest] for index in chosen}))
    found: dict[bytes, float] = {}
    prefixes = [b""]
    for length in range(longest + 1):
        if not prefixes:
            break
        row_of = {prefix: number for number, prefix in enumerate(prefixes)}

        def votes(items: list[bytes], row_of: dict[bytes, int] = row_of, length: int = length) -> np.ndarray:
            vector = np.zeros((len(row_of), _END + 1))
            for item in items:
                number = row_of.get(item[:length]) if len(item) >= length else None
                if number is not None:
                    vector[number, item[length] if len(item) > length else _END] += 1
            return vector.reshape(-1)

        size = len(prefixes) * (_END + 1)
        total = _total(map(votes, owned), size, float(max_items_per_client), summation).reshape(-1, _END + 1)
        found |= {prefixes[row]: total[row, _END] for row in np.flatnonzero(total[:, _END] >= threshold)}
        kept = np.argwhere(total[:, :_END] >= threshold)
        prefixes = [prefixes[row] + bytes([byte]) for row, byte in kept]
    (kind,) = kinds or {bytes}
    ordered = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return {_decoded(item, kind): float(count) for item, count in ordered}


def _encoded(item: Any, kinds: set[type]) -> bytes:
    """Return an item as bytes; integers in eight, the most significant first."""
    if isinstance(item, str | bytes):
        kinds.add(type(item))
        return item.encode() if isinstance(item, str) else item
    if isinstance(item, int | np.integer) and not isinstance(item, bool) and 0 <= item < 1 << 63:
        kinds.add(int)
        return int(item).to_bytes(_INTEGER, "big")
    raise InputError(f"heavy_hitters: an item is text, bytes, or an integer from 0 to 2**63 - 1; not {item!r:.80}")


def _decoded(item: bytes, kind: type) -> Any:
    if kind is int:
        return int.from_bytes(item, "big")
    return item.decode(errors="replace") if kind is str else item
