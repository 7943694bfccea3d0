"""Epsilons against the hockey-stick divergence of the mechanism, by quadrature."""

import math

import numpy as np
import pytest
from scipy import stats

from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg

pytest.importorskip("dp_accounting")


def mixture(x, centers, shares, noise):
    return sum(share * stats.norm.pdf(x, center, noise) for center, share in zip(centers, shares, strict=True))


def true_delta(epsilon, noise, share, sampling):
    """Return the least delta of one round, the worst of both directions.

    A client that takes part by its own coin adds its norm or not; of exchanged clients one adds it, and the other
    subtracts it. The others' updates are 0.
    """
    x = np.linspace(-4 - 40 * noise, 4 + 40 * noise, 1_000_001)
    with_one = mixture(x, (0, 1), (1 - share, share), noise)
    if sampling == "poisson":
        pairs = [(with_one, stats.norm.pdf(x, 0, noise)), (stats.norm.pdf(x, 0, noise), with_one)]
    else:
        pairs = [(with_one, mixture(x, (0, -1), (1 - share, share), noise))]
    return max(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x) for p, q in pairs)


@pytest.mark.parametrize("sampling", ["poisson", "fixed_size"])
@pytest.mark.parametrize("case", range(6))
def test_no_round_costs_less_than_it_does(case, sampling):
    """Of random noise, shares, and of all clients."""
    rng = np.random.default_rng([case, len(sampling)])
    noise, clients = float(rng.uniform(0.5, 4)), int(rng.integers(2, 200))
    count = clients if case < 2 else int(rng.integers(1, clients + 1))
    delta = float(10 ** rng.uniform(-8, -3))
    epsilon = agg.gaussian_epsilon(noise, 1, count, clients, delta, sampling)
    assert true_delta(epsilon, noise, count / clients, sampling) <= delta


@pytest.mark.parametrize(("sampling", "sensitivity"), [("poisson", 1), ("fixed_size", 2)])
@pytest.mark.parametrize("rounds", [1, 50])
def test_all_clients_in_all_rounds_are_one_gaussian_mechanism(rounds, sampling, sensitivity):
    """Its exact epsilon is known (Balle and Wang, 2018); Renyi accounting adds little."""
    noise, delta = 6.0, 1e-5
    found = agg.gaussian_epsilon(noise, rounds, 20, 20, delta, sampling)
    effective = noise / sensitivity / math.sqrt(rounds)

    def excess(epsilon):
        a, b = 1 / (2 * effective) - epsilon * effective, -1 / (2 * effective) - epsilon * effective
        return stats.norm.cdf(a) - math.exp(epsilon) * stats.norm.cdf(b)

    assert excess(found) <= delta < excess(0.75 * found)


def test_a_part_of_a_client_is_not_drawn():
    with pytest.raises(InputError, match="clients_per_round is an integer at least 1"):
        agg.gaussian_epsilon(1.0, 1, 2.5, 10, 1e-5, "fixed_size")
