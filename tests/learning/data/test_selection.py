"""Samplers that simulate devices."""

import numpy as np
import pytest

from tf2jax_lite.errors import DataError
from tf2jax_lite.learning import data

CLIENTS = data.InMemoryFederatedData({i: {"y": np.zeros(i + 1, np.int32)} for i in range(12)})


def ids(sampler, rounds):
    return [[client_id for client_id, *_ in sampler.sample()] for _ in range(rounds)]


def test_clients_are_drawn_while_they_are_available():
    def make(start=0):
        return data.AvailabilitySampler(CLIENTS, 3, 0, lambda i, number: i % 2 == number % 2, start)

    cohorts = ids(make(), 6)
    assert all(len(set(cohort)) == 3 and {i % 2 for i in cohort} == {n % 2} for n, cohort in enumerate(cohorts))
    assert ids(make(2), 4) == cohorts[2:] and len({str(c) for c in cohorts}) > 4
    few = data.AvailabilitySampler(CLIENTS, 3, 0, lambda i, number: i < 2)
    assert sorted(ids(few, 1)[0]) == [0, 1]
    assert ids(data.AvailabilitySampler(CLIENTS, 3, 0, lambda i, number: 0.0), 1) == [[]]
    shares = [len(cohort) for cohort in ids(data.AvailabilitySampler(CLIENTS, 12, 0, lambda i, n: 0.25), 100)]
    assert abs(np.mean(shares) - 3) < 0.6


def test_candidates_with_the_largest_losses_are_taken():
    losses = {i: float(i) for i in range(12)} | {5: np.inf, 3: np.nan}
    sampler = data.PowerOfChoiceSampler(CLIENTS, 3, 0, 12, losses.__getitem__)
    assert set(ids(sampler, 1)[0]) == {3, 5, 11}
    fewer = data.PowerOfChoiceSampler(CLIENTS, 2, 0, 6, losses.__getitem__)
    cohorts = ids(fewer, 8)
    assert len({str(c) for c in cohorts}) > 2
    fewer.set_round_num(3)
    assert ids(fewer, 1) == cohorts[3:4]


@pytest.mark.parametrize(("deadline", "kept", "seconds"), [(None, {0, 1, 2}, 3.0), (2.5, {0, 1}, 2.5)])
def test_late_clients_are_dropped(deadline, kept, seconds):
    """One example takes a second; a round ends with the third answer."""
    every = data.UniformGetClientSampler(CLIENTS, 12, 0)
    sampler = data.DeadlineSampler(every, 3, lambda client_id, count, rng: count, deadline)
    for number in range(2):
        cohort = sampler.sample()
        assert {client_id for client_id, dataset, _ in cohort if dataset is not None} == kept
        assert len(cohort) == 12 and sampler.seconds == seconds and sampler.round_num == number + 1


def test_latencies_are_drawn_by_round():
    def make():
        every = data.UniformGetClientSampler(CLIENTS, 12, 0)
        return data.DeadlineSampler(every, 3, data.lognormal_latency(1.0, 1.0), seed=4)

    def kept(sampler):
        return sorted(client_id for client_id, dataset, _ in sampler.sample() if dataset is not None)

    first, second = make(), make()
    rounds = [kept(first) for _ in range(4)]
    second.set_round_num(2)
    assert kept(second) == rounds[2] and len({str(r) for r in rounds}) > 1 and all(len(r) == 3 for r in rounds)


@pytest.mark.parametrize(
    "call",
    [
        lambda: data.PowerOfChoiceSampler(CLIENTS, 3, 0, 2, float),
        lambda: data.PowerOfChoiceSampler(CLIENTS, 3, 0, 13, float),
        lambda: data.DeadlineSampler(data.UniformGetClientSampler(CLIENTS, 3, 0), 0, lambda *a: 1.0),
        lambda: data.DeadlineSampler(data.UniformGetClientSampler(CLIENTS, 3, 0), 1, lambda *a: 1.0, 0.0),
        lambda: data.AvailabilitySampler(CLIENTS, 3, 0, lambda i, number: 2.0).sample(),
    ],
)
def test_refusals(call):
    with pytest.raises(DataError):
        call()
