"""Cohorts depend on seed and round number, with the stated chances."""

import itertools

import jax
import numpy as np
import pytest

from tf2jax_lite.errors import DataError
from tf2jax_lite.learning import data

NUM = 12
CLIENTS = data.InMemoryFederatedData({f"{i:02d}": {"y": np.zeros(i, np.int32)} for i in range(NUM)})
SAMPLERS = {
    "uniform": lambda seed, start=0: data.UniformGetClientSampler(CLIENTS, 4, seed, start),
    "weighted": lambda seed, start=0: data.WeightedSampler(CLIENTS, 4, seed, start_round_num=start),
    "replaced": lambda seed, start=0: data.WeightedSampler(CLIENTS, 4, seed, start_round_num=start, replace=True),
    "poisson": lambda seed, start=0: data.PoissonSampler(CLIENTS, 4, seed, start),
    "shuffled": lambda seed, start=0: data.UniformShuffledClientSampler(
        lambda: CLIENTS.shuffled_clients(5, seed), 4, start, seed
    ),
    "iterator": lambda seed, start=0: data.UniformShuffledClientSampler(
        iter(list(itertools.islice(CLIENTS.shuffled_clients(5, seed), 80))), 4, start, seed
    ),
}


def _rounds(sampler, count):
    return [
        [(i, len(dataset), jax.random.key_data(key).tolist()) for i, dataset, key in sampler.sample()]
        for _ in range(count)
    ]


@pytest.mark.full
@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_a_round_depends_on_seed_and_number_alone(make):
    rounds = _rounds(make(7), 6)
    assert _rounds(make(7), 6) == rounds
    assert _rounds(make(7, 3), 3) == rounds[3:]
    jumping = make(7)
    jumping.set_round_num(4)
    assert jumping.round_num == 4
    assert _rounds(jumping, 1) == rounds[4:5]
    assert jumping.round_num == 5
    assert _rounds(make(8), 6) != rounds
    assert len({str(cohort) for cohort in rounds}) == 6


@pytest.mark.parametrize("name", ["uniform", "weighted", "replaced", "poisson", "shuffled"])
def test_going_back(name):
    sampler = SAMPLERS[name](3)
    rounds = _rounds(sampler, 5)
    sampler.set_round_num(1)
    assert _rounds(sampler, 4) == rounds[1:]


def test_an_iterator_cannot_go_back_and_ends():
    sampler = SAMPLERS["iterator"](3)
    _rounds(sampler, 2)
    with pytest.raises(DataError, match="cannot go back"):
        sampler.set_round_num(1)
    sampler.set_round_num(20)
    with pytest.raises(DataError, match="round 20: the iterator of clients has ended"):
        sampler.sample()


def test_keys_differ_between_clients_and_rounds():
    keys = [tuple(key) for cohort in _rounds(SAMPLERS["uniform"](0), 10) for _, _, key in cohort]
    assert len(set(keys)) == 40


@pytest.mark.parametrize("seed", [jax.random.key(5), jax.random.PRNGKey(5), [1, 2], np.uint32(3)])
def test_seeds_may_be_keys(seed):
    assert _rounds(SAMPLERS["uniform"](seed), 2) == _rounds(SAMPLERS["uniform"](seed), 2)


def test_shuffled_has_every_client_once_before_any_again():
    drawn = [i for cohort in _rounds(SAMPLERS["shuffled"](1), 3 * 4) for i, _, _ in cohort]
    for start in range(0, 48, NUM):
        assert sorted(drawn[start : start + NUM]) == list(CLIENTS.client_ids())


def _frequencies(sampler, rounds):
    counts = np.zeros(NUM)
    for _ in range(rounds):
        for index in (int(i) for i, _ in sampler._draw(sampler.round_num)):  # without the keys, which take long
            counts[index] += 1
        sampler.set_round_num(sampler.round_num + 1)
    return counts / rounds


@pytest.mark.full
def test_uniform_chances():
    """A client's probability is 4/12; 5 standard deviations of 3,000: 0.043."""
    frequencies = _frequencies(SAMPLERS["uniform"](0), 3000)
    np.testing.assert_allclose(frequencies, 4 / NUM, atol=0.043)


@pytest.mark.full
def test_weighted_chances_with_replacement():
    weights = np.arange(NUM) / np.arange(NUM).sum()
    np.testing.assert_allclose(_frequencies(SAMPLERS["replaced"](0), 3000), 4 * weights, atol=0.09)


def test_each_client_has_a_coin_of_its_own():
    """Sizes have the variance of independent coins, and some cohorts are empty."""
    sampler = data.PoissonSampler(CLIENTS, 1, 0)
    cohorts = [[client_id for client_id, *_ in sampler.sample()] for _ in range(400)]
    sizes = np.array([len(cohort) for cohort in cohorts])
    share = 1 / NUM
    assert abs(sizes.mean() - 1) < 0.2 and abs(sizes.var() - NUM * share * (1 - share)) < 0.35
    assert abs((sizes == 0).mean() - (1 - share) ** NUM) < 0.1
    assert all(len(set(cohort)) == len(cohort) for cohort in cohorts)


@pytest.mark.full
def test_weighted_chances_without_replacement():
    """Drawn one by one: two of three clients with weights 1, 2, 5."""
    three = data.InMemoryFederatedData({str(i): {"y": np.zeros(1)} for i in range(3)})
    p = np.array([1, 2, 5]) / 8
    expected = [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(3) if j != i) for i in range(3)]
    for weights in ({"0": 1, "1": 2, "2": 5}, lambda i: [1, 2, 5][int(i)]):
        sampler = data.WeightedSampler(three, 2, 0, weights)
        np.testing.assert_allclose(_frequencies(sampler, 3000)[:3], expected, atol=0.045)


def test_clients_without_weight_are_never_drawn():
    assert _frequencies(SAMPLERS["weighted"](0), 200)[0] == 0  # client 00 has no examples


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: data.UniformGetClientSampler(CLIENTS, 13, 0), "cannot be drawn from 12"),
        (lambda: data.UniformGetClientSampler(CLIENTS, 0, 0), "num_clients"),
        (lambda: data.UniformGetClientSampler(CLIENTS, 2, -1), "seed"),
        (lambda: data.UniformGetClientSampler(CLIENTS, 2, 0, -1), "round"),
        (lambda: data.PoissonSampler(CLIENTS, 13, 0), "cannot be expected from 12"),
        (lambda: data.WeightedSampler(CLIENTS, 12, 0), "11 have a weight > 0"),
        (lambda: data.WeightedSampler(CLIENTS, 2, 0, {"00": 1}), "lack 11 clients"),
        (lambda: data.WeightedSampler(CLIENTS, 2, 0, lambda i: -1), ">= 0"),
        (lambda: data.WeightedSampler(CLIENTS, 2, 0, lambda i: np.nan), "finite"),
        (lambda: data.WeightedSampler(CLIENTS, 2, 0, lambda i: "x"), "numbers"),
        (lambda: data.WeightedSampler(CLIENTS, 2, 0, 5), "a dict from client id to weight or a function"),
        (lambda: CLIENTS.shuffled_clients(0), "buffer_size"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(DataError, match=match):
        call()


@pytest.mark.parametrize("scale", [1e308, 1e-308, 5e-324])
def test_weights_of_any_size(scale):
    """Their sum may be more than the largest number."""
    weights = dict.fromkeys(CLIENTS.client_ids(), scale)
    cohorts = [
        [client_id for client_id, *_ in data.WeightedSampler(CLIENTS, 4, 0, weights=given).sample()]
        for given in (weights, dict.fromkeys(weights, 1.0))
    ]
    assert cohorts[0] == cohorts[1]


@pytest.mark.full
def test_a_chance_that_vanishes_beside_another_is_none():
    weights = dict.fromkeys(CLIENTS.client_ids(), 1e-308) | {"03": 1e308}
    assert data.WeightedSampler(CLIENTS, 1, 0, weights=weights).sample()[0][0] == "03"
    with pytest.raises(DataError, match="1 have a weight > 0"):
        data.WeightedSampler(CLIENTS, 2, 0, weights=weights)
