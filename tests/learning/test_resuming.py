"""Interrupted training has the uninterrupted one's state and history."""

import functools
import tempfile
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.federated import workload
from tf2jax_lite.federated.aggregators import robust_aggregator
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.learning.checkpoints import CheckpointFile
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.loop import run_rounds

ROUNDS = 6
CLIENTS = [ClientDataset(c) for c in workload.make_clients(6, seed=1, low=5, high=9, shape=(4,), classes=3)]


class Stopped(Exception):
    """Stands for the end of the process."""


@functools.cache
def process():
    """Return a process with clients', the aggregator's and the server's state."""
    return build_weighted_fed_avg(
        workload.jax_logistic(4, 3),
        optax.sgd(0.5),
        optax.sgd(1.0, momentum=0.9),
        aggregator=robust_aggregator(),
        client_batching=ShuffleRepeatBatchHParams(batch_size=10),
    )


def train(stops=(), **options):
    """Run to the end, with stops before some rounds; return state and history."""
    for stop in (*stops, None):

        def clients(number, stop=stop):
            if number == stop:
                raise Stopped
            return [CLIENTS[i] for i in workload.cohort(number, 6, 3)]

        try:
            state, history = run_rounds(process(), clients, ROUNDS, key=jax.random.key(3), **options)
        except Stopped:
            continue
        assert stop is None
    return jax.device_get(jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))), history


@functools.cache
def whole():
    return train()


@pytest.mark.full
@given(stops=st.lists(st.integers(0, ROUNDS - 1), min_size=1, max_size=3).map(sorted), every=st.integers(1, ROUNDS))
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
def test_training_resumed_at_any_round_has_the_same_bits(stops, every):
    expected, history = whole()
    with tempfile.TemporaryDirectory() as folder:
        kept = {"metrics_file": Path(folder) / "m.jsonl", "checkpoint_every": every}
        found, resumed = train(stops, checkpoint_dir=CheckpointFile(Path(folder) / "c"), **kept)
    assert resumed == history and len(history) == ROUNDS
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
