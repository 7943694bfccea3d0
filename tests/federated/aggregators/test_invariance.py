"""Aggregates depend on included clients alone.

Chunks, merge order, masked rows and the scale of weights do not matter.

Chunks are padded to one size, so that each aggregation compiles its functions once for all examples.
"""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.aggregators.base import NAMED
from tf2jax_lite.learning.process import ClientUpdates

from .cohort import TEMPLATE, N, make

SLOTS = 4
KEY = jax.random.key(7)
QUANTILE = agg.QuantileEstimation(3.0, 0.5, 0.2)
FACTORIES = {
    "sum": agg.SumFactory(),
    "mean": agg.MeanFactory(),
    "unweighted mean": agg.UnweightedMeanFactory(),
    "clipping": agg.ClippingFactory(3.0),
    "adaptive clipping": agg.ClippingFactory(QUANTILE),
    "zeroing": agg.ZeroingFactory(QUANTILE, agg.UnweightedMeanFactory()),
    "screening": agg.ScreeningFactory(),
    "median": agg.CoordinateMedianFactory(),
    "trimmed mean": agg.TrimmedMeanFactory(0.2),
    "krum": agg.KrumFactory(1, num_selected=2),
    "geometric median": agg.GeometricMedianFactory(),
    "private": agg.DifferentiallyPrivateFactory(0.5, 7.0, QUANTILE),
    "private at each client": agg.LocalDpFactory(0.5, 7.0),
    "rounded": agg.CompressionFactory(agg.UniformQuantizer(4)),
    "rotated": agg.CompressionFactory(agg.RotatedUniformQuantizer(4)),
    "drive": agg.CompressionFactory(agg.Drive()),
    "ternary": agg.CompressionFactory(agg.TernGrad()),
    "gamma": agg.CompressionFactory(agg.EliasGamma(0.1)),
    "largest": agg.CompressionFactory(agg.TopK(0.5)),
    "robust": agg.robust_aggregator(),
    "secure sum": agg.SecureSumFactory(8.0),
    "secure mean": agg.secure_aggregator(40.0, zeroing=False, clipping=False),
}
NAMES = list(FACTORIES)
# The secure mean, which is last, rounds products of weights and updates to the steps of its bound.
SCALED = NAMES[:-1]


def kind(factory):
    """Return the classes of a factory, and of its codec."""
    return type(factory), type(getattr(factory, "codec", None))


def test_each_aggregator_of_the_command_line_is_among_these():
    tested = {kind(factory) for factory in FACTORIES.values()}
    assert [name for name, make in NAMED.items() if kind(make()) not in tested] == []


POISON = (np.nan, np.inf, -np.inf, 3e38, -1.0)


class Aggregation:
    """The compiled functions of one aggregation."""

    def __init__(self, name):
        self.process = FACTORIES[name].create(TEMPLATE)
        self.state = self.process.initialize()
        self.step, self.report = jax.jit(self.process.accumulate), jax.jit(self.process.report)
        self.merge = jax.jit(self.process.merge)

    def fold(self, updates, chunks):
        """Return the accumulator of chunks of clients."""
        found = self.process.zero(self.state, N)
        for chunk in chunks:
            found = self.step(self.state, found, padded(updates, chunk), KEY)
        return found

    def aggregate(self, updates):
        """Return the aggregate and the state after one pass over all clients in order."""
        return self.result(self.fold(updates, [(0, 1, 2, 3), (4, 5, 6, 7), (8,)]))

    def result(self, accumulator):
        """Return aggregate and state, without measurements that count padding."""
        found = self.report(self.state, accumulator, KEY)
        return jax.device_get((found.result, found.state))


aggregation = functools.cache(Aggregation)


def padded(updates, chunk):
    """Return a chunk as `SLOTS` rows; those beyond it are masked NaN."""
    rows = np.array([*chunk, *[0] * (SLOTS - len(chunk))])
    empty = np.arange(SLOTS) >= len(chunk)

    def leaf(x):
        return np.where(empty.reshape(-1, *[1] * (x.ndim - 1)), np.float32(np.nan), x[rows])

    return updates._replace(
        update=jax.tree.map(leaf, updates.update),
        weight=leaf(updates.weight),
        mask=updates.mask[rows] & ~empty,
        index=np.where(empty, 0, updates.index[rows]).astype(np.int32),
    )


def close(found, expected, rtol=2e-5, atol=4e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, expected)


@st.composite
def merges(draw):
    """Draw chunks for several accumulators, and pairs of these to merge."""
    order, devices = draw(st.permutations(range(N))), [[]]
    while order:
        size = draw(st.integers(1, SLOTS))
        if devices[-1] and draw(st.booleans()):
            devices.append([])
        devices[-1].append(tuple(order[:size]))
        order = order[size:]
    pairs = [draw(st.permutations(range(count)))[:2] for count in range(len(devices), 1, -1)]
    return devices, pairs


@pytest.mark.default_cases("screening", "largest")
@pytest.mark.parametrize("name", NAMES)
@given(plan=merges())
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
def test_merging_in_any_order_and_chunking_gives_one_aggregate(name, plan):
    devices, pairs = plan
    process, updates = aggregation(name), make()
    parts = [process.fold(updates, chunks) for chunks in devices]
    for a, b in pairs:
        merged = process.merge(parts[a], parts[b])
        parts = [part for i, part in enumerate(parts) if i not in (a, b)] + [merged]
    close(process.result(parts[0]), process.aggregate(updates))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), mask=st.lists(st.booleans(), min_size=N, max_size=N))
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
def test_masked_clients_have_no_influence(name, data, mask):
    """It holds bit for bit, for masked NaN, infinity, or copies of a client."""
    mask = np.array(mask)
    update, weight = jax.tree.map(np.nan_to_num, make()[:2])
    clean = ClientUpdates(update, weight, mask, np.arange(N, dtype=np.int32))

    def poison(x):
        value = np.float32(data.draw(st.sampled_from(POISON)))
        return np.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, value)

    poisoned = clean._replace(
        update=jax.tree.map(poison, update),
        weight=poison(weight),
        index=np.where(mask, clean.index, data.draw(st.integers(-1, N))).astype(np.int32),
    )
    process = aggregation(name)
    jax.tree.map(np.testing.assert_array_equal, process.aggregate(poisoned), process.aggregate(clean))


@pytest.mark.full
@pytest.mark.parametrize("name", SCALED)
@given(factor=st.floats(1e-3, 1e3))
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
def test_weights_times_a_factor_give_the_same_aggregate(name, factor):
    updates = make()
    process = aggregation(name)
    scaled = updates._replace(weight=(updates.weight * factor).astype(np.float32))
    close(process.aggregate(scaled), process.aggregate(updates))
